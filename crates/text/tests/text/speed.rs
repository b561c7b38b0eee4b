//! How fast text is encoded. Runs small with the tests, so that it cannot rot; with a larger text and the release
//! profile it is the benchmark:
//!
//! `FLINT_BENCH_TEXT=big.rs FLINT_BENCH_MODEL=qwen2.5-coder-0.5b cargo test --release -p text speed -- --nocapture`

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use text::{Special, Tokenizer};

use crate::models;

#[test]
fn encoding_speed() {
    let model = std::env::var("FLINT_BENCH_MODEL").unwrap_or("smollm2-135m".into());
    let Some(gguf) = models::real(&model) else {
        return;
    };
    let started = Instant::now();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let load_ms = started.elapsed().as_secs_f64() * 1e3;
    let text = match std::env::var_os("FLINT_BENCH_TEXT") {
        Some(path) => std::fs::read(path).unwrap(),
        None => include_bytes!("../../src/bpe.rs").repeat(4),
    };
    let mut best_s = f64::MAX;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        ids = tokenizer.encode(&text, Special::Plain);
        best_s = best_s.min(started.elapsed().as_secs_f64());
    }
    assert_eq!(tokenizer.decode(&ids), text);
    let mut hash = DefaultHasher::new();
    ids.hash(&mut hash);
    println!(
        "{model}: load {load_ms:.0} ms, {} bytes to {} tokens at {:.1} MB/s, hash {:016x}",
        text.len(),
        ids.len(),
        text.len() as f64 / 1e6 / best_s,
        hash.finish()
    );
}
