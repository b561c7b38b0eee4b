//! Calls as Qwen3-Coder writes them (`<function=T>`, then `<parameter=key>` value `</parameter>` for each argument) and
//! as GLM does (`T`, then `<arg_key>` key `</arg_key>`, `<arg_value>` value `</arg_value>`). They become the JSON object
//! that callers expect.

use super::open::{Stop, starts_with};
use super::until::{Found, until, up_to};
use super::{ToolKind, ToolName};

/// Longest name of a parameter.
const KEY_BYTES_MAX: usize = 256;

const END_FUNCTION: &str = "</function>";
const END_CALL: &str = "</tool_call>";

/// The tags of one argument.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tags {
    key: &'static str,
    /// Ends the key. What follows up to the value is passed over.
    key_end: &'static str,
    /// Begins the value.
    value: &'static str,
    value_end: &'static str,
    /// A line break behind the first tag and before the last one belongs to them.
    lines: bool,
}

pub(super) const QWEN: Tags =
    Tags { key: "<parameter=", key_end: ">", value: "", value_end: "</parameter>", lines: true };
pub(super) const GLM: Tags =
    Tags { key: "<arg_key>", key_end: "</arg_key>", value: "<arg_value>", value_end: "</arg_value>", lines: false };

/// A call being read.
#[derive(Debug, Clone)]
pub(super) struct Xml {
    tool: usize,
    tags: Tags,
    parameter_count: usize,
    /// The value that is being read.
    value: Option<Value>,
}

/// The value of a parameter.
#[derive(Debug, Clone)]
struct Value {
    form: Form,
    /// The line break behind the opening tag has been passed.
    started: bool,
}

#[derive(Debug, Clone)]
enum Form {
    /// A string, passed on while it is written.
    String,
    /// A string or other JSON, to be seen at its end.
    Unknown(String),
    /// The input of a custom tool.
    Input,
    /// A further parameter of a custom tool, which has only one.
    Ignored,
}

/// What became of some text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// This many bytes were read.
    Inside(usize),
    /// The call ends after this many bytes.
    End(usize),
    /// Nothing can be said yet.
    Wait,
}

impl Xml {
    /// A call of `tools[tool]`, behind its name.
    pub fn new(tool: usize, tags: Tags) -> Xml {
        Xml { tool, tags, parameter_count: 0, value: None }
    }

    /// Reads on, and appends to `delta` what the arguments gain.
    pub fn read(&mut self, text: &str, tools: &[ToolName], delta: &mut String) -> Progress {
        let tool = &tools[self.tool];
        match &mut self.value {
            Some(value) => {
                let (length, ended) = value.read(text, self.tags, delta);
                if ended {
                    self.value = None;
                }
                if length == 0 { Progress::Wait } else { Progress::Inside(length) }
            }
            None => self.read_between(text, tool, delta),
        }
    }

    /// What is left to say when the answer ends here.
    pub fn finish(&mut self, delta: &mut String) {
        if let Some(Value { form: Form::Unknown(text), .. }) = self.value.take() {
            delta.push('"');
            push_escaped(&text, delta);
        }
    }

    /// Between parameters. What does not belong there is passed over.
    fn read_between(&mut self, text: &str, tool: &ToolName, delta: &mut String) -> Progress {
        let open = text.find('<').unwrap_or(text.len());
        if open > 0 {
            return Progress::Inside(open);
        }
        let bytes = text.as_bytes();
        let tags = [self.tags.key, END_FUNCTION, END_CALL].map(|tag| starts_with(bytes, tag));
        match tags {
            [Ok(true), ..] => self.read_key(text, tool, delta),
            [_, Ok(true), _] | [_, _, Ok(true)] => {
                if tool.kind == ToolKind::Function {
                    delta.push_str(if self.parameter_count == 0 { "{}" } else { "}" });
                }
                // The tag around the call belongs to the one who opened it.
                Progress::End(if tags[1] == Ok(true) { END_FUNCTION.len() } else { 0 })
            }
            _ if tags.contains(&Err(Stop::More)) => Progress::Wait,
            _ => Progress::Inside(1),
        }
    }

