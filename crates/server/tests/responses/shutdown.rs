//! Ending: what runs may finish, what does not is failed with a reason, sockets are closed as going away.

use std::time::Duration;

use serde_json::json;

use crate::client::text;
use crate::support::{Setup, TestServer, soon};

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_may_finish() {
    let mut server = TestServer::start().await;
    let (mut socket, mut http, mut idle) = (server.socket().await, server.http().await, server.socket().await);
    server.gate().close();
    socket.create(json!({"input": "say the end"})).await;
    socket.find(None, "response.created").await;
    let mut events = http.stream(json!({"input": "say the end too"})).await;
    events.find("response.created").await;
    server.held().await;
    server.stop();
    assert_eq!(idle.closed().await, Some(1001), "an idle socket is closed at once");
    socket.create(json!({"input": "say more"})).await;
    assert_eq!(socket.find(None, "error").await["status"].as_u64().map(|status| status >= 400), Some(true));
    server.gate().open();
    assert_eq!(text(&events.find("response.completed").await["response"]), "the end too");
    assert_eq!(text(&socket.ended(None).await), "the end");
    assert_eq!(socket.closed().await, Some(1001));
    soon("the server ends", server.task.take().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_finish_fails_with_a_reason() {
    let mut setup = Setup::default();
    setup.limits.shutdown_grace = Duration::from_millis(20);
    let mut server = TestServer::with(setup).await;
    let (mut socket, mut http) = (server.socket().await, server.http().await);
    server.gate().close();
    let begun = http.create(json!({"input": "count", "background": true})).await.ok();
    let mut events = http.stream(json!({"input": "count"})).await;
    events.find("response.created").await;
    socket.create(json!({"input": "count"})).await;
    socket.find(None, "response.created").await;
    server.gate().allow(10);
    server.held().await;
    server.stop();
    // Steps go on while the grace lasts, and end with it: far too few to reach the end of the context.
    let failing = socket.find(None, "response.failed");
    let stepping = async {
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            server.gate().allow(1);
        }
    };
    let failed = tokio::select! {
        failed = failing => failed,
        () = stepping => unreachable!("it never ends"),
    };
    assert_eq!(failed["response"]["status"], "failed");
    assert!(failed["response"]["error"]["message"].as_str().unwrap().contains("shutting down"), "{failed}");
    assert_eq!(socket.closed().await, Some(1001));
    events.find("response.failed").await;
    assert!(events.next().await.is_none());
    server.gate().open();
    let directory = server.finish().await;
    let server = TestServer::on(Setup::default(), directory).await;
    let path = format!("/v1/responses/{}", begun["id"].as_str().unwrap());
    let background = server.http().await.get(&path).await.ok();
    assert_eq!(background["status"], "failed", "it is known what became of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_alone_is_waited_for() {
    let mut server = TestServer::start().await;
    let mut socket = server.socket().await;
    server.gate().close();
    socket.create(json!({"input": "say the end"})).await;
    socket.find(None, "response.created").await;
    server.held().await;
    server.stop();
    // Both are errors; which one tells whether the server has begun to close.
    loop {
        socket.create(json!({"input": "say more", "model": "none", "stream_id": "probe"})).await;
        let error = socket.find(Some("probe"), "error").await;
        if error["error"]["code"] != "model_not_found" {
            break;
        }
    }
    server.gate().open();
    assert_eq!(text(&socket.ended(None).await), "the end", "it was not cut off");
    assert_eq!(socket.closed().await, Some(1001));
    soon("the server ends", server.task.take().unwrap()).await.unwrap();
}
