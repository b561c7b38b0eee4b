//! The encoder against `transformers`, and what it refuses.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

use kernels::Kernels;
use model::gguf::{Format, Value as Meta};
use model::{Encoder, LoadError};
use serde_json::Value;
use testkit::encoder::{CONTEXT, PIECES, Spelling, WIDTH, tiny_encoder};
use testkit::gguf::GgufWriter;

fn load(writer: &GgufWriter, kernels: &'static Kernels, threads: usize) -> Result<Encoder, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    writer.write(&path).unwrap();
    Encoder::load(&path, kernels, threads)
}

#[test]
fn vectors_equal_those_of_transformers() {
    let golden = include_str!("golden/encoder.jsonl");
    for (format, most) in [(Format::F32, 2e-5), (Format::F16, 2e-3)] {
        let writer = tiny_encoder(format, Spelling::Within);
        for kernels in Kernels::available() {
            let mut encoder = load(&writer, kernels, 2).unwrap();
            let mut checked = 0;
            for line in golden.lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let Some(want) = line["vector"].as_array() else { continue };
                let ids: Vec<u32> = serde_json::from_value(line["ids"].clone()).unwrap();
                let got = encoder.embed(&ids).unwrap();
                assert_eq!(got.len(), WIDTH);
                for (got, want) in got.iter().zip(want) {
                    let difference = (got - want.as_f64().unwrap() as f32).abs();
                    assert!(difference < most, "{} {format:?} {}: {difference}", kernels.name, line["text"]);
                }
                checked += 1;
            }
            assert!(checked > 15, "{checked}");
        }
    }
}

#[test]
fn the_first_token_stands_for_the_text_where_the_file_says_so() {
    let mean = tiny_encoder(Format::F32, Spelling::Within);
    let first = mean.clone().set("bert.pooling_type", Meta::U32(2));
    let (mut mean, mut first) =
        (load(&mean, Kernels::reference(), 1).unwrap(), load(&first, Kernels::reference(), 1).unwrap());
    let ids = [2, 9, 9, 3];
    assert_ne!(mean.embed(&ids), first.embed(&ids));
    let length: f32 = first.embed(&ids).unwrap().iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-5);
}

#[test]
fn what_it_cannot_read_is_none() {
    let mut encoder = load(&tiny_encoder(Format::F32, Spelling::Within), Kernels::reference(), 1).unwrap();
    assert!(encoder.embed(&[]).is_none());
    assert!(encoder.embed(&[PIECES.lines().count() as u32]).is_none());
    assert!(encoder.embed(&[2; CONTEXT + 1]).is_none());
    assert!(encoder.embed(&[2; CONTEXT]).is_some());
}

#[test]
fn files_that_make_no_sense_are_refused() {
    for (key, value) in [
        ("bert.pooling_type", Meta::U32(4)),
        ("bert.attention.head_count", Meta::U32(7)),
        ("bert.embedding_length", Meta::U32(96)),
        ("bert.block_count", Meta::U32(3)),
        ("bert.context_length", Meta::U32(49)),
        ("general.architecture", Meta::String("llama".into())),
    ] {
        let writer = tiny_encoder(Format::F32, Spelling::Within).set(key, value);
        assert!(load(&writer, Kernels::reference(), 1).is_err(), "{key}");
    }
}
