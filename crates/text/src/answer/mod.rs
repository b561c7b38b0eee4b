//! A model's answer, read while it is written: text, thoughts and tool calls.
//!
//! Models are taught one way to write a call ([`Dialect`](crate::Dialect)) and use others. `tags` reads what is text:
//! JSON in `<tool_call>` and tags like it, in a fence, or bare at the start of a line, lists of such objects, the XML of
//! Qwen3-Coder and GLM, and the raw input of custom tools. `marked` reads what has tokens of its own. A call starts as
//! soon as the tool's name and the key of its arguments have been read, and arguments are passed on from there.
//!
//! Invariants, which tests check:
//! - In whatever pieces a text comes, the parts add up to the same.
//! - Text that is no call comes out as it is. Only white space directly around a call and around thoughts is dropped.
//! - Only what may still become a call is held back, and white space at the end.

mod fence;
mod marked;
mod open;
mod schema;
mod tags;
mod until;
mod value;
mod xml;

use crate::dialect::Dialect;
use marked::Marked;
use tags::TagParser;

/// Reads one answer.
#[derive(Debug, Clone)]
pub struct AnswerParser(Reader);

#[derive(Debug, Clone)]
enum Reader {
    Tags(Box<TagParser>),
    Marked(Box<Marked>),
}

impl AnswerParser {
    /// A parser at the start of an answer.
    pub fn new(options: AnswerOptions) -> AnswerParser {
        AnswerParser(match options.dialect.markers() {
            [] => Reader::Tags(Box::new(TagParser::new(options))),
            _ => Reader::Marked(Box::new(Marked::new(options))),
        })
    }

    /// Reads a piece of the answer and appends the parts that became certain with it.
    pub fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        match &mut self.0 {
            Reader::Tags(parser) => parser.push(text, out),
            Reader::Marked(parser) => parser.push(text, out),
        }
    }

    /// Ends the answer: what was held back comes out, and an open call is closed.
    pub fn finish(&mut self, out: &mut Vec<Part>) {
        match &mut self.0 {
            Reader::Tags(parser) => parser.finish(out),
            Reader::Marked(parser) => parser.finish(out),
        }
    }

    /// Whether what comes now is thought.
    pub fn thinking(&self) -> bool {
        match &self.0 {
            Reader::Tags(parser) => parser.thinking(),
            Reader::Marked(parser) => parser.thinking(),
        }
    }

    /// Whether the one call that was allowed is over, so that the rest of the answer does not matter.
    pub fn stopped(&self) -> bool {
        match &self.0 {
            Reader::Tags(parser) => parser.stopped(),
            Reader::Marked(parser) => parser.stopped(),
        }
    }
}

/// How a tool takes its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolKind {
    /// A JSON object.
    Function,
    /// A text.
    Custom,
}

/// A tool the model may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolName {
    /// Its name.
    pub name: String,
    /// How it takes its input.
    pub kind: ToolKind,
    /// Parameters that its schema says are strings. It matters where a call is written as XML, in which `12` may be a
    /// number or a text: other values are taken for JSON where they are JSON, and for text where they are not.
    pub string_parameters: Vec<String>,
}

impl ToolName {
    /// A function with no parameters known to be strings.
    pub fn function(name: impl Into<String>) -> ToolName {
        ToolName { name: name.into(), kind: ToolKind::Function, string_parameters: Vec::new() }
    }

    /// A function with this schema for its arguments.
    pub fn with_schema(name: impl Into<String>, parameters: &serde_json::Value) -> ToolName {
        ToolName { string_parameters: schema::string_parameters(parameters), ..ToolName::function(name) }
    }

    /// A custom tool.
    pub fn custom(name: impl Into<String>) -> ToolName {
        ToolName { name: name.into(), kind: ToolKind::Custom, string_parameters: Vec::new() }
    }
}

/// Whether a model writes down its thoughts. Where they stand between tokens of their own they are always thoughts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reasoning {
    /// It does not; `<think>` is text.
    #[default]
    None,
    /// It may start with `<think>`.
    ThinkTags,
    /// The prompt ended with what begins thoughts, so the answer starts with them.
    ThinkTagsOpened,
}

/// What to expect of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerOptions {
    /// Tools that may be called. Without any, nothing is a call.
    pub tools: Vec<ToolName>,
    /// Whether there are thoughts.
    pub reasoning: Reasoning,
    /// Several calls in one answer are welcome. Otherwise parsing stops after the first.
    pub parallel: bool,
    /// How the model writes.
    pub dialect: Dialect,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// What the model says.
    Text(String),
    /// What it thinks.
    Reasoning(String),
    /// It calls a tool.
    CallStart {
        /// Index in [`AnswerOptions::tools`].
        tool: usize,
    },
    /// More of the arguments: JSON as the model writes it, or the input of a custom tool.
    CallDelta(String),
    /// The call is over.
    CallEnd {
        /// Whether its arguments were closed. Raw input without its closing tag counts as not closed, even where the
        /// model stopped there by itself; only the caller knows whether it did.
        complete: bool,
    },
}
