//! Passages of files, and those that fit a question best.
//!
//! Okapi BM25 (Robertson and others, TREC-3, 1994) over functions and what stands between them, where the name of an item and
//! of its file count as more words of it. A passage whose item the question names comes before all others.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use index::outline::Kind;
use index::terms;

use super::{Project, Source};
use crate::command::Prompt;
use crate::context::files;

/// Lines of one passage; longer functions are cut.
const LINES_MAX: usize = 60;

/// Passages shown for one question.
const SHOWN_MAX: usize = 8;

/// How soon more of the same word stops counting, and how much long passages lose.
const K: f64 = 1.2;
const B: f64 = 0.4;

/// How often a word counts that stands in the name of the item, and in that of the file.
const NAME_WEIGHT: usize = 4;
const FILE_WEIGHT: usize = 2;

/// What a passage gains whose item the question names, in units of a rare word.
const NAMED: f64 = 4.0;

/// What is left of the score of tests and of prose, unless the question is about them.
const TEST_SHARE: f64 = 0.4;
const PROSE_SHARE: f64 = 0.5;

/// A part of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Passage {
    /// Index of the file among the sources.
    pub file: usize,
    /// Its lines, from 0.
    pub lines: Range<usize>,
    /// The line with the name of its item, from 0.
    pub head: usize,
    /// The name of its item with those of what it stands in, where it has one.
    pub name: Option<String>,
    /// How well it fits.
    pub score: f64,
}

/// All passages of a file.
pub fn of(project: &Project, file: usize) -> Vec<Passage> {
    let source = &project.sources[file];
    let count = source.text.lines().count();
    let mut taken = vec![false; count];
    let mut passages = Vec::new();
    let mut push = |lines: Range<usize>, head: usize, name: Option<String>| {
        let mut start = lines.start;
        while start < lines.end {
            let end = lines.end.min(start + LINES_MAX);
            let head = if lines.contains(&head) && start == lines.start { head } else { start };
            passages.push(Passage { file, lines: start..end, head, name: name.clone(), score: 0.0 });
            start = end;
        }
    };
    for item in source.items.iter().filter(|item| item.kind == Kind::Function) {
        let lines = item.lines.start.min(count)..item.lines.end.min(count);
        // A function inside of another one is a part of it.
        if lines.is_empty() || taken[lines.clone()].iter().any(|taken| *taken) {
            continue;
        }
        taken[lines.clone()].fill(true);
        push(lines, item.head, Some(item.path()));
    }
    let mut at = 0;
    while at < count {
        let end = (at..count).find(|line| taken[*line]).unwrap_or(count);
        let lines = trimmed(source, at..end);
        if !lines.is_empty() {
            let within = source.items.iter().find(|item| item.kind != Kind::Function && lines.contains(&item.head));
            push(lines.clone(), within.map_or(lines.start, |item| item.head), within.map(|item| item.path()));
        }
        at = (end..count).find(|line| !taken[*line]).unwrap_or(count);
    }
    passages.sort_by_key(|passage| passage.lines.start);
    passages
}

/// Without the empty lines around.
fn trimmed(source: &Source, lines: Range<usize>) -> Range<usize> {
    let texts: Vec<&str> = source.text.lines().skip(lines.start).take(lines.len()).collect();
    let first = texts.iter().position(|line| !line.trim().is_empty());
    let last = texts.iter().rposition(|line| !line.trim().is_empty());
    match (first, last) {
        (Some(first), Some(last)) => lines.start + first..lines.start + last + 1,
        _ => lines.start..lines.start,
    }
}

/// The passages that fit a question best, in at most so many bytes. Only of files that `among` names.
pub fn best(project: &Project, prompt: &Prompt, bytes_max: usize, among: &dyn Fn(usize) -> bool) -> Vec<Passage> {
    let question = terms::of_question(&prompt.text);
    let mut passages: Vec<Passage> =
        (0..project.sources.len()).filter(|file| among(*file)).flat_map(|file| of(project, file)).collect();
    score(project, &mut passages, &prompt.text, &question);
    passages.sort_by(|one, other| other.score.total_cmp(&one.score));
    let best = passages.first().map_or(0.0, |passage| passage.score);
    let (mut left, mut chosen) = (bytes_max, Vec::new());
    for passage in passages {
        if chosen.len() == SHOWN_MAX || passage.score <= 0.0 || passage.score < best / 5.0 {
            break;
        }
        let bytes = text_of(project, &passage).len();
        if bytes <= left {
            left -= bytes;
            chosen.push(passage);
        }
    }
    chosen
}

/// The text of a passage.
pub fn text_of(project: &Project, passage: &Passage) -> String {
    let lines = project.sources[passage.file].text.lines().skip(passage.lines.start).take(passage.lines.len());
    lines.map(|line| format!("{line}\n")).collect()
}

fn score(project: &Project, passages: &mut [Passage], text: &str, question: &[String]) {
    let wanted: HashSet<&str> = question.iter().map(String::as_str).collect();
    let mut counts: Vec<(HashMap<String, usize>, usize)> = Vec::with_capacity(passages.len());
    let mut spread: HashMap<String, usize> = HashMap::new();
    for passage in passages.iter() {
        let mut words = terms::of(&text_of(project, passage));
        let length = words.len();
        let name = passage.name.as_deref().map(terms::of).unwrap_or_default();
        words.extend(std::iter::repeat_n(name, NAME_WEIGHT).flatten());
        let path = terms::of(&project.sources[passage.file].path.to_string_lossy());
        words.extend(std::iter::repeat_n(path, FILE_WEIGHT).flatten());
        let mut count: HashMap<String, usize> = HashMap::new();
        for word in words.into_iter().filter(|word| wanted.contains(word.as_str())) {
            *count.entry(word).or_default() += 1;
        }
        for word in count.keys() {
            *spread.entry(word.clone()).or_default() += 1;
        }
        counts.push((count, length));
    }
    let all = passages.len() as f64;
    let mean = counts.iter().map(|(_, length)| *length as f64).sum::<f64>() / all.max(1.0);
    let rarity = |spread: f64| (1.0 + (all - spread + 0.5) / (spread + 0.5)).ln();
    let names = super::names::words(text);
    let about_tests = question.iter().any(|word| word == "test");
    for (passage, (count, length)) in passages.iter_mut().zip(counts) {
        let size = 1.0 - B + B * length as f64 / mean.max(1.0);
        for (word, times) in count {
            let times = times as f64;
            let spread = spread.get(&word).copied().unwrap_or_default() as f64;
            passage.score += rarity(spread) * times * (K + 1.0) / (times + K * size);
        }
        let own = passage.name.as_deref().map(|name| name.rsplit('.').next().unwrap_or(name));
        if own.is_some_and(|own| names.contains(own)) {
            passage.score += NAMED * rarity(1.0);
        }
        let path = &project.sources[passage.file].path;
        if files::is_test(path) && !about_tests {
            passage.score *= TEST_SHARE;
        }
        if !files::is_source(path) {
            passage.score *= PROSE_SHARE;
        }
    }
}
