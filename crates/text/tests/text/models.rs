//! Where tests find models: a made-up one always, real ones where they have been fetched.

use std::collections::HashMap;
use std::sync::LazyLock;

use model::gguf::{Array, Gguf, Value};
use testkit::gguf::{GgufWriter, real_model};
use text::Tokenizer;

/// One name for each way to cut words.
pub const PRE_TOKENIZERS: [&str; 9] =
    ["gpt-2", "smollm", "qwen2", "llama-bpe", "glm4", "qwen35", "gpt-4o", "tekken", "gemma4"];

/// A real model by its catalogue name, when it has been fetched.
pub fn real(name: &str) -> Option<Gguf> {
    real_model(name).map(|path| Gguf::open(&path).unwrap())
}

/// The character that stands for a byte in the byte alphabet of GPT-2.
pub fn alphabet(byte: u8) -> char {
    let moved = (0..byte).filter(|&b| !printable(b)).count() as u32;
    if printable(byte) { byte as char } else { char::from_u32(256 + moved).unwrap() }
}

fn printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// A vocabulary of all bytes, some merges, one token merging never reaches, and one special token of each kind.
pub fn made_up(pre: &str) -> GgufWriter {
    with_tokens(pre, &[])
}

/// The same with more control tokens.
pub fn with_tokens(pre: &str, more: &[&str]) -> GgufWriter {
    let spell = |text: &str| text.bytes().map(alphabet).collect::<String>();
    let merges = [
        ("h", "e"),
        ("l", "l"),
        ("he", "ll"),
        ("hell", "o"),
        (" ", " "),
        ("  ", "  "),
        (" ", "t"),
        ("1", "2"),
        ("a", "b"),
        ("ab", "ab"),
        ("a", "a"),
        ("aa", "aa"),
        ("é", "é"),
    ];
    // "é" is two bytes, which must be merged first.
    let bytes_of_e = ("\u{c3}".to_string(), "\u{a9}".to_string());
    let mut tokens: Vec<String> = (0..=255).map(|byte| alphabet(byte).to_string()).collect();
    let mut lines = vec![format!("{} {}", bytes_of_e.0, bytes_of_e.1)];
    tokens.push(spell("é"));
    for (left, right) in merges {
        lines.push(format!("{} {}", spell(left), spell(right)));
        tokens.push(spell(&format!("{left}{right}")));
    }
    tokens.push("unreachable".into());
    let normal = tokens.len();
    tokens.extend(["<|im_start|>", "<|im_end|>", "<tool>", "<unk>", "<|x"].map(String::from));
    tokens.extend(more.iter().map(|&token| token.to_string()));
    let kinds = std::iter::repeat_n(1, normal).chain([3, 3, 4, 2, 3]);
    let kinds = kinds.chain(std::iter::repeat_n(3, more.len())).collect();
    GgufWriter::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", pre)
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", &lines)
        .meta("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))
        .meta("tokenizer.ggml.eos_token_id", Value::U32(normal as u32 + 1))
        .tensor("pad", &[4096], model::gguf::Format::F32, vec![0; 4096 * 4])
}

/// A header from memory.
pub fn gguf(writer: &GgufWriter) -> Gguf {
    let bytes = writer.bytes();
    Gguf::parse(&bytes, bytes.len() as u64).unwrap()
}

/// The tokeniser of the made-up vocabulary, built once per pre-tokeniser.
pub fn made_up_tokenizer(pre: &str) -> &'static Tokenizer {
    static BUILT: LazyLock<HashMap<&str, Tokenizer>> = LazyLock::new(|| {
        let build = |pre| (pre, Tokenizer::from_gguf(&gguf(&made_up(pre))).unwrap());
        PRE_TOKENIZERS.map(build).into()
    });
    &BUILT[pre]
}
