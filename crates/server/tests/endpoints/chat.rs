//! `/v1/chat/completions`.

use serde_json::{Value, json};

use crate::support::{CONTEXT, IM_END, Reply, city, endless, get, only, post, with};

const PATH: &str = "/v1/chat/completions";

fn ask(more: Value) -> Value {
    let base = json!({"model": "toy", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 24});
    with(&base, more)
}

/// What the chunks of one answer add up to: a message like that of a whole answer, and why it ended.
fn assembled(chunks: &[Value], index: usize) -> (Value, Value) {
    let (mut content, mut calls, mut reason) = (String::new(), Vec::<Value>::new(), Value::Null);
    for choice in chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()) {
        if choice["index"] != index {
            continue;
        }
        let delta = &choice["delta"];
        content.push_str(delta["content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let at = call["index"].as_u64().unwrap() as usize;
            if at == calls.len() {
                assert!(call["id"].as_str().unwrap().starts_with("call_"), "{call}");
                calls.push(
                    json!({"type": call["type"], "function": {"name": call["function"]["name"], "arguments": ""}}),
                );
            }
            let function = &mut calls[at]["function"];
            let more = call["function"]["arguments"].as_str().unwrap();
            function["arguments"] = format!("{}{more}", function["arguments"].as_str().unwrap()).into();
        }
        if !choice["finish_reason"].is_null() {
            assert!(reason.is_null(), "two ends");
            reason = choice["finish_reason"].clone();
        }
    }
    (json!({"content": content, "tool_calls": calls}), reason)
}

fn error(reply: &Reply, status: u16) -> Value {
    assert_eq!(reply.status, status, "{}", reply.body);
    reply.json()["error"].clone()
}

#[test]
fn a_whole_answer_has_every_field() {
    let answer = post(PATH, &ask(json!({"store": true, "colour": "red", "user": "u"}))).ok();
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("toy")));
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl"));
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    assert!(choice["message"]["content"].is_string() && choice["message"]["refusal"].is_null());
    assert_eq!((&choice["finish_reason"], &choice["logprobs"]), (&json!("length"), &Value::Null));
    let usage = &answer["usage"];
    assert_eq!(usage["completion_tokens"], 24);
    let total = usage["prompt_tokens"].as_u64().unwrap() + 24;
    assert_eq!(usage["total_tokens"], total);
    assert_eq!(answer["flint"]["served_model"], "toy.gguf");
    assert_eq!(answer["flint"]["warnings"].as_array().unwrap().len(), 2);
    assert!(answer["flint"]["timings"]["prefill_ms"].is_number());
}

#[test]
fn a_stream_adds_up_to_the_whole() {
    let whole = post(PATH, &ask(json!({}))).ok();
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = post(PATH, &ask(options)).chunks();
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let (message, reason) = assembled(&chunks, 0);
    assert_eq!(message["content"], whole["choices"][0]["message"]["content"]);
    assert_eq!(reason, "length");
    let (last, others) = chunks.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(24)));
    assert!(last["flint"]["timings"].is_object());
    for chunk in others {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!((&chunk["id"], &chunk["created"], &chunk["model"]), (&last["id"], &last["created"], &json!("toy")));
        assert!(chunk.get("usage").unwrap().is_null() && chunk["system_fingerprint"].is_string());
    }
    let plain = post(PATH, &ask(json!({"stream": true}))).chunks();
    assert!(plain.iter().all(|chunk| chunk.get("usage").is_none()));
    assert!(plain.last().unwrap()["flint"].is_object());
}

#[test]
fn answers_end_for_the_reasons_they_say() {
    for (more, content, reason) in [
        (json!({"logit_bias": only(97), "max_tokens": 3}), "aaa", "length"),
        (json!({"logit_bias": only(IM_END)}), "", "stop"),
        (json!({"logit_bias": only(97), "stop": "aa"}), "", "stop"),
        (json!({"logit_bias": only(97), "max_completion_tokens": 2, "max_tokens": 9}), "aa", "length"),
    ] {
        let answer = post(PATH, &ask(more)).ok();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(content), &json!(reason)));
    }
}

#[test]
fn several_answers_differ_by_seed_and_share_their_prompt() {
    let body = ask(json!({"n": 3, "seed": 5, "temperature": 1.0, "logit_bias": endless()}));
    let answer = post(PATH, &body).ok();
    let text = |answer: &Value, index: usize| answer["choices"][index]["message"]["content"].clone();
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    assert_ne!(text(&answer, 0), text(&answer, 1));
    assert_eq!(answer["usage"]["completion_tokens"], 72);
    let alone = post(PATH, &with(&body, json!({"n": 1, "seed": 6}))).ok();
    assert_eq!(text(&alone, 0), text(&answer, 1));
    let chunks = post(PATH, &with(&body, json!({"stream": true}))).chunks();
    for index in 0..3 {
        assert_eq!(assembled(&chunks, index).0["content"], text(&answer, index));
    }
    assert_eq!(error(&post(PATH, &ask(json!({"n": 5}))), 400)["param"], "n");
}

