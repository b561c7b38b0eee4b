//! From what a client sent to the messages a chat template takes.
//!
//! Everything the model produced in one go (thoughts, text, calls) is one assistant message, with the very tokens where
//! they are known. Messages are never merged or moved, so that a conversation that grows at its end keeps its prefix.

use std::sync::Arc;

use api::chat::{ChatMessage, PastCall};
use api::responses::{Content, InputItem, OutputItem, Role};
use serde_json::Value;
use text::{ChatRequest, Message, Thinking, ToolCall, Written};

use crate::error::ApiError;
use crate::generation::answer_token_cache::Shown;
use crate::generation::tools::{ToolSet, announcement, input_arguments};
use crate::guard::owner::Owner;
use crate::lock::lock;
use crate::models::LoadedModel;
use crate::sessions::turn::Turn;

/// A conversation being put together.
#[derive(Debug)]
pub struct Conversation {
    /// Whose it is: answers are recalled for nobody else.
    owner: Owner,
    messages: Vec<Message>,
    /// Ids of the calls the model made.
    calls: Vec<String>,
    open: Option<Open>,
}

/// An assistant message that may still grow.
#[derive(Debug, Default)]
struct Open {
    shown: Shown,
    reasoning: String,
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Call {
    flat: String,
    input: String,
    custom: bool,
}

impl Conversation {
    /// An empty one.
    pub fn of(owner: Owner) -> Self {
        Self { owner, messages: Vec::new(), calls: Vec::new(), open: None }
    }

    /// Adds what the operator says.
    pub fn system(&mut self, text: &str) {
        self.add(Message::system(text));
    }

    /// Adds any message that is not the model's.
    pub fn add(&mut self, message: Message) {
        self.close(None);
        self.messages.push(message);
    }

    /// Adds an answer of the model: the tokens it produced, and where they may not be repeated what they say.
    fn answer(
        &mut self,
        tokens: Arc<[u32]>,
        output: &[OutputItem],
        loaded: &LoadedModel,
        tools: &ToolSet,
    ) -> Result<(), ApiError> {
        self.close(None);
        if loaded.writer()?.always_repeats() {
            self.calls.extend(output.iter().filter_map(|item| item.call_id().map(str::to_owned)));
            if !tokens.is_empty() {
                self.messages.push(Message { raw: Some(tokens), ..Message::assistant("") });
            }
            return Ok(());
        }
        let items: Vec<Value> = output.iter().filter_map(|item| serde_json::to_value(item).ok()).collect();
        for item in InputItem::read_list("input", &items)? {
            self.item(item, tools, &mut Vec::new())?;
        }
        if let Some(open) = self.open.take() {
            let raw = Some(tokens).filter(|tokens| !tokens.is_empty());
            self.messages.push(Message { raw, ..open.message(loaded.facts.dialect.takes_raw_input()) });
        }
        Ok(())
    }

    /// Adds the messages of a client that sends its whole history. `loaded` finds the tokens of answers in it.
    pub fn messages(
        &mut self,
        messages: Vec<ChatMessage>,
        loaded: &LoadedModel,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let mut read = |content: Content| {
            note_unread(&content, warnings);
            content.text
        };
        for message in messages {
            match message {
                ChatMessage::Operator(content) => self.add(Message::system(read(content))),
                ChatMessage::User(content) => self.add(Message::user(read(content))),
                ChatMessage::Assistant { content, reasoning, calls } => {
                    self.close(None);
                    let shown = Shown { text: read(content), calls: Vec::new() };
                    let mut open = Open { shown, reasoning, calls: Vec::new() };
                    for PastCall { id, name, input, custom } in calls {
                        self.calls.extend(id);
                        open.shown.calls.push((name.clone(), input.clone()));
                        open.calls.push(Call { flat: name, input, custom });
                    }
                    self.open = Some(open);
                    self.close(Some(loaded));
                }
                ChatMessage::Result { call_id: Some(id), output, .. } => {
                    let named = |error: ApiError| ApiError { param: Some("messages".to_owned()), ..error };
                    self.output(&id, read(output)).map_err(named)?;
                }
                ChatMessage::Result { name, output, .. } => {
                    self.add(Message { name, ..Message::tool(read(output)) });
                }
            }
        }
        Ok(())
    }

