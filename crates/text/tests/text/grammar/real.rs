//! Grammars on real vocabularies: calls in the tokens that a model would write them in are never in its way.

use std::sync::{Arc, LazyLock};

use serde_json::json;
use text::Dialect;
use text::grammar::{Grammar, GrammarSource, Grammars, ToolGrammar, ToolMode, ToolSpec, ToolSpecKind};
use text::{Special, Tokenizer};

use super::calls::{PATCH, patch, weather};
use crate::models;

struct Real {
    tokenizer: Arc<Tokenizer>,
    grammars: Grammars,
}

/// Qwen has tags as tokens and more logits than tokens; SmolLM2 spells tags and has as many.
static MODELS: LazyLock<Vec<Real>> = LazyLock::new(|| {
    let names = [("qwen2.5-coder-0.5b", 151_936), ("smollm2-135m", 49_152)];
    let found = names.into_iter().filter_map(|(name, rows)| Some((models::real(name)?, rows)));
    let real = found.map(|(gguf, rows)| {
        let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
        let grammars = Grammars::new(&tokenizer, rows).unwrap();
        Real { tokenizer, grammars }
    });
    real.collect()
});

fn tools(mode: ToolMode) -> GrammarSource {
    let edit = json!({"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}, "line": {"type": "integer"}}, "required": ["path", "text"]});
    let edit = ToolSpec { name: "edit_file".into(), kind: ToolSpecKind::Function { parameters: edit, strict: false } };
    GrammarSource::Tools(ToolGrammar {
        tools: vec![weather(), edit, patch()],
        mode,
        parallel: true,
        dialect: Dialect::Hermes,
    })
}

/// Every token of the text must be allowed as it is.
fn follow(real: &Real, grammar: &Grammar, text: &str) {
    let mut matcher = grammar.matcher();
    let ids = real.tokenizer.encode(text, Special::Plain);
    for (index, &id) in ids.iter().enumerate() {
        let shown = |ids: &[u32]| String::from_utf8_lossy(&real.tokenizer.decode(ids)).into_owned();
        let mask = matcher.allowed().unwrap();
        let allowed = mask.is_none_or(|mask| mask[id as usize / 32] >> (id % 32) & 1 == 1);
        assert!(allowed, "{:?} is not allowed after {:?}", shown(&[id]), shown(&ids[..index]));
        matcher.accept(id).unwrap();
    }
    let stop = real.tokenizer.vocabulary().stops()[0];
    assert!(matcher.allowed().unwrap().is_none_or(|mask| mask[stop as usize / 32] >> (stop % 32) & 1 == 1), "{text}");
    matcher.accept(stop).unwrap();
    assert!(!matcher.violated());
}

fn texts() -> Vec<String> {
    let weather = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\", \"days\": 3}}";
    let edit = "{\"name\": \"edit_file\", \"arguments\": {\"path\": \"src/main.rs\", \"text\": \"fn main() {\\n    println!(\\\"{}\\\", 1);\\n}\\n\", \"line\": 12}}";
    let pretty = "{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Zürich\"\n  }\n}";
    let tight = "{\"name\":\"edit_file\",\"arguments\":{\"path\":\"a\",\"text\":\"{\\\"a\\\": [1, 2]}\"}}";
    let tag = |call: &str| format!("<tool_call>\n{call}\n</tool_call>");
    vec![
        tag(weather),
        tag(edit),
        tag(tight),
        format!("{}\n{}", tag(weather), tag(edit)),
        format!("```json\n{weather}\n```"),
        format!("```json\n{pretty}\n```"),
        format!("```json\n[{weather}, {edit}]\n```"),
        weather.to_string(),
        pretty.to_string(),
        tight.to_string(),
        format!("{weather}\n{edit}"),
        format!("<tool_call>\n{{\"name\": \"apply_patch\"}}\n{PATCH}\n</tool_call>"),
        format!("<tool_call>\n{{\"name\": \"apply_patch\"}}\n{PATCH}\n</tool_call>\n{}", tag(weather)),
    ]
}

#[test]
fn calls_in_the_models_own_tokens_are_allowed() {
    if MODELS.is_empty() {
        println!("skipped: no model has been fetched");
    }
    for real in MODELS.iter() {
        for mode in [ToolMode::Required, ToolMode::Lazy] {
            let grammar = real.grammars.compile(&tools(mode)).unwrap();
            for text in texts() {
                follow(real, &grammar, &text);
                if mode == ToolMode::Lazy {
                    follow(real, &grammar, &format!("I will do that now.\n\n{text}\n\nThat's all."));
                }
            }
        }
    }
}
