//! Responses that run without a reader.

use serde_json::{Value, json};

use crate::client::{Http, text};
use crate::stream;
use crate::support::{DEADLINE, TestServer};

fn path(response: &Value) -> String {
    format!("/v1/responses/{}", response["id"].as_str().unwrap())
}

/// Polls until the response has ended.
async fn ended(http: &mut Http, path: &str) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let response = http.get(path).await.ok();
        if !["queued", "in_progress"].iter().any(|status| response["status"] == *status) {
            return response;
        }
        assert!(begun.elapsed() < DEADLINE, "{response}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_by_itself_and_is_there_afterwards() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    server.gate().close();
    let begun = http.create(json!({"input": "say done", "background": true})).await.ok();
    assert!(["queued", "in_progress"].iter().any(|status| begun["status"] == *status), "{begun}");
    assert_eq!((&begun["background"], &begun["service_tier"]), (&json!(true), &json!("flex")));
    let now = http.get(&path(&begun)).await.ok();
    assert_eq!(now["output"], json!([]));
    let early = http.create(json!({"input": "x", "previous_response_id": begun["id"]})).await.error(400);
    assert_eq!(early["param"], "previous_response_id");
    server.gate().open();
    let response = ended(&mut http, &path(&begun)).await;
    assert_eq!((response["status"].as_str(), text(&response)), (Some("completed"), "done".to_owned()));
    let next = http.create(json!({"input": "recite", "previous_response_id": begun["id"]})).await.ok();
    assert_eq!(text(&next), "user=say done|assistant=done|user=recite");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_stream_can_be_read_from_any_point() {
    let server = TestServer::start().await;
    let (mut http, mut other) = (server.http().await, server.http().await);
    server.gate().close();
    let mut first = http.stream(json!({"input": "say abcdef", "background": true})).await;
    let created = first.next().await.unwrap();
    server.gate().allow(2);
    let delta = first.find("response.output_text.delta").await;
    let url = format!("{}?stream=true&starting_after={}", path(&created["response"]), delta["sequence_number"]);
    let mut rest = other.follow(&url).await;
    // The reader that goes takes nothing with it.
    drop((first, http));
    server.gate().open();
    let next = rest.next().await.unwrap();
    assert_eq!(next["sequence_number"].as_u64(), Some(delta["sequence_number"].as_u64().unwrap() + 1));
    assert_eq!(text(&rest.find("response.completed").await["response"]), "abcdef");
    assert!(rest.next().await.is_none());
    let whole = other.follow(&format!("{}?stream=true", path(&created["response"]))).await.all().await;
    assert_eq!(text(&stream::check(&whole)), "abcdef");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_cancelled() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    server.gate().close();
    let begun = http.create(json!({"input": "count", "background": true})).await.ok();
    server.gate().allow(4);
    server.held().await;
    let cancelling = async { http.post(&format!("{}/cancel", path(&begun)), &json!({})).await.ok() };
    let opening = async {
        tokio::task::yield_now().await;
        server.gate().open();
    };
    let (response, ()) = tokio::join!(cancelling, opening);
    assert_eq!(response["status"], "cancelled");
    assert!(text(&response).starts_with(" 1 "), "what was said stays: {response}");
    server.running(0).await;
    let again = http.post(&format!("{}/cancel", path(&begun)), &json!({})).await.ok();
    assert_eq!(again, response);
    let whole = http.say("say x").await;
    http.post(&format!("{}/cancel", path(&whole)), &json!({})).await.error(400);
    http.post("/v1/responses/resp_none/cancel", &json!({})).await.error(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_while_it_runs_it_stays_deleted() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    server.gate().close();
    let begun = http.create(json!({"input": "count", "background": true})).await.ok();
    server.gate().allow(2);
    server.held().await;
    let deleting = async { http.delete(&path(&begun)).await.ok() };
    let opening = async {
        tokio::task::yield_now().await;
        server.gate().open();
    };
    tokio::join!(deleting, opening);
    server.running(0).await;
    // Something stored later has been stored after it would have been.
    let later = http.say("say x").await;
    http.get(&path(&later)).await.ok();
    http.get(&path(&begun)).await.error(404);
    let directory = server.finish().await;
    let server = TestServer::on(Default::default(), directory).await;
    server.http().await.get(&path(&begun)).await.error(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_must_be_stored() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let error = http.create(json!({"input": "x", "background": true, "store": false})).await.error(400);
    assert_eq!(error["param"], "background");
}
