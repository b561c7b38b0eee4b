//! The text of messages: what is sent, built once per request, and what an event that came says about its response.

use api::responses::{Event, EventKind};
use serde_json::{Value, json};

use crate::chat::ChatBody;
use crate::error::ClientError;
use crate::options::WireApi;

/// Events that end a response. `response.cancelled` is not in the specification, but some servers send it.
const ENDS: [&str; 4] = ["response.completed", "response.incomplete", "response.failed", "response.cancelled"];

/// The body of a request, serialised once however often it is sent.
#[derive(Debug)]
pub(crate) struct Body {
    json: String,
    /// Whether the server keeps the response, so that a broken stream can be resumed.
    pub store: bool,
    /// Whether the response outlives its reader.
    pub background: bool,
    /// False only warms the server up, which HTTP has no word for.
    pub generate: bool,
    /// The response it continues: best asked for on the connection that produced it.
    pub previous: Option<String>,
    /// The same as a chat request, where that is what the server speaks.
    pub chat: Option<ChatBody>,
}

impl Body {
    /// Takes what a caller asks for, without the fields that belong to the transport.
    pub fn new(request: Value, wire_api: WireApi) -> Result<Self, ClientError> {
        let Value::Object(mut fields) = request else {
            return Err(ClientError::Options { message: "a request must be a JSON object".to_owned() });
        };
        for name in ["type", "stream", "stream_id"] {
            fields.remove(name);
        }
        if wire_api == WireApi::Chat {
            let chat = Some(ChatBody::new(fields)?);
            return Ok(Self {
                json: String::new(),
                store: false,
                background: false,
                generate: true,
                previous: None,
                chat,
            });
        }
        let flag = |name: &str, default| fields.get(name).and_then(Value::as_bool).unwrap_or(default);
        let (store, background, generate) = (flag("store", true), flag("background", false), flag("generate", true));
        let previous = fields.get("previous_response_id").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { json: Value::Object(fields).to_string(), store, background, generate, previous, chat: None })
    }

    /// As a message on a WebSocket.
    pub fn for_socket(&self, lane: Option<&str>) -> String {
        let lane = lane.map(|lane| format!(r#","stream_id":"{lane}""#)).unwrap_or_default();
        self.after(&format!(r#""type":"response.create"{lane}"#))
    }

    /// As the body of a streaming request.
    pub fn for_sse(&self) -> String {
        self.after(r#""stream":true"#)
    }

    /// As the body of a request for the whole response.
    pub fn whole(&self) -> String {
        self.json.clone()
    }

    fn after(&self, fields: &str) -> String {
        let rest = &self.json[1..];
        let comma = if rest == "}" { "" } else { "," };
        format!("{{{fields}{comma}{rest}")
    }
}

/// Stops what runs on a lane. Without the response's name: a steered one may have a successor we have not heard of.
pub(crate) fn cancel(lane: Option<&str>) -> String {
    on_lane(json!({"type": "response.cancel"}), lane)
}

/// Redirects a running response.
pub(crate) fn steer(lane: Option<&str>, response_id: &str, input: Value) -> String {
    on_lane(json!({"type": "response.steer", "previous_response_id": response_id, "input": input}), lane)
}

fn on_lane(mut message: Value, lane: Option<&str>) -> String {
    if let Some(lane) = lane {
        message["stream_id"] = lane.into();
    }
    message.to_string()
}

/// Reads one event. What is not JSON is skipped, as every client of this protocol does.
pub(crate) fn read_event(text: &str) -> Option<Event> {
    if text == "[DONE]" {
        return None;
    }
    let event = serde_json::from_str(text);
    event
        .inspect_err(|error| tracing::debug!(%error, bytes = text.len(), "skipped a message that is not an event"))
        .ok()
}

/// Whether an event ends its response, also when it has a form of another provider.
pub(crate) fn is_end(kind: &EventKind) -> bool {
    match kind {
        EventKind::Other(value) => value["type"].as_str().is_some_and(|name| ENDS.contains(&name)),
        kind => kind.ended().is_some(),
    }
}

/// Whether an event begins a response.
pub(crate) fn is_start(kind: &EventKind) -> bool {
    match kind {
        EventKind::Created { .. } => true,
        EventKind::Other(value) => value["type"] == "response.created",
        _ => false,
    }
}

/// The response an event speaks of, where it says so.
pub(crate) fn response_id(kind: &EventKind) -> Option<&str> {
    let id = match kind {
        EventKind::Created { response }
        | EventKind::Queued { response }
        | EventKind::InProgress { response }
        | EventKind::Completed { response }
        | EventKind::Incomplete { response }
        | EventKind::Failed { response } => response.id.as_str(),
        EventKind::Other(value) => value["response"]["id"].as_str().unwrap_or_default(),
        _ => "",
    };
    (!id.is_empty()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(request: Value) -> Result<Body, ClientError> {
        Body::new(request, WireApi::Responses)
    }

    #[test]
    fn a_body_serves_every_transport() {
        let body =
            body_of(json!({"model": "m", "stream": false, "store": false, "previous_response_id": "r"})).unwrap();
        assert!(!body.store);
        assert_eq!(body.previous.as_deref(), Some("r"));
        let parse = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        let rest = json!({"model": "m", "store": false, "previous_response_id": "r"});
        let with = |extra: Value| {
            let mut all = rest.clone();
            all.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            all
        };
        assert_eq!(parse(body.for_socket(None)), with(json!({"type": "response.create"})));
        assert_eq!(parse(body.for_socket(Some("c1"))), with(json!({"type": "response.create", "stream_id": "c1"})));
        assert_eq!(parse(body.for_sse()), with(json!({"stream": true})));
        assert_eq!(parse(body.whole()), rest);
        assert_eq!(parse(body_of(json!({})).unwrap().for_sse()), json!({"stream": true}));
        assert!(body_of(json!([])).is_err());
    }

    #[test]
    fn the_end_is_found_in_any_provider_s_form() {
        let cases = [
            (r#"{"type":"response.completed","response":{"id":"r"}}"#, true, Some("r")),
            (r#"{"type":"response.completed","response":{"id":"r","top_p":"odd"}}"#, true, Some("r")),
            (r#"{"type":"response.created","response":{"id":"r"}}"#, false, Some("r")),
            (r#"{"type":"response.output_text.delta","delta":"x"}"#, false, None),
            (r#"{"type":"keepalive"}"#, false, None),
        ];
        for (text, end, id) in cases {
            let event = read_event(text).unwrap();
            assert_eq!((is_end(&event.kind), response_id(&event.kind)), (end, id), "{text}");
        }
        assert!(read_event("[DONE]").is_none() && read_event("{").is_none());
    }
}