    /// Adds the result of a call.
    pub fn output(&mut self, call_id: &str, text: String) -> Result<(), ApiError> {
        if !self.calls.iter().any(|id| id == call_id) {
            let message = format!("no tool call found for call_id {call_id:?}; send the call before its output");
            return Err(ApiError::bad_field("input", message));
        }
        self.add(Message { tool_call_id: Some(call_id.to_owned()), ..Message::tool(text) });
        Ok(())
    }

    /// Adds items of input. `loaded` finds the tokens of answers that come back as text.
    pub fn items(
        &mut self,
        items: &[Value],
        loaded: &LoadedModel,
        tools: &ToolSet,
        warnings: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        for (index, item) in InputItem::read_list("input", items)?.into_iter().enumerate() {
            if let InputItem::Message { content, .. } = &item
                && let Some(kind) = content.unread.first()
            {
                return Err(Content::unreadable(&format!("input[{index}].content"), kind).into());
            }
            if !matches!(item, InputItem::Call { .. } | InputItem::Reasoning { .. })
                && !matches!(item, InputItem::Message { role: Role::Assistant, .. })
            {
                self.close(Some(loaded));
            }
            self.item(item, tools, warnings)?;
        }
        self.close(Some(loaded));
        Ok(())
    }

    fn item(&mut self, item: InputItem, tools: &ToolSet, warnings: &mut Vec<String>) -> Result<(), ApiError> {
        match item {
            InputItem::Message { role, content } => match role {
                Role::Developer => self.add(Message::system(content.text)),
                Role::User => self.add(Message::user(content.text)),
                Role::Assistant => self.open.get_or_insert_default().shown.text.push_str(&content.text),
            },
            InputItem::Call { call_id, name, namespace, input, custom } => {
                self.calls.push(call_id);
                let open = self.open.get_or_insert_default();
                open.shown.calls.push((name.clone(), input.clone()));
                let flat = tools.flat_name(&name, namespace.as_deref());
                open.calls.push(Call { flat, input, custom });
            }
            InputItem::Output { call_id, output } => {
                // A tool that shows a picture must not end the session: the model is told that there was one.
                for kind in &output.unread {
                    warnings.push(format!("`{kind}` in a tool's output was left out: this model reads only text"));
                }
                self.output(&call_id, output.text)?;
            }
            InputItem::Reasoning { text } => self.open.get_or_insert_default().reasoning.push_str(&text),
            InputItem::Compaction { summary } => {
                self.add(Message::system(format!("Summary of the conversation so far:\n{summary}")));
            }
            // Its tools were taken in with the request's own.
            InputItem::Tools(_) => {}
            InputItem::Other { kind } => {
                warnings.push(format!("input items of type `{kind}` mean nothing to a local model; one was left out"));
            }
        }
        Ok(())
    }

    /// Adds earlier turns, with the tokens of their answers where the same weights made them.
    pub fn turns(&mut self, last: Option<&Arc<Turn>>, loaded: &LoadedModel, tools: &ToolSet) -> Result<(), ApiError> {
        // What was left out of them was told then.
        let mut told = Vec::new();
        for turn in last.map(Turn::chain).unwrap_or_default() {
            self.items(&turn.input, loaded, tools, &mut told)?;
            if turn.fingerprint == loaded.facts.fingerprint {
                self.answer(Arc::clone(&turn.tokens), &turn.response.output, loaded, tools)?;
            } else {
                let output = turn.response.output.iter().filter_map(|item| serde_json::to_value(item).ok());
                self.items(&output.collect::<Vec<Value>>(), loaded, tools, &mut told)?;
            }
        }
        Ok(())
    }

    /// Takes note of the calls of earlier turns, whose tokens are known, so that their results can come.
    pub fn follow(&mut self, last: &Arc<Turn>) {
        for turn in last.back() {
            let given = turn.input.iter().filter_map(|item| item["call_id"].as_str());
            let made = turn.response.output.iter().filter_map(OutputItem::call_id);
            self.calls.extend(given.chain(made).map(str::to_owned));
        }
    }

