//! Where a template leaves room for an answer: what opens one, and whether its tokens can be put back as they are.

use std::borrow::Cow;

use super::thoughts::{Thoughts, Wish};
use crate::chat::{ChatRequest, ChatTemplate, Message};
use crate::dialect::Dialect;

/// How an answer begins behind a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Opening {
    /// As the model likes.
    #[default]
    Free,
    /// In the middle of thoughts: the prompt ends with what begins them.
    Thoughts,
    /// Behind thoughts that the prompt has closed.
    Text,
}

/// What is known of a template.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    /// The tokens of an answer can stand in a later prompt as the model wrote them.
    pub repeats: bool,
    dialect: Dialect,
    /// What begins an answer in every prompt; empty where nothing does.
    head: String,
    /// What follows it in a prompt that asks for an answer, with and without thoughts.
    thinking: String,
    plain: String,
}

/// Stands for an answer.
const ANSWER: &str = "7fq3";

impl Shape {
    /// Tries a template out.
    pub fn of(template: &ChatTemplate, dialect: Dialect, source: &str, thoughts: &Thoughts) -> Shape {
        let mut shape = Shape { dialect, ..Shape::default() };
        // Messages of several parts, or results inside of the message that called: only the template can write those.
        if dialect == Dialect::Harmony || source.contains("tool_responses") {
            return shape;
        }
        let render = |messages: &[Message], answer: bool, on: Option<bool>| {
            let mut request = ChatRequest::new(messages);
            request.add_generation_prompt = answer;
            request.variables = thoughts.answer(&Wish { on, level: None }).variables;
            template.render(&request).ok()
        };
        let question = [Message::user(".")];
        let opened = |on| -> Option<String> {
            Some(render(&question, true, on)?.strip_prefix(&render(&question, false, on)?)?.to_owned())
        };
        let switched = |on| if thoughts.thinks { opened(Some(on)) } else { opened(None) };
        let (Some(thinking), Some(plain)) = (switched(true), switched(false)) else { return shape };
        let answered = [Message::user("."), Message::assistant(ANSWER), Message::user(".")];
        let before = || -> Option<String> {
            let (asked, whole) = (render(&question, false, None)?, render(&answered, false, None)?);
            Some(whole.strip_prefix(&asked)?.split_once(ANSWER)?.0.to_owned())
        };
        let Some(written) = before() else { return shape };
        let mut head = common(&common(&thinking, &plain), &written);
        // Thoughts are no part of what every answer begins with.
        if let Some(at) = head.find(dialect.thoughts_begin().trim_end()) {
            head.truncate(at);
        }
        let whole_token = head.is_empty() || head.ends_with(['>', ']', '\n']);
        if written == thinking && written == plain || whole_token && !head.is_empty() {
            shape.repeats = true;
            (shape.thinking, shape.plain) = (thinking[head.len()..].to_owned(), plain[head.len()..].to_owned());
            shape.head = head;
        }
        shape
    }

    /// How an answer to this prompt begins.
    pub fn opening(&self, rendered: &str) -> Opening {
        let text = rendered.trim_end();
        if text.ends_with(self.dialect.thoughts_begin().trim_end()) {
            Opening::Thoughts
        } else if text.ends_with(self.dialect.thoughts_end()) && self.dialect != Dialect::Harmony {
            Opening::Text
        } else {
            Opening::Free
        }
    }

    /// The text in front of an answer, as it was when the model was asked for that answer.
    pub fn opened<'a>(&self, text: &'a str, thought: impl FnOnce() -> bool) -> Cow<'a, str> {
        match text.rfind(&self.head).filter(|_| !self.head.is_empty()) {
            None => Cow::Borrowed(text),
            Some(at) => {
                let (before, after) = text.split_at(at + self.head.len());
                let wanted = if self.thinking == self.plain || thought() { &self.thinking } else { &self.plain };
                if after == wanted { Cow::Borrowed(text) } else { Cow::Owned(format!("{before}{wanted}")) }
            }
        }
    }
}

fn common(a: &str, b: &str) -> String {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
}
