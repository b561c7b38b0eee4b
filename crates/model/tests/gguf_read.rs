//! What a file says is what the reader gives back, and what is wrong with one is said in words.
#![allow(clippy::unwrap_used)] // Helpers of tests are not tests to the lint.

use model::gguf::{Array, Format, Gguf, GgufError, StringArray, Value};
use testkit::gguf::GgufWriter;

fn values() -> Vec<(&'static str, Value)> {
    let words = StringArray::from_iter(["", "a", "\u{120}the"]);
    vec![
        ("v.u8", Value::U8(200)),
        ("v.i8", Value::I8(-3)),
        ("v.u16", Value::U16(40_000)),
        ("v.i16", Value::I16(-300)),
        ("v.u32", Value::U32(4_000_000_000)),
        ("v.i32", Value::I32(-70_000)),
        ("v.f32", Value::F32(1.5)),
        ("v.bool", Value::Bool(true)),
        ("v.string", Value::String("text ä".into())),
        ("v.u64", Value::U64(u64::MAX)),
        ("v.i64", Value::I64(i64::MIN)),
        ("v.f64", Value::F64(-0.25)),
        ("a.u8", Value::Array(Array::U8((0..=255).collect()))),
        ("a.i8", Value::Array(Array::I8(vec![-1, 0, 1]))),
        ("a.u16", Value::Array(Array::U16(vec![1, 2]))),
        ("a.i16", Value::Array(Array::I16(vec![-1, 2]))),
        ("a.u32", Value::Array(Array::U32((0..5000).collect()))),
        ("a.i32", Value::Array(Array::I32(vec![-1, 7]))),
        ("a.f32", Value::Array(Array::F32(vec![0.5, -0.5]))),
        ("a.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("a.string", Value::Array(Array::String(words))),
        ("a.u64", Value::Array(Array::U64(vec![]))),
        ("a.i64", Value::Array(Array::I64(vec![-9]))),
        ("a.f64", Value::Array(Array::F64(vec![2.0]))),
    ]
}

/// A file with every value type and every tensor type.
fn everything() -> GgufWriter {
    let writer = values().into_iter().fold(GgufWriter::new(), |writer, (key, value)| writer.meta(key, value));
    Format::ALL.into_iter().fold(writer, |writer, kind| {
        let dims = [256, 3];
        let bytes = model::gguf::tensor_bytes(kind, &dims).unwrap();
        writer.tensor(format!("t.{}", kind.name()), &dims, kind, vec![kind.file_id() as u8; bytes as usize])
    })
}

fn parse(bytes: &[u8]) -> Result<Gguf, GgufError> {
    Gguf::parse(bytes, bytes.len() as u64)
}

fn refused(bytes: &[u8]) -> String {
    parse(bytes).unwrap_err().to_string()
}

#[test]
fn every_type_comes_back() {
    for version in [2, 3] {
        let file = everything().version(version).alignment(64).bytes();
        let gguf = parse(&file).unwrap();
        assert_eq!((gguf.version, gguf.alignment, gguf.data_offset % 64), (version, 64, 0));
        for (key, value) in values() {
            assert_eq!(gguf.metadata.get(key), Some(&value), "{key}");
        }
        assert_eq!(gguf.tensors.len(), Format::ALL.len());
        for kind in Format::ALL.into_iter() {
            let tensor = gguf.tensor(&format!("t.{}", kind.name())).unwrap();
            assert_eq!((tensor.kind, tensor.columns(), tensor.rows(), tensor.elements()), (kind, 256, 3, 768));
            let data = &file[tensor.offset as usize..][..tensor.bytes as usize];
            assert!(data.iter().all(|&byte| byte == kind.file_id() as u8), "{}", tensor.name);
        }
        assert!(gguf.tensor("t.none").is_none());
    }
}

#[test]
fn a_file_on_disk_reads_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("all.gguf");
    everything().write(&path).unwrap();
    assert_eq!(Gguf::open(&path).unwrap(), parse(&everything().bytes()).unwrap());
    let missing = Gguf::open(&directory.path().join("none.gguf")).unwrap_err().to_string();
    assert!(missing.contains("none.gguf"), "{missing}");
}

