//! Ids of real vocabularies equal llama.cpp's on a corpus of every script, emoji, white space, special tokens and
//! broken UTF-8. `golden/README.md` says how the files were made.

use model::gguf::{Array, Value as Meta};
use serde_json::Value;
use testkit::gguf::GgufWriter;
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

/// Words of other families over the vocabulary of Qwen: what llama.cpp makes of them where it is not what Qwen's words give.
#[test]
fn ids_of_other_words() {
    let Some(gguf) = models::real("qwen2.5-coder-1.5b") else {
        return;
    };
    let qwen =
        include_str!("../golden/qwen2.5-coder.ids.jsonl").lines().map(|line| serde_json::from_str(line).unwrap());
    let qwen: Vec<Value> = qwen.collect();
    let words = include_str!("../golden/words-corpus.jsonl");
    let texts: Vec<Value> =
        CORPUS.lines().chain(words.lines()).map(|line| serde_json::from_str(line).unwrap()).collect();
    for (pre, golden) in
        [("qwen35", include_str!("../golden/qwen35.ids.jsonl")), ("glm4", include_str!("../golden/glm4.ids.jsonl"))]
    {
        let rows: std::collections::HashMap<usize, Value> = golden
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|row| (row[0].as_u64().unwrap() as usize, row))
            .collect();
        let tokenizer = Tokenizer::from_gguf(&with_words(&gguf, pre)).unwrap();
        let mut compared = 0;
        for (index, input) in texts.iter().enumerate() {
            for (place, special) in [(0, Special::Parse), (1, Special::Plain)] {
                let expected = match rows.get(&index) {
                    Some(row) => &row[place + 1],
                    None => &qwen[index][place],
                };
                let Some(ids) = expected.as_array() else { continue };
                let ids: Vec<u32> = ids.iter().map(|id| id.as_u64().unwrap() as u32).collect();
                assert_eq!(tokenizer.encode(bytes_of(input), special), ids, "{pre} {special:?} {input}");
                compared += 1;
            }
        }
        println!("{pre}: {compared} encodings compared");
    }
}

/// The vocabulary of a file with other words.
fn with_words(gguf: &model::gguf::Gguf, pre: &str) -> model::gguf::Gguf {
    let strings = |key: &str| -> Vec<String> {
        let list = gguf.metadata.strings(key).unwrap();
        list.iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect()
    };
    let kinds = gguf.metadata.optional::<&Array>("tokenizer.ggml.token_type").unwrap().unwrap().clone();
    let writer = GgufWriter::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", pre)
        .strings("tokenizer.ggml.tokens", strings("tokenizer.ggml.tokens"))
        .strings("tokenizer.ggml.merges", strings("tokenizer.ggml.merges"))
        .meta("tokenizer.ggml.token_type", Meta::Array(kinds))
        .meta("tokenizer.ggml.eos_token_id", Meta::U32(151_645))
        .tensor("pad", &[4096], model::gguf::Format::F32, vec![0; 4096 * 4]);
    models::gguf(&writer)
}

/// A vocabulary of `pieces.json` as a file has it.
fn pieces(model: &str, made: &Value) -> GgufWriter {
    let strings = |key: &str| -> Vec<String> {
        made[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let kinds = made["kinds"].as_array().unwrap().iter().map(|kind| kind.as_i64().unwrap() as i32).collect();
    let writer = GgufWriter::new()
        .text("tokenizer.ggml.model", model)
        .strings("tokenizer.ggml.tokens", strings("tokens"))
        .meta("tokenizer.ggml.token_type", Meta::Array(Array::I32(kinds)))
        .meta("tokenizer.ggml.add_space_prefix", Meta::Bool(false))
        .tensor("pad", &[4096], model::gguf::Format::F32, vec![0; 4096 * 4]);
    match made["scores"].as_array() {
        Some(scores) => {
            let scores = scores.iter().map(|score| score.as_f64().unwrap() as f32).collect();
            writer.meta("tokenizer.ggml.scores", Meta::Array(Array::F32(scores)))
        }
        None => writer.strings("tokenizer.ggml.merges", strings("merges")),
    }
}

/// The ids of vocabularies of characters equal those of the programs they come from.
#[test]
fn ids_of_characters() {
    let golden: Value = serde_json::from_str(include_str!("../golden/pieces.json")).unwrap();
    for model in ["llama", "gemma4"] {
        let tokenizer = Tokenizer::from_gguf(&models::gguf(&pieces(model, &golden[model]))).unwrap();
        let rows = golden[model]["ids"].as_array().unwrap();
        for row in rows {
            let text = row[0].as_str().unwrap();
            let ids: Vec<u32> = row[1].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let found = tokenizer.encode(text, Special::Plain);
            assert_eq!(found, ids, "{model} {text:?}");
            assert_eq!(tokenizer.decode(&found), text.as_bytes(), "{model} {text:?}");
        }
        println!("{model}: {} texts compared", rows.len());
    }
}
