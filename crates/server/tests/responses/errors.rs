//! Wrong requests: each gets a 4xx that says what is wrong, and the server goes on.

use hyper::Method;
use serde_json::{Value, json};

use crate::client::text;
use crate::support::{Setup, TestServer};

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_not_what_they_must_be() {
    let mut setup = Setup::default();
    setup.limits.body_bytes = 10_000;
    let server = TestServer::with(setup).await;
    let deep = format!(r#"{{"input": {}1{}}}"#, "[".repeat(100), "]".repeat(100));
    let big = json!({"input": "x".repeat(20_000)}).to_string();
    let cases: [(&[u8], u16, &str); 6] = [
        (b"", 400, "JSON"),
        (b"{\"input\": ", 400, "JSON"),
        (b"\xff\xfe", 400, "JSON"),
        (b"[1]", 400, "object"),
        (deep.as_bytes(), 400, "nested"),
        (big.as_bytes(), 413, "10000"),
    ];
    for (body, status, word) in cases {
        let answer = server.http().await.ask(Method::POST, "/v1/responses", &[], body).await;
        let error = answer.error(status);
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
    assert_eq!(text(&server.http().await.say("say fine").await), "fine");
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_are_not_what_they_must_be() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let user = json!({"role": "user", "content": "x"});
    let cases: Vec<(Value, &str)> = vec![
        (json!({}), "input"),
        (json!({"input": 3}), "input"),
        (json!({"input": {"role": "user"}}), "input"),
        (json!({"input": ["x"]}), "input[0]"),
        (json!({"input": [user, {"role": "king", "content": "x"}]}), "input[1].role"),
        (json!({"input": [{"role": "user"}]}), "input[0].content"),
        (json!({"input": [{"type": "item_reference", "id": "msg_1"}]}), "input[0].type"),
        (json!({"input": "x", "model": 3}), "model"),
        (json!({"input": "x", "temperature": 9}), "temperature"),
        (json!({"input": "x", "top_p": -1}), "top_p"),
        (json!({"input": "x", "max_output_tokens": 0}), "max_output_tokens"),
        (json!({"input": "x", "max_output_tokens": 1.5}), "max_output_tokens"),
        (json!({"input": "x", "stream": "yes"}), "stream"),
        (json!({"input": "x", "store": 1}), "store"),
        (json!({"input": "x", "metadata": []}), "metadata"),
        (json!({"input": "x", "tools": {}}), "tools"),
        (json!({"input": "x", "tools": [{"type": "function", "name": "a b"}]}), "tools[0].name"),
        (json!({"input": "x", "tool_choice": "perhaps"}), "tool_choice"),
        (json!({"input": "x", "tool_choice": "required"}), "tool_choice"),
        (json!({"input": "x", "tool_choice": {"type": "function", "name": "none"}}), "tool_choice"),
        (json!({"input": "x", "top_logprobs": 21}), "top_logprobs"),
        (json!({"input": "x", "truncation": "some"}), "truncation"),
        (json!({"input": "x", "continue_final_message": true}), "continue_final_message"),
        (
            json!({"input": [user, {"role": "assistant", "content": "{"}], "continue_final_message": true,
                "text": {"format": {"type": "json_object"}}}),
            "continue_final_message",
        ),
        (json!({"input": "x", "conversation": "c"}), "conversation"),
        (json!({"input": "x", "previous_response_id": 1}), "previous_response_id"),
        (json!({"input": "x", "text": {"format": {"type": "xml"}}}), "text"),
        (json!({"input": [{"type": "function_call_output", "call_id": "call_x", "output": "y"}]}), "input"),
    ];
    for (body, param) in cases {
        let error = http.create(body.clone()).await.error(400);
        assert_eq!(error["param"], param, "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
        // The same before a stream begins.
        let mut streamed = body;
        if streamed["stream"].is_null() {
            streamed["stream"] = json!(true);
            assert_eq!(http.create(streamed).await.error(400)["param"], param);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_methods_and_models_that_are_not_there() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let error = http.create(json!({"input": "x", "model": "gpt-9"})).await.error(404);
    assert_eq!((&error["code"], &error["param"]), (&json!("model_not_found"), &json!("model")));
    assert!(error["message"].as_str().unwrap().contains("actor, second"), "{error}");
    let error = http.create(json!({"input": "x", "previous_response_id": "resp_none"})).await.error(400);
    assert_eq!(
        (&error["code"], &error["param"]),
        (&json!("previous_response_not_found"), &json!("previous_response_id"))
    );
    assert_eq!(http.get("/v1/nothing").await.error(404)["code"], "not_found");
    assert_eq!(http.get("/v1/responses/resp_none").await.error(404)["code"], "response_not_found");
    http.delete("/v1/responses/resp_none").await.error(404);
    http.get("/v1/responses/resp_none/input_items").await.error(404);
    http.ask(Method::PUT, "/v1/responses", &[], b"{}").await.error(405);
    http.ask(Method::POST, "/v1/models", &[], b"{}").await.error(405);
    http.get("/v1/responses/resp_none/cancel").await.error(405);
    http.get("/v1/models/none").await.error(404);
    assert_eq!(http.get("/v1/models/second").await.ok()["id"], "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_get_without_an_upgrade_says_so() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let answer = http.get("/v1/responses").await;
    answer.error(426);
    assert_eq!(answer.header("upgrade"), Some("websocket"));
    let answer = http.ask(Method::HEAD, "/v1/responses", &[], b"").await;
    assert_eq!((answer.status, answer.body.len()), (426, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_items_and_tools() {
    let mut setup = Setup::default();
    setup.limits.input_items = 3;
    let server = TestServer::with(setup).await;
    let mut http = server.http().await;
    let items = vec![json!({"role": "user", "content": "x"}); 4];
    assert_eq!(http.create(json!({"input": items})).await.error(400)["param"], "input");
    let tools: Vec<Value> = (0..513).map(|n| json!({"type": "function", "name": format!("f{n}")})).collect();
    assert_eq!(http.create(json!({"input": "x", "tools": tools})).await.error(400)["param"], "tools");
    let twins = vec![json!({"type": "function", "name": "f"}); 2];
    assert_eq!(http.create(json!({"input": "x", "tools": twins})).await.error(400)["param"], "tools");
}
