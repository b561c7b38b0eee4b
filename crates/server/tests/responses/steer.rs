//! Steering: what is said to a running response ends it, stays after it, and is answered by itself.

use serde_json::{Value, json};

use crate::client::{Socket, cached, text, tokens};
use crate::support::{Setup, TestServer};

fn steer(previous: &Value, input: Value) -> Value {
    json!({"type": "response.steer", "previous_response_id": previous, "input": input})
}

/// A counting response held after some tokens; gives its id.
async fn counting(server: &TestServer, socket: &mut Socket, body: Value) -> Value {
    server.gate().close();
    let lane = body["stream_id"].as_str().map(str::to_owned);
    socket.create(body).await;
    let id = socket.find(lane.as_deref(), "response.created").await["response"]["id"].clone();
    server.gate().allow(40);
    server.held().await;
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steer_ends_the_response_and_its_successor_starts_by_itself() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    let body = json!({"input": "count", "store": false, "metadata": {"k": "v"}, "instructions": "be"});
    let id = counting(&server, &mut socket, body).await;
    socket.send(steer(&id, json!("recite"))).await;
    let accepted = socket.find(None, "response.steer.accepted").await;
    assert!(accepted["steer"]["id"].as_str().unwrap().starts_with("steer_"));
    assert_eq!(accepted["steer"]["previous_response_id"], id);
    assert!(accepted["steer"].get("input").is_none());
    server.gate().open();
    let first = socket.find(None, "response.incomplete").await["response"].clone();
    assert_eq!(first["id"], id);
    assert_eq!((&first["status"], &first["incomplete_details"]), (&json!("incomplete"), &json!({"reason": "steered"})));
    let said = text(&first);
    assert!(said.starts_with(" 1 2 3 4 5 6 7 8 9 10") && tokens(&first, "output_tokens") >= 40, "{said}");
    let second = socket.ended(None).await;
    assert_eq!((&second["status"], &second["previous_response_id"]), (&json!("completed"), &id));
    assert_eq!(
        (&second["metadata"], &second["store"], &second["instructions"]),
        (&json!({"k": "v"}), &json!(false), &json!("be"))
    );
    assert_eq!(text(&second), format!("system=be|user=count|assistant={said}|user=recite"), "nothing is lost");
    let known = tokens(&first, "input_tokens") + tokens(&first, "output_tokens") - 1;
    assert!(cached(&second) >= known, "{} of {known}", cached(&second));
    // The successor can be continued and steered as any other.
    socket.create(json!({"input": "say end", "previous_response_id": second["id"], "store": false})).await;
    assert_eq!(text(&socket.ended(None).await), "end");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_steers_are_one_successor() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    let id = counting(&server, &mut socket, json!({"input": "count", "stream_id": "a"})).await;
    socket.send(steer(&id, json!("say x"))).await;
    socket.send(steer(&id, json!([{"role": "user", "content": "recite"}]))).await;
    for _ in 0..2 {
        socket.find(Some("a"), "response.steer.accepted").await;
    }
    server.gate().open();
    assert_eq!(socket.ended(Some("a")).await["status"], "incomplete");
    let second = text(&socket.ended(Some("a")).await);
    assert!(second.ends_with("|user=say x|user=recite"), "{second}");
    assert_eq!(text(&socket.say("say alone").await), "alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_has_ended_is_continued() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    socket.create(json!({"input": "say one", "store": false})).await;
    let first = socket.ended(None).await;
    socket.send(steer(&first["id"], json!("recite"))).await;
    socket.find(None, "response.steer.accepted").await;
    let second = socket.ended(None).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    assert_eq!(text(&second), "user=say one|assistant=one|user=recite");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steer_waits_for_the_results_of_calls() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    let tool = json!({"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}});
    let order = r#"call {"name": "ls", "arguments": {}}"#;
    socket.create(json!({"input": order, "tools": [tool], "store": false})).await;
    let first = socket.ended(None).await;
    let call = first["output"][0]["call_id"].clone();
    assert!(call.is_string(), "{first}");
    socket.send(steer(&first["id"], json!("recite"))).await;
    socket.find(None, "response.steer.accepted").await;
    let pending = socket.find(None, "response.steer.pending").await;
    assert_eq!(pending["reason"], "waiting_for_required_input");
    assert_eq!(pending["required_input"], json!([{"type": "function_call_output", "call_id": call}]));
    assert_eq!(pending["steer"]["previous_response_id"], first["id"]);
    let output = json!({"type": "function_call_output", "call_id": call, "output": "a b"});
    socket
        .create(json!({"input": [output], "previous_response_id": first["id"], "tools": [tool], "store": false}))
        .await;
    let second = text(&socket.ended(None).await);
    assert!(second.ends_with("|tool=a b|user=recite"), "the result, then what was said: {second}");
}

#[tokio::test(flavor = "multi_thread")]
async fn steers_that_cannot_be_are_given_back() {
    let mut setup = Setup::default();
    setup.limits.steers_pending = 2;
    let server = TestServer::with(setup).await;
    let mut socket = server.socket().await;
    socket.send(steer(&json!("resp_none"), json!("hm"))).await;
    let failed = socket.find(None, "response.steer.failed").await;
    assert_eq!((&failed["error"]["code"], &failed["steer"]["input"]), (&json!("response_not_found"), &json!("hm")));
    let id = counting(&server, &mut socket, json!({"input": "count"})).await;
    for bad in [json!(3), json!([{"role": "king", "content": "x"}]), json!({"role": "user"})] {
        socket.send(steer(&id, bad.clone())).await;
        let failed = socket.find(None, "response.steer.failed").await;
        assert_eq!((&failed["error"]["code"], &failed["steer"]["input"]), (&json!("invalid_input"), &bad));
    }
    // Another connection cannot steer it.
    let mut other = server.socket().await;
    other.send(steer(&id, json!("say x"))).await;
    assert_eq!(other.find(None, "response.steer.failed").await["error"]["code"], "response_not_found");
    // Nothing so far has stopped it.
    server.gate().allow(10);
    server.held().await;
    assert_eq!(server.actors.engine(0).stats().running, [1, 0]);
    for _ in 0..2 {
        socket.send(steer(&id, json!("say x"))).await;
        socket.find(None, "response.steer.accepted").await;
    }
    socket.send(steer(&id, json!("say y"))).await;
    let failed = socket.find(None, "response.steer.failed").await;
    assert_eq!(
        (&failed["error"]["code"], &failed["steer"]["input"]),
        (&json!("too_many_pending_steers"), &json!("say y"))
    );
    server.gate().open();
    assert_eq!(socket.ended(None).await["incomplete_details"]["reason"], "steered");
    assert_eq!(text(&socket.ended(None).await), "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steer_whose_successor_cannot_begin_is_given_back() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    let id = counting(&server, &mut socket, json!({"input": "count", "store": false})).await;
    // It reads well as an item, but there is no such call to answer.
    let input = json!([{"type": "function_call_output", "call_id": "call_x", "output": "x"}]);
    socket.send(steer(&id, input.clone())).await;
    socket.find(None, "response.steer.accepted").await;
    server.gate().open();
    assert_eq!(socket.ended(None).await["incomplete_details"]["reason"], "steered");
    let failed = socket.find(None, "response.steer.failed").await;
    assert_eq!((&failed["steer"]["input"], &failed["steer"]["previous_response_id"]), (&input, &id));
    // What it was said to is still there.
    socket.send(steer(&id, json!("say on"))).await;
    assert_eq!(text(&socket.ended(None).await), "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_tell_steers_and_interrupts() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    let id = counting(&server, &mut socket, json!({"input": "count"})).await;
    socket.send(steer(&id, json!("say x"))).await;
    socket.find(None, "response.steer.accepted").await;
    server.gate().open();
    socket.ended(None).await;
    socket.ended(None).await;
    let page = server.http().await.get("/metrics").await;
    let page = str::from_utf8(&page.body).unwrap();
    let line = page.lines().find(|line| line.contains("steer") && line.contains("accepted") && !line.starts_with('#'));
    assert!(line.is_some_and(|line| line.ends_with(" 1")), "{line:?}");
}
