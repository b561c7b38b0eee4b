//! The chunks of a chat completion as events of a response.
//!
//! One item is open at a time, as in the Responses API: what a new kind of delta opens closes the one before. The last event
//! waits for the usage, which comes in a chunk of its own after the end, or for the end of the stream.

use std::collections::VecDeque;
use std::sync::Arc;

use api::responses::{Event, EventKind, OutputItem, OutputText, Response, Status};
use serde_json::{Value, json};

/// Reads one answer.
#[derive(Debug)]
pub(crate) struct ChatReader {
    custom: Vec<String>,
    response: Response,
    started: bool,
    /// Why the answer is over, once it is.
    finish: Option<String>,
    ended: bool,
    open: Option<Open>,
    sequence: u64,
    ready: VecDeque<Event>,
}

/// The item being written.
#[derive(Debug)]
enum Open {
    Text(String),
    Thought(String),
    Call { index: u64, call_id: String, name: String, arguments: String },
}

impl ChatReader {
    /// A reader that gives calls of these tools back as free text.
    pub fn new(custom: Vec<String>) -> Self {
        let response = Response { store: false, ..Response::default() };
        Self {
            custom,
            response,
            started: false,
            finish: None,
            ended: false,
            open: None,
            sequence: 0,
            ready: VecDeque::new(),
        }
    }

    /// The next event.
    pub fn pop(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Takes the data of one server-sent event. What is not JSON is skipped, as every client of this protocol does.
    pub fn push(&mut self, data: &str) {
        if data.trim() == "[DONE]" {
            self.end_of_stream();
            return;
        }
        let Ok(chunk) = serde_json::from_str::<Value>(data) else { return };
        if self.ended {
            return;
        }
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            self.fail(error);
            return;
        }
        self.start(&chunk);
        // One answer was asked for; a second would be a provider's mistake.
        if let Some(choice) = chunk["choices"].as_array().and_then(|choices| choices.first()) {
            self.take_delta(&choice["delta"]);
            if let Some(reason) = choice["finish_reason"].as_str() {
                self.finish = Some(reason.to_owned());
            }
        }
        self.take_usage(&chunk["usage"]);
        if self.finish.is_some() && self.response.usage.is_some() {
            self.end();
        }
    }

    /// The body is over. Ends the response where the provider said that the answer is whole; false where it did not.
    pub fn end_of_stream(&mut self) -> bool {
        if self.finish.is_some() {
            self.end();
        }
        self.ended
    }

    fn emit(&mut self, kind: EventKind) {
        self.ready.push_back(Event { kind, sequence_number: self.sequence, stream_id: None });
        self.sequence += 1;
    }

