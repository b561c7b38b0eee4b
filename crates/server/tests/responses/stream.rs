//! Server-sent events: their order, their numbers, and that they add up to the response.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::text;
use crate::support::{Setup, TestServer, soon};
use crate::whole;

/// Checks what holds for every stream of one response and gives its last response.
pub fn check(events: &[Value]) -> Value {
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "response.created");
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    let ends = ["response.completed", "response.incomplete", "response.failed"];
    assert!(ends.contains(kinds.last().unwrap()), "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| ends.contains(kind)).count(), 1);
    let id = &events[0]["response"]["id"];
    for event in events.iter().filter(|event| event["response"].is_object()) {
        whole::check(&event["response"]);
        assert_eq!(&event["response"]["id"], id);
    }
    assert_eq!(events[0]["response"]["output"], json!([]));
    let response = events.last().unwrap()["response"].clone();
    check_items(events, &response);
    response
}

/// Items come one after the other; deltas add up to what is done, and what is done is what the response holds.
fn check_items(events: &[Value], response: &Value) {
    let mut done = Vec::new();
    let mut open: Option<Value> = None;
    let mut deltas = String::new();
    let mut part = false;
    for event in events {
        let kind = event["type"].as_str().unwrap();
        match kind {
            "response.output_item.added" => {
                assert!(open.is_none(), "two items at once");
                assert_eq!(event["output_index"], done.len());
                assert_eq!(event["item"]["status"], "in_progress");
                assert!(event["item"]["content"].as_array().is_none_or(Vec::is_empty));
                open = Some(event["item"].clone());
                deltas.clear();
            }
            "response.output_item.done" => {
                let item = open.take().expect("an item was added");
                assert_eq!(event["output_index"], done.len());
                assert_eq!(event["item"]["id"], item["id"]);
                assert!(!part, "a part is open");
                let whole = match item["type"].as_str().unwrap() {
                    "message" => &event["item"]["content"][0]["text"],
                    "function_call" => &event["item"]["arguments"],
                    _ => &event["item"]["input"],
                };
                assert_eq!(whole, &json!(deltas));
                done.push(event["item"].clone());
            }
            "response.content_part.added" | "response.content_part.done" => {
                assert_eq!(event["item_id"], open.as_ref().expect("an item is open")["id"]);
                assert_eq!(event["content_index"], 0);
                part = kind.ends_with("added");
                assert_eq!(event["part"]["text"], if part { json!("") } else { json!(deltas) });
            }
            _ if kind.ends_with(".delta") || kind.ends_with(".done") => {
                assert_eq!(event["item_id"], open.as_ref().expect("an item is open")["id"], "{event}");
                assert_eq!(event["output_index"], done.len());
                match event["delta"].as_str() {
                    Some(delta) => deltas.push_str(delta),
                    None => {
                        let all = ["text", "arguments", "input"].iter().find_map(|name| event[name].as_str());
                        assert_eq!(all, Some(deltas.as_str()), "{event}");
                    }
                }
            }
            _ => assert!(event["response"].is_object(), "{event}"),
        }
    }
    assert!(open.is_none() && !part);
    assert_eq!(response["output"], json!(done));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_the_whole_response() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let events = http.stream(json!({"input": "say two words"})).await.all().await;
    let response = check(&events);
    assert_eq!(text(&response), "two words");
    assert_eq!(response["status"], "completed");
    assert_eq!(response["flint"]["transport"], "sse");
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let mut without_deltas = kinds.clone();
    without_deltas.dedup();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(without_deltas, expected);
    // The connection is as good as new.
    assert_eq!(text(&http.say("say again").await), "again");
    // What was streamed is what was stored.
    let id = response["id"].as_str().unwrap();
    assert_eq!(http.get(&format!("/v1/responses/{id}")).await.ok(), response);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_come_while_the_model_speaks() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    server.gate().close();
    let mut events = http.stream(json!({"input": "say abc"})).await;
    assert_eq!(events.next().await.unwrap()["type"], "response.created");
    for letter in ["a", "b", "c"] {
        server.gate().allow(1);
        assert_eq!(events.find("response.output_text.delta").await["delta"], letter);
    }
    server.gate().open();
    assert_eq!(text(&events.find("response.completed").await["response"]), "abc");
    assert!(events.next().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_frees_the_engine() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    server.gate().close();
    let mut events = http.stream(json!({"input": "count"})).await;
    server.gate().allow(3);
    events.find("response.output_text.delta").await;
    let generated = server.actors.engine(0).stats().generated_tokens;
    drop((events, http));
    // One step at a time: a few are enough for the server to see that nobody reads.
    let engine = server.actors.engine(0);
    crate::support::until("the engine is free", || {
        server.gate().allow(1);
        engine.stats().running == [0, 0]
    })
    .await;
    assert!(engine.stats().generated_tokens >= generated);
    assert_eq!(
        text(&{
            server.gate().open();
            server.http().await.say("say still here").await
        }),
        "still here"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_too_long_fails_in_the_stream_and_is_refused_whole() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let long = json!({"input": "x".repeat(3000)});
    let events = http.stream(long.clone()).await.all().await;
    let response = check(&events);
    assert_eq!(response["status"], "failed");
    assert_eq!(response["error"]["code"], "context_length_exceeded");
    let error = http.create(long).await.error(400);
    assert_eq!((&error["code"], &error["param"]), (&json!("context_length_exceeded"), &json!("input")));
    assert!(error["message"].as_str().unwrap().contains("2047"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_waits_shows_that_it_lives() {
    let mut setup = Setup::default();
    setup.limits.progress_event = Duration::from_millis(10);
    setup.limits.tools = 1;
    let server = TestServer::with(setup).await;
    let (mut http, mut other) = (server.http().await, server.http().await);
    server.gate().close();
    let mut events = http.stream(json!({"input": "say x"})).await;
    for _ in 0..4 {
        events.find("response.in_progress").await;
    }
    let chat = json!({"messages": [{"role": "user", "content": "say x"}], "stream": true}).to_string();
    let mut chat = other.send(Method::POST, "/v1/chat/completions", &[], chat.as_bytes()).await.into_body();
    let mut read = String::new();
    while read.matches(": keep-alive\n\n").count() < 3 {
        let frame = soon("more of the stream", chat.frame()).await.unwrap().unwrap();
        read.push_str(str::from_utf8(&frame.into_data().unwrap()).unwrap());
    }
    server.gate().open();
    assert_eq!(text(&events.find("response.completed").await["response"]), "x");
    // The number of tools is one of these limits too, on every path.
    let tool = |name: &str| json!({"type": "function", "name": name, "function": {"name": name}});
    let tools = json!([tool("a"), tool("b")]);
    let mut http = server.http().await;
    let error = http.create(json!({"input": "say x", "tools": tools})).await.error(400);
    assert!(error["message"].as_str().unwrap().contains("2 tools, at most 1"), "{error}");
    let chat = json!({"messages": [{"role": "user", "content": "say x"}], "tools": tools});
    assert_eq!(http.post("/v1/chat/completions", &chat).await.error(400)["param"], "tools");
    let tools = json!([{"name": "a", "input_schema": {}}, {"name": "b", "input_schema": {}}]);
    let asked = json!({"messages": [{"role": "user", "content": "say x"}], "max_tokens": 9, "tools": tools});
    assert_eq!(http.post("/v1/messages", &asked).await.status, 400);
}
