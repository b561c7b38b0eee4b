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
    server.gate().allow(usize::MAX / 2);
    // Endless, in a context that is long enough for it to be running still.
    socket.create(json!({"input": "count"})).await;
    let mut events = http.stream(json!({"input": "count 100000"})).await;
    server.gate().open();
    server.gate().close();
    socket.find(None, "response.created").await;
    events.find("response.created").await;
    server.held().await;
    server.stop();
    let engine = server.actors.engine(0);
    // The grace passes while the step is held; then the engine is told to end.
    tokio::time::timeout(Duration::from_millis(200), async {
        while engine.stats().running != [0, 0] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_err();
    server.gate().allow(1);
    let failed = socket.find(None, "response.failed").await;
    assert_eq!(failed["response"]["status"], "failed");
    assert!(failed["response"]["error"]["message"].as_str().unwrap().contains("shutting down"), "{failed}");
    assert_eq!(socket.closed().await, Some(1001));
    events.find("response.failed").await;
    assert!(events.next().await.is_none());
    server.gate().open();
    soon("the server ends", server.task.take().unwrap()).await.unwrap();
}
