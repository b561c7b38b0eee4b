//! A model file's header and its tokenizer, used once in both directions. Its template is a program, which Flint runs only
//! in a process with limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::gguf::Gguf;
use text::{Special, Tokenizer};

fuzz_target!(|bytes: &[u8]| {
    let Ok(gguf) = Gguf::parse(bytes, bytes.len() as u64) else { return };
    let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else { return };
    let ids = tokenizer.encode("What is 2 + 2? <|im_end|>", Special::Parse);
    let _ = tokenizer.decode(&ids);
});
