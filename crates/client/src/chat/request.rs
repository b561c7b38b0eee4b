//! A request of the Responses API as a chat request.

use serde_json::{Map, Value, json};

use crate::error::ClientError;

/// Fields that mean the same in both.
const SAME: &[&str] = &[
    "model",
    "temperature",
    "top_p",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "parallel_tool_calls",
    "prediction",
    "service_tier",
    "user",
    "metadata",
    "top_k",
    "min_p",
];

/// A chat request, and what must be remembered to read its answer.
#[derive(Debug)]
pub(crate) struct ChatBody {
    /// The request.
    pub json: String,
    /// Tools that take free text, which went out as functions.
    pub custom: Vec<String>,
}

impl ChatBody {
    /// Translates a request for a stream.
    pub fn new(mut request: Map<String, Value>) -> Result<Self, ClientError> {
        for (name, harmless) in
            [("previous_response_id", Value::Null), ("background", json!(false)), ("generate", json!(true))]
        {
            if request.get(name).is_some_and(|value| *value != harmless && !value.is_null()) {
                let message = format!(
                    "`{name}` needs a server that speaks the Responses API; this one speaks Chat: send the whole conversation"
                );
                return Err(ClientError::Options { message });
            }
        }
        let mut chat = Map::new();
        for name in SAME {
            if let Some(value) = request.remove(*name).filter(|value| !value.is_null()) {
                chat.insert((*name).to_owned(), value);
            }
        }
        chat.insert("messages".to_owned(), messages(&request));
        let custom = tools(&request, &mut chat);
        if let Some(count) = request.get("max_output_tokens").filter(|count| !count.is_null()) {
            chat.insert("max_tokens".to_owned(), count.clone());
        }
        if let Some(effort) = request.get("reasoning").map(|reasoning| &reasoning["effort"]).filter(|v| !v.is_null()) {
            chat.insert("reasoning_effort".to_owned(), effort.clone());
        }
        if let Some(format) = request.get("text").and_then(|text| response_format(&text["format"])) {
            chat.insert("response_format".to_owned(), format);
        }
        chat.insert("stream".to_owned(), json!(true));
        chat.insert("stream_options".to_owned(), json!({"include_usage": true}));
        Ok(Self { json: Value::Object(chat).to_string(), custom })
    }
}

fn messages(request: &Map<String, Value>) -> Value {
    let mut messages = Vec::new();
    if let Some(text) = request.get("instructions").and_then(Value::as_str).filter(|text| !text.is_empty()) {
        messages.push(json!({"role": "system", "content": text}));
    }
    match request.get("input") {
        Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
        Some(Value::Array(items)) => items.iter().for_each(|item| add_item(&mut messages, item)),
        _ => {}
    }
    Value::Array(messages)
}

fn add_item(messages: &mut Vec<Value>, item: &Value) {
    let kind = item["type"].as_str().unwrap_or("message");
    match kind {
        "message" => {
            let role = match item["role"].as_str().unwrap_or("user") {
                "developer" => "system",
                role => role,
            };
            messages.push(json!({"role": role, "content": content(&item["content"])}));
        }
        "function_call" => add_call(messages, item, item["arguments"].as_str().unwrap_or_default().to_owned()),
        "custom_tool_call" => add_call(messages, item, json!({"input": item["input"]}).to_string()),
        "function_call_output" | "custom_tool_call_output" => {
            let output = match &item["output"] {
                Value::String(text) => text.clone(),
                parts @ Value::Array(_) => text_of(parts),
                other => other.to_string(),
            };
            messages.push(json!({"role": "tool", "tool_call_id": item["call_id"], "content": output}));
        }
        // Thoughts are not given back: most servers refuse the field.
        _ => {}
    }
}

/// Calls stand inside the message they came with.
fn add_call(messages: &mut Vec<Value>, item: &Value, arguments: String) {
    let call = json!({
        "id": item["call_id"],
        "type": "function",
        "function": {"name": item["name"], "arguments": arguments},
    });
    if let Some(last) = messages.last_mut()
        && last["role"] == "assistant"
    {
        match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
            Some(calls) => calls.push(call),
            None => last["tool_calls"] = json!([call]),
        }
        return;
    }
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
}

/// Text where it is all text, which every server reads; parts where there is a picture.
fn content(content: &Value) -> Value {
    let Some(parts) = content.as_array() else { return content.clone() };
    if parts.iter().all(|part| part["type"] != "input_image") {
        return Value::from(text_of(content));
    }
    let parts = parts.iter().map(|part| match part["type"].as_str() {
        Some("input_image") => json!({"type": "image_url", "image_url": {"url": part["image_url"]}}),
        _ => json!({"type": "text", "text": part["text"]}),
    });
    Value::Array(parts.collect())
}

fn text_of(parts: &Value) -> String {
    let texts = parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    texts.collect::<Vec<_>>().join("")
}

