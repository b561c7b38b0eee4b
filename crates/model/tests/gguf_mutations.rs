//! Ten thousand damaged headers: each gives a header or an error, in bounded time, and never takes more memory than
//! the file has bytes. A global allocator counts, so this is a test binary of its own.
#![allow(clippy::unwrap_used)] // Helpers of tests are not tests to the lint.
#![allow(unsafe_code)] // A counting allocator cannot be written without it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use model::gguf::{Array, Format, Gguf, StringArray, Value};
use testkit::gguf::{GgufWriter, real_model};

struct Counting;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn grow(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_add(bytes));
    PEAK.set(PEAK.get().max(LIVE.get()));
}

fn shrink(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub(bytes));
}

// SAFETY: every call is passed on to the system allocator unchanged; counting touches only thread-local cells without
// destructors, which never allocate. `realloc` is the default one, made of the calls below, so that a growing vector
// counts twice while it is copied.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the pointer came from `System.alloc` above with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes that were live at once while `work` ran, above those before it.
fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, PEAK.get() - before)
}

/// A small generator with a fixed seed (splitmix64), so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Every value type and every tensor type.
fn everything() -> Vec<u8> {
    let words = StringArray::from_iter((0..300).map(|n| "w".repeat(n % 9)));
    let values = [
        ("v.u8", Value::U8(1)),
        ("v.i8", Value::I8(-1)),
        ("v.u16", Value::U16(2)),
        ("v.i16", Value::I16(-2)),
        ("v.u32", Value::U32(3)),
        ("v.i32", Value::I32(-3)),
        ("v.f32", Value::F32(0.5)),
        ("v.bool", Value::Bool(true)),
        ("v.string", Value::String("some text".into())),
        ("v.u64", Value::U64(4)),
        ("v.i64", Value::I64(-4)),
        ("v.f64", Value::F64(0.25)),
        ("a.u8", Value::Array(Array::U8(vec![7; 500]))),
        ("a.i8", Value::Array(Array::I8(vec![-7; 50]))),
        ("a.u16", Value::Array(Array::U16(vec![7; 50]))),
        ("a.i16", Value::Array(Array::I16(vec![7; 50]))),
        ("a.u32", Value::Array(Array::U32(vec![7; 50]))),
        ("a.i32", Value::Array(Array::I32(vec![7; 50]))),
        ("a.f32", Value::Array(Array::F32(vec![7.0; 50]))),
        ("a.bool", Value::Array(Array::Bool(vec![true; 50]))),
        ("a.string", Value::Array(Array::String(words))),
        ("a.u64", Value::Array(Array::U64(vec![7; 50]))),
        ("a.i64", Value::Array(Array::I64(vec![7; 50]))),
        ("a.f64", Value::Array(Array::F64(vec![7.0; 50]))),
    ];
    let writer = values.into_iter().fold(GgufWriter::new(), |writer, (key, value)| writer.meta(key, value));
    let writer = Format::ALL.into_iter().fold(writer.alignment(64), |writer, kind| {
        let bytes = model::gguf::tensor_bytes(kind, &[256, 2]).unwrap();
        writer.tensor(format!("blk.0.{}", kind.name()), &[256, 2], kind, vec![0; bytes as usize])
    });
    writer.bytes()
}

/// Damages a header in one to four places.
fn mutate(header: &mut Vec<u8>, random: &mut Random) {
    const BOMBS: [u64; 8] = [u64::MAX, i64::MAX as u64, 1 << 63, u32::MAX as u64, 1 << 40, 1 << 31, 1 << 20, 0];
    for _ in 0..=random.below(4) {
        let at = random.below(header.len());
        match random.below(6) {
            // A flipped bit.
            0 => header[at] ^= 1 << random.below(8),
            // Another byte.
            1 => header[at] = random.next() as u8,
            // A cut-off end.
            2 => header.truncate(at.max(1)),
            // A length that lies; eight bytes at any place hit counts, lengths, dimensions and offsets alike.
            3 => {
                let bomb = BOMBS[random.below(BOMBS.len())].to_le_bytes();
                let end = header.len().min(at + 8);
                header[at..end].copy_from_slice(&bomb[..end - at]);
            }
            // A part of the file repeated elsewhere.
            4 => {
                let from = random.below(header.len());
                let to = header.len().min(from + random.below(64));
                let part = header[from..to].to_vec();
                header.splice(at..at, part);
            }
            // A part lost.
            _ => {
                let to = header.len().min(at + random.below(64));
                header.drain(at..to);
                header.push(0);
            }
        }
    }
}

