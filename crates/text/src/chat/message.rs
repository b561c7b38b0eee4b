//! What a conversation consists of, in the shape that templates expect.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

/// One message.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// What was said; empty for an answer that only calls tools.
    pub content: String,
    /// Tools that the assistant called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Which call a tool's result answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool that was called, or who speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the assistant thought before it answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The same under the name by which the templates of gpt-oss know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// What the tools gave back, where the template wants it in the message that called them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_responses: Vec<ToolResponse>,
    /// The tokens the model itself wrote for this message (thoughts, text, tool calls and all), without the one that
    /// ended its turn. [`PromptWriter`](crate::PromptWriter) puts them in place of everything else the message says.
    #[serde(skip)]
    pub raw: Option<Arc<[u32]>>,
}

impl Message {
    /// A message with only a text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into(), ..Message::default() }
    }

    /// What the operator says.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new("system", content)
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new("user", content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new("assistant", content)
    }

    /// What a tool gave back.
    pub fn tool(content: impl Into<String>) -> Message {
        Message::new("tool", content)
    }

    /// Whether it says nothing but with its tokens.
    pub(crate) fn is_bare(&self) -> bool {
        self.content.is_empty() && self.tool_calls.is_empty() && self.reasoning_content.is_none()
    }

    /// The same message with tool calls.
    pub fn with_tool_calls(mut self, calls: Vec<ToolCall>) -> Message {
        self.tool_calls = calls;
        self
    }
}

/// What a tool gave back.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolResponse {
    /// The tool.
    pub name: String,
    /// What it gave.
    pub response: String,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolCall {
    /// Its identity, which the result repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Always `function`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// What is called.
    pub function: FunctionCall,
}

/// A function and its arguments.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FunctionCall {
    /// Its name.
    pub name: String,
    /// Its arguments, an object: templates write them with `tojson`.
    pub arguments: serde_json::Value,
}

impl ToolCall {
    /// A call of `name` with arguments as they come over the wire: a text that should be a JSON object. A text that is
    /// no JSON is handed to the template as it is, since that is what the model wrote.
    pub fn new(name: impl Into<String>, arguments: &str) -> ToolCall {
        let arguments =
            serde_json::from_str(arguments).unwrap_or_else(|_| serde_json::Value::String(arguments.to_string()));
        ToolCall { id: None, kind: "function", function: FunctionCall { name: name.into(), arguments } }
    }
}

/// Everything a template is given.
#[derive(Debug, Clone)]
pub struct ChatRequest<'a> {
    /// The conversation so far.
    pub messages: &'a [Message],
    /// Tools the model may call, each as in the OpenAI API: `{"type": "function", "function": {...}}`.
    pub tools: &'a [serde_json::Value],
    /// End with the start of the assistant's turn, so that the model answers.
    pub add_generation_prompt: bool,
    /// The time for templates that name the day, in seconds since 1970 (UTC). Without it they leave the day out.
    pub unix_seconds: Option<u64>,
    /// Further variables, such as `enable_thinking`.
    pub variables: BTreeMap<String, serde_json::Value>,
}

impl<'a> ChatRequest<'a> {
    /// A request for an answer to these messages, without tools.
    pub fn new(messages: &'a [Message]) -> Self {
        ChatRequest {
            messages,
            tools: &[],
            add_generation_prompt: true,
            unix_seconds: None,
            variables: BTreeMap::new(),
        }
    }

    /// The same with tools.
    pub fn with_tools(mut self, tools: &'a [serde_json::Value]) -> Self {
        self.tools = tools;
        self
    }
}
