//! `/v1/messages` and `/v1/messages/count_tokens`.

use serde_json::{Value, json};

use crate::support::{CONTEXT, city, endless, post, with};

const PATH: &str = "/v1/messages";

fn ask(more: Value) -> Value {
    let base = json!({"model": "toy", "max_tokens": 24, "messages": [{"role": "user", "content": "good day"}]});
    with(&base, more)
}

fn call(more: Value) -> Value {
    let tool = json!({"name": "weather", "input_schema": city()});
    let choice = json!({"type": "tool", "name": "weather", "disable_parallel_tool_use": true});
    ask(with(&json!({"tools": [tool], "tool_choice": choice, "max_tokens": 2000}), more))
}

/// The message that a stream adds up to, its events checked to be in order.
fn assembled(events: &[(String, String)]) -> Value {
    let mut message = Value::Null;
    let mut open: Option<String> = None;
    let mut over = false;
    for (name, data) in events {
        let event: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event["type"], name.as_str());
        assert!(!over, "{name} after the end");
        assert_eq!(message.is_null(), name == "message_start", "the start comes first, once");
        let index = event["index"].as_u64().unwrap_or(0) as usize;
        match name.as_str() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => {
                assert!(open.replace(String::new()).is_none(), "two blocks open");
                assert_eq!(index, message["content"].as_array().unwrap().len());
                message["content"].as_array_mut().unwrap().push(event["content_block"].clone());
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                let more = delta["text"].as_str().or_else(|| delta["partial_json"].as_str()).unwrap();
                open.as_mut().expect("no block open").push_str(more);
            }
            "content_block_stop" => {
                let text = open.take().expect("no block open");
                let block = &mut message["content"][index];
                match block["type"].as_str().unwrap() {
                    "text" => block["text"] = text.into(),
                    _ => block["input"] = serde_json::from_str(&text).unwrap(),
                }
            }
            "message_delta" => {
                assert!(open.is_none(), "a block is open at the end");
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["stop_sequence"] = event["delta"]["stop_sequence"].clone();
                message["usage"] = event["usage"].clone();
            }
            "message_stop" => over = true,
            "ping" => {}
            other => panic!("what is {other}?"),
        }
    }
    assert!(over, "no end");
    message
}

#[test]
fn a_stream_adds_up_to_the_whole() {
    for body in [ask(json!({})), call(json!({})), ask(json!({"system": "be brief", "max_tokens": 1}))] {
        let whole = post(PATH, &body).ok();
        assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
        let streamed = assembled(&post(PATH, &with(&body, json!({"stream": true}))).events());
        let mut contents = [whole["content"].clone(), streamed["content"].clone()];
        for block in contents.iter_mut().flat_map(|content| content.as_array_mut().unwrap()) {
            block.as_object_mut().unwrap().remove("id");
        }
        assert_eq!(contents[0], contents[1]);
        assert_eq!(whole["stop_reason"], streamed["stop_reason"]);
        if whole["stop_reason"] != "tool_use" {
            // A call that is the only one ends the answer a few tokens later, sooner or later.
            assert_eq!(whole["usage"]["output_tokens"], streamed["usage"]["output_tokens"]);
        }
        let input = |message: &Value| {
            let count = |name: &str| message["usage"][name].as_u64().unwrap();
            count("input_tokens") + count("cache_read_input_tokens")
        };
        assert_eq!(input(&whole), input(&streamed));
        let counted = post("/v1/messages/count_tokens", &body).ok();
        assert_eq!(counted, json!({"input_tokens": input(&whole)}));
    }
}

#[test]
fn a_call_is_made_and_answered() {
    let choice = json!({"type": "tool", "name": "weather"});
    let body = call(json!({"messages": [{"role": "user", "content": "and outside"}], "tool_choice": choice}));
    let first = post(PATH, &body).ok();
    assert_eq!(first["stop_reason"], "tool_use");
    let used = &first["content"][0];
    assert_eq!((&used["type"], &used["name"]), (&json!("tool_use"), &json!("weather")));
    assert!(used["id"].as_str().unwrap().starts_with("toolu_"));
    assert!(["Paris", "Rome"].contains(&used["input"]["city"].as_str().unwrap()));
    let result = json!([{"type": "tool_result", "tool_use_id": used["id"], "content": "mild"}]);
    let messages = json!([
        body["messages"][0],
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": result},
    ]);
    let more = json!({"messages": messages, "tool_choice": {"type": "none"}, "max_tokens": 3});
    let next = post(PATH, &with(&body, more.clone())).ok();
    let count = |message: &Value, name: &str| message["usage"][name].as_u64().unwrap();
    let before = count(&first, "input_tokens") + count(&first, "cache_read_input_tokens");
    // A byte is a token here: the prompt and the call are all there, as the model wrote them.
    let wrote = before + used["input"].to_string().len() as u64;
    assert!(count(&next, "cache_read_input_tokens") >= wrote, "{} of {wrote}", next["usage"]);
    let mut unknown = with(&body, more);
    unknown["messages"][2]["content"][0]["tool_use_id"] = "other".into();
    assert_eq!(post(PATH, &unknown).status, 400);
}

