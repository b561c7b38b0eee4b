//! Server-sent events in pieces, small calls, and what is tried again.

use client::{Client, ClientError, Transport};
use serde_json::json;

use crate::support::*;

fn by_events(server: &Server) -> Client {
    let mut options = server.options();
    options.transport = Transport::Sse;
    Client::new(options).unwrap()
}

#[tokio::test]
async fn events_cut_into_single_bytes_are_the_same_events() {
    let server = Server::tcp().await;
    let client = by_events(&server);
    let script = async {
        let mut post = server.accept().await;
        assert_eq!(post.headers["accept"], "text/event-stream");
        post.begin_events().await;
        post.chunk(b": warming up\n\n").await;
        for event in whole("resp_1", &["a", "\u{1f525}"]) {
            for byte in format!("event: x\r\ndata: {event}\r\n\r\n").bytes() {
                post.chunk(&[byte]).await;
            }
        }
        post.chunk(b"data: [DONE]\n\n").await;
        post.end_events().await;
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap() };
    assert_eq!(play(script, user).await.1, "a\u{1f525}");
}

#[tokio::test]
async fn dropping_an_answer_closes_its_connection() {
    let server = Server::tcp().await;
    let client = by_events(&server);
    let script = async {
        let mut post = server.accept().await;
        post.begin_events().await;
        post.event(created("resp_1")).await;
        assert!(post.again().await.is_none(), "that is how the server knows");
    };
    let user = async { drop(client.respond(ask("q")).await.unwrap()) };
    play(script, user).await;
}

#[tokio::test]
async fn a_background_answer_is_cancelled_by_name_and_only_when_asked() {
    let (server, client) = alone().await;
    let script = async {
        for _ in 0..2 {
            let mut post = server.accept().await;
            assert!(post.line.starts_with("POST /v1/responses "), "no WebSocket for background: {}", post.line);
            post.begin_events().await;
            post.event(created("resp_1")).await;
            assert!(post.again().await.is_none());
        }
        let mut cancel = server.accept().await;
        assert_eq!(cancel.line, "POST /v1/responses/resp_1/cancel HTTP/1.1");
        cancel.reply(200, "", "{}").await;
    };
    let user = async {
        let request = json!({"model": "m", "input": "q", "background": true});
        drop(client.respond(request.clone()).await.unwrap());
        client.respond(request).await.unwrap().cancel().await;
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_busy_server_is_asked_again_when_it_says_so() {
    let server = Server::tcp().await;
    let client = by_events(&server);
    let script = async {
        let mut post = server.accept().await;
        post.reply(429, "retry-after: 0\r\n", r#"{"error":{"message":"full"}}"#).await;
        let mut post = post.again().await.unwrap();
        post.reply(503, "", "").await;
        let mut post = post.again().await.unwrap();
        post.events(whole("resp_1", &["a"])).await;
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap() };
    assert_eq!(play(script, user).await.1, "a");
}

#[tokio::test]
async fn errors_that_waiting_cannot_cure_come_at_once() {
    let cases = [
        (429, "", "RateLimited"),
        (429, "retry-after: 3600\r\n", "RateLimited"),
        (400, "", "BadRequest"),
        (401, "", "Auth"),
        (404, "", "NotFound"),
        (500, "", "Server"),
    ];
    for (status, headers, expected) in cases {
        let server = Server::tcp().await;
        let client = by_events(&server);
        let script = async { server.accept().await.reply(status, headers, r#"{"error":{"message":"m"}}"#).await };
        let user = async { client.respond(ask("q")).await.err().unwrap() };
        let (_, error) = play(script, user).await;
        assert!(format!("{error:?}").starts_with(expected), "{status}: {error:?}");
    }
}

#[tokio::test]
async fn small_calls_share_one_connection() {
    let (server, client) = alone().await;
    let script = async {
        let mut call = server.accept().await;
        assert_eq!(call.json(), json!({"model": "m", "input": "q"}), "whole: no `stream`");
        call.reply(200, "", r#"{"id":"resp_1","status":"completed"}"#).await;
        for expected in ["GET /v1/responses/resp_1 ", "DELETE /v1/responses/resp_1 ", "GET /v1/models "] {
            call = call.again().await.unwrap();
            assert!(call.line.starts_with(expected), "{}", call.line);
            call.reply(200, "", r#"{"id":"resp_1"}"#).await;
        }
        call = call.again().await.unwrap();
        call.reply(404, "", r#"{"error":{"message":"no such response"}}"#).await;
    };
    let user = async {
        assert_eq!(client.whole(ask("q")).await.unwrap().id, "resp_1");
        assert_eq!(client.get("resp_1").await.unwrap().id, "resp_1");
        client.delete("resp_1").await.unwrap();
        client.models().await.unwrap();
        assert!(matches!(client.get("gone").await, Err(ClientError::NotFound { .. })));
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.limits.body_bytes = 100;
    let client = Client::new(options).unwrap();
    let script = async { server.accept().await.reply(200, "", &"x".repeat(101)).await };
    let user = async { client.models().await };
    let (_, result) = play(script, user).await;
    assert!(matches!(result, Err(ClientError::TooLarge { limit: 100 })));
}

#[tokio::test]
async fn a_kept_connection_that_was_closed_is_replaced() {
    let (server, client) = alone().await;
    let script = async {
        server.accept().await.reply(200, "", "{}").await;
        server.accept().await.reply(200, "", r#"{"data":1}"#).await;
    };
    let user = async {
        client.models().await.unwrap();
        client.models().await.unwrap()
    };
    assert_eq!(play(script, user).await.1, json!({"data": 1}));
}

#[tokio::test]
async fn an_answer_by_events_cannot_be_steered_and_says_so() {
    let server = Server::tcp().await;
    let client = by_events(&server);
    let script = async { server.accept().await.events(whole("resp_1", &["a"])).await };
    let user = async {
        let mut answer = client.respond(ask("q")).await.unwrap();
        assert!(matches!(answer.steer("x".into()).await, Err(ClientError::NotSteerable { .. })));
        assert_eq!(text(&mut answer).await.unwrap(), "a");
    };
    play(script, user).await;
}