#[test]
fn log_probabilities_belong_to_the_text() {
    let body = ask(json!({"logprobs": true, "top_logprobs": 2, "logit_bias": only(97), "max_tokens": 4}));
    let answer = post(PATH, &body).ok();
    let tokens = answer["choices"][0]["logprobs"]["content"].clone();
    assert_eq!(tokens.as_array().unwrap().len(), 4);
    assert_eq!((&tokens[0]["token"], &tokens[0]["bytes"]), (&json!("a"), &json!([97])));
    assert_eq!(tokens[0]["top_logprobs"].as_array().unwrap().len(), 2);
    assert!(tokens[0]["logprob"].as_f64().unwrap() < 0.0);
    let chunks = post(PATH, &with(&body, json!({"stream": true}))).chunks();
    let streamed = chunks.iter().flat_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(Value::from(streamed.flatten().cloned().collect::<Vec<_>>()), tokens);
}

fn tools(more: Value) -> Value {
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": city(), "strict": true}});
    let base = json!({"tools": [tool], "parallel_tool_calls": false, "max_tokens": 2000});
    ask(with(&base, more))
}

#[test]
fn a_call_is_made_answered_and_read_only_once() {
    let choice = json!({"type": "function", "function": {"name": "weather"}});
    let messages = json!([{"role": "user", "content": "in a round"}]);
    let body = tools(json!({"tool_choice": choice, "messages": messages, "parallel_tool_calls": true}));
    let answer = post(PATH, &body).ok();
    let message = &answer["choices"][0]["message"];
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    assert!(message["content"].is_null());
    let call = &message["tool_calls"][0];
    assert_eq!((&call["type"], &call["function"]["name"]), (&json!("function"), &json!("weather")));
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(["Paris", "Rome"].contains(&arguments["city"].as_str().unwrap()));

    let (streamed, reason) = assembled(&post(PATH, &with(&body, json!({"stream": true}))).chunks(), 0);
    assert_eq!((&reason, &streamed["tool_calls"][0]["function"]), (&json!("tool_calls"), &call["function"]));

    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "mild"});
    let messages = json!([body["messages"][0], message, result]);
    let next = post(PATH, &with(&body, json!({"messages": messages, "tool_choice": "none", "max_tokens": 4}))).ok();
    let cached = next["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    // A byte is a token here: the prompt and the call are all there, as the model wrote them.
    let prompt = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let wrote = prompt + call["function"]["arguments"].as_str().unwrap().len() as u64;
    assert!(cached >= wrote, "{cached} of {wrote}");
}

#[test]
fn calls_are_required_allowed_and_refused() {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": city()}});
    let two = json!([tool("first"), tool("second")]);
    let named = json!({"type": "function", "function": {"name": "second"}});
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}});
    for choice in [named.clone(), allowed] {
        let answer = post(PATH, &tools(json!({"tools": two, "tool_choice": choice}))).ok();
        assert_eq!(answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "second");
    }
    let answer = post(PATH, &tools(json!({"tools": two, "tool_choice": "required"}))).ok();
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let custom = json!({"type": "custom", "custom": {"name": "say", "format": {
        "type": "grammar", "grammar": {"syntax": "regex", "definition": "(yes|no)"}}}});
    let choice = json!({"type": "custom", "custom": {"name": "say"}});
    let answer = post(PATH, &tools(json!({"tools": [custom], "tool_choice": choice}))).ok();
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(call["type"], "custom");
    assert!(["yes", "no"].contains(&call["custom"]["input"].as_str().unwrap()), "{call}");
    let unknown = json!({"type": "function", "function": {"name": "third"}});
    assert_eq!(error(&post(PATH, &tools(json!({"tool_choice": unknown}))), 400)["param"], "tool_choice");
}

