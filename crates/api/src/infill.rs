//! `/infill` as llama.vim and llama.vscode call llama.cpp. Fields nobody knows are ignored, as llama.cpp does.

use std::time::Duration;

use serde::Deserialize;

use crate::fields::{FieldError, Fields};
use crate::sampling::{SamplingFields, read_stop};

/// A gap in a file, and how to fill it.
#[derive(Clone, Debug)]
pub struct InfillRequest {
    /// The model; the server's default when absent.
    pub model: Option<String>,
    /// The text before the gap.
    pub prefix: String,
    /// The text behind it.
    pub suffix: String,
    /// Other files or parts of them, the most useful last.
    pub extra: Vec<InfillFile>,
    /// What was typed on the current line.
    pub prompt: String,
    /// Most tokens to generate; `None` is as many as fit, 0 only reads the prompt.
    pub n_predict: Option<usize>,
    /// The answer ends before a line that is indented less than this.
    pub n_indent: usize,
    /// How tokens are picked.
    pub sampling: SamplingFields,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Answer as server-sent events.
    pub stream: bool,
    /// A prompt that takes longer gets one line for an answer.
    pub t_max_prompt: Option<Duration>,
    /// After this long the answer ends at the next line.
    pub t_max_predict: Option<Duration>,
    /// Only these fields of the answer are wanted, by paths such as `timings/prompt_n`.
    pub response_fields: Vec<String>,
}

/// Another file of the same project, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct InfillFile {
    /// Its path.
    #[serde(default)]
    pub filename: String,
    /// What it says.
    #[serde(default)]
    pub text: String,
}

/// Most stop texts of one request. llama.vim sends one for each line it must not repeat.
const STOP_MAX: usize = 32;

impl InfillRequest {
    /// Reads a request from its fields.
    pub fn read(mut fields: Fields) -> Result<Self, FieldError> {
        let f = &mut fields;
        let limit = |field: &str, f: &mut Fields| -> Result<Option<Duration>, FieldError> {
            let millis = f.take::<f64>(field)?.filter(|millis| *millis > 0.0 && millis.is_finite());
            Ok(millis.map(|millis| Duration::from_micros((millis * 1000.0) as u64)))
        };
        Ok(Self {
            model: f.take("model")?,
            prefix: f.take("input_prefix")?.unwrap_or_default(),
            suffix: f.take("input_suffix")?.unwrap_or_default(),
            extra: f.take("input_extra")?.unwrap_or_default(),
            prompt: f.take("prompt")?.unwrap_or_default(),
            n_predict: f.take::<i64>("n_predict")?.and_then(|count| usize::try_from(count).ok()),
            n_indent: f.take::<i64>("n_indent")?.and_then(|count| usize::try_from(count).ok()).unwrap_or(0),
            sampling: SamplingFields::read(f)?,
            stop: read_stop(f, "stop", STOP_MAX)?,
            stream: f.take("stream")?.unwrap_or(false),
            t_max_prompt: limit("t_max_prompt_ms", f)?,
            t_max_predict: limit("t_max_predict_ms", f)?,
            response_fields: f.take("response_fields")?.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_request_of_an_editor() {
        let body = json!({
            "id_slot": 0, "input_prefix": "a\n", "input_suffix": "c\n", "prompt": "b",
            "input_extra": [{"filename": "x.rs", "text": "fn x() {}", "time": [1, 2]}],
            "n_predict": -1, "n_indent": 4, "top_k": 40, "top_p": 0.9, "samplers": ["top_k", "top_p", "infill"],
            "stream": false, "cache_prompt": true, "t_max_prompt_ms": 500, "t_max_predict_ms": 0,
            "response_fields": ["content", "timings/prompt_n"],
        });
        let request = InfillRequest::read(Fields::new(body).unwrap()).unwrap();
        assert_eq!((request.prefix.as_str(), request.suffix.as_str(), request.prompt.as_str()), ("a\n", "c\n", "b"));
        assert_eq!((request.n_predict, request.n_indent), (None, 4));
        assert_eq!(request.t_max_prompt, Some(Duration::from_millis(500)));
        assert_eq!(request.t_max_predict, None);
        assert_eq!(request.extra[0].filename, "x.rs");
        let wrong = InfillRequest::read(Fields::new(json!({"input_prefix": 1})).unwrap());
        assert_eq!(wrong.unwrap_err().param, "input_prefix");
    }
}
