//! Responses that are kept: got, listed, deleted, continued.

use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Http, cached, text, tokens};
use crate::support::TestServer;

async fn follow(http: &mut Http, previous: &Value, input: &str) -> Value {
    http.create(json!({"input": input, "previous_response_id": previous["id"]})).await.ok()
}

fn path(response: &Value) -> String {
    format!("/v1/responses/{}", response["id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_unless_told_otherwise_and_gone_when_deleted() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let kept = http.say("say a").await;
    assert_eq!(http.get(&path(&kept)).await.ok(), kept);
    let not_kept = http.create(json!({"input": "say b", "store": false})).await.ok();
    assert_eq!(not_kept["store"], false);
    assert_eq!(http.get(&path(&not_kept)).await.error(404)["code"], "response_not_found");
    let deleted = http.delete(&path(&kept)).await.ok();
    assert_eq!(deleted, json!({"id": kept["id"], "object": "response", "deleted": true}));
    http.get(&path(&kept)).await.error(404);
    http.delete(&path(&kept)).await.error(404);
    http.get(&format!("{}/input_items", path(&kept))).await.error(404);
    let error = http.create(json!({"input": "x", "previous_response_id": kept["id"]})).await.error(400);
    assert_eq!(error["code"], "previous_response_not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_holds_everything_said_and_reads_only_what_is_new() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let first = http.create(json!({"input": "say one", "instructions": "be"})).await.ok();
    let second = follow(&mut http, &first, "say two").await;
    assert_eq!(second["previous_response_id"], first["id"]);
    let third = follow(&mut http, &second, "recite").await;
    // Instructions are of one request only; everything else is carried on.
    assert_eq!(text(&third), "user=say one|assistant=one|user=say two|assistant=two|user=recite");
    let known = tokens(&second, "input_tokens") + tokens(&second, "output_tokens") - 1;
    assert!(cached(&third) >= known / 16 * 16 - 16, "{} of {known} tokens", cached(&third));
    // A fork from the middle knows nothing of the other branch.
    let fork = follow(&mut http, &first, "recite").await;
    assert_eq!(text(&fork), "user=say one|assistant=one|user=recite");
    // An empty continuation is legal.
    let empty = http.create(json!({"input": [], "previous_response_id": first["id"]})).await.ok();
    assert_eq!(empty["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_sent_back_as_text_is_the_same_prompt() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let first = http.say("say one").await;
    let mut history = vec![json!({"role": "user", "content": "say one"})];
    history.extend(first["output"].as_array().unwrap().clone());
    history.push(json!({"role": "user", "content": "recite"}));
    let whole = http.create(json!({"input": history, "store": false})).await.ok();
    assert_eq!(text(&whole), "user=say one|assistant=one|user=recite");
    let before = tokens(&first, "input_tokens") + tokens(&first, "output_tokens") - 1;
    assert!(cached(&whole) >= before, "{} of {before}", cached(&whole));
    assert_eq!(text(&follow(&mut http, &first, "recite").await), text(&whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn children_outlive_a_deleted_parent() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let first = http.say("say one").await;
    let second = follow(&mut http, &first, "say two").await;
    http.delete(&path(&first)).await.ok();
    let third = follow(&mut http, &second, "recite").await;
    assert_eq!(text(&third), "user=say one|assistant=one|user=say two|assistant=two|user=recite");
    assert!(third["flint"].get("warnings").is_none(), "{}", third["flint"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_deleted_while_its_child_runs_leaves_the_child_whole() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let first = http.say("say one").await;
    server.gate().close();
    let mut other = server.http().await;
    let mut child = http.stream(json!({"input": "say two", "previous_response_id": first["id"]})).await;
    child.find("response.created").await;
    other.delete(&path(&first)).await.ok();
    server.gate().open();
    let child = child.find("response.completed").await["response"].clone();
    assert!(child["flint"].get("warnings").is_none(), "{}", child["flint"]);
    let directory = server.finish().await;
    let server = TestServer::on(Default::default(), directory).await;
    let mut http = server.http().await;
    let recited = follow(&mut http, &child, "recite").await;
    assert_eq!(text(&recited), "user=say one|assistant=one|user=say two|assistant=two|user=recite");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_items_come_in_pages() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let items: Vec<Value> =
        (0..5).map(|n| json!({"role": "user", "content": format!("say {n}"), "id": format!("msg_{n}")})).collect();
    let response = http.create(json!({"input": items})).await.ok();
    let list = format!("{}/input_items", path(&response));
    let ids = |page: &Value| -> Vec<String> {
        page["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    };
    let page = http.get(&format!("{list}?limit=2&order=asc")).await.ok();
    assert_eq!((ids(&page), &page["has_more"]), (vec!["msg_0".into(), "msg_1".into()], &json!(true)));
    assert_eq!((&page["first_id"], &page["last_id"]), (&json!("msg_0"), &json!("msg_1")));
    let page = http.get(&format!("{list}?limit=100&order=asc&after=msg_1")).await.ok();
    assert_eq!((ids(&page), &page["has_more"]), (vec!["msg_2".into(), "msg_3".into(), "msg_4".into()], &json!(false)));
    let page = http.get(&list).await.ok();
    assert_eq!(ids(&page)[0], "msg_4", "the newest first unless asked otherwise");
    assert_eq!(page["data"][0]["type"], "message");
    http.get(&format!("{}?stream=perhaps", path(&response))).await.error(400);
    for bad in ["limit=0", "limit=101", "limit=x", "order=up"] {
        let error = http.get(&format!("{list}?{bad}")).await.error(400);
        assert!(error["message"].as_str().unwrap().len() > 5, "{bad}: {error}");
    }
    let child = follow(&mut http, &response, "say x").await;
    let page = http.get(&format!("{}/input_items?order=asc", path(&child))).await.ok();
    assert_eq!(page["data"].as_array().unwrap().len(), 7, "the chain's items, answers included: {page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_made_short() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    let first = http.say("say one").await;
    let body = json!({"model": "actor", "previous_response_id": first["id"]});
    let compacted = http.post("/v1/responses/compact", &body).await.ok();
    assert_eq!(compacted["object"], "response.compaction");
    assert_eq!(compacted["output"][0]["type"], "compaction");
    assert!(compacted["usage"]["output_tokens"].as_u64().unwrap() > 0);
    let mut input = compacted["output"].as_array().unwrap().clone();
    input.push(json!({"role": "user", "content": "recite"}));
    let after = text(&http.create(json!({"input": input})).await.ok());
    assert!(after.starts_with("system=Summary of the conversation so far:\nok|user=recite"), "{after}");
    http.post("/v1/responses/compact", &json!({"model": "actor"})).await.error(400);
    http.ask(Method::POST, "/v1/responses/compact", &[], b"{}").await.error(400);
}
