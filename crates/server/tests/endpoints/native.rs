//! What llama.cpp's clients ask beside answers, and the tokens of a request.

use serde_json::json;

use crate::support::{CONTEXT, IM_END, get, post};

#[test]
fn texts_become_tokens_and_texts_again() {
    let tokens = |more: serde_json::Value| post("/tokenize", &more).ok()["tokens"].clone();
    assert_eq!(tokens(json!({"content": "hé"})), json!([104, 195, 169]));
    assert_eq!(tokens(json!({"content": "a<|im_end|>", "add_special": true})), json!([97, IM_END]));
    assert_eq!(tokens(json!({"content": "<|im_end|>", "parse_special": false})).as_array().unwrap().len(), 10);
    let pieces = tokens(json!({"content": "aé", "with_pieces": true, "model": "toy"}));
    assert_eq!(pieces, json!([{"id": 97, "piece": "a"}, {"id": 195, "piece": [195]}, {"id": 169, "piece": [169]}]));
    let text = post("/detokenize", &json!({"tokens": [104, 195, 169, IM_END, 9_999_999]})).ok();
    assert_eq!(text, json!({"content": "hé<|im_end|>"}));
    for (path, body, param) in [
        ("/tokenize", json!({}), "content"),
        ("/tokenize", json!({"content": "x".repeat(CONTEXT * 80)}), "content"),
        ("/detokenize", json!({"tokens": "x"}), "tokens"),
        ("/apply-template", json!({"messages": [{"role": "robot", "content": "x"}]}), "messages[0].role"),
    ] {
        let reply = post(path, &body);
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{}", reply.body);
    }
}

#[test]
fn a_conversation_becomes_the_prompt_it_would_be_asked_with() {
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi <|im_end|>"}]);
    let prompt = post("/apply-template", &json!({"messages": messages})).ok()["prompt"].clone();
    let want =
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(prompt, want);
    let chat = json!({"model": "toy", "messages": messages, "max_tokens": 0});
    let usage = post("/v1/chat/completions", &chat).ok()["usage"].clone();
    let tokens = post("/tokenize", &json!({"content": want})).ok()["tokens"].as_array().unwrap().len();
    // What the user wrote is text in a prompt, and a control token where a client writes the prompt itself.
    assert_eq!(usage["prompt_tokens"], tokens + "<|im_end|>".len() - 1);
}

#[test]
fn properties_say_what_a_model_can_do() {
    let props = get("/props").ok();
    assert_eq!(props["default_generation_settings"]["n_ctx"], CONTEXT);
    assert_eq!(props["modalities"], json!({"vision": false, "audio": false}));
    assert!(props["chat_template"].as_str().unwrap().contains("im_start"));
    assert!(props["total_slots"].as_u64().unwrap() > 0 && props["eos_token"] == "<|im_end|>");
    assert_eq!(get("/props?model=gapless").ok()["model_path"], "gapless.gguf");
    assert_eq!(get("/props?model=nope").status, 404);
}

#[test]
fn the_tokens_of_a_request_are_counted_as_they_are_read() {
    let tool = json!({"type": "function", "name": "ls", "parameters": {"type": "object", "properties": {}}});
    let body =
        json!({"model": "toy", "instructions": "Be brief.", "input": "hello", "tools": [tool], "max_output_tokens": 1});
    let counted = post("/v1/responses/input_tokens", &body).ok();
    assert_eq!(counted["object"], "response.input_tokens");
    let response = post("/v1/responses", &body).ok();
    assert_eq!(counted["input_tokens"], response["usage"]["input_tokens"]);
    let next = json!({"model": "toy", "previous_response_id": response["id"], "input": "more", "max_output_tokens": 1});
    let counted = post("/v1/responses/input_tokens", &next).ok();
    assert_eq!(counted["input_tokens"], post("/v1/responses", &next).ok()["usage"]["input_tokens"]);
    assert_eq!(post("/v1/responses/input_tokens", &json!({"model": "toy"})).status, 400);
}
