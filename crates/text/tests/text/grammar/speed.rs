//! How long masks take on a real vocabulary. Runs with the tests, so that it cannot rot; shown with `--nocapture`.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use text::grammar::{GrammarSource, Grammars};
use text::{Special, Tokenizer};

use crate::models;

#[test]
fn mask_speed() {
    let Some(gguf) = models::real("qwen2.5-coder-0.5b") else {
        return;
    };
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    let started = Instant::now();
    let grammars = Grammars::new(&tokenizer, 151_936).unwrap();
    println!("environment: {:.0} ms", started.elapsed().as_secs_f64() * 1e3);
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"},
        "edits": {"type": "array", "items": {"type": "object", "properties": {"old": {"type": "string"}, "new": {"type": "string"}}, "required": ["old", "new"], "additionalProperties": false}}},
        "required": ["path", "line", "edits"], "additionalProperties": false});
    let text = json!({"path": "src/main.rs", "line": 17, "edits": [{"old": "fn main() {\n    println!(\"hi\");\n}\n", "new": "// nothing left to do here, so we return at once\nfn main() {}\n"}]}).to_string();
    let started = Instant::now();
    let grammar = grammars.compile(&GrammarSource::JsonSchema(schema)).unwrap();
    println!("compile: {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    for round in ["cold", "warm"] {
        let started = Instant::now();
        let mut matcher = grammar.matcher();
        let start_us = started.elapsed().as_secs_f64() * 1e6;
        let mut micros = Vec::new();
        for id in tokenizer.encode(&text, Special::Plain) {
            let started = Instant::now();
            let mask = matcher.allowed().unwrap().unwrap();
            assert!(mask[id as usize / 32] >> (id % 32) & 1 == 1, "{:?}", tokenizer.decode(&[id]));
            matcher.accept(id).unwrap();
            micros.push(started.elapsed().as_secs_f64() * 1e6);
        }
        assert!(matcher.is_done());
        micros.sort_by(f64::total_cmp);
        let (middle, worst) = (micros[micros.len() / 2], micros[micros.len() - 1]);
        println!("{round}: start {start_us:.0} us; {} tokens, median {middle:.0} us, worst {worst:.0} us", micros.len());
    }
}
