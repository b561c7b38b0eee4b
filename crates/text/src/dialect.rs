//! How a family of models writes down its thoughts and its calls.
//!
//! Known from the vocabulary and the chat template alone, so it holds for every fine-tune that kept them.

use serde::{Deserialize, Serialize};

use crate::vocabulary::Vocabulary;

/// The character in front of a marker in the text of a [`Detokenizer`](crate::Detokenizer) that shows markers. It is
/// no character that any text may contain, so a marker that a model quotes is not one that it writes.
pub const MARK: char = '\u{fdd0}';

/// One way of writing thoughts and calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dialect {
    /// Thoughts in `<think>`, calls as JSON in `<tool_call>`: Hermes, Qwen 2.5 and 3, and all that say nothing else.
    #[default]
    Hermes,
    /// Calls as `<function=NAME>` and `<parameter=KEY>` in `<tool_call>`: Qwen3-Coder, Qwen 3.5 to 3.8.
    Qwen,
    /// Calls as a name, `<arg_key>` and `<arg_value>` in `<tool_call>`: GLM 4.5 and later.
    Glm,
    /// Messages with a channel and a recipient between control tokens: gpt-oss.
    Harmony,
    /// `[TOOL_CALLS]NAME[ARGS]{json}` and `[THINK]`: Mistral, Devstral.
    Mistral,
    /// `<|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>`: Gemma 4.
    Gemma,
}

impl Dialect {
    /// The dialect of a model.
    pub fn of(vocabulary: &Vocabulary) -> Dialect {
        let has = |names: &[&str]| names.iter().all(|name| vocabulary.special_token(name).is_some());
        let template = vocabulary.chat_template().unwrap_or_default();
        if has(&["<|channel|>", "<|message|>", "<|call|>"]) {
            Dialect::Harmony
        } else if has(&["<|tool_call>", "<tool_call|>"]) {
            Dialect::Gemma
        } else if has(&["[TOOL_CALLS]"]) {
            Dialect::Mistral
        } else if template.contains("<arg_key>") {
            Dialect::Glm
        } else if template.contains("<function=") {
            Dialect::Qwen
        } else {
            Dialect::Hermes
        }
    }

    /// The tokens that give an answer its structure, where ordinary text cannot: they count only as tokens.
    pub fn markers(self) -> &'static [&'static str] {
        match self {
            Dialect::Hermes | Dialect::Qwen | Dialect::Glm => &[],
            Dialect::Harmony => {
                &["<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>"]
            }
            Dialect::Mistral => &["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"],
            Dialect::Gemma => &["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>"],
        }
    }

    /// What ends thoughts.
    pub fn thoughts_end(self) -> &'static str {
        match self {
            Dialect::Hermes | Dialect::Qwen | Dialect::Glm => "</think>",
            Dialect::Harmony => "<|end|>",
            Dialect::Mistral => "[/THINK]",
            Dialect::Gemma => "<channel|>",
        }
    }

    /// What begins thoughts.
    pub fn thoughts_begin(self) -> &'static str {
        match self {
            Dialect::Hermes | Dialect::Qwen | Dialect::Glm => "<think>",
            Dialect::Harmony => "<|channel|>analysis<|message|>",
            Dialect::Mistral => "[THINK]",
            Dialect::Gemma => "<|channel>thought\n",
        }
    }

    /// Whether a custom tool's text is written as it is between the tags of a call. The other dialects know only named
    /// arguments, so there the text is the argument `input`.
    pub fn takes_raw_input(self) -> bool {
        self == Dialect::Hermes
    }
}
