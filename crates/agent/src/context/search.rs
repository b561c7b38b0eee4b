//! Finds the files a task is about when it names none.
//!
//! A file scores by the words of the task: in its name, among what it defines, in its text. Common words weigh little
//! because many files have them. Reading a workspace of a few hundred files takes milliseconds, so nothing is indexed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::{definitions, files};

/// Bytes read in one search; what comes later in the walk is not searched.
const SEARCH_BYTES_MAX: usize = 32 << 20;

/// Words that say nothing about where.
const COMMON: &[&str] = &[
    "the", "and", "for", "that", "this", "with", "from", "into", "when", "fix", "bug", "add", "make", "use", "all",
    "file", "files", "code", "test", "tests", "function", "should", "please", "change", "new", "not", "does", "have",
    "has", "its", "are", "was", "can", "how", "what", "why", "where", "which", "pass", "passes", "fail", "fails",
    "write", "module", "project", "work", "works", "them", "every", "each", "error", "return", "returns", "called",
];

/// A file and how well it fits.
#[derive(Debug)]
pub struct Hit {
    /// Relative to the root.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Higher is better; never 0.
    pub score: f64,
}

/// The words of a task that may name things in code.
pub fn words(task: &str) -> HashSet<String> {
    let parts = task.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let whole = parts.filter(|word| word.len() >= 3).map(str::to_lowercase);
    whole.filter(|word| !COMMON.contains(&word.as_str())).collect()
}

/// Files that fit the task, best first.
pub fn search(root: &Path, found: &files::Walk, task: &str) -> Vec<Hit> {
    let words = words(task);
    if words.is_empty() {
        return Vec::new();
    }
    let mut read = Vec::new();
    let mut bytes = 0;
    for (path, size) in &found.files {
        bytes += *size as usize;
        if bytes > SEARCH_BYTES_MAX {
            break;
        }
        if let Some(text) = files::read_text(root, path, files::FILE_BYTES_MAX) {
            let counts = count(&text, &words);
            read.push((path, text, counts));
        }
    }
    let mut spread: HashMap<&str, usize> = HashMap::new();
    for (_, _, counts) in &read {
        for word in counts.keys() {
            *spread.entry(word).or_default() += 1;
        }
    }
    let rarity = |word: &str| {
        let files = spread.get(word).copied().unwrap_or(0) as f64;
        ((read.len() as f64 + 1.0) / (files + 0.5)).ln().max(0.1)
    };
    let mut hits: Vec<Hit> = Vec::new();
    for (path, text, counts) in &read {
        let score = score(path, text, counts, &words, &rarity);
        if score > 0.0 {
            hits.push(Hit { path: (*path).clone(), text: text.clone(), score });
        }
    }
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.path.cmp(&b.path)));
    hits
}

fn score(
    path: &Path,
    text: &str,
    counts: &BTreeMap<String, usize>,
    words: &HashSet<String>,
    rarity: &impl Fn(&str) -> f64,
) -> f64 {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()).unwrap_or_default();
    let mut score = 0.0;
    for (word, times) in counts {
        score += rarity(word) * (1.0 + (*times as f64).ln()).min(3.0);
    }
    for item in definitions(path, text) {
        let name = item.name.to_lowercase();
        if words.contains(&name) {
            score += 4.0 * rarity(&name);
        }
    }
    for word in words.iter().filter(|word| stem.contains(word.as_str())) {
        score += 3.0 * rarity(word);
    }
    if files::is_source(path) { score } else { score * 0.3 }
}

/// How often each of the words stands in the text, as a word or a part of one joined by `_`.
fn count(text: &str, words: &HashSet<String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let lower = text.to_lowercase();
    for word in lower.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
        let parts = word.split('_').filter(|part| part.len() < word.len());
        for known in std::iter::once(word).chain(parts).filter_map(|part| words.get(part)) {
            *counts.entry(known.clone()).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_defines_the_thing_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| std::fs::write(folder.path().join(path), text).unwrap();
        write("cart.py", "def total_price(items):\n    return sum(items)\n");
        write("view.py", "from cart import total_price\nprint(total_price([]))\nprint(total_price([1]))\n");
        write("other.py", "def unrelated():\n    pass\n");
        let hits = search(folder.path(), &files::walk(folder.path()), "total_price ignores the discount");
        let paths: Vec<&Path> = hits.iter().map(|hit| hit.path.as_path()).collect();
        assert_eq!(paths, [Path::new("cart.py"), Path::new("view.py")]);
        assert!(search(folder.path(), &files::walk(folder.path()), "fix the bug").is_empty());
    }
}
