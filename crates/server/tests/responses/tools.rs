//! Tools: calls held to their schema, named as they were declared, answered by their ids.

use serde_json::{Value, json};

use crate::client::text;
use crate::stream;
use crate::support::TestServer;

fn ls() -> Value {
    let parameters = json!({
        "type": "object", "additionalProperties": false, "required": ["path", "all"],
        "properties": {"path": {"enum": ["src", "tests"]}, "all": {"type": "boolean"}},
    });
    json!({"type": "function", "name": "ls", "description": "lists", "parameters": parameters, "strict": true})
}

fn arguments(call: &Value) -> Value {
    serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_required_comes_whatever_the_model_wants() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let named = json!({"type": "function", "name": "ls"});
    let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": [named]});
    let other = json!({"type": "function", "name": "rm", "parameters": {"type": "object", "properties": {}}});
    for choice in [named, allowed] {
        let asked =
            json!({"input": "say no", "tools": [other, ls()], "tool_choice": choice, "parallel_tool_calls": false});
        let response = http.create(asked).await.ok();
        assert_eq!(response["status"], "completed", "{response}");
        let calls = response["output"].as_array().unwrap();
        assert_eq!(calls.len(), 1, "{response}");
        let call = &calls[0];
        assert_eq!(
            (&call["type"], &call["name"], &call["status"]),
            (&json!("function_call"), &json!("ls"), &json!("completed"))
        );
        assert!(
            call["id"].as_str().unwrap().starts_with("fc_") && call["call_id"].as_str().unwrap().starts_with("call_")
        );
        assert!(call.get("namespace").is_none());
        let arguments = arguments(call);
        assert!(["src", "tests"].iter().any(|path| arguments["path"] == *path), "{arguments}");
        assert!(arguments["all"].is_boolean());
    }
    let none = json!({"input": "call {\"name\": \"ls\", \"arguments\": {}}", "tools": [ls()], "tool_choice": "none"});
    let response = http.create(none).await.ok();
    assert_eq!(response["output"][0]["type"], "message");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_the_model_makes_is_streamed_and_its_result_is_read() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let order = r#"call {"name": "ls", "arguments": {"path": "src", "all": true}}"#;
    let events = http.stream(json!({"input": order, "tools": [ls()]})).await.all().await;
    let response = stream::check(&events);
    let call = response["output"][0].clone();
    assert_eq!(call["arguments"], r#"{"path": "src", "all": true}"#);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"response.function_call_arguments.delta"), "{kinds:?}");
    let done = events.iter().find(|event| event["type"] == "response.function_call_arguments.done").unwrap();
    assert_eq!((&done["name"], &done["arguments"]), (&json!("ls"), &call["arguments"]));
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": [{"type": "input_text", "text": "a b"}]});
    let next = json!({"input": [output], "previous_response_id": response["id"], "tools": [ls()]});
    assert_eq!(text(&http.create(next.clone()).await.ok()), "got a b");
    // The whole history by hand reads the same.
    let whole = json!({"input": [{"role": "user", "content": order}, call, output], "tools": [ls()], "store": false});
    assert_eq!(text(&http.create(whole).await.ok()), "got a b");
    let unknown = json!({"type": "function_call_output", "call_id": "call_unknown", "output": "x"});
    let error = http.create(json!({"input": [unknown], "previous_response_id": response["id"]})).await.error(400);
    assert!(error["message"].as_str().unwrap().contains("call_unknown"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_call_is_held_to_its_schema() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    // The model wants a path that the schema does not have.
    let order = r#"call {"name": "ls", "arguments": {"path": "etc", "all": 7}}"#;
    let response = http.create(json!({"input": order, "tools": [ls()]})).await.ok();
    let arguments = arguments(&response["output"][0]);
    assert!(["src", "tests"].iter().any(|path| arguments["path"] == *path), "{arguments}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prose_calls_and_fenced_calls_are_calls() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let fenced =
        "say Let me look.\n```json\n{\"name\": \"ls\", \"arguments\": {\"path\": \"src\", \"all\": false}}\n```";
    let response = http.create(json!({"input": fenced, "tools": [ls()]})).await.ok();
    let output = response["output"].as_array().unwrap();
    assert_eq!(output.len(), 2, "{response}");
    assert_eq!((text(&response).as_str(), &output[0]["phase"]), ("Let me look.", &json!("commentary")));
    assert_eq!(output[1]["name"], "ls");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_call_comes_before_a_format() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let format = json!({"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}});
    for choice in [json!("required"), json!({"type": "function", "name": "ls"})] {
        let asked = json!({"input": "say no", "tools": [ls()], "tool_choice": choice, "text": format});
        let response = http.create(asked).await.ok();
        assert_eq!(response["output"][0]["type"], "function_call", "{response}");
        assert_eq!(response["text"]["format"]["type"], "json_schema");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_namespace_come_back_under_both_names() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let space = json!({"type": "namespace", "name": "agents", "description": "d", "tools": [ls()]});
    let order = r#"call {"name": "agents__ls", "arguments": {"path": "src", "all": true}}"#;
    let response = http.create(json!({"input": order, "tools": [space]})).await.ok();
    let call = &response["output"][0];
    assert_eq!((&call["name"], &call["namespace"]), (&json!("ls"), &json!("agents")), "{response}");
    assert_eq!(response["tools"], json!([space]));
    let output = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "x"});
    let history = json!([{"role": "user", "content": order}, call, output, {"role": "user", "content": "recite"}]);
    let recited = text(&http.create(json!({"input": history, "tools": [space]})).await.ok());
    assert!(recited.contains(r#""name": "agents__ls""#), "the model sees the name it was told: {recited}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_travel_as_items_stay_with_the_conversation() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    let bring = |tool: Value| json!({"type": "additional_tools", "tools": [tool]});
    let user = |text: &str| json!({"role": "user", "content": text});
    let order = r#"call {"name": "ls", "arguments": {"path": "src", "all": true}}"#;
    socket.create(json!({"input": [bring(ls()), user("say ready")]})).await;
    let mut last = socket.ended(None).await;
    assert_eq!(text(&last), "ready");
    // Not in this request, and still known: as tokens that are held, and from the store alone.
    let mut http = server.http().await;
    for again in 0..2 {
        let asked = json!({"input": [user(order)], "previous_response_id": last["id"]});
        let response = match again {
            0 => {
                socket.create(asked).await;
                socket.ended(None).await
            }
            _ => http.create(asked).await.ok(),
        };
        assert_eq!(response["output"][0]["name"], "ls", "{response}");
        let output =
            json!({"type": "function_call_output", "call_id": response["output"][0]["call_id"], "output": "x"});
        last = http.create(json!({"input": [output], "previous_response_id": response["id"]})).await.ok();
    }
    // A later declaration of the same name counts, and the model is told of it.
    let mut other = ls();
    other["parameters"]["properties"]["path"] = json!({"enum": ["docs"]});
    let forced = json!({
        "input": [bring(other), user("say no")], "previous_response_id": last["id"], "tool_choice": "required",
        "parallel_tool_calls": false,
    });
    let response = http.create(forced).await.ok();
    assert_eq!(arguments(&response["output"][0])["path"], "docs", "{response}");
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_tools_take_free_text_by_their_grammar() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let format = json!({"type": "grammar", "syntax": "regex", "definition": "[a-c]{4}"});
    let patch = json!({"type": "custom", "name": "patch", "format": format});
    let forced = json!({"input": "say no", "tools": [patch], "tool_choice": {"type": "custom", "name": "patch"}});
    let events = http.stream(forced).await.all().await;
    let response = stream::check(&events);
    let call = &response["output"][0];
    assert_eq!((&call["type"], &call["name"]), (&json!("custom_tool_call"), &json!("patch")), "{response}");
    let input = call["input"].as_str().unwrap();
    assert!(input.len() == 4 && input.bytes().all(|byte| b"abc".contains(&byte)), "{input:?}");
    assert!(events.iter().any(|event| event["type"] == "response.custom_tool_call_input.delta"));
    let output = json!({"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "fine"});
    let next = json!({"input": [output], "previous_response_id": response["id"], "tools": [patch]});
    assert_eq!(text(&http.create(next).await.ok()), "got fine");
    let lark = json!({"type": "grammar", "syntax": "lark", "definition": "start: nothing"});
    let bad =
        json!({"input": "x", "tools": [{"type": "custom", "name": "p", "format": lark}], "tool_choice": "required"});
    http.create(bad).await.error(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_cut_off_is_incomplete() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let order = r#"call {"name": "ls", "arguments": {"path": "src", "all": true}}"#;
    let response = http.create(json!({"input": order, "tools": [ls()], "max_output_tokens": 45})).await.ok();
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["output"][0]["type"], "function_call", "{response}");
    assert_eq!(response["output"][0]["status"], "incomplete");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_as_many_calls_as_were_asked_for() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let one = r#"{"name": "ls", "arguments": {"path": "src", "all": true}}"#;
    let order = format!("say <tool_call>\n{one}\n</tool_call>\n<tool_call>\n{one}\n</tool_call>");
    for (body, calls) in [(json!({}), 2), (json!({"parallel_tool_calls": false}), 1), (json!({"max_tool_calls": 1}), 1)]
    {
        let mut asked = json!({"input": order, "tools": [ls()]});
        asked.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let response = http.create(asked).await.ok();
        assert_eq!(response["output"].as_array().unwrap().len(), calls, "{body}: {response}");
        assert_eq!(response["status"], "completed", "{body}");
        let outputs = response["output"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "x"}));
        let mut input: Vec<Value> = outputs.collect();
        input.push(json!({"role": "user", "content": "recite"}));
        let next = json!({"input": input, "previous_response_id": response["id"]});
        // Without tools, so that what is recited is no call.
        let recited = text(&http.create(next).await.ok());
        if body["parallel_tool_calls"] == false {
            let answer = recited.split("|assistant=").nth(1).unwrap().split("|tool=").next().unwrap();
            assert_eq!(answer.matches("arguments").count(), calls, "the model sees what the client saw: {answer}");
        }
    }
}