    fn read_key(&mut self, text: &str, tool: &ToolName, delta: &mut String) -> Progress {
        let Tags { key, key_end, value, .. } = self.tags;
        let rest = &text[key.len()..];
        let Some(length) = rest.find(key_end) else {
            return if rest.len() >= KEY_BYTES_MAX { Progress::Inside(1) } else { Progress::Wait };
        };
        if length > KEY_BYTES_MAX {
            return Progress::Inside(1);
        }
        let behind = &rest[length + key_end.len()..];
        let space = if value.is_empty() { 0 } else { behind.len() - behind.trim_ascii_start().len() };
        match starts_with(&behind.as_bytes()[space..], value) {
            Ok(true) => {}
            Ok(false) => return Progress::Inside(1),
            Err(_) => return Progress::Wait,
        }
        let whole = key.len() + length + key_end.len() + space + value.len();
        let key = rest[..length].trim();
        let form = match tool.kind {
            ToolKind::Custom if self.parameter_count == 0 => Form::Input,
            ToolKind::Custom => Form::Ignored,
            ToolKind::Function if tool.string_parameters.iter().any(|name| name == key) => Form::String,
            ToolKind::Function => Form::Unknown(String::new()),
        };
        if tool.kind == ToolKind::Function {
            delta.push_str(if self.parameter_count == 0 { "{\"" } else { ", \"" });
            push_escaped(key, delta);
            delta.push_str("\": ");
        }
        if matches!(form, Form::String) {
            delta.push('"');
        }
        self.parameter_count += 1;
        self.value = Some(Value { form, started: false });
        Progress::Inside(whole)
    }
}

impl Value {
    /// Reads on; gives the bytes read and whether the value is over.
    fn read(&mut self, text: &str, tags: Tags, delta: &mut String) -> (usize, bool) {
        if !self.started && !text.is_empty() {
            self.started = true;
            if tags.lines && text.starts_with('\n') {
                return (1, false);
            }
        }
        let Found { text_length, end } =
            if tags.lines { until(text, tags.value_end) } else { up_to(text, tags.value_end) };
        self.add(&text[..text_length], delta);
        if end.is_some() {
            self.close(delta);
        }
        (end.unwrap_or(text_length), end.is_some())
    }

    fn add(&mut self, text: &str, delta: &mut String) {
        match &mut self.form {
            Form::String => push_escaped(text, delta),
            Form::Unknown(value) => value.push_str(text),
            Form::Input => delta.push_str(text),
            Form::Ignored => {}
        }
    }

    fn close(&mut self, delta: &mut String) {
        match &self.form {
            Form::String => delta.push('"'),
            Form::Unknown(text) => match serde_json::from_str(text).or_else(|error| python(text).ok_or(error)) {
                Ok(serde_json::Value::String(_)) | Err(_) => {
                    delta.push('"');
                    push_escaped(text, delta);
                    delta.push('"');
                }
                Ok(serde_json::Value::Bool(_) | serde_json::Value::Null) => {
                    delta.push_str(&text.trim().to_ascii_lowercase().replace("none", "null"));
                }
                Ok(_) => delta.push_str(text.trim()),
            },
            Form::Input | Form::Ignored => {}
        }
    }
}

/// The words of Python that models write for those of JSON.
fn python(text: &str) -> Option<serde_json::Value> {
    match text.trim() {
        "True" => Some(true.into()),
        "False" => Some(false.into()),
        "None" => Some(serde_json::Value::Null),
        _ => None,
    }
}

/// Appends a text as the inside of a JSON string.
fn push_escaped(text: &str, delta: &mut String) {
    let quoted = serde_json::Value::from(text).to_string();
    delta.push_str(&quoted[1..quoted.len() - 1]);
}
