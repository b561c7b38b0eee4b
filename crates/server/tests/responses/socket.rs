//! The Responses API on a WebSocket: continuing, warming, cancelling, and what goes wrong there.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::client::{Socket, cached, text, tokens};
use crate::stream;
use crate::support::{Setup, TestServer, until};

async fn follow(socket: &mut Socket, previous: &Value, input: &str) -> Value {
    socket.create(json!({"input": input, "previous_response_id": previous["id"], "store": false})).await;
    socket.ended(None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_has_the_events_of_a_stream() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    // `stream` is of HTTP; clients send it all the same.
    socket.create(json!({"input": "say hello", "stream": true, "model": "actor"})).await;
    let response = stream::check(&socket.response(None).await);
    assert_eq!(text(&response), "hello");
    assert_eq!(response["flint"]["transport"], "websocket");
    assert!(response["flint"].get("warnings").is_none(), "{response}");
    // It is stored as any other.
    let id = response["id"].as_str().unwrap();
    assert_eq!(server.http().await.get(&format!("/v1/responses/{id}")).await.ok(), response);
}

#[tokio::test(flavor = "multi_thread")]
async fn warming_up_reads_the_prompt_that_the_next_turn_needs() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    let instructions = "be brief ".repeat(20);
    let tool = json!({"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}});
    let base = json!({"role": "developer", "content": instructions});
    socket.create(json!({"generate": false, "input": [base], "tools": [tool], "store": false})).await;
    let events = socket.response(None).await;
    let warm = events.last().unwrap()["response"].clone();
    assert_eq!((&warm["status"], &warm["output"]), (&json!("completed"), &json!([])));
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!((kinds[0], *kinds.last().unwrap()), ("response.created", "response.completed"));
    let read = server.actors.engine(0).stats().prompt_tokens;
    assert!(read >= tokens(&warm, "input_tokens") - 1 && read > 180, "the prompt was really read: {read}");
    socket
        .create(json!({"previous_response_id": warm["id"], "input": "say hi", "tools": [tool], "store": false}))
        .await;
    let turn = socket.ended(None).await;
    assert_eq!(text(&turn), "hi");
    assert!(cached(&turn) + 1 >= tokens(&warm, "input_tokens"), "{} of {}", cached(&turn), warm["usage"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_without_being_stored() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    socket.create(json!({"input": "say one", "store": false})).await;
    let first = socket.ended(None).await;
    let second = follow(&mut socket, &first, "say two").await;
    let third = follow(&mut socket, &second, "recite").await;
    assert_eq!(text(&third), "user=say one|assistant=one|user=say two|assistant=two|user=recite");
    let known = tokens(&second, "input_tokens") + tokens(&second, "output_tokens") - 1;
    assert!(cached(&third) >= known, "{} of {known}", cached(&third));
    // Another connection does not know it; one that was stored is known everywhere.
    let mut other = server.socket().await;
    other.create(json!({"input": "x", "previous_response_id": second["id"]})).await;
    let error = other.find(None, "error").await;
    assert_eq!((&error["status"], &error["error"]["code"]), (&json!(400), &json!("previous_response_not_found")));
    assert_eq!(error["error"]["param"], "previous_response_id");
    let stored = socket.say("say kept").await;
    assert_eq!(text(&follow(&mut other, &stored, "recite").await), "user=say kept|assistant=kept|user=recite");
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_after_unstored_is_whole() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    socket.create(json!({"input": "say one", "store": false})).await;
    let first = socket.ended(None).await;
    socket.create(json!({"input": "say two", "previous_response_id": first["id"]})).await;
    let second = socket.ended(None).await;
    let directory = server.finish().await;
    let server = TestServer::on(Setup::default(), directory).await;
    let third = follow(&mut server.socket().await, &second, "recite").await;
    assert_eq!(text(&third), "user=say one|assistant=one|user=say two|assistant=two|user=recite");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_continuation_forgets_what_it_continued() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    socket.create(json!({"input": "say one", "store": false})).await;
    let first = socket.ended(None).await;
    let output = json!({"type": "function_call_output", "call_id": "call_x", "output": "x"});
    socket.create(json!({"input": [output], "previous_response_id": first["id"], "store": false})).await;
    assert_eq!(socket.find(None, "error").await["status"], 400);
    socket.create(json!({"input": "x", "previous_response_id": first["id"], "store": false})).await;
    assert_eq!(socket.find(None, "error").await["error"]["code"], "previous_response_not_found");
    assert_eq!(text(&socket.say("say on").await), "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_an_error_and_no_more() {
    let mut setup = Setup::default();
    setup.limits.websocket_message_bytes = 100_000;
    let server = TestServer::with(setup).await;
    let mut socket = server.socket().await;
    let deep = format!(r#"{{"type": "response.create", "input": {}{}}}"#, "[".repeat(100), "]".repeat(100));
    let cases = [
        Message::binary(b"{}".to_vec()),
        Message::text("{\"type\": "),
        Message::text("3"),
        Message::text("{}"),
        Message::text(r#"{"type": "response.append"}"#),
        Message::text(r#"{"type": "response.create", "input": 3}"#),
        Message::text(r#"{"type": "response.create"}"#),
        Message::text(r#"{"type": "response.create", "input": "x", "model": "none"}"#),
        Message::text(deep),
    ];
    for message in cases {
        let sent = message.to_string();
        socket.raw(message).await;
        let error = socket.find(None, "error").await;
        assert!((400..500).contains(&error["status"].as_u64().unwrap()), "{error}");
        let payload = &error["error"];
        assert!(payload["type"].is_string() && payload["message"].is_string(), "{sent}: {error}");
    }
    assert_eq!(text(&socket.say("say alive").await), "alive");
    // A prompt that does not fit is an answer of the stream.
    socket.create(json!({"input": "x".repeat(3000)})).await;
    let failed = socket.find(None, "response.failed").await;
    assert_eq!(failed["response"]["error"]["code"], "context_length_exceeded");
    assert_eq!(text(&socket.say("say alive").await), "alive");
    // A message that is too large closes the socket.
    socket.raw(Message::text("x".repeat(200_000))).await;
    socket.closed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_keeps_what_was_said() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    server.gate().close();
    socket.create(json!({"input": "count", "store": false})).await;
    let id = socket.find(None, "response.created").await["response"]["id"].clone();
    server.gate().allow(8);
    server.held().await;
    socket.send(json!({"type": "response.cancel", "response_id": id})).await;
    // An answer to something after it: the cancel has been read.
    socket.send(json!({"type": "response.steer", "previous_response_id": "resp_none", "input": "x"})).await;
    socket.find(None, "response.steer.failed").await;
    server.gate().open();
    let response = socket.ended(None).await;
    assert_eq!(
        (&response["status"], &response["incomplete_details"]["reason"]),
        (&json!("cancelled"), &json!("cancelled"))
    );
    assert!(text(&response).starts_with(" 1 2 3"), "{response}");
    server.running(0).await;
    let next = follow(&mut socket, &response, "recite").await;
    assert!(text(&next).starts_with("user=count|assistant= 1 2 3"), "{}", text(&next));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_what_is_not_there_is_an_error_and_what_is_over_is_not() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    socket.send(json!({"type": "response.cancel", "response_id": "resp_none", "stream_id": "a"})).await;
    let error = socket.find(Some("a"), "error").await;
    assert_eq!((&error["status"], &error["error"]["code"]), (&json!(404), &json!("response_not_found")));
    // Ended well, and ended badly: too late is no mistake.
    let well = socket.say("say x").await;
    socket.create(json!({"input": "x".repeat(3000)})).await;
    let badly = socket.find(None, "response.failed").await["response"].clone();
    for over in [well, badly] {
        socket.send(json!({"type": "response.cancel", "response_id": over["id"]})).await;
        assert_eq!(text(&socket.say("say on").await), "on");
    }
    assert!(socket.peek(|event| event["type"] == "error").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_a_lane_answers_all_that_wait_there() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    server.gate().close();
    for _ in 0..3 {
        socket.create(json!({"input": "count", "stream_id": "a"})).await;
    }
    socket.create(json!({"input": "say b", "stream_id": "b"})).await;
    socket.find(Some("a"), "response.created").await;
    socket.find(Some("b"), "response.created").await;
    server.held().await;
    socket.send(json!({"type": "response.cancel", "stream_id": "a"})).await;
    for _ in 0..2 {
        let error = socket.find(Some("a"), "error").await;
        assert_eq!((&error["status"], &error["error"]["code"]), (&json!(400), &json!("response_cancelled")));
    }
    server.gate().open();
    assert_eq!(socket.ended(Some("a")).await["status"], "cancelled");
    assert_eq!(text(&socket.ended(Some("b")).await), "b", "the other lane goes on");
    socket.create(json!({"input": "say again", "stream_id": "a"})).await;
    assert_eq!(text(&socket.ended(Some("a")).await), "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_socket_frees_the_engine_at_once() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    server.gate().close();
    socket.create(json!({"input": "count", "stream_id": "a"})).await;
    socket.create(json!({"input": "count 900", "stream_id": "b"})).await;
    for lane in ["a", "b"] {
        socket.find(Some(lane), "response.created").await;
    }
    server.gate().allow(10);
    socket.find(Some("a"), "response.output_text.delta").await;
    socket.find(Some("b"), "response.output_text.delta").await;
    server.held().await;
    let engine = server.actors.engine(0);
    let before = engine.stats();
    assert_eq!(before.running, [2, 0]);
    drop(socket);
    // The server sees the end of the connection on its own; one step later the engine is empty.
    until("both sequences are gone", || {
        server.gate().allow(1);
        engine.stats().running == [0, 0]
    })
    .await;
    assert!(engine.stats().generated_tokens < 900, "they were cancelled, not finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_limit_waits_for_what_runs() {
    let mut setup = Setup::default();
    setup.limits.websocket_time = Duration::from_millis(50);
    let server = TestServer::with(setup).await;
    server.gate().close();
    let mut socket = server.socket().await;
    socket.create(json!({"input": "say done"})).await;
    socket.find(None, "response.created").await;
    // Until the limit has passed, requests are queued on the lane; afterwards they are refused.
    let mut queued = 0;
    let refused = loop {
        socket.create(json!({"input": "say more", "stream_id": "probe"})).await;
        socket.send(json!({"type": "response.steer", "previous_response_id": "resp_none", "input": "x"})).await;
        socket.find(None, "response.steer.failed").await;
        if let Some(error) = socket.peek(|event| event["type"] == "error") {
            break error;
        }
        queued += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(refused["error"]["code"], "websocket_connection_limit_reached", "after {queued}: {refused}");
    assert_eq!((&refused["status"], &refused["stream_id"]), (&json!(400), &json!("probe")));
    server.gate().open();
    assert_eq!(text(&socket.ended(None).await), "done", "what ran was not cut off");
    let limit = socket.find(None, "error").await;
    assert_eq!(limit["error"]["code"], "websocket_connection_limit_reached");
    let message = limit["error"]["message"].as_str().unwrap();
    assert!(message.contains("reached its 0 seconds"), "{message}");
    assert_eq!(socket.closed().await, Some(1001));
}
