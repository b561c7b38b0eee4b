//! Ids of real vocabularies equal llama.cpp's on a corpus of every script, emoji, white space, special tokens and
//! broken UTF-8. `golden/README.md` says how the files were made.

use serde_json::Value;
use text::{Special, Tokenizer};

use crate::models;

const CORPUS: &str = include_str!("../golden/corpus.jsonl");

fn bytes_of(line: &Value) -> Vec<u8> {
    if let Some(text) = line["text"].as_str() {
        return text.as_bytes().to_vec();
    }
    let hex = line["hex"].as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn check(model: &str, expected: &str) {
    let Some(gguf) = models::real(model) else {
        return;
    };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let lines = |text: &'static str| text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let expected: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines(CORPUS).count(), expected.len());
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (input, expected) in lines(CORPUS).zip(&expected) {
        for (place, special) in [(0, Special::Parse), (1, Special::Plain)] {
            // llama.cpp refuses two lines with code points above U+10FFFF; Flint encodes them.
            let Some(ids) = expected[place].as_array() else {
                continue;
            };
            let ids: Vec<u32> = ids.iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let found = tokenizer.encode(bytes_of(&input), special);
            compared += 1;
            if found != ids {
                wrong.push(format!("{input} {special:?}\n  expected {ids:?}\n  found    {found:?}"));
            }
        }
    }
    println!("{model}: {compared} encodings compared");
    assert!(wrong.is_empty(), "{} of {compared} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn smollm2_ids() {
    check("smollm2-135m", include_str!("../golden/smollm2.ids.jsonl"));
}

#[test]
fn qwen_ids() {
    check("qwen2.5-coder-0.5b", include_str!("../golden/qwen2.5-coder.ids.jsonl"));
    check("qwen2.5-coder-1.5b", include_str!("../golden/qwen2.5-coder.ids.jsonl"));
}
