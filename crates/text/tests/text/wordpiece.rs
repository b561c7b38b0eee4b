//! WordPiece against the `tokenizers` library, and against damage.

use model::gguf::{Format, Gguf};
use proptest::prelude::*;
use serde_json::Value;
use testkit::encoder::{PIECES, Spelling, tiny_encoder};
use text::{TextError, Tokenizer, WordPiece};

use crate::models::gguf;

fn words(spelling: Spelling) -> WordPiece {
    WordPiece::from_metadata(&gguf(&tiny_encoder(Format::F32, spelling)).metadata).unwrap()
}

#[test]
fn ids_equal_those_of_the_library_in_both_spellings() {
    let golden = include_str!("../../../model/tests/golden/encoder.jsonl");
    for words in [Spelling::Within, Spelling::Begin].map(words) {
        assert_eq!(words.len(), PIECES.lines().count());
        for line in golden.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let ids = words.encode(line["text"].as_str().unwrap(), usize::MAX);
            assert_eq!(Value::from(ids), line["ids"], "{:?}", line["text"]);
        }
    }
}

#[test]
fn control_tokens_cannot_be_written_and_long_texts_are_not_read_to_their_end() {
    let words = words(Spelling::Begin);
    let ids = words.encode("[CLS][SEP][PAD]", usize::MAX);
    assert!(ids[1..ids.len() - 1].iter().all(|id| *id > 4), "{ids:?}");
    let ids = words.encode(&"the ".repeat(1_000_000), 10);
    assert_eq!(ids.len(), 12);
    assert_eq!(words.cut(ids.clone(), 5), [ids[0], ids[1], ids[1], ids[1], 3]);
    assert_eq!(words.cut(vec![2, 9, 3], 5), [2, 9, 3]);
    assert_eq!(words.encode(&"x".repeat(10_000_000), 10), [2, 1, 3]);
}

#[test]
fn each_kind_of_vocabulary_names_the_other() {
    let metadata = &gguf(&tiny_encoder(Format::F32, Spelling::Begin)).metadata;
    assert!(matches!(Tokenizer::from_metadata(metadata), Err(TextError::TokenizerModel { found }) if found == "bert"));
}

proptest! {
    #[test]
    fn any_text_has_ids_of_the_vocabulary(text in "\\PC{0,40}|[a-z \u{300}-\u{310}가-힣]{0,40}") {
        let words = words(Spelling::Within);
        let ids = words.encode(&text, usize::MAX);
        prop_assert!(ids.first() == Some(&2) && ids.last() == Some(&3));
        prop_assert!(ids.iter().all(|id| (*id as usize) < words.len()));
    }

    #[test]
    fn damaged_vocabularies_never_panic(damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..40)) {
        let mut bytes = tiny_encoder(Format::F16, Spelling::Begin).bytes();
        for (at, byte) in damage {
            bytes[at % 4096] = byte;
        }
        if let Ok(gguf) = Gguf::parse(&bytes, bytes.len() as u64)
            && let Ok(words) = WordPiece::from_metadata(&gguf.metadata)
        {
            words.encode("hello  [CLS] 12 \u{e9}", 100);
        }
    }
}
