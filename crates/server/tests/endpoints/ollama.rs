//! Ollama's protocol.

use serde_json::{Value, json};

use crate::support::{EMBEDDED_MAX, city, get, only, post, with};

fn chat(more: Value) -> Value {
    let base = json!({"model": "toy:latest", "messages": [{"role": "user", "content": "hello"}]});
    with(&with(&base, json!({"options": {"num_predict": 24}})), more)
}

#[test]
fn a_conversation_streams_as_lines_that_add_up_to_the_whole() {
    let whole = post("/api/chat", &chat(json!({"stream": false}))).ok();
    assert_eq!(
        (&whole["model"], &whole["done"], &whole["done_reason"]),
        (&json!("toy:latest"), &json!(true), &json!("length"))
    );
    assert_eq!((&whole["message"]["role"], &whole["eval_count"]), (&json!("assistant"), &json!(24)));
    assert!(whole["created_at"].as_str().unwrap().ends_with('Z') && whole["total_duration"].as_u64().unwrap() > 0);
    let lines = post("/api/chat", &chat(json!({}))).lines();
    let (last, pieces) = lines.split_last().unwrap();
    let text: String = pieces.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(whole["message"]["content"], text);
    assert!(pieces.iter().all(|line| line["done"] == false && line.get("eval_count").is_none()));
    assert_eq!(
        (&last["done"], &last["done_reason"], &last["eval_count"]),
        (&json!(true), &json!("length"), &json!(24))
    );
    let plain = json!({"model": "toy", "messages": chat(json!({}))["messages"], "max_tokens": 24});
    let openai = post("/v1/chat/completions", &plain).ok();
    assert_eq!(openai["choices"][0]["message"]["content"], whole["message"]["content"]);
}

#[test]
fn calls_come_whole_and_their_results_are_read() {
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": city()}});
    let call = json!({"function": {"name": "weather", "arguments": {"city": "Rome"}}});
    let messages = json!([
        {"role": "user", "content": "Is it warm?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "weather", "content": "mild"},
    ]);
    let answer = post("/api/chat", &chat(json!({"messages": messages, "tools": [tool], "stream": false}))).ok();
    assert_eq!(answer["done_reason"], "length");
}

#[test]
fn formats_images_and_thoughts() {
    let schema = json!({"options": {"num_predict": 500}, "format": city(), "stream": false});
    let answer = post("/api/chat", &chat(schema)).ok();
    let value: Value = serde_json::from_str(answer["message"]["content"].as_str().unwrap()).unwrap();
    assert!(["Paris", "Rome"].contains(&value["city"].as_str().unwrap()));
    assert_eq!(answer["done_reason"], "stop");
    for (more, word) in [
        (json!({"messages": [{"role": "user", "content": "x", "images": ["AA"]}]}), "images"),
        (json!({"format": "xml"}), "format"),
        (json!({"think": true}), "thinking"),
        (json!({"model": "nope"}), "nope"),
        (json!({"options": {"temperature": "hot"}}), "options.temperature"),
    ] {
        let reply = post("/api/chat", &chat(more));
        assert!(reply.status >= 400, "{}", reply.body);
        assert!(reply.json()["error"].as_str().unwrap().contains(word), "{}", reply.body);
    }
}

#[test]
fn prompts_raw_prompts_and_gaps() {
    let generate = |more: Value| post("/api/generate", &with(&json!({"model": "toy", "stream": false}), more)).ok();
    let bias = json!({"num_predict": 3, "logit_bias": only(97)});
    let answer = generate(json!({"prompt": "hi", "system": "s", "options": bias}));
    assert_eq!((&answer["response"], &answer["done_reason"]), (&json!("aaa"), &json!("length")));
    let raw = generate(json!({"prompt": "hi", "raw": true, "options": bias}));
    assert_eq!(raw["prompt_eval_count"], 2);
    assert!(answer["prompt_eval_count"].as_u64().unwrap() > 20);
    let gap = generate(json!({"prompt": "a(", "suffix": ")", "options": bias}));
    assert_eq!(gap["response"], "aaa");
    let lines = post("/api/generate", &json!({"model": "toy", "prompt": "hi", "options": bias})).lines();
    let text: String = lines.iter().map(|line| line["response"].as_str().unwrap()).collect();
    assert_eq!(text, "aaa");
    let warm = generate(json!({"prompt": "hi", "options": {"num_predict": 0}}));
    assert_eq!((&warm["response"], &warm["eval_count"]), (&json!(""), &json!(0)));
    assert_eq!(generate(json!({"prompt": ""}))["done_reason"], "load");
    assert_eq!(post("/api/chat", &json!({"model": "toy", "messages": []})).ok()["done_reason"], "load");
}

#[test]
fn models_are_listed_and_described() {
    let tags = get("/api/tags").ok();
    let names: Vec<&Value> = tags["models"].as_array().unwrap().iter().map(|model| &model["name"]).collect();
    assert_eq!(names, ["toy", "gapless", "letters"]);
    let shown = post("/api/show", &json!({"model": "letters:latest"})).ok();
    assert_eq!(shown["capabilities"], json!(["embedding"]));
    assert_eq!(shown["model_info"]["bert.context_length"], EMBEDDED_MAX);
    post("/api/generate", &json!({"model": "toy", "prompt": ""})).ok();
    let shown = post("/api/show", &json!({"name": "toy"})).ok();
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "insert"]));
    let running = get("/api/ps").ok();
    assert!(running["models"].as_array().unwrap().iter().any(|model| model["name"] == "toy"), "{running}");
    assert!(get("/api/version").ok()["version"].is_string());
    let missing = post("/api/show", &json!({"model": "nope"}));
    assert_eq!((missing.status, missing.json()), (404, json!({"error": "model 'nope' not found"})));
    assert_eq!(post("/api/pull", &json!({"model": "toy"})).status, 501);
    let nothing = get("/api/nothing");
    assert!(nothing.status == 404 && nothing.json()["error"].is_string());
}

#[test]
fn texts_become_vectors() {
    let answer = post("/api/embed", &json!({"model": "letters", "input": ["abba", "c"]})).ok();
    assert_eq!(answer["embeddings"], json!([[2.0, 2.0, 0.0, 6.0], [0.0, 0.0, 1.0, 3.0]]));
    assert_eq!((&answer["model"], &answer["prompt_eval_count"]), (&json!("letters"), &json!(9)));
    let long = "a".repeat(50);
    let cut = post("/api/embed", &json!({"model": "letters", "input": long})).ok();
    assert_eq!(cut["embeddings"][0][0], 8.0);
    let refused = post("/api/embed", &json!({"model": "letters", "input": long, "truncate": false}));
    assert!(refused.status == 400 && refused.json()["error"].as_str().unwrap().contains("more than the 10 tokens"));
    let old = post("/api/embeddings", &json!({"model": "letters", "prompt": "c"})).ok();
    assert_eq!(old, json!({"embedding": [0.0, 0.0, 1.0, 3.0]}));
    assert_eq!(post("/api/embed", &json!({"model": "toy", "input": "a"})).status, 404);
}
