//! One word per idea: identifiers that the glossary says to avoid are in no source, of Rust or of kernels.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::{read, root};

#[test]
fn no_identifier_to_avoid_remains() {
    let glossary = read(&root().join("docs/internals/glossary.md"));
    let avoided = avoided(&glossary);
    assert!(avoided.len() > 20, "the glossary lists what to avoid: {avoided:?}");
    let mut found = Vec::new();
    for path in files(&root().join("crates")) {
        let text = read(&path);
        for (index, line) in text.lines().enumerate() {
            let mut hits = identifiers(line).filter(|word| avoided.contains(*word));
            found.extend(hits.next().map(|word| format!("{}:{}: {word}", path.display(), index + 1)));
        }
    }
    assert!(found.is_empty(), "the glossary has other words for these:\n{}", found.join("\n"));
}

/// Whoever knows the field finds the code by its words.
#[test]
fn a_search_for_a_word_of_the_field_finds_its_place() {
    for (word, place) in [
        ("speculative", "engine/src/draft/mod.rs"),
        ("throughput", "engine/src/draft/gate.rs"),
        ("backpressure", "engine/src/stream.rs"),
        ("persistent kernel", "cuda/src/kernels/decode_persistent.cu"),
        ("warp specialisation", "cuda/src/kernels/decode_persistent.cu"),
        ("swizzle", "cuda/src/kernels/persistent_kv.cuh"),
        ("tma", "cuda/src/kernels/ptx.cuh"),
        ("split-k", "cuda/src/kernels/gemm_packed.cu"),
    ] {
        let text = read(&root().join("crates").join(place)).to_lowercase();
        assert!(text.contains(word), "{place} does not say `{word}`");
    }
}

#[test]
fn identifiers_are_found_outside_of_words_and_comments() {
    let words = |line| identifiers(line).collect::<Vec<_>>();
    assert_eq!(words("let Few = a.place(\"Many \\\" Few\"); // Way"), ["let", "Few", "a", "place"]);
    assert_eq!(words("//! Few"), Vec::<&str>::new());
    assert_eq!(
        avoided("## Identifiers\n\n| `Few`, `token.cu` | x |\n| a | `not this` |\n"),
        ["Few", "token.cu"].into()
    );
}

/// What stands in backquotes in the first column of the tables after the heading about identifiers.
fn avoided(glossary: &str) -> BTreeSet<&str> {
    let (_, section) = glossary.split_once("\n## Identifiers").or(glossary.split_once("## Identifiers")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect()
}

/// The words of a line of code, without its comment and its text in quotes. Lifetimes and characters in quotes are short enough.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    let mut kept = Vec::new();
    let (mut rest, mut quoted) = (line, false);
    while let Some(at) = rest.find(if quoted { &['"', '\\'][..] } else { &['"', '/'][..] }) {
        let mark = rest.as_bytes()[at];
        let before = &rest[..at];
        if !quoted {
            kept.push(before);
        }
        rest = match mark {
            b'/' if rest[at..].starts_with("//") => "",
            b'\\' => rest.get(at + 2..).unwrap_or_default(),
            _ => &rest[at + 1..],
        };
        quoted ^= mark == b'"';
    }
    if !quoted {
        kept.push(rest);
    }
    kept.into_iter()
        .flat_map(|part| part.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|word| !word.is_empty())
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_source =
        |path: &PathBuf| path.extension().is_some_and(|e| ["rs", "cu", "cuh"].iter().any(|known| e == *known));
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { Some(path).filter(is_source).into_iter().collect() })
        .collect()
}