    /// Writes down what is to be appended to an answer; `None` when the template must see the whole conversation.
    pub fn write_after_answer(
        &mut self,
        loaded: &LoadedModel,
        thinking: &Thinking,
    ) -> Result<Option<Written>, ApiError> {
        self.close(Some(loaded));
        let messages = self.written(loaded);
        loaded.writer()?.write_after_answer(&messages, thinking).map_err(|error| loaded.unwritten(error))
    }

    /// Finishes the open assistant message, with its tokens where the model's cache remembers them.
    fn close(&mut self, loaded: Option<&LoadedModel>) {
        let Some(open) = self.open.take() else { return };
        let answer_tokens = |loaded: &LoadedModel| lock(&loaded.answer_tokens).find(self.owner, &open.shown);
        let raw = loaded.and_then(answer_tokens);
        // Where nobody says which model is asked nothing is known of how it writes calls.
        let raw_input = loaded.is_none_or(|loaded| loaded.facts.dialect.takes_raw_input());
        self.messages.push(Message { raw, ..open.message(raw_input) });
    }

    /// The messages as the model reads them: where it needs a word after the results of tools, that word is there.
    fn written(&self, loaded: &LoadedModel) -> Vec<Message> {
        let mut messages = self.messages.clone();
        let Some(hint) = &loaded.facts.after_tools else { return messages };
        for index in 0..messages.len() {
            let more = messages.get(index + 1).is_some_and(|next| next.role == "tool");
            if messages[index].role == "tool" && !more {
                messages[index].content = format!("{}\n{hint}", messages[index].content);
            }
        }
        messages
    }

    /// Writes the conversation down as tokens. `answer` ends it with the start of the model's turn.
    pub fn write(
        &mut self,
        loaded: &LoadedModel,
        tools: &ToolSet,
        thinking: &Thinking,
        answer: bool,
    ) -> Result<Written, ApiError> {
        self.close(Some(loaded));
        let declared = tools.declared(loaded.facts.dialect);
        let announce = !declared.is_empty() && !loaded.facts.announces_tools;
        let mut messages = self.written(loaded);
        if announce {
            let text = announcement(&declared);
            match messages.first_mut() {
                Some(first) if first.role == "system" => first.content = format!("{}\n\n{text}", first.content),
                _ => messages.insert(0, Message::system(text)),
            }
        }
        let writer = loaded.writer()?;
        let write = |messages: &[Message]| {
            let mut request = ChatRequest::new(messages).with_tools(if announce { &[] } else { &declared });
            request.add_generation_prompt = answer;
            request.variables.clone_from(&thinking.variables);
            writer.write(&request)
        };
        match write(&messages) {
            Err(text::TextError::TemplateRefused(_)) => {
                // Some templates take the operator only at the start.
                let later = messages.iter_mut().skip(1).filter(|message| message.role == "system");
                later.for_each(|message| message.role = "user".to_owned());
                write(&messages).map_err(|error| loaded.unwritten(error))
            }
            written => written.map_err(|error| loaded.unwritten(error)),
        }
    }
}

/// Says what a model that reads only text was not shown.
fn note_unread(content: &Content, warnings: &mut Vec<String>) {
    let told = content.unread.iter().map(|kind| format!("`{kind}` was left out: this model reads only text"));
    warnings.extend(told);
}

impl Open {
    /// `raw_input` says that the text of a custom tool stands as it is between the tags of a call.
    fn message(self, raw_input: bool) -> Message {
        let mut text = self.shown.text;
        let mut calls = Vec::new();
        for call in self.calls {
            if call.custom && !raw_input {
                calls.push(ToolCall::new(call.flat, &input_arguments(&call.input)));
            } else if call.custom {
                // Written the way the model is told to write it.
                text.push_str(&format!("\n<tool_call>\n{{\"name\": \"{}\"}}\n{}\n</tool_call>", call.flat, call.input));
            } else {
                calls.push(ToolCall::new(call.flat, &call.input));
            }
        }
        let reasoning_content = Some(self.reasoning).filter(|text| !text.is_empty());
        Message { reasoning_content, ..Message::assistant(text).with_tool_calls(calls) }
    }
}