/// Adds the tools and the choice between them; returns the names of those that take free text.
fn tools(request: &Map<String, Value>, chat: &mut Map<String, Value>) -> Vec<String> {
    let mut custom = Vec::new();
    let listed = request.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let functions: Vec<Value> = listed.iter().filter_map(|tool| function(tool, &mut custom)).collect();
    if functions.is_empty() {
        chat.remove("parallel_tool_calls");
        return custom;
    }
    chat.insert("tools".to_owned(), Value::Array(functions));
    match request.get("tool_choice") {
        Some(Value::String(choice)) => drop(chat.insert("tool_choice".to_owned(), Value::from(choice.as_str()))),
        Some(choice) if choice["name"].is_string() => {
            let named = json!({"type": "function", "function": {"name": choice["name"]}});
            chat.insert("tool_choice".to_owned(), named);
        }
        _ => {}
    }
    custom
}

fn function(tool: &Value, custom: &mut Vec<String>) -> Option<Value> {
    let mut function = Map::new();
    let (name, kind) = (tool["name"].as_str()?, tool["type"].as_str()?);
    function.insert("name".to_owned(), Value::from(name));
    if tool["description"].is_string() {
        function.insert("description".to_owned(), tool["description"].clone());
    }
    match kind {
        "function" => {
            for field in ["parameters", "strict"] {
                if let Some(value) = tool.get(field).filter(|value| !value.is_null()) {
                    function.insert(field.to_owned(), value.clone());
                }
            }
        }
        "custom" => {
            custom.push(name.to_owned());
            let input = json!({"type": "string", "description": "The whole input, as it is."});
            let parameters = json!({"type": "object", "properties": {"input": input}, "required": ["input"]});
            function.insert("parameters".to_owned(), parameters);
        }
        _ => return None,
    }
    Some(json!({"type": "function", "function": function}))
}

fn response_format(format: &Value) -> Option<Value> {
    match format["type"].as_str()? {
        "json_schema" => {
            let mut schema = format.as_object()?.clone();
            schema.remove("type");
            Some(json!({"type": "json_schema", "json_schema": schema}))
        }
        "json_object" => Some(json!({"type": "json_object"})),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(request: Value) -> Value {
        let Value::Object(request) = request else { panic!("an object") };
        serde_json::from_str(&ChatBody::new(request).unwrap().json).unwrap()
    }

    #[test]
    fn a_conversation_with_tools_is_translated_whole() {
        let got = chat(json!({
            "model": "m", "instructions": "Be brief.", "temperature": 0.5, "max_output_tokens": 9, "store": false,
            "reasoning": {"effort": "low"},
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                {"type": "reasoning", "content": []},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "x\"y"},
                {"type": "function_call_output", "call_id": "c1", "output": "f"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "ok"}]},
                {"type": "function_call", "call_id": "c3", "name": "ls", "arguments": "{}"},
            ],
            "tools": [
                {"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": true},
                {"type": "custom", "name": "patch", "description": "d", "format": {"type": "text"}},
                {"type": "web_search"},
            ],
            "tool_choice": {"type": "function", "name": "ls"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": true}},
        }));
        let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        assert_eq!(
            got["messages"],
            json!([
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "ab"},
                {"role": "assistant", "content": "I look.", "tool_calls": [
                    call("c1", "ls", "{}"), call("c2", "patch", "{\"input\":\"x\\\"y\"}")]},
                {"role": "tool", "tool_call_id": "c1", "content": "f"},
                {"role": "tool", "tool_call_id": "c2", "content": "ok"},
                {"role": "assistant", "content": null, "tool_calls": [call("c3", "ls", "{}")]},
            ])
        );
        assert_eq!((&got["max_tokens"], &got["reasoning_effort"]), (&json!(9), &json!("low")));
        assert_eq!(got["tools"].as_array().unwrap().len(), 2);
        assert_eq!(got["tools"][0]["function"]["strict"], true);
        assert_eq!(got["tool_choice"], json!({"type": "function", "function": {"name": "ls"}}));
        let schema = json!({"name": "n", "schema": {}, "strict": true});
        assert_eq!(got["response_format"], json!({"type": "json_schema", "json_schema": schema}));
        assert!(got.get("store").is_none() && got["stream"] == true);
    }

    #[test]
    fn what_chat_cannot_do_is_said() {
        for field in [json!({"previous_response_id": "r"}), json!({"background": true}), json!({"generate": false})] {
            let Value::Object(request) = field else { panic!("an object") };
            let name = request.keys().next().unwrap().clone();
            assert!(ChatBody::new(request).unwrap_err().to_string().contains(&name));
        }
        let plain = chat(json!({"input": "hi", "previous_response_id": null, "parallel_tool_calls": true}));
        assert_eq!(plain["messages"], json!([{"role": "user", "content": "hi"}]));
        assert!(plain.get("parallel_tool_calls").is_none());
    }
}
