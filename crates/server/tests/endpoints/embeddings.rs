//! `/v1/embeddings`.

use serde_json::{Value, json};

use crate::support::{DIMENSIONS, EMBEDDED_MAX, get, post};

const PATH: &str = "/v1/embeddings";

#[test]
fn texts_become_vectors_in_their_order() {
    let answer = post(PATH, &json!({"model": "letters", "input": ["abba", "c"]})).ok();
    assert_eq!(answer["object"], "list");
    assert_eq!(answer["data"][0], json!({"object": "embedding", "index": 0, "embedding": [2.0, 2.0, 0.0, 6.0]}));
    assert_eq!(answer["data"][1]["embedding"], json!([0.0, 0.0, 1.0, 3.0]));
    assert_eq!(answer["usage"], json!({"prompt_tokens": 9, "total_tokens": 9}));
    for input in [json!("abba"), json!([1, 97, 98, 98, 97, 2]), json!([[1, 97, 98, 98, 97, 2]])] {
        let same = post(PATH, &json!({"model": "a-b-c", "input": input, "dimensions": DIMENSIONS})).ok();
        assert_eq!(same["data"][0]["embedding"], answer["data"][0]["embedding"]);
    }
    let packed = post(PATH, &json!({"model": "letters", "input": "c", "encoding_format": "base64"})).ok();
    assert_eq!(packed["data"][0]["embedding"], "AAAAAAAAAAAAAIA/AABAQA==");
    // What llama.vscode sends, whatever its model is called.
    let body = json!({"input": "c", "model": "GPT-4", "encoding_format": "float"});
    assert_eq!(post(PATH, &body).ok()["data"][0]["embedding"], json!([0.0, 0.0, 1.0, 3.0]));
}

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    let long = "a".repeat(EMBEDDED_MAX - 1);
    for (more, param) in [
        (json!({}), "input"),
        (json!({"input": []}), "input"),
        (json!({"input": [1, "a"]}), "input"),
        (json!({"input": [[1, 256]]}), "input[0]"),
        (json!({"input": ["a", long]}), "input[1]"),
        (json!({"input": "a", "dimensions": 2}), "dimensions"),
        (json!({"input": "a", "encoding_format": "hex"}), "encoding_format"),
        (json!({"input": vec!["a"; 2049]}), "input"),
    ] {
        let mut body = json!({"model": "letters"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = post(PATH, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
}

#[test]
fn models_that_embed_and_models_that_write_are_told_apart() {
    let reply = post(PATH, &json!({"model": "toy", "input": "a"}));
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (404, &json!("model_not_found")));
    let body = json!({"model": "letters", "messages": [{"role": "user", "content": "a"}]});
    let reply = post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 404);
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("/v1/embeddings"), "{}", reply.body);
    let listed = get("/v1/models").ok();
    let of = |name: &str| listed["data"].as_array().unwrap().iter().find(|model| model["id"] == name).cloned();
    assert_eq!(
        (of("letters").unwrap()["embeds"].clone(), of("toy").unwrap()["embeds"].clone()),
        (json!(true), json!(false))
    );
    let catalogue: Vec<&Value> = listed["models"].as_array().unwrap().iter().map(|model| &model["slug"]).collect();
    assert!(!catalogue.contains(&&json!("letters")), "agents are not offered what cannot answer");
}
