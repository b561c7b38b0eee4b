//! Our own client against our own server: what both promise together.

use std::time::Duration;

use client::{Client, ClientOptions, Transport};
use serde_json::{Value, json};

use crate::support::{Setup, TestServer, soon, until};

fn client(server: &TestServer, transport: Transport) -> Client {
    let mut options = ClientOptions::new(format!("http://{}/v1", server.address));
    options.transport = transport;
    Client::new(options).unwrap()
}

async fn words(answer: &mut client::Answer, count: usize) -> String {
    let mut text = String::new();
    while text.len() < count {
        let event = soon("an event", answer.next()).await.unwrap().unwrap();
        if let api::responses::EventKind::TextDelta { delta, .. } = event.kind {
            text.push_str(&delta);
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_come_over_either_transport() {
    let server = TestServer::start().await;
    for transport in [Transport::WebSocket, Transport::Sse] {
        let client = client(&server, transport);
        let answer = client.respond(json!({"model": "actor", "input": "say hello"})).await.unwrap();
        assert_eq!(answer.transport(), transport);
        let response = soon("the end", answer.finish()).await.unwrap();
        assert_eq!(response.output[0].text().unwrap(), "hello");
        let again = client.get(&response.id).await.unwrap();
        assert_eq!(again.id, response.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_answers_share_one_socket() {
    let server = TestServer::start().await;
    let client = client(&server, Transport::WebSocket);
    let ask = |word: &str| client.respond(json!({"model": "actor", "input": format!("say {word}"), "store": false}));
    let (first, second, third) = tokio::join!(ask("one"), ask("two"), ask("three"));
    for (answer, word) in [(first, "one"), (second, "two"), (third, "three")] {
        let response = soon("the end", answer.unwrap().finish()).await.unwrap();
        assert_eq!(response.output[0].text().unwrap(), word);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steered_answer_goes_on_with_its_successor() {
    let server = TestServer::start().await;
    let client = client(&server, Transport::WebSocket);
    let mut answer = client.respond(json!({"model": "actor", "input": "count", "store": false})).await.unwrap();
    words(&mut answer, 6).await;
    let first = answer.response_id().unwrap().to_owned();
    answer.steer(Value::from("say stopped")).await.unwrap();
    let response = soon("the end", answer.finish()).await.unwrap();
    assert_eq!(response.previous_response_id.as_deref(), Some(first.as_str()));
    assert_eq!(response.output[0].text().unwrap(), "stopped");
}

/// The engine is free as soon as the reader is gone, and goes on with the same response when it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_whose_reader_left_goes_on_where_it_stopped() {
    let server = TestServer::with(Setup::default()).await;
    let mut socket = server.socket().await;
    server.gate().close();
    socket.create(json!({"model": "actor", "input": "count 30"})).await;
    server.gate().allow(12);
    let mut told = Vec::new();
    let mut id = String::new();
    while told.iter().filter_map(|event: &Value| event["delta"].as_str()).map(str::len).sum::<usize>() < 8 {
        let event = socket.of(None).await;
        if event["type"] == "response.created" {
            id = event["response"]["id"].as_str().unwrap().to_owned();
        }
        told.push(event);
    }
    drop(socket);
    // Once the server has seen it go the response can be asked for; until then it is the socket's own.
    let mut http = server.http().await;
    while http.get(&format!("/v1/responses/{id}")).await.status == 404 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.gate().open();
    let engine = server.actors.engine(0);
    until("the engine is free", || engine.stats().running == [0, 0]).await;
    let kept = http.get(&format!("/v1/responses/{id}")).await.ok();
    assert_ne!(kept["status"], "completed");
    let last = told.last().unwrap()["sequence_number"].as_u64().unwrap();
    let path = format!("/v1/responses/{id}?stream=true&starting_after={last}");
    let rest = server.http().await.follow(&path).await.all().await;
    assert_eq!(rest[0]["sequence_number"], last + 1, "no event is lost or doubled");
    let text: String = told.iter().chain(&rest).filter_map(|event| event["delta"].as_str()).collect();
    let whole: String = (1..=30).map(|number| format!(" {number}")).collect();
    assert_eq!(text.trim_start(), whole.trim_start());
    let end = &rest.iter().rfind(|event| event.get("response").is_some()).unwrap()["response"];
    assert_eq!(end["status"], "completed");
    assert_eq!(end["usage"]["output_tokens"], whole.len() as u64 + 1, "{}", end["usage"]);
}
