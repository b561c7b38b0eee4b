//! `/v1/completions`.

use serde_json::{Value, json};

use crate::support::{CONTEXT, IM_END, only, post, with};

const PATH: &str = "/v1/completions";

fn ask(more: Value) -> Value {
    with(&json!({"model": "toy", "prompt": "fn main"}), more)
}

fn texts(answer: &Value) -> Vec<&str> {
    answer["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap()).collect()
}

#[test]
fn prompts_of_every_form_mean_the_same() {
    let answer = post(PATH, &ask(json!({"prompt": "abc"}))).ok();
    assert_eq!((&answer["object"], &answer["usage"]["prompt_tokens"]), (&json!("text_completion"), &json!(3)));
    let tokens = post(PATH, &ask(json!({"prompt": [97, 98, 99]}))).ok();
    assert_eq!(texts(&answer), texts(&tokens));
    // The default of the specification.
    assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() <= 16);
    let both = post(PATH, &ask(json!({"prompt": ["abc", "xyz"], "n": 2}))).ok();
    assert_eq!(both["choices"].as_array().unwrap().len(), 4);
    assert_eq!(texts(&both)[0], texts(&answer)[0]);
    assert_eq!(texts(&both)[0], texts(&both)[1]);
    assert_ne!(texts(&both)[1], texts(&both)[2]);
    assert_eq!(both["usage"]["prompt_tokens"], 6);
    // Control tokens are what they look like.
    let control = post(PATH, &ask(json!({"prompt": "<|fim_prefix|>a"}))).ok();
    assert_eq!(control["usage"]["prompt_tokens"], 2);
}

#[test]
fn endings_echo_and_the_old_log_probabilities() {
    let said = |more: Value| {
        let answer = post(PATH, &ask(more)).ok();
        let choice = answer["choices"][0].clone();
        (choice["text"].as_str().unwrap().to_owned(), choice["finish_reason"].as_str().unwrap().to_owned())
    };
    let pair = |text: &str, reason: &str| (text.to_owned(), reason.to_owned());
    assert_eq!(said(json!({"logit_bias": only(97), "max_tokens": 2, "echo": true})), pair("fn mainaa", "length"));
    assert_eq!(said(json!({"logit_bias": only(97), "stop": ["x", "aaa"]})), pair("", "stop"));
    assert_eq!(said(json!({"logit_bias": only(IM_END)})), pair("", "stop"));
    let answer = post(PATH, &ask(json!({"logit_bias": only(97), "max_tokens": 3, "logprobs": 2}))).ok();
    let old = &answer["choices"][0]["logprobs"];
    assert_eq!(old["tokens"], json!(["a", "a", "a"]));
    assert_eq!(old["text_offset"], json!([0, 1, 2]));
    assert_eq!(old["token_logprobs"].as_array().unwrap().len(), 3);
    assert_eq!(old["top_logprobs"][0].as_object().unwrap().len(), 2);
}

#[test]
fn a_stream_adds_up_to_the_whole() {
    let body = ask(json!({"n": 2, "seed": 1, "temperature": 1, "logprobs": 1, "max_tokens": 40}));
    let whole = post(PATH, &body).ok();
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let chunks = post(PATH, &with(&body, options)).chunks();
    for index in 0..2 {
        let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
        let mine: Vec<&Value> = choices.filter(|choice| choice["index"] == index).collect();
        let text: String = mine.iter().map(|choice| choice["text"].as_str().unwrap()).collect();
        let offsets = mine.iter().filter_map(|choice| choice["logprobs"]["text_offset"].as_array()).flatten();
        let offsets: Vec<Value> = offsets.cloned().collect();
        let want = &whole["choices"][index];
        assert_eq!(text, want["text"]);
        assert_eq!(Value::from(offsets), want["logprobs"]["text_offset"]);
        assert_eq!(mine.last().unwrap()["finish_reason"], want["finish_reason"]);
    }
    let (mut streamed, mut want) = (chunks.last().unwrap()["usage"].clone(), whole["usage"].clone());
    for usage in [&mut streamed, &mut want] {
        usage.as_object_mut().unwrap().remove("prompt_tokens_details");
    }
    assert_eq!(streamed, want);
}

#[test]
fn a_suffix_makes_it_a_gap() {
    let answer = post(PATH, &ask(json!({"prompt": "ab", "suffix": "c"}))).ok();
    // Three bytes and three tokens that say where the gap is.
    assert_eq!(answer["usage"]["prompt_tokens"], 6);
    let raw = "<|fim_prefix|>ab<|fim_suffix|>c<|fim_middle|>";
    assert_eq!(texts(&post(PATH, &ask(json!({"prompt": raw}))).ok()), texts(&answer));
    let refused = post(PATH, &ask(json!({"model": "gapless", "suffix": "c"})));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("infill_not_supported")));
}

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    for (more, param, code) in [
        (json!({"prompt": {}}), json!("prompt"), Value::Null),
        (json!({"prompt": "x".repeat(CONTEXT)}), json!("prompt"), json!("context_length_exceeded")),
        (json!({"prompt": [9999]}), Value::Null, Value::Null),
        (json!({"n": 5}), json!("n"), Value::Null),
        (json!({"echo": true, "logprobs": 1}), json!("echo"), Value::Null),
    ] {
        let reply = post(PATH, &ask(more));
        let error = &reply.json()["error"];
        assert_eq!((reply.status, &error["param"], &error["code"]), (400, &param, &code));
    }
}