#[test]
fn answers_follow_their_format() {
    let schema = json!({"type": "json_schema", "json_schema": {"name": "c", "strict": true, "schema": city()}});
    let answer = post(PATH, &ask(json!({"response_format": schema, "max_tokens": 2000}))).ok();
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap();
    let value: Value = serde_json::from_str(content).unwrap();
    assert!(["Paris", "Rome"].contains(&value["city"].as_str().unwrap()));
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    for (more, param) in [
        (json!({"messages": []}), "messages"),
        (json!({"temperature": 3}), "temperature"),
        (json!({"functions": [{}]}), "functions"),
        (json!({"messages": [{"role": "tool", "tool_call_id": "x", "content": "y"}]}), "messages"),
        (json!({"messages": [{"role": "robot", "content": "y"}]}), "messages[0].role"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"stop": vec!["x"; 17]}), "stop"),
    ] {
        let error = error(&post(PATH, &ask(more)), 400);
        assert_eq!((&error["type"], &error["param"]), (&json!("invalid_request_error"), &json!(param)));
    }
    assert_eq!(error(&post(PATH, &ask(json!({"model": "nope"}))), 404)["code"], "model_not_found");
    let long = json!([{"role": "user", "content": "x".repeat(CONTEXT)}]);
    for stream in [false, true] {
        let error = error(&post(PATH, &ask(json!({"messages": long, "stream": stream}))), 400);
        assert_eq!((&error["code"], &error["param"]), (&json!("context_length_exceeded"), &json!("messages")));
    }
}

#[test]
fn a_forced_call_comes_before_a_format() {
    let schema = json!({"type": "json_schema", "json_schema": {"name": "c", "schema": {"type": "object"}}});
    let named = json!({"type": "function", "function": {"name": "weather"}});
    for choice in [named, json!("required")] {
        let body = tools(json!({"tool_choice": choice, "response_format": schema}));
        let answer = post(PATH, &body).ok();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
        assert_eq!(choice["message"]["tool_calls"][0]["function"]["name"], "weather");
    }
    let answer = post(PATH, &tools(json!({"response_format": schema, "tool_choice": "auto"}))).ok();
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().starts_with('{'));
}

#[test]
fn the_formats_of_other_servers_are_followed() {
    let said = |more: Value| {
        let body = with(&ask(json!({"max_tokens": 200})), more);
        post(PATH, &body).ok()["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    for more in [
        json!({"structured_outputs": {"choice": ["left", "right"]}}),
        json!({"guided_choice": ["left", "right"]}),
        json!({"guided_regex": "left|right"}),
        json!({"guided_grammar": "start: \"left\" | \"right\""}),
        json!({"structured_outputs": {"grammar": "root ::= \"le\" ft | \"right\"\nft ::= [f] [t]"}}),
        json!({"grammar": "root ::= (\"left\" | \"right\")"}),
    ] {
        let text = said(more.clone());
        assert!(["left", "right"].contains(&text.as_str()), "{more}: {text}");
    }
    for more in [
        json!({"structured_outputs": {"json": city()}}),
        json!({"guided_json": city().to_string()}),
        json!({"json_schema": city()}),
        json!({"response_format": {"type": "json_object", "schema": city()}}),
    ] {
        let value: Value = serde_json::from_str(&said(more)).unwrap();
        assert!(["Paris", "Rome"].contains(&value["city"].as_str().unwrap()));
    }
    let completion =
        json!({"model": "toy", "prompt": "a", "max_tokens": 50, "structured_outputs": {"choice": ["left"]}});
    assert_eq!(post("/v1/completions", &completion).ok()["choices"][0]["text"], "left");
    let response = json!({"model": "toy", "input": "a", "structured_outputs": {"choice": ["left"]}});
    assert_eq!(post("/v1/responses", &response).ok()["output"][0]["content"][0]["text"], "left");
    for (more, param) in [
        (json!({"structured_outputs": {"xml": "x"}}), "structured_outputs.xml"),
        (json!({"structural_tag": {}}), "structural_tag"),
        (json!({"guided_lunch": 1}), "guided_lunch"),
        (json!({"guided_regex": "a", "guided_choice": ["a"]}), "guided_choice"),
    ] {
        assert_eq!(error(&post(PATH, &ask(more.clone())), 400)["param"], param);
        let body = with(&json!({"model": "toy", "input": "a"}), more);
        assert_eq!(error(&post("/v1/responses", &body), 400)["param"], param);
    }
    let broken = ask(json!({"guided_grammar": "root ::= missing-rule"}));
    assert!(error(&post(PATH, &broken), 400)["message"].as_str().unwrap().contains("missing_rule"));
}

#[test]
fn an_answer_of_no_tokens_leaves_its_prompt_in_the_cache() {
    for (index, limit) in ["max_tokens", "max_completion_tokens", "n_predict"].into_iter().enumerate() {
        let messages = json!([{"role": "user", "content": format!("{index} is warmed up before it is asked")}]);
        let mut body = with(&ask(json!({"max_tokens": null})), json!({"messages": messages}));
        body[limit] = 0.into();
        let answer = post(PATH, &body).ok();
        let choice = &answer["choices"][0];
        assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(""), &json!("length")));
        assert_eq!(answer["usage"]["completion_tokens"], 0);
        body[limit] = 1.into();
        let next = post(PATH, &body).ok();
        let count = |name: &str| next["usage"].pointer(name).unwrap().as_u64().unwrap();
        let (prompt, cached) = (count("/prompt_tokens"), count("/prompt_tokens_details/cached_tokens"));
        assert!(cached + 1 >= prompt, "{cached} of {prompt}");
        assert_eq!(next["usage"]["completion_tokens"], 1);
        let chunks = post(PATH, &with(&body, json!({"stream": true, limit: 0}))).chunks();
        assert_eq!(assembled(&chunks, 0).0["content"], "");
    }
}

