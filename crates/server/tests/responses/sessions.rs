//! A restart in the middle of a conversation: it goes on, and nothing the model said is read differently.

use serde_json::{Value, json};

use crate::client::text;
use crate::support::{Setup, TestServer};

async fn restarted(server: TestServer) -> TestServer {
    let directory = server.finish().await;
    TestServer::on(Setup::default(), directory).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_goes_on_after_a_restart() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let first = http.create(json!({"input": "say one", "metadata": {"k": "v"}})).await.ok();
    let tool = json!({"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}});
    let order = r#"call {"name": "ls", "arguments": {}}"#;
    let second = json!({"input": order, "previous_response_id": first["id"], "tools": [tool]});
    let second = http.create(second).await.ok();
    let server = restarted(server).await;
    let mut http = server.http().await;
    for response in [&first, &second] {
        let path = format!("/v1/responses/{}", response["id"].as_str().unwrap());
        assert_eq!(&http.get(&path).await.ok(), response, "as it was");
    }
    let output = json!({"type": "function_call_output", "call_id": second["output"][0]["call_id"], "output": "a b"});
    let next = json!({"input": [output], "previous_response_id": second["id"], "tools": [tool]});
    let third = http.create(next).await.ok();
    assert_eq!(text(&third), "got a b");
    // Tokens of answers are those the model wrote: the prompt is the one a server that never stopped would have made.
    let all = |n: &Value| n["usage"]["total_tokens"].as_u64().unwrap();
    assert!(third["usage"]["input_tokens"].as_u64().unwrap() > all(&second));
    let items = format!("/v1/responses/{}/input_items?order=asc", third["id"].as_str().unwrap());
    assert_eq!(http.get(&items).await.ok()["data"].as_array().unwrap().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_prompt_after_a_restart_is_the_prompt_before() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    // Half a character at the end: its text cannot be turned back into its tokens.
    let first = http.create(json!({"input": "say é", "max_output_tokens": 1})).await.ok();
    assert_eq!(text(&first), "\u{fffd}");
    let ask = json!({"input": "say x", "previous_response_id": first["id"], "store": false});
    let before = http.create(ask.clone()).await.ok();
    let server = restarted(server).await;
    let after = server.http().await.create(ask).await.ok();
    assert_eq!(before["usage"]["input_tokens"], after["usage"]["input_tokens"]);
    assert_eq!(server.actors.engine(0).stats().cached_tokens, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_stays_deleted_and_its_children_go_on() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let first = http.say("say one").await;
    let second = http.create(json!({"input": "say two", "previous_response_id": first["id"]})).await.ok();
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    http.delete(&path).await.ok();
    let server = restarted(server).await;
    let mut http = server.http().await;
    http.get(&path).await.error(404);
    http.create(json!({"input": "x", "previous_response_id": first["id"]})).await.error(400);
    let third = http.create(json!({"input": "recite", "previous_response_id": second["id"]})).await.ok();
    assert_eq!(text(&third), "user=say one|assistant=one|user=say two|assistant=two|user=recite");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_model_goes_on_from_the_text() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let first = http.say("say one").await;
    let ask = json!({"model": "second", "input": "recite", "previous_response_id": first["id"]});
    let second = http.create(ask).await.ok();
    assert_eq!(
        (&second["model"], text(&second).as_str()),
        (&json!("second"), "user=say one|assistant=one|user=recite")
    );
}
