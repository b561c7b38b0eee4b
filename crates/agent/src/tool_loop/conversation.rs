//! A conversation as items of the API. It only ever grows at its end, so that what the model has read once is found in its
//! cache the next time.

use api::responses::OutputItem;
use serde_json::{Map, Value, json};

/// A conversation, and the response that already holds the beginning of it.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    items: Vec<Value>,
    /// A response of the server, and how many items it covers. Then only what is new needs to be sent.
    previous: Option<(String, usize)>,
    /// Whether the server remembers responses for us.
    by_id: bool,
}

impl Conversation {
    /// Goes on from `items`. With `by_id` a request names the response it continues and sends only what is new; for
    /// servers that remember, over one connection or for good.
    pub fn new(items: Vec<Value>, by_id: bool) -> Self {
        Self { items, previous: None, by_id }
    }

    /// All items.
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    /// The person says something.
    pub fn say(&mut self, text: &str) {
        self.items.push(json!({"type": "message", "role": "user", "content": text}));
    }

    /// The model said or did something.
    pub fn note(&mut self, item: &OutputItem) {
        let Ok(mut item) = serde_json::to_value(item) else { return };
        if let Some(fields) = item.as_object_mut() {
            // Identities are the server's that gave them; another one, or this one after a restart, knows nothing of them.
            fields.shift_remove("id");
            fields.shift_remove("status");
        }
        self.items.push(item);
    }

    /// The model said this much before it was cut off.
    pub fn note_text(&mut self, text: &str) {
        if !text.is_empty() {
            let content = json!([{"type": "output_text", "text": text}]);
            self.items.push(json!({"type": "message", "role": "assistant", "content": content}));
        }
    }

    /// A tool answered.
    pub fn answer(&mut self, call_id: &str, custom: bool, output: &str) {
        let kind = if custom { "custom_tool_call_output" } else { "function_call_output" };
        self.items.push(json!({"type": kind, "call_id": call_id, "output": output}));
    }

    /// A response holds everything up to here.
    pub fn covered_by(&mut self, response: &str) {
        if self.by_id && !response.is_empty() {
            self.previous = Some((response.to_owned(), self.items.len()));
        }
    }

    /// The server no longer knows what it was told: the next request sends everything.
    pub fn send_all(&mut self) {
        self.previous = None;
    }

    /// Whether the next request leaves out what the server knows.
    pub fn leaves_out(&self) -> bool {
        self.previous.is_some()
    }

    /// The body of the next request.
    pub fn request(&self, settings: &Map<String, Value>, tools: &[Value]) -> Value {
        let mut body = settings.clone();
        let begin = self.previous.as_ref().map_or(0, |(_, covered)| *covered);
        body.insert("tools".to_owned(), Value::from(tools));
        body.insert("input".to_owned(), Value::from(&self.items[begin..]));
        if let Some((id, _)) = &self.previous {
            body.insert("previous_response_id".to_owned(), Value::from(id.as_str()));
        }
        Value::Object(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_sent_where_the_server_remembers() {
        let settings = json!({"model": "m"}).as_object().unwrap().clone();
        for by_id in [true, false] {
            let mut conversation = Conversation::new(Vec::new(), by_id);
            conversation.say("one");
            let first = conversation.request(&settings, &[]);
            assert_eq!(first["input"].as_array().unwrap().len(), 1);
            assert_eq!(first["model"], "m");
            conversation.note_text("two");
            conversation.covered_by("resp_1");
            conversation.answer("call_1", false, "three");
            let second = conversation.request(&settings, &[]);
            let sent = second["input"].as_array().unwrap();
            assert_eq!(sent.len(), if by_id { 1 } else { 3 });
            assert_eq!(second.get("previous_response_id").is_some(), by_id);
            assert_eq!(sent[sent.len() - 1]["type"], "function_call_output");
            conversation.send_all();
            assert_eq!(conversation.request(&settings, &[])["input"].as_array().unwrap().len(), 3);
        }
    }

    #[test]
    fn items_go_back_without_the_identity_the_server_gave_them() {
        let item = json!({"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "c", "name": "read", "arguments": "{}"});
        let mut conversation = Conversation::default();
        conversation.note(&serde_json::from_value(item).unwrap());
        let want = json!({"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"});
        assert_eq!(conversation.items(), [want]);
    }
}
