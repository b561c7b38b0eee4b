//! Completions of a raw prompt: the old OpenAI endpoint, which editors use for fill in the middle.
//!
//! Answers are those of [`crate::chat::TextCompletion`].

use serde_json::Value;

use crate::chat::request::STOP_MAX;
use crate::fields::{FieldError, Fields, kind};
use crate::format::{Format, read_response_format};
use crate::sampling::{SamplingFields, read_include_usage, read_stop};

/// Tokens of an answer whose request names no limit: what the specification says.
pub const MAX_TOKENS_DEFAULT: usize = 16;

/// A prompt as the client gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompt {
    /// Text.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// Everything a client may say when it asks for a completion.
#[derive(Clone, Debug)]
pub struct CompletionRequest {
    /// The model; the server's default when absent.
    pub model: Option<String>,
    /// One or more prompts.
    pub prompts: Vec<Prompt>,
    /// What stands behind the gap: the answer fills in the middle.
    pub suffix: Option<String>,
    /// Repeat the prompt before the answer.
    pub echo: bool,
    /// How many answers to each prompt.
    pub n: usize,
    /// Log-probabilities are wanted, with this many alternatives.
    pub logprobs: Option<usize>,
    /// What the answer is held to.
    pub format: Format,
    /// How tokens are picked.
    pub sampling: SamplingFields,
    /// Most tokens to generate; 0 only reads the prompt, so that it is cached.
    pub max_tokens: usize,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Answer as server-sent events.
    pub stream: bool,
    /// End the stream with what it cost.
    pub include_usage: bool,
    /// What was accepted and has no effect, one sentence each.
    pub warnings: Vec<String>,
}

impl CompletionRequest {
    /// Reads a request from its fields.
    pub fn read(mut fields: Fields) -> Result<Self, FieldError> {
        let f = &mut fields;
        let logprobs = f.take_count("logprobs", 0)?;
        if logprobs.is_some_and(|count| count > 20) {
            return Err(FieldError::new("logprobs", "must be from 0 to 20"));
        }
        let mut request = Self {
            model: f.take("model")?,
            prompts: Prompt::read(f.need("prompt")?)?,
            suffix: f.take("suffix")?,
            echo: f.take("echo")?.unwrap_or(false),
            n: f.take_count("n", 1)?.unwrap_or(1),
            logprobs,
            format: read_response_format(f).and_then(|format| Format::read_others(f, format))?,
            sampling: SamplingFields::read(f)?,
            max_tokens: f.take_count("max_tokens", 0)?.unwrap_or(MAX_TOKENS_DEFAULT),
            stop: read_stop(f, "stop", STOP_MAX)?,
            stream: f.take("stream")?.unwrap_or(false),
            include_usage: read_include_usage(f)?,
            warnings: Vec::new(),
        };
        if request.echo && request.logprobs.is_some() {
            return Err(FieldError::new("echo", "does not go with `logprobs`: the tokens of a prompt are not scored"));
        }
        if request.suffix.is_some() && request.prompts.iter().any(|prompt| matches!(prompt, Prompt::Tokens(_))) {
            return Err(FieldError::new("suffix", "needs a prompt of text, not of tokens"));
        }
        if f.take_count("best_of", 1)?.is_some_and(|count| count > request.n) {
            request.warnings.push("`best_of` was ignored: every answer that is generated is sent".to_owned());
        }
        let ignored = fields.rest().filter(|name| *name != "user");
        request.warnings.extend(ignored.map(|name| format!("`{name}` is not known here and was ignored")));
        Ok(request)
    }
}

impl Prompt {
    fn read(prompt: Value) -> Result<Vec<Self>, FieldError> {
        let rule = "must be a string, an array of strings, an array of tokens, or an array of such arrays";
        let wrong = |found: &Value| FieldError::new("prompt", format!("{rule}, not {}", kind(found)));
        let items = match prompt {
            Value::String(text) => return Ok(vec![Self::Text(text)]),
            Value::Array(items) => items,
            other => return Err(wrong(&other)),
        };
        let tokens = |items: &[Value]| -> Option<Vec<u32>> {
            items.iter().map(|item| item.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
        };
        match items.first() {
            None => Err(FieldError::new("prompt", "must not be empty")),
            Some(Value::Number(_)) => match tokens(&items) {
                Some(tokens) => Ok(vec![Self::Tokens(tokens)]),
                None => Err(FieldError::new("prompt", "must hold token ids only, where it holds one")),
            },
            Some(_) => {
                let read = |item: Value| match &item {
                    Value::String(text) => Ok(Self::Text(text.clone())),
                    Value::Array(ids) => tokens(ids).map(Self::Tokens).ok_or_else(|| wrong(&item)),
                    other => Err(wrong(other)),
                };
                items.into_iter().map(read).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: Value) -> Result<CompletionRequest, FieldError> {
        CompletionRequest::read(Fields::new(body).unwrap())
    }

    #[test]
    fn prompts_of_every_form() {
        let prompts = |prompt: Value| read(json!({"prompt": prompt})).unwrap().prompts;
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(prompts(json!("a")), [text("a")]);
        assert_eq!(prompts(json!(["a", "b"])), [text("a"), text("b")]);
        assert_eq!(prompts(json!([1, 2])), [Prompt::Tokens(vec![1, 2])]);
        assert_eq!(prompts(json!([[1], [2]])), [Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2])]);
    }

    #[test]
    fn wrong_fields_are_named() {
        for (body, param) in [
            (json!({}), "prompt"),
            (json!({"prompt": []}), "prompt"),
            (json!({"prompt": [1, "a"]}), "prompt"),
            (json!({"prompt": [-1]}), "prompt"),
            (json!({"prompt": {"a": 1}}), "prompt"),
            (json!({"prompt": [1], "suffix": "x"}), "suffix"),
            (json!({"prompt": "a", "echo": true, "logprobs": 1}), "echo"),
            (json!({"prompt": "a", "logprobs": 21}), "logprobs"),
        ] {
            assert_eq!(read(body).unwrap_err().param, param);
        }
        assert_eq!(read(json!({"prompt": "a"})).unwrap().max_tokens, MAX_TOKENS_DEFAULT);
    }
}