struct Outcome {
    read: usize,
    refused: usize,
    peak: usize,
}

/// Parses `rounds` mutations of `header`, the beginning of a file with `tail` more bytes.
fn attack(header: &[u8], tail: u64, rounds: u64, parse: impl Fn(&[u8], u64) -> bool) -> Outcome {
    let mut outcome = Outcome { read: 0, refused: 0, peak: 0 };
    for seed in 0..rounds {
        let mut mutated = header.to_vec();
        mutate(&mut mutated, &mut Random(seed));
        let file_len = mutated.len() as u64 + tail;
        let started = Instant::now();
        let (read, peak) = peak_bytes(|| parse(&mutated, file_len));
        assert!(peak as u64 <= file_len, "seed {seed}: {peak} bytes taken for a file of {file_len}");
        assert!(started.elapsed() < Duration::from_secs(5), "seed {seed}: took {:?}", started.elapsed());
        outcome.peak = outcome.peak.max(peak);
        if read { outcome.read += 1 } else { outcome.refused += 1 }
    }
    outcome
}

fn parse(header: &[u8], file_len: u64) -> bool {
    match Gguf::parse(header, file_len) {
        Ok(gguf) => {
            assert!(gguf.tensors.iter().all(|tensor| tensor.offset + tensor.bytes <= file_len));
            true
        }
        Err(_) => false,
    }
}

#[test]
fn mutated_headers_are_refused_in_bounded_memory() {
    let file = everything();
    let (gguf, peak) = peak_bytes(|| Gguf::parse(&file, file.len() as u64).unwrap());
    println!("undamaged: {} bytes, {peak} taken", file.len());
    // The header alone, so that most damage lands in it, with the data it announces imagined behind it.
    let header = &file[..gguf.data_offset as usize];
    let tail = file.len() as u64 - gguf.data_offset;
    let outcome = attack(header, tail, 10_000, parse);
    println!("parse: {} read, {} refused, at most {} bytes taken", outcome.read, outcome.refused, outcome.peak);
    assert!(outcome.refused > 5_000 && outcome.read > 100, "the mutations test too little");

    // The same from disk, where the reader's buffer counts too. Every damaged file is written, so fewer rounds.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mutated.gguf");
    for seed in 0..500 {
        let mut mutated = file.clone();
        mutate(&mut mutated, &mut Random(seed));
        std::fs::write(&path, &mutated).unwrap();
        let (_, peak) = peak_bytes(|| Gguf::open(&path).is_ok());
        assert!(peak <= mutated.len(), "seed {seed}: {peak} bytes taken for a file of {}", mutated.len());
    }
}

/// The header of a real model, where one has been fetched.
#[test]
fn a_real_header_too() {
    let Some(path) = real_model("smollm2-135m") else {
        return;
    };
    let gguf = Gguf::open(&path).unwrap();
    let mut header = vec![0; gguf.data_offset as usize];
    std::io::Read::read_exact(&mut std::fs::File::open(&path).unwrap(), &mut header).unwrap();
    let outcome = attack(&header, gguf.file_len - gguf.data_offset, 200, parse);
    // With no data behind it, the metadata alone must fit the header's own size.
    let bare = attack(&header, 0, 50, parse);
    println!(
        "real: {} read, {} refused, {} bytes; bare: {} refused, {} bytes of {}",
        outcome.read,
        outcome.refused,
        outcome.peak,
        bare.refused,
        bare.peak,
        header.len()
    );
}