    fn start(&mut self, chunk: &Value) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        self.response.id = chunk["id"].as_str().unwrap_or("chat").to_owned();
        self.response.model = chunk["model"].as_str().unwrap_or_default().to_owned();
        self.response.created_at = chunk["created"].as_u64().unwrap_or(0);
        self.emit(EventKind::Created { response: Box::new(self.response.clone()) });
    }

    fn fail(&mut self, error: &Value) {
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
        let payload = json!({
            "type": text("type").unwrap_or_else(|| "server_error".to_owned()),
            "code": text("code"),
            "message": text("message").unwrap_or_else(|| error.to_string()),
            "param": Value::Null,
        });
        self.ended = true;
        if let Ok(error) = serde_json::from_value(payload) {
            self.emit(EventKind::Error { status, error, headers: serde_json::Map::new() });
        }
    }

    fn take_delta(&mut self, delta: &Value) {
        let text = |names: [&str; 2]| {
            names.iter().find_map(|name| delta[*name].as_str()).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        if let Some(thought) = text(["reasoning_content", "reasoning"]) {
            self.add_thought(thought);
        }
        if let Some(words) = text(["content", "refusal"]) {
            self.add_text(words);
        }
        for (place, call) in delta["tool_calls"].as_array().into_iter().flatten().enumerate() {
            self.add_call(place as u64, call);
        }
    }

    fn add_text(&mut self, delta: String) {
        if !matches!(self.open, Some(Open::Text(_))) {
            self.close();
            self.open = Some(Open::Text(String::new()));
            self.added(Status::InProgress);
            let (item_id, output_index) = (self.item_id(), self.index());
            let part = EventKind::text_part(&OutputText::default());
            self.emit(EventKind::PartAdded { item_id, output_index, content_index: 0, part });
        }
        if let Some(Open::Text(text)) = &mut self.open {
            text.push_str(&delta);
        }
        let (item_id, output_index) = (Arc::from(self.item_id()), self.index());
        self.emit(EventKind::TextDelta { item_id, output_index, content_index: 0, delta, logprobs: Vec::new() });
    }

    fn add_thought(&mut self, delta: String) {
        if !matches!(self.open, Some(Open::Thought(_))) {
            self.close();
            self.open = Some(Open::Thought(String::new()));
            self.added(Status::InProgress);
        }
        if let Some(Open::Thought(text)) = &mut self.open {
            text.push_str(&delta);
        }
        let (item_id, output_index) = (Arc::from(self.item_id()), self.index());
        self.emit(EventKind::ReasoningDelta { item_id, output_index, content_index: 0, delta });
    }

    /// A call begins where its number or its identity is new; some providers leave one of them out.
    fn add_call(&mut self, place: u64, call: &Value) {
        let number = call["index"].as_u64().unwrap_or(place);
        let id = call["id"].as_str().filter(|id| !id.is_empty());
        let same = matches!(&self.open, Some(Open::Call { index, call_id, .. })
            if *index == number && id.is_none_or(|id| id == call_id));
        if !same {
            self.close();
            let call_id = id.map_or_else(|| format!("call_{}", self.index()), str::to_owned);
            let name = call["function"]["name"].as_str().unwrap_or_default().to_owned();
            self.open = Some(Open::Call { index: number, call_id, name, arguments: String::new() });
            self.added(Status::InProgress);
        }
        let delta = call["function"]["arguments"].as_str().unwrap_or_default().to_owned();
        let Some(Open::Call { arguments, name, .. }) = &mut self.open else { return };
        arguments.push_str(&delta);
        // Free text is inside the arguments, so there is none until they are whole.
        if !delta.is_empty() && !self.custom.contains(name) {
            let (item_id, output_index) = (Arc::from(self.item_id()), self.index());
            self.emit(EventKind::ArgumentsDelta { item_id, output_index, delta });
        }
    }

    fn index(&self) -> usize {
        self.response.output.len()
    }

    fn item_id(&self) -> String {
        let kind = match &self.open {
            Some(Open::Thought(_)) => "rs",
            Some(Open::Call { .. }) => "fc",
            _ => "msg",
        };
        format!("{kind}_{}_{}", self.response.id, self.index())
    }

    fn added(&mut self, status: Status) {
        if let Some(item) = self.item(status) {
            self.emit(EventKind::ItemAdded { output_index: self.index(), item });
        }
    }

    /// The open item as it stands.
    fn item(&self, status: Status) -> Option<OutputItem> {
        let id = self.item_id();
        let item = match self.open.as_ref()? {
            Open::Text(text) => {
                let content = if text.is_empty() { Vec::new() } else { vec![OutputText::new(text)] };
                OutputItem::Message { id, status, role: "assistant".to_owned(), content, phase: None }
            }
            Open::Thought(text) => {
                let thought = api::responses::ReasoningText { text: text.clone() };
                OutputItem::Reasoning { id, status, summary: Vec::new(), content: vec![thought] }
            }
            Open::Call { call_id, name, arguments, .. } if self.custom.contains(name) => OutputItem::CustomToolCall {
                id,
                status,
                call_id: call_id.clone(),
                name: name.clone(),
                namespace: None,
                input: free_text(arguments),
            },
            Open::Call { call_id, name, arguments, .. } => OutputItem::FunctionCall {
                id,
                status,
                call_id: call_id.clone(),
                name: name.clone(),
                namespace: None,
                arguments: arguments.clone(),
            },
        };
        Some(item)
    }

    /// Says that the open item is whole.
    fn close(&mut self) {
        let Some(item) = self.item(Status::Completed) else { return };
        let (id, output_index): (Arc<str>, usize) = (Arc::from(self.item_id()), self.index());
        match &item {
            OutputItem::Message { content, .. } => {
                let part = content.first().cloned().unwrap_or_default();
                let (text, logprobs, value) = (part.text.clone(), Vec::new(), EventKind::text_part(&part));
                self.emit(EventKind::TextDone { item_id: id.clone(), output_index, content_index: 0, text, logprobs });
                self.emit(EventKind::PartDone { item_id: id.to_string(), output_index, content_index: 0, part: value });
            }
            OutputItem::Reasoning { content, .. } => {
                let text = content.first().map(|part| part.text.clone()).unwrap_or_default();
                self.emit(EventKind::ReasoningDone { item_id: id, output_index, content_index: 0, text });
            }
            OutputItem::FunctionCall { name, arguments, .. } => {
                let (name, arguments) = (name.clone(), arguments.clone());
                self.emit(EventKind::ArgumentsDone { item_id: id, output_index, name, arguments });
            }
            OutputItem::CustomToolCall { input, .. } => {
                let input = input.clone();
                self.emit(EventKind::InputDone { item_id: id, output_index, input });
            }
            _ => {}
        }
        self.emit(EventKind::ItemDone { output_index, item: item.clone() });
        self.open = None;
        self.response.output.push(item);
    }

    fn take_usage(&mut self, usage: &Value) {
        if !usage.is_object() {
            return;
        }
        let count = |value: &Value| usize::try_from(value.as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
        let (input, output) = (&usage["prompt_tokens_details"], &usage["completion_tokens_details"]);
        let read = self.response.usage.get_or_insert_default();
        read.input_tokens = count(&usage["prompt_tokens"]);
        read.output_tokens = count(&usage["completion_tokens"]);
        read.total_tokens = count(&usage["total_tokens"]).max(read.input_tokens + read.output_tokens);
        read.input_tokens_details.cached_tokens = count(&input["cached_tokens"]);
        let details = &mut read.output_tokens_details;
        details.reasoning_tokens = count(&output["reasoning_tokens"]);
        details.accepted_prediction_tokens = count(&output["accepted_prediction_tokens"]);
        details.rejected_prediction_tokens = count(&output["rejected_prediction_tokens"]);
    }

    fn end(&mut self) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.close();
        let reason = match self.finish.as_deref() {
            Some("length") => Some("max_output_tokens"),
            Some("content_filter") => Some("content_filter"),
            _ => None,
        };
        self.response.status = if reason.is_some() { Status::Incomplete } else { Status::Completed };
        let details = |reason: &str| api::responses::IncompleteDetails { reason: reason.to_owned() };
        self.response.incomplete_details = reason.map(details);
        let response = Box::new(std::mem::take(&mut self.response));
        self.emit(match reason {
            Some(_) => EventKind::Incomplete { response },
            None => EventKind::Completed { response },
        });
    }
}

