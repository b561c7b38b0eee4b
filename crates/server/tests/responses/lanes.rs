//! Lanes of one WebSocket: beside each other, in order within, forking from each other.

use serde_json::{Value, json};

use crate::client::{cached, text, tokens};
use crate::support::{Setup, TestServer};

#[tokio::test(flavor = "multi_thread")]
async fn lanes_run_beside_each_other_and_name_their_events() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    server.gate().close();
    for lane in ["a", "b"] {
        socket
            .create(json!({"input": format!("count {}", if lane == "a" { 100 } else { 90 }), "stream_id": lane}))
            .await;
        socket.find(Some(lane), "response.created").await;
    }
    server.gate().allow(6);
    // Both speak before either has ended.
    let a = socket.find(Some("a"), "response.output_text.delta").await;
    let b = socket.find(Some("b"), "response.output_text.delta").await;
    assert_ne!(a["item_id"], b["item_id"]);
    server.held().await;
    assert_eq!(server.actors.engine(0).stats().running, [2, 0]);
    server.gate().open();
    let counted = |n: usize| (1..=n).map(|n| format!(" {n}")).collect::<String>();
    assert_eq!(text(&socket.ended(Some("a")).await), counted(100));
    assert_eq!(text(&socket.ended(Some("b")).await), counted(90));
}

#[tokio::test(flavor = "multi_thread")]
async fn within_a_lane_first_come_first_served() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    server.gate().close();
    for n in 0..5 {
        socket.create(json!({"input": format!("say {n}"), "stream_id": "a"})).await;
    }
    socket.create(json!({"input": "say other"})).await;
    socket.find(None, "response.created").await;
    server.held().await;
    let stats = server.actors.engine(0).stats();
    assert!(stats.running[0] + stats.queued[0] <= 2, "one of each lane: {stats:?}");
    server.gate().open();
    assert_eq!(text(&socket.ended(None).await), "other");
    for n in 0..5 {
        let events = socket.response(Some("a")).await;
        assert!(events.iter().all(|event| event["stream_id"] == "a"));
        for (number, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], number);
        }
        assert_eq!(text(&events.last().unwrap()["response"]), n.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_forks_from_another() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    let long = format!("say {}", "one ".repeat(30).trim());
    socket.create(json!({"input": long, "stream_id": "main", "store": false})).await;
    let first = socket.ended(Some("main")).await;
    let from = |input: &str, lane: &str| -> Value {
        json!({"input": input, "previous_response_id": first["id"], "stream_id": lane, "store": false})
    };
    socket.create(from("recite", "fork")).await;
    socket.create(from("say two", "main")).await;
    let fork = socket.ended(Some("fork")).await;
    assert!(text(&fork).ends_with("one|user=recite"), "{}", text(&fork));
    let known = tokens(&first, "input_tokens") + tokens(&first, "output_tokens") - 1;
    assert!(cached(&fork) >= known, "{} of {known}", cached(&fork));
    assert_eq!(text(&socket.ended(Some("main")).await), "two");
    // A fork that fails leaves the parent where it is.
    let mut bad = from("x", "fork");
    bad["input"] = json!([{"type": "function_call_output", "call_id": "call_x", "output": "x"}]);
    socket.create(bad).await;
    socket.find(Some("fork"), "error").await;
    socket.create(from("say still", "main")).await;
    assert_eq!(text(&socket.ended(Some("main")).await), "still");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_numbers_have_limits() {
    let mut setup = Setup::default();
    setup.limits.lanes_per_socket = 2;
    let server = TestServer::with(setup).await;
    let mut socket = server.socket().await;
    for lane in ["", "a b", "ä", &"x".repeat(257)] {
        socket.create(json!({"input": "say x", "stream_id": lane})).await;
        let error = socket.find(None, "error").await;
        assert_eq!((&error["status"], &error["error"]["code"]), (&json!(400), &json!("invalid_stream_id")), "{lane:?}");
    }
    for lane in ["a", "b"] {
        socket.create(json!({"input": "say x", "stream_id": lane})).await;
        socket.ended(Some(lane)).await;
    }
    socket.create(json!({"input": "say x", "stream_id": "c"})).await;
    let error = socket.find(Some("c"), "error").await;
    assert_eq!(error["error"]["code"], "websocket_stream_limit_reached");
    socket.create(json!({"input": "say x", "stream_id": "a"})).await;
    assert_eq!(text(&socket.ended(Some("a")).await), "x");
    assert_eq!(text(&socket.say("say default").await), "default");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_takes_only_so_many_requests() {
    let server = TestServer::start().await;
    let mut socket = server.socket().await;
    server.gate().close();
    for _ in 0..18 {
        socket.create(json!({"input": "say x", "stream_id": "a"})).await;
    }
    let error = socket.find(Some("a"), "error").await;
    assert_eq!((&error["status"], &error["error"]["code"]), (&json!(429), &json!("websocket_queue_full")));
    assert_eq!(error["headers"]["retry-after"], "1");
    server.gate().open();
    for _ in 0..17 {
        assert_eq!(text(&socket.ended(Some("a")).await), "x");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_lanes_than_may_run_wait_their_turn() {
    let mut setup = Setup::default();
    setup.limits.responses_per_socket = 2;
    let server = TestServer::with(setup).await;
    let mut socket = server.socket().await;
    server.gate().close();
    for lane in ["a", "b", "c"] {
        socket.create(json!({"input": format!("say {lane}"), "stream_id": lane})).await;
    }
    socket.find(Some("a"), "response.created").await;
    socket.find(Some("b"), "response.created").await;
    server.held().await;
    let stats = server.actors.engine(0).stats();
    assert!(stats.running[0] + stats.queued[0] <= 2, "{stats:?}");
    server.gate().open();
    for lane in ["c", "a", "b"] {
        assert_eq!(text(&socket.ended(Some(lane)).await), lane);
    }
}
