//! What was said so far, as the items a Responses API takes, and which files the model has before it.
//!
//! It only ever grows at its end, so that the server's prefix cache holds; compaction and rewinding are the two
//! exceptions, and both say so.

use std::path::Path;

use serde_json::{Value, json};

use crate::context::{self, Seen};

/// One conversation.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    items: Vec<Value>,
    seen: Seen,
}

impl Conversation {
    /// What a request sends.
    pub fn items(&self) -> &[Value] {
        &self.items
    }

    /// What the model has been shown.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The model is about to see this file.
    pub fn show(&mut self, path: &Path, text: &str) {
        self.seen.insert(path.to_owned(), context::hash(text));
    }

    /// Adds an item as it goes over the wire.
    pub fn push(&mut self, item: Value) {
        self.items.push(item);
    }

    /// Adds what the person said, and returns the item.
    pub fn push_user(&mut self, text: &str) -> Value {
        self.push_message("user", "input_text", text)
    }

    /// Adds what the model said, and returns the item.
    pub fn push_assistant(&mut self, text: &str) -> Value {
        self.push_message("assistant", "output_text", text)
    }

    fn push_message(&mut self, role: &str, kind: &str, text: &str) -> Value {
        let item = json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
        self.items.push(item.clone());
        item
    }

    /// Takes back what was said since there were so many items.
    pub fn truncate(&mut self, items: usize) {
        self.items.truncate(items);
    }

    /// Begins anew with these items; files have to be shown again.
    pub fn replace(&mut self, items: Vec<Value>) {
        self.items = items;
        self.seen.clear();
    }

    /// Characters in all, from which tokens are estimated when the server has not counted them.
    pub fn characters(&self) -> usize {
        let texts = self.items.iter().filter_map(|item| item["content"].as_array());
        texts.flatten().filter_map(|part| part["text"].as_str()).map(str::len).sum()
    }
}