/// The text inside `{"input": "..."}`; what is not that is taken as it is, since small models forget the wrapping.
fn free_text(arguments: &str) -> String {
    let inner = serde_json::from_str::<Value>(arguments).ok();
    inner.and_then(|value| value["input"].as_str().map(str::to_owned)).unwrap_or_else(|| arguments.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(delta: Value) -> String {
        json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]}).to_string()
    }

    fn finish(reason: &str) -> String {
        json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}).to_string()
    }

    fn events(custom: &[&str], data: &[String]) -> Vec<Event> {
        let mut reader = ChatReader::new(custom.iter().map(|name| (*name).to_owned()).collect());
        data.iter().for_each(|data| reader.push(data));
        reader.end_of_stream();
        std::iter::from_fn(|| reader.pop()).collect()
    }

    fn names(events: &[Event]) -> Vec<String> {
        let name = |event: &Event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned();
        events.iter().map(name).map(|name| name.trim_start_matches("response.").to_owned()).collect()
    }

    #[test]
    fn text_thought_and_calls_become_items() {
        let call = |index: usize, id: &str, name: &str, arguments: &str| {
            chunk(
                json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}),
            )
        };
        let more = |index: usize, arguments: &str| {
            chunk(json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
        };
        let usage = json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3,
            "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 5}}});
        let data = [
            chunk(json!({"role": "assistant", "content": ""})),
            chunk(json!({"reasoning_content": "hm"})),
            chunk(json!({"content": "Hel"})),
            chunk(json!({"content": "lo"})),
            call(0, "x", "ls", ""),
            more(0, "{\"a\""),
            more(0, ":1}"),
            call(1, "y", "patch", "{\"input\":\"p\\n"),
            more(1, "q\"}"),
            finish("tool_calls"),
            usage.to_string(),
            "[DONE]".to_owned(),
        ];
        let events = events(&["patch"], &data);
        let expected = "created output_item.added reasoning_text.delta reasoning_text.done output_item.done \
            output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done \
            output_item.done output_item.added function_call_arguments.delta function_call_arguments.delta \
            function_call_arguments.done output_item.done output_item.added custom_tool_call_input.done \
            output_item.done completed";
        assert_eq!(names(&events), expected.split_whitespace().collect::<Vec<_>>());
        assert!(events.iter().enumerate().all(|(number, event)| event.sequence_number == number as u64));
        let last = events.last().unwrap().kind.ended().unwrap();
        assert_eq!((last.id.as_str(), last.status, last.output.len()), ("c", Status::Completed, 4));
        assert_eq!(last.output[1].text().as_deref(), Some("Hello"));
        let usage = last.usage.as_ref().unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens, usage.input_tokens_details.cached_tokens), (7, 3, 5));
        let is_call = |item: &OutputItem, id: &str, text: &str| match item {
            OutputItem::FunctionCall { call_id, arguments, .. } => call_id == id && arguments == text,
            OutputItem::CustomToolCall { call_id, input, .. } => call_id == id && input == text,
            _ => false,
        };
        assert!(is_call(&last.output[2], "x", "{\"a\":1}") && is_call(&last.output[3], "y", "p\nq"));
    }

    #[test]
    fn an_answer_ends_as_its_provider_says() {
        let cut = events(&[], &[chunk(json!({"content": "a"})), finish("length")]);
        let last = cut.last().unwrap().kind.ended().unwrap();
        assert_eq!(
            (last.status, last.incomplete_details.as_ref().unwrap().reason.as_str()),
            (Status::Incomplete, "max_output_tokens")
        );
        // Without a reason to finish it is not whole: the caller must see a break.
        let broken = events(&[], &[chunk(json!({"content": "a"})), "[DONE]".to_owned()]);
        assert!(broken.last().unwrap().kind.ended().is_none());
        let failed = events(&[], &[json!({"error": {"message": "no", "type": "t", "code": 503}}).to_string()]);
        assert!(matches!(&failed[..], [Event { kind: EventKind::Error { status: 503, .. }, .. }]), "{failed:?}");
        let calls =
            [json!({"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "g"}}]})];
        let unnamed = events(&[], &[chunk(calls[0].clone()), finish("tool_calls")]);
        let ids: Vec<_> = unnamed
            .last()
            .unwrap()
            .kind
            .ended()
            .unwrap()
            .output
            .iter()
            .map(|i| i.call_id().unwrap().to_owned())
            .collect();
        assert_eq!(ids, ["call_0", "call_1"]);
    }
}
