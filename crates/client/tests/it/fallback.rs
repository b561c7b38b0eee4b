//! Without a WebSocket: server-sent events at once, and the WebSocket again as soon as it can be had.

use std::time::Duration;

use client::{Client, ClientError, Transport};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_refused_websocket_falls_back_and_recovers() {
    for status in [400, 404, 405, 426, 501] {
        let server = Server::tcp().await;
        let mut options = server.options();
        options.timeouts.websocket_again = [Duration::ZERO; 3];
        let client = Client::new(options).unwrap();
        let script = async {
            server.accept().await.reply(status, "", "").await;
            let mut post = server.accept().await;
            assert!(post.line.starts_with("POST /v1/responses "), "{}", post.line);
            assert_eq!(post.json()["stream"], true);
            post.events(whole("resp_1", &["a", "b"])).await;
            server.socket(Kind::Flint).await.answer("resp_2", &["c"]).await;
        };
        let user = async {
            let mut answer = client.respond(ask("one")).await.unwrap();
            assert_eq!(answer.transport(), Transport::Sse);
            assert_eq!(text(&mut answer).await.unwrap(), "ab");
            let mut answer = client.respond(ask("two")).await.unwrap();
            assert_eq!(answer.transport(), Transport::WebSocket, "not stuck after {status}");
            assert_eq!(text(&mut answer).await.unwrap(), "c");
        };
        play(script, user).await;
    }
}

#[tokio::test]
async fn a_connection_closed_during_the_upgrade_is_a_refusal() {
    let (server, client) = alone().await;
    let script = async {
        drop(server.accept().await);
        server.accept().await.events(whole("resp_1", &["a"])).await;
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap() };
    assert_eq!(play(script, user).await.1, "a");
}

#[tokio::test]
async fn the_websocket_is_left_alone_for_a_while_after_a_refusal() {
    let (server, client) = alone().await;
    let script = async {
        server.accept().await.reply(426, "", "").await;
        let mut post = server.accept().await;
        post.events(whole("resp_1", &["a"])).await;
        let mut post = post.again().await.expect("the connection is kept");
        assert!(post.line.starts_with("POST "), "{}", post.line);
        post.events(whole("resp_2", &["b"])).await;
    };
    let user = async {
        assert_eq!(client.connect().await.unwrap(), Transport::Sse);
        assert_eq!(text(&mut client.respond(ask("one")).await.unwrap()).await.unwrap(), "a");
        assert_eq!(text(&mut client.respond(ask("two")).await.unwrap()).await.unwrap(), "b");
    };
    play(script, user).await;
}

#[tokio::test]
async fn a_wrong_key_at_the_upgrade_is_not_a_reason_to_fall_back() {
    let (server, client) = alone().await;
    let script = async { server.accept().await.reply(401, "", r#"{"error":{"message":"who are you"}}"#).await };
    let user = async { client.respond(ask("q")).await.err().unwrap() };
    let (_, error) = play(script, user).await;
    assert!(matches!(error, ClientError::Auth { .. }), "{error}");
}

#[tokio::test]
async fn insisting_on_a_websocket_is_answered_with_the_refusal() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.transport = Transport::WebSocket;
    let client = Client::new(options).unwrap();
    let script = async { server.accept().await.reply(426, "", "").await };
    let user = async { client.respond(ask("q")).await.err().unwrap() };
    let (_, error) = play(script, user).await;
    assert!(matches!(&error, ClientError::WebSocketRefused { why } if why.contains("426")), "{error}");
}

#[tokio::test]
async fn when_every_socket_is_taken_an_answer_goes_by_events() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.limits.sockets = 1;
    let client = Client::new(options).unwrap();
    let script = async {
        let mut peer = server.begun(Kind::Other).await;
        server.accept().await.events(whole("resp_2", &["b"])).await;
        peer.say(ended("resp_1", 1, "completed")).await;
    };
    let user = async {
        let mut one = client.respond(ask("one")).await.unwrap();
        let mut two = client.respond(ask("two")).await.unwrap();
        assert_eq!((one.transport(), two.transport()), (Transport::WebSocket, Transport::Sse));
        assert_eq!(text(&mut two).await.unwrap(), "b");
        text(&mut one).await.unwrap();
    };
    play(script, user).await;
}

#[tokio::test]
async fn an_upgrade_that_is_never_answered_is_a_refusal() {
    let server = Server::tcp().await;
    let mut options = server.options();
    options.timeouts.connect = Duration::from_millis(200);
    let client = Client::new(options).unwrap();
    let script = async {
        let _swallowed = server.accept().await;
        server.accept().await.events(whole("resp_1", &["a"])).await;
    };
    let user = async { text(&mut client.respond(ask("q")).await.unwrap()).await.unwrap() };
    assert_eq!(play(script, user).await.1, "a");
}

#[tokio::test]
async fn a_warm_up_never_becomes_a_whole_answer() {
    let (server, client) = alone().await;
    let request = json!({"model": "m", "input": "q", "generate": false});
    let script = async {
        let mut peer = server.socket(Kind::Flint).await;
        assert_eq!(peer.answer("resp_1", &[]).await["generate"], false);
        drop(peer);
        server.accept().await.reply(426, "", "").await;
    };
    let user = async {
        client.respond(request.clone()).await.unwrap().finish().await.unwrap();
        let error = client.respond(request).await.err().unwrap();
        assert!(matches!(&error, ClientError::Options { message } if message.contains("generate")), "{error}");
    };
    play(script, user).await;
}