#[test]
fn what_cannot_be_read_is_refused_in_a_message_and_noted_in_a_result() {
    for part in [
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}),
        json!({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}),
        json!({"type": "file", "file": {"file_id": "f"}}),
    ] {
        let parts = json!([{"type": "text", "text": "a"}, part]);
        for role in ["user", "system"] {
            let error = error(&post(PATH, &ask(json!({"messages": [{"role": role, "content": parts}]}))), 400);
            assert_eq!(
                (&error["type"], &error["param"]),
                (&json!("invalid_request_error"), &json!("messages[0].content"))
            );
            assert!(error["message"].as_str().unwrap().contains(part["type"].as_str().unwrap()), "{error}");
        }
        let call = json!({"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}});
        let messages = json!([
            {"role": "user", "content": "look"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": parts},
        ]);
        let answer = post(PATH, &ask(json!({"messages": messages, "max_tokens": 1}))).ok();
        assert!(answer["flint"]["warnings"][0].as_str().unwrap().contains(part["type"].as_str().unwrap()));
    }
    assert_eq!(error(&post(PATH, &ask(json!({"modalities": ["audio"]}))), 400)["param"], "modalities");
}

#[test]
fn a_prediction_changes_nothing_and_a_wrong_one_is_named() {
    let plain = post(PATH, &ask(json!({"max_tokens": 200}))).ok();
    let text = plain["choices"][0]["message"]["content"].clone();
    let huge = "fn main() {}\n".repeat(100_000);
    let parts = json!([{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]);
    for content in [text.clone(), json!(""), json!("\u{0}\u{7f}\u{10ffff}"), json!(huge), parts] {
        let prediction = json!({"type": "content", "content": content});
        let answer = post(PATH, &ask(json!({"max_tokens": 200, "prediction": prediction}))).ok();
        assert_eq!(answer["choices"][0]["message"]["content"], text);
        assert_eq!(answer["usage"]["completion_tokens"], plain["usage"]["completion_tokens"]);
        let details = &answer["usage"]["completion_tokens_details"];
        let drafted = &answer["flint"]["timings"]["drafters"]["prediction"];
        let count = |value: &Value| value.as_u64().unwrap_or(0);
        let (right, wrong) = (&details["accepted_prediction_tokens"], &details["rejected_prediction_tokens"]);
        assert!(right.is_u64() && wrong.is_u64(), "{details}");
        assert_eq!(count(right) + count(wrong), count(&drafted["drafted_tokens"]), "{answer}");
        let warned = answer["flint"]["warnings"].to_string().contains("`prediction` was used up to");
        assert_eq!(warned, content.as_str().is_some_and(|text| text.len() > 256 << 10));
    }
    for (prediction, param) in [
        (json!("text"), "prediction"),
        (json!({"type": "diff", "content": "text"}), "prediction.type"),
        (json!({"type": "content", "content": [{"type": "image_url"}]}), "prediction.content[0].type"),
    ] {
        let refused = error(&post(PATH, &ask(json!({"prediction": prediction}))), 400);
        assert_eq!(refused["param"], param, "{refused}");
        let refused =
            error(&post("/v1/responses", &json!({"model": "toy", "input": "a", "prediction": prediction})), 400);
        assert_eq!(refused["param"], param, "{refused}");
    }
}

#[test]
fn the_status_page_names_the_model_and_its_drafters() {
    post(PATH, &ask(json!({}))).ok();
    let status = get("/status").ok();
    let toy = status["models"].as_array().unwrap().iter().find(|model| model["name"] == "toy").unwrap();
    assert!(toy["generated_tokens"].as_u64().unwrap() >= 24, "{toy}");
    assert!(toy["drafting"]["drafted_tokens"].is_u64() && toy["drafting"]["drafters"].is_object(), "{toy}");
}