#[test]
fn answers_stop_for_the_reasons_they_say() {
    let base = json!({"max_tokens": 200, "logit_bias": endless()});
    let long = post(PATH, &ask(base.clone())).ok();
    let text = long["content"][0]["text"].as_str().unwrap();
    let stop = text.chars().filter(char::is_ascii_alphabetic).nth(4).unwrap().to_string();
    let cut = post(PATH, &ask(with(&base, json!({"stop_sequences": [stop]})))).ok();
    assert_eq!((&cut["stop_reason"], &cut["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    assert_eq!(cut["content"][0]["text"].as_str(), text.split_once(&stop).map(|(before, _)| before));
    assert_eq!(post(PATH, &ask(json!({"max_tokens": 2}))).ok()["stop_reason"], "max_tokens");
}

#[test]
fn an_answer_can_be_begun_by_the_client() {
    let messages = json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}]);
    let begun = post("/v1/messages/count_tokens", &ask(json!({"messages": messages}))).ok();
    let plain = post("/v1/messages/count_tokens", &ask(json!({"messages": [messages[0]]}))).ok();
    assert_eq!(begun["input_tokens"].as_u64(), plain["input_tokens"].as_u64().map(|count| count + 3));
}

#[test]
fn errors_come_in_their_envelope() {
    let long = json!([{"role": "user", "content": "x".repeat(CONTEXT)}]);
    for (body, status, kind) in [
        (json!({"messages": []}), 400, "invalid_request_error"),
        (ask(json!({"model": "nope"})), 404, "not_found_error"),
        (ask(json!({"messages": long.clone()})), 400, "invalid_request_error"),
        (ask(json!({"messages": long, "stream": true})), 400, "invalid_request_error"),
        (ask(json!({"tools": [{"name": "x"}]})), 400, "invalid_request_error"),
    ] {
        let reply = post(PATH, &body);
        let error = reply.json();
        assert_eq!((reply.status, &error["type"], &error["error"]["type"]), (status, &json!("error"), &json!(kind)));
        assert!(!error["error"]["message"].as_str().unwrap().is_empty());
        assert!(error["request_id"].as_str().unwrap().starts_with("req_"));
    }
}

#[test]
fn a_format_is_followed_and_a_forced_call_comes_before_it() {
    let format = json!({"type": "json_schema", "schema": city()});
    for more in [json!({"output_config": {"format": format}}), json!({"output_format": format})] {
        let message = post(PATH, &with(&ask(json!({"max_tokens": 2000})), more)).ok();
        let value: Value = serde_json::from_str(message["content"][0]["text"].as_str().unwrap()).unwrap();
        assert!(["Paris", "Rome"].contains(&value["city"].as_str().unwrap()));
        assert_eq!(message["stop_reason"], "end_turn");
    }
    let message = post(PATH, &call(json!({"output_config": {"format": format}}))).ok();
    assert_eq!(message["stop_reason"], "tool_use");
    let wrong = post(PATH, &ask(json!({"output_config": {"format": {"type": "xml"}}})));
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json()["error"]["type"], "invalid_request_error");
}

#[test]
fn pictures_are_refused_and_a_message_of_no_tokens_says_nothing() {
    let picture = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}});
    let reply = post(PATH, &ask(json!({"messages": [{"role": "user", "content": [picture]}]})));
    assert_eq!(reply.status, 400);
    let error = reply.json();
    assert_eq!((&error["type"], &error["error"]["type"]), (&json!("error"), &json!("invalid_request_error")));
    assert!(error["error"]["message"].as_str().unwrap().contains("messages[0].content[0].type: `image`"), "{error}");
    let message = post(PATH, &ask(json!({"max_tokens": 0}))).ok();
    assert_eq!((&message["content"], &message["stop_reason"]), (&json!([]), &json!("max_tokens")));
    let stream = post(PATH, &ask(json!({"max_tokens": 0, "stream": true}))).events();
    assert_eq!(assembled(&stream)["content"], json!([]));
}
