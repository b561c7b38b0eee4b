//! Grammars: what a model may write next, so that JSON answers fit their schema and tool calls fit their tool.
//!
//! The work of parsing is llguidance's. This module gives it our vocabulary ([`Grammars`]), builds its grammars from
//! what a client asked for ([`GrammarSource`]), and follows one answer token by token ([`Matcher`]).
//!
//! Tool calls are the part of our own. A model writes them in its own dialect (in `<tool_call>` tags, in a fence, bare, or
//! between tokens made for it), and while it may also just talk, nothing can be masked before it has begun a call. The watcher reads along and says when
//! that is; from there to the end of the arguments llguidance holds the model to the schema.

mod compile;
mod matcher;
mod watcher;

mod cache;
mod dialects;
mod environment;
mod error;
mod formats;
mod gate;
mod gbnf;
mod limits;
mod marks;
mod tools;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dialect::Dialect;

pub use compile::Grammars;
pub(crate) use compile::tried;
pub use error::GrammarError;
pub use gate::WAITING_MAX;
pub use matcher::Matcher;

/// What an answer, or a part of it, must look like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum GrammarSource {
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema. A schema that cannot be followed in full is an error.
    JsonSchema(Value),
    /// A Lark grammar in llguidance's dialect.
    Lark(String),
    /// A regular expression in Rust's syntax for the whole answer.
    Regex(String),
    /// Calls of tools.
    Tools(ToolGrammar),
}

impl GrammarSource {
    /// One of these texts.
    pub fn choice(texts: &[String]) -> Self {
        let quoted: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
        Self::Lark(format!("start: {}\n", quoted.join(" | ")))
    }

    /// A grammar in Lark's notation, or in that of llama.cpp.
    pub fn grammar(text: &str) -> Self {
        Self::Lark(if gbnf::is_gbnf(text) { gbnf::to_lark(text) } else { text.to_owned() })
    }
}

/// The tools of a request and what the client said about calling them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolGrammar {
    /// All tools the model was told of.
    pub tools: Vec<ToolSpec>,
    /// Who decides about calls.
    pub mode: ToolMode,
    /// Whether [`ToolMode::Required`] allows more than one call.
    pub parallel: bool,
    /// How the model writes calls.
    pub dialect: Dialect,
}

/// Who decides whether and which tool is called.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Eq)]
pub enum ToolMode {
    /// The model decides; only a call it begins is held to its schema.
    Lazy,
    /// At least one call, nothing else.
    Required,
    /// Exactly one call of the tool with this index.
    Named(usize),
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name, as the model writes it.
    pub name: String,
    /// What a call of it holds.
    pub kind: ToolSpecKind,
}

/// What a call of a tool holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToolSpecKind {
    /// A JSON object.
    Function {
        /// Its schema; null stands for any object.
        parameters: Value,
        /// Whether a schema that cannot be followed in full is an error. Other tools are held to as much of their
        /// schema as can be followed.
        strict: bool,
    },
    /// Free text.
    Custom {
        /// What text.
        format: CustomFormat,
    },
}

/// What the text of a custom tool looks like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Eq)]
pub enum CustomFormat {
    /// Anything.
    Text,
    /// A Lark grammar.
    Lark(String),
    /// A regular expression.
    Regex(String),
}

/// A compiled grammar, shared by all answers that follow it. Cloning is cheap.
#[derive(Clone)]
pub struct Grammar(Arc<compile::Compiled>);

impl Grammar {
    /// Whether it holds the whole answer, and not only the calls that a model may make in one.
    pub fn holds_all(&self) -> bool {
        !matches!(self.0.kind, compile::Kind::Lazy(_))
    }

    /// Whether it says itself where thoughts may stand: calls in Harmony, whose thoughts are messages like any other.
    pub fn holds_thoughts(&self) -> bool {
        matches!(&self.0.kind, compile::Kind::Required { calls, .. } if calls.dialect == Dialect::Harmony)
    }

    /// The state of an answer before its first token.
    pub fn matcher(&self) -> Matcher {
        Matcher::new(self.0.clone())
    }
}
