//! How long masks take on a real vocabulary. Runs with the tests, so that it cannot rot; shown with `--nocapture`.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use text::Dialect;
use text::grammar::{GrammarSource, Grammars, ToolGrammar, ToolMode, ToolSpec, ToolSpecKind};
use text::{Special, Tokenizer};

use super::calls::{PATCH, patch};
use crate::models;

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

#[test]
fn mask_speed() {
    let Some(gguf) = models::real("qwen2.5-coder-0.5b") else {
        // Said already.
        return;
    };
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    let started = Instant::now();
    let grammars = Grammars::new(&tokenizer, 151_936).unwrap();
    println!("environment: {:.0} ms", ms(started));
    let edit = json!({"type": "object", "properties": {"old": {"type": "string"}, "new": {"type": "string"}}, "required": ["old", "new"], "additionalProperties": false});
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}, "edits": {"type": "array", "items": edit}},
        "required": ["path", "line", "edits"], "additionalProperties": false});
    let text = json!({"path": "src/main.rs", "line": 17, "edits": [{"old": "fn main() {\n    println!(\"hi\");\n}\n", "new": "// nothing left to do here, so we return at once\nfn main() {}\n"}]}).to_string();
    let kind = ToolSpecKind::Function { parameters: schema.clone(), strict: true };
    let mut many: Vec<ToolSpec> =
        (0..100).map(|n| ToolSpec { name: format!("tool_{n}"), kind: kind.clone() }).collect();
    many.push(patch());
    let tools = |mode| {
        GrammarSource::Tools(ToolGrammar { tools: many.clone(), mode, parallel: true, dialect: Dialect::Hermes })
    };
    let call = format!("<tool_call>\n{{\"name\": \"tool_17\", \"arguments\": {text}}}\n</tool_call>");
    let patch = format!("<tool_call>\n{{\"name\": \"apply_patch\"}}\n{PATCH}\n</tool_call>");
    let cases = [
        ("schema", GrammarSource::JsonSchema(schema), &text),
        ("call of one of 101 tools, lazy", tools(ToolMode::Lazy), &call),
        ("call of one of 101 tools, required", tools(ToolMode::Required), &call),
        ("patch, required", tools(ToolMode::Required), &patch),
    ];
    for (name, source, text) in cases {
        let started = Instant::now();
        let grammar = grammars.compile(&source).unwrap();
        println!("{name}: compiled in {:.1} ms", ms(started));
        let started = Instant::now();
        let mut matcher = grammar.matcher();
        let start_us = ms(started) * 1e3;
        let mut micros = Vec::new();
        for id in tokenizer.encode(text, Special::Plain) {
            let started = Instant::now();
            let mask = matcher.allowed().unwrap();
            assert!(mask.is_none_or(|mask| mask[id as usize / 32] >> (id % 32) & 1 == 1));
            matcher.accept(id).unwrap();
            micros.push(ms(started) * 1e3);
        }
        micros.sort_by(f64::total_cmp);
        let (middle, worst) = (micros[micros.len() / 2], micros[micros.len() - 1]);
        println!("  start {start_us:.0} us; {} tokens, median {middle:.0} us, worst {worst:.0} us", micros.len());
    }
}
