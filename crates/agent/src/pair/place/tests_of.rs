//! Where a new test goes that comes without a file: beside the tests of what it is about, named as the others are.

use std::path::{Path, PathBuf};

use super::Surroundings;
use super::split::is_like;
use crate::context::{Shown, definitions, files};
use crate::pair::request::mentions;
use index::outline::{Item, Language};

/// Shorter names are words of sentences.
const NAME_MIN: usize = 3;

/// What stands around the name of a module in the name of its file of tests.
const AROUND: [(&str, &str); 4] = [("test_", ""), ("", "_test"), ("", ".test"), ("", ".spec")];

/// The file for a block of tests; none when it is something else, or nothing tells. Tests of Rust stand in their module.
pub(super) fn file(kind: &Path, tops: &[&Item], text: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    let language = Language::of(kind)?;
    if language == Language::Rust || !are_tests(language, tops, text) {
        return None;
    }
    let like = |file: &&Shown| is_like(kind, &file.path);
    let tests: Vec<&Shown> = around.files.iter().filter(like).filter(|file| files::is_test(&file.path)).collect();
    let about = subject(kind, around.request, around).or_else(|| subject(kind, text, around));
    let Some(about) = about.as_deref().and_then(stem) else {
        return if let [file] = tests[..] { Some(file.path.clone()) } else { None };
    };
    let of = |file: &&Shown| {
        stem(&file.path).is_some_and(|name| AROUND.iter().any(|(a, b)| name == format!("{a}{about}{b}")))
    };
    if let Some(file) = tests.iter().find(|file| of(file)) {
        return Some(file.path.clone());
    }
    let named = |file: &&Shown| {
        let name = stem(&file.path)?;
        let (before, behind) = AROUND.iter().find(|(a, b)| name.starts_with(a) && name.ends_with(b))?;
        let ending = file.path.extension()?.to_string_lossy();
        Some(file.path.with_file_name(format!("{before}{about}{behind}.{ending}")))
    };
    tests.iter().find_map(named)
}

/// The one file that is not a test whose names a text has; of several the one with most of them.
pub(super) fn subject(kind: &Path, text: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    let code = around.files.iter().filter(|file| is_like(kind, &file.path) && !files::is_test(&file.path));
    let count = |file: &Shown| {
        let mut names: Vec<String> = definitions(&file.path, &file.text).into_iter().map(|item| item.name).collect();
        names.sort();
        names.dedup();
        names.iter().filter(|name| name.len() >= NAME_MIN && mentions(text, name)).count()
    };
    let mut counted: Vec<(usize, &Path)> = code.map(|file| (count(file), file.path.as_path())).collect();
    counted.retain(|(count, _)| *count > 0);
    counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    match counted[..] {
        [(_, path)] => Some(path.to_owned()),
        [(first, path), (second, _), ..] if first > second => Some(path.to_owned()),
        _ => None,
    }
}

fn are_tests(language: Language, tops: &[&Item], text: &str) -> bool {
    if tops.is_empty() {
        let calls = ["describe(", "test(", "it("];
        return language == Language::Script
            && text.lines().any(|line| calls.iter().any(|call| line.starts_with(call)));
    }
    tops.iter().all(|item| ["test", "Test"].iter().any(|word| item.name.starts_with(word)))
}

fn stem(path: &Path) -> Option<String> {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned())
}
