//! Properties that hold for every text, on a vocabulary that needs no file.

use std::sync::LazyLock;

use model::gguf::Gguf;
use proptest::prelude::*;
use text::{Detokenizer, ShowSpecial, Special, TextError, Tokenizer};

use crate::models::{PRE_TOKENIZERS, gguf, made_up, made_up_tokenizer};

/// A file to damage; its header is less than the first third.
static DAMAGEABLE: LazyLock<Vec<u8>> = LazyLock::new(|| made_up("smollm").bytes());

fn streamed(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut detokenizer = Detokenizer::new(tokenizer.vocabulary().clone(), ShowSpecial::Show);
    let mut text: String = ids.iter().map(|&id| detokenizer.push(id).to_string()).collect();
    text += detokenizer.flush();
    assert!(!detokenizer.is_pending());
    text
}

/// Texts with much of what words, merges and special tokens are made of.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "\\PC{0,4}",
        "[ \t\r\n]{0,5}",
        "[a-c0-3']{0,8}",
        Just("hello".to_string()),
        Just("<|im_end|>".to_string()),
        Just("<|x".to_string()),
        Just("<tool>".to_string()),
        Just("é\u{301}日本\u{3000}🏴‍☠️½".to_string()),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn text_survives_a_round_trip(text in texts(), pre in prop::sample::select(&PRE_TOKENIZERS[..])) {
        let tokenizer = made_up_tokenizer(pre);
        for special in [Special::Parse, Special::Plain] {
            let ids = tokenizer.encode(&text, special);
            prop_assert_eq!(tokenizer.decode(&ids), text.as_bytes());
            prop_assert_eq!(&streamed(tokenizer, &ids), &text);
        }
    }

    #[test]
    fn any_bytes_encode_and_broken_ones_become_replacements(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let tokenizer = made_up_tokenizer("qwen2");
        let ids = tokenizer.encode(&bytes, Special::Plain);
        let decoded = tokenizer.decode(&ids);
        if std::str::from_utf8(&bytes).is_ok() {
            prop_assert_eq!(&decoded, &bytes);
        }
        // What came out is clean, so it survives from now on.
        prop_assert_eq!(tokenizer.decode(&tokenizer.encode(&decoded, Special::Plain)), decoded);
    }

    #[test]
    fn streaming_any_tokens_equals_decoding_them_together(ids in prop::collection::vec(0u32..300, 0..60)) {
        let tokenizer = made_up_tokenizer("qwen2");
        prop_assert_eq!(streamed(tokenizer, &ids), String::from_utf8_lossy(&tokenizer.decode(&ids)).into_owned());
    }

    #[test]
    fn parse_and_plain_agree_without_special_tokens(text in "[^<]{0,60}") {
        let tokenizer = made_up_tokenizer("llama-bpe");
        prop_assert_eq!(tokenizer.encode(&text, Special::Parse), tokenizer.encode(&text, Special::Plain));
    }

    #[test]
    fn damaged_vocabularies_never_panic(damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..40)) {
        let mut bytes = DAMAGEABLE.clone();
        for (at, byte) in damage {
            let header = bytes.len() / 3;
            bytes[at % header] = byte;
        }
        if let Ok(gguf) = Gguf::parse(&bytes, bytes.len() as u64)
            && let Ok(tokenizer) = Tokenizer::from_gguf(&gguf)
        {
            let ids = tokenizer.encode("hello  <|im_end|> 12 abab\u{e9}", Special::Parse);
            tokenizer.decode(&ids);
            let _ = text::ChatTemplate::new(tokenizer.vocabulary());
        }
    }

    #[test]
    fn short_and_long_words_merge_alike(word in "[ab]{1,64}") {
        // 65 bytes and more go through the heap; a prefix that never merges with them leaves the rest as it was.
        let tokenizer = made_up_tokenizer("qwen2");
        let prefix = "z".repeat(70);
        let long = tokenizer.encode(format!("{prefix}{word}"), Special::Plain);
        prop_assert_eq!(&long[70..], tokenizer.encode(&word, Special::Plain));
    }
}

#[test]
fn special_tokens_count_only_when_parsed() {
    let tokenizer = made_up_tokenizer("qwen2");
    let vocabulary = tokenizer.vocabulary();
    let end = vocabulary.special_token("<|im_end|>").unwrap();
    let tool = vocabulary.special_token("<tool>").unwrap();
    assert_eq!(tokenizer.encode("<|im_end|>", Special::Parse), [end]);
    assert_eq!(tokenizer.encode("<|im_end|>", Special::Plain).len(), 10);
    assert_eq!(tokenizer.encode("<tool>", Special::Plain), [tool]);
    assert!(vocabulary.is_stop(end) && !vocabulary.is_stop(tool));
    let mut hidden = Detokenizer::new(vocabulary.clone(), ShowSpecial::Hide);
    assert_eq!((hidden.push(end).to_string(), hidden.push(tool)), (String::new(), "<tool>"));
}

#[test]
fn a_token_that_merging_never_reaches_is_not_used() {
    let text = "unreachable";
    // Of its letters only "ab" merges.
    let ids = made_up_tokenizer("qwen2").encode(text, Special::Plain);
    assert_eq!(ids.len(), text.len() - 1);
    // Llama 3 takes any word that is a token.
    assert_eq!(made_up_tokenizer("llama-bpe").encode(text, Special::Plain).len(), 1);
}

#[test]
fn a_megabyte_without_a_space_does_not_hang() {
    let tokenizer = made_up_tokenizer("qwen2");
    let ids = tokenizer.encode("ab".repeat(500_000), Special::Plain);
    assert_eq!(ids.len(), 250_000);
}

#[test]
fn detokenizer_holds_back_half_characters() {
    let tokenizer = made_up_tokenizer("qwen2");
    let mut detokenizer = Detokenizer::new(tokenizer.vocabulary().clone(), ShowSpecial::Hide);
    let parts: Vec<String> = "😀".bytes().map(|byte| detokenizer.push(u32::from(byte)).to_string()).collect();
    assert_eq!(parts, ["", "", "", "😀"]);
    assert_eq!(detokenizer.push(0xe2), "");
    assert_eq!(detokenizer.push(u32::from(b'x')), "\u{fffd}x");
    assert_eq!(detokenizer.push(0xf0), "");
    assert_eq!(detokenizer.flush(), "\u{fffd}");
    assert_eq!(detokenizer.push(9_999_999), "");
}

#[test]
fn unknown_tokenisers_are_named() {
    let error = Tokenizer::from_gguf(&gguf(&made_up("quux"))).unwrap_err();
    assert!(matches!(error, TextError::PreTokenizer { .. }));
    let message = error.to_string();
    assert!(message.contains("\"quux\"") && message.contains("qwen2"), "{message}");
}