#[test]
fn getters_take_any_width_and_name_what_is_wrong() {
    let gguf = parse(&everything().bytes()).unwrap();
    let metadata = &gguf.metadata;
    assert_eq!(metadata.u32("v.u8").unwrap(), 200);
    assert_eq!(metadata.u64("v.u16").unwrap(), 40_000);
    assert_eq!(metadata.f32("v.f64").unwrap(), -0.25);
    assert!(metadata.bool("v.bool").unwrap());
    assert_eq!(metadata.str("v.string").unwrap(), "text ä");
    assert_eq!(metadata.array("a.i8").unwrap().integer(0), Some(-1));
    assert_eq!(metadata.strings("a.string").unwrap().get(2), Some("\u{120}the".as_bytes()));
    assert_eq!(metadata.strings("a.string").unwrap().get(3), None);
    assert_eq!(metadata.optional::<u32>("nothing").unwrap(), None);
    let text = |error: GgufError| error.to_string();
    assert_eq!(
        text(metadata.u32("v.i8").unwrap_err()),
        "metadata key \"v.i8\" should be a whole number of 32 bits and is -3 (i8)"
    );
    assert_eq!(
        text(metadata.str("a.i8").unwrap_err()),
        "metadata key \"a.i8\" should be a string and is an array of 3 entries (i8)"
    );
    assert!(text(metadata.u32("nothing").unwrap_err()).contains("\"nothing\" is missing"));
}

#[test]
fn damage_is_named() {
    let file = everything().bytes();
    assert!(refused(b"PK\x03\x04 and more").contains("\"PK\\x03\\x04\""));
    let mut other = file.clone();
    other[4] = 1;
    assert!(refused(&other).contains("version 1 is not supported"));
    other[4..8].copy_from_slice(&3u32.to_be_bytes());
    assert!(refused(&other).contains("big-endian"));
    let cut = refused(&file[..file.len() - 100]);
    assert!(cut.contains("100 bytes are missing") && cut.contains("t.MXFP4"), "{cut}");
    assert!(refused(&file[..30]).contains("bytes are missing"));
    // The length of the first key.
    other = file.clone();
    other[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refused(&other).contains("65535"));
}

#[test]
fn inconsistent_headers_are_refused() {
    let two = GgufWriter::new().meta("k", Value::U8(1)).meta("k", Value::U8(2));
    assert!(refused(&two.tensor("pad", &[256], Format::F32, vec![0; 1024]).bytes()).contains("\"k\": it occurs twice"));
    let tensor = |name, dims: &[u64], kind| GgufWriter::new().tensor(name, dims, kind, vec![0; 4096]);
    let twice = tensor("t", &[4], Format::F32).tensor("t", &[4], Format::F32, vec![0; 16]);
    assert!(refused(&twice.bytes()).contains("\"t\": it occurs twice"));
    assert!(refused(&tensor("t", &[40], Format::Q4_0).bytes()).contains("whole number of blocks of 32"));
    assert!(refused(&tensor("t", &[4, 0], Format::F32).bytes()).contains("dimension 1 is zero"));
    assert!(refused(&tensor("t", &[1; 5], Format::F32).bytes()).contains("5 dimensions"));
    assert!(refused(&tensor("t", &[1 << 40, 1 << 40], Format::F32).bytes()).contains("overflows"));
    assert!(refused(&tensor("t", &[2000], Format::F32).bytes()).contains("bytes are missing"));
    let long = "n".repeat(300);
    assert!(refused(&tensor(&long, &[4], Format::F32).bytes()).contains("255 bytes at most"));
    let alignment = GgufWriter::new().meta("general.alignment", Value::U32(24));
    assert!(refused(&alignment.tensor("t", &[4], Format::F32, vec![0; 1024]).bytes()).contains("power of two"));
    // A type number of ours replaced by one that ggml has and Flint has not.
    let mut unknown = tensor("t", &[256], Format::Q4_K).bytes();
    let at = 24 + 8 + 1 + 4 + 8;
    unknown[at..at + 4].copy_from_slice(&16u32.to_le_bytes());
    assert!(refused(&unknown).contains("tensor \"t\": type 16 is not supported"));
    unknown[at..at + 4].copy_from_slice(&12u32.to_le_bytes());
    unknown[at + 4] = 5;
    assert!(refused(&unknown).contains("not a multiple of 32"));
}
