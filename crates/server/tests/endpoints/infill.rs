//! `/infill`.

use serde_json::{Value, json};

use crate::support::{CONTEXT, XA, only, post, with};

const PATH: &str = "/infill";

fn ask(more: Value) -> Value {
    let base = json!({"input_prefix": "ab\n", "input_suffix": "\ncd", "prompt": "  x", "n_predict": 12});
    with(&base, more)
}

#[test]
fn a_gap_is_filled_and_accounted_for() {
    let answer = post(PATH, &ask(json!({"samplers": ["top_k"], "cache_prompt": true, "logit_bias": only(97)}))).ok();
    assert_eq!((&answer["content"], &answer["stop"]), (&json!("a".repeat(12)), &json!(true)));
    assert_eq!((&answer["stop_type"], &answer["truncated"]), (&json!("limit"), &json!(false)));
    // The last word, ` x`, is not read but written again.
    assert_eq!((&answer["tokens_predicted"], &answer["tokens_evaluated"]), (&json!(14), &json!(10)));
    for name in ["prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_second"] {
        assert!(answer["timings"][name].is_number(), "{name}");
    }
    let same = post("/v1/infill", &ask(json!({"logit_bias": only(97)}))).ok();
    assert_eq!(same["content"], answer["content"]);
    let word = post(PATH, &ask(json!({"logit_bias": only(97), "stop": ["aaa"]}))).ok();
    assert_eq!((&word["stop_type"], &word["stopping_word"]), (&json!("word"), &json!("aaa")));
}

#[test]
fn a_word_in_part_is_completed_by_a_token_that_begins_with_it() {
    // `  x` ends in ` x`, which the token ` xa` completes; the client has ` x` already.
    let answer = post(PATH, &ask(json!({"logit_bias": only(XA), "n_predict": 1}))).ok();
    assert_eq!(answer["content"], "a xa xa");
    // Nothing but the word may come first, however likely.
    let answer = post(PATH, &ask(json!({"prompt": "  yz", "logit_bias": only(XA), "n_predict": 1}))).ok();
    assert_eq!((&answer["content"], &answer["tokens_predicted"]), (&json!(" xa"), &json!(4)));
}

#[test]
fn only_the_fields_that_were_asked_for() {
    let fields = json!(["content", "timings/predicted_n", "nothing/here"]);
    let answer = post(PATH, &ask(json!({"logit_bias": only(97), "response_fields": fields}))).ok();
    assert_eq!(answer, json!({"content": "a".repeat(12), "timings/predicted_n": 14}));
}

#[test]
fn nothing_predicted_warms_the_cache() {
    let body = ask(json!({"input_prefix": "w".repeat(100), "n_predict": 0}));
    let cold = post(PATH, &body).ok();
    assert_eq!((&cold["content"], &cold["tokens_predicted"]), (&json!(""), &json!(0)));
    let warm = post(PATH, &with(&body, json!({"n_predict": 1, "prompt": "  xy"}))).ok();
    let read = warm["timings"]["prompt_n"].as_u64().unwrap();
    assert!(read <= 2, "{read} tokens read for one key press");
}

#[test]
fn an_answer_ends_with_its_time_and_its_indent() {
    // All lines are empty, and the time is over at once.
    let body = json!({"n_predict": 8000, "t_max_predict_ms": 0.001, "logit_bias": only(10)});
    let answer = post(PATH, &ask(body)).ok();
    assert!(answer["tokens_predicted"].as_u64().unwrap() < 8000);
    assert_eq!(answer["stop_type"], "limit");
    let unhurried = post(PATH, &ask(json!({"t_max_predict_ms": 0.001, "logit_bias": only(97)}))).ok();
    assert_eq!(unhurried["tokens_predicted"], 14, "without a new line there is no end to time");
}

#[test]
fn a_stream_adds_up_to_the_whole() {
    let whole = post(PATH, &ask(json!({"n_predict": 40}))).ok();
    let events = post(PATH, &ask(json!({"n_predict": 40, "stream": true}))).events();
    let events: Vec<Value> = events.iter().map(|(_, data)| serde_json::from_str(data).unwrap()).collect();
    let content: String = events.iter().map(|event| event["content"].as_str().unwrap()).collect();
    assert_eq!(content, whole["content"]);
    let stops: Vec<bool> = events.iter().map(|event| event["stop"].as_bool().unwrap()).collect();
    assert!(stops.iter().rev().skip(1).all(|stop| !stop) && stops.last() == Some(&true));
    assert_eq!(events.last().unwrap()["tokens_predicted"], whole["tokens_predicted"]);
}

#[test]
fn what_does_not_fit_is_cut_and_said_so() {
    let answer = post(PATH, &ask(json!({"input_prefix": "p".repeat(2 * CONTEXT), "n_predict": 1}))).ok();
    assert_eq!(answer["truncated"], true);
    assert!(answer["tokens_evaluated"].as_u64().unwrap() < CONTEXT as u64);
    let refused = post(PATH, &ask(json!({"model": "gapless"})));
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (400, &json!("infill_not_supported")));
    let wrong = post(PATH, &ask(json!({"input_suffix": 3})));
    assert_eq!((wrong.status, &wrong.json()["error"]["param"]), (400, &json!("input_suffix")));
}
