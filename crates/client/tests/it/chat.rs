//! A provider that speaks only Chat Completions gives the same events as one that speaks Responses.

use client::{Client, ClientError, Transport, WireApi};
use serde_json::json;

use crate::support::*;

fn by_chat(server: &Server) -> Client {
    let mut options = server.options();
    options.wire_api = WireApi::Chat;
    options.query = vec![("version".to_owned(), "1".to_owned())];
    Client::new(options).unwrap()
}

#[tokio::test]
async fn a_chat_stream_cut_into_single_bytes_is_an_answer() {
    let server = Server::tcp().await;
    let client = by_chat(&server);
    let script = async {
        let mut post = server.accept().await;
        assert!(post.line.starts_with("POST /v1/chat/completions?version=1 "), "{}", post.line);
        post.begin_events().await;
        let delta = |text: &str| json!({"id": "c", "choices": [{"delta": {"content": text}}]}).to_string();
        let end = json!({"id": "c", "choices": [{"delta": {}, "finish_reason": "stop"}]}).to_string();
        let usage =
            json!({"id": "c", "choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}}).to_string();
        for data in [delta("a"), delta("\u{1f525}"), end, usage, "[DONE]".to_owned()] {
            for byte in format!("data: {data}\n\n").bytes() {
                post.chunk(&[byte]).await;
            }
        }
        post.end_events().await;
    };
    let user = async {
        let mut answer = client.respond(ask("q")).await.unwrap();
        assert_eq!(answer.transport(), Transport::Sse);
        let said = text(&mut answer).await.unwrap();
        (said, answer.response_id().map(str::to_owned))
    };
    assert_eq!(play(script, user).await.1, ("a\u{1f525}".to_owned(), Some("c".to_owned())));
}

#[tokio::test]
async fn a_chat_stream_that_breaks_off_is_interrupted_and_not_an_answer() {
    let server = Server::tcp().await;
    let client = by_chat(&server);
    let script = async {
        let mut post = server.accept().await;
        post.begin_events().await;
        let chunk = json!({"id": "c", "choices": [{"delta": {"content": "a"}}]});
        post.chunk(format!("data: {chunk}\n\ndata: [DONE]\n\n").as_bytes()).await;
        post.end_events().await;
    };
    let user = async { client.respond(ask("q")).await.unwrap().finish().await };
    let result = play(script, user).await.1;
    assert!(matches!(result, Err(ClientError::Interrupted { .. })), "{result:?}");
}

#[tokio::test]
async fn chat_keeps_nothing_and_says_so() {
    let server = Server::tcp().await;
    let client = by_chat(&server);
    assert!(!client.keeps_responses() && server.client().keeps_responses());
    let result = client.respond(json!({"input": "q", "previous_response_id": "r"})).await;
    assert!(matches!(result, Err(ClientError::Options { .. })));
}
