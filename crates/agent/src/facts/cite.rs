//! Where what an answer is about stands. A small model names functions and not their lines; the harness knows them.

use std::collections::HashMap;
use std::path::PathBuf;

use index::outline::Kind;
use index::terms;

use super::{Found, Passage, Project, names};

/// Places told for one answer.
const CITATIONS_MAX: usize = 4;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Citation {
    /// The file.
    pub path: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// What is defined there.
    pub name: Option<String>,
}

/// The lines that a question and its answer are about, the surest first: what both name, what one of them names, the passage
/// that fits best and its line that says most of what was said.
pub fn citations(project: &Project, found: &Found, question: &str, answer: &str) -> Vec<Citation> {
    let (asked, said) = (names::words(question), names::words(answer));
    let mut scored: HashMap<(usize, usize), (f64, Option<String>)> = HashMap::new();
    let mut add = |file: usize, line: usize, score: f64, name: Option<String>| {
        let entry = scored.entry((file, line)).or_insert((0.0, None));
        entry.0 += score;
        entry.1 = entry.1.take().or(name);
    };
    for (file, source) in project.sources.iter().enumerate() {
        for item in source.items.iter().filter(|item| !matches!(item.kind, Kind::Impl | Kind::Import)) {
            let own = item.name.as_str();
            // `add` and `list` are words as well: only what looks like code, or was shown, counts.
            let shown = found.passages.iter().any(|passage| passage.file == file && passage.lines.contains(&item.head));
            let tells = own.contains('_') || own.chars().skip(1).any(char::is_uppercase) || quoted(answer, own);
            if own.len() < 3 || !(shown || tells) {
                continue;
            }
            let (in_question, in_answer) = (asked.contains(own), said.contains(own) && tells);
            let score = f64::from(u8::from(in_question)) * 2.0 + f64::from(u8::from(in_answer)) * 1.5;
            if score > 0.0 {
                let parent = item.parents.last().is_some_and(|parent| asked.contains(parent.as_str()));
                let more = f64::from(u8::from(shown)) + f64::from(u8::from(parent));
                add(file, item.head, score + more, Some(item.path()));
            }
        }
    }
    if let Some(best) = found.passages.first().filter(|passage| passage.score > 0.0) {
        add(best.file, best.head, 2.2, best.name.clone());
        if let Some(line) = line_of(project, best, question, answer).filter(|line| line.abs_diff(best.head) > 2) {
            add(best.file, line, 2.1, None);
        }
    }
    let mut ranked: Vec<_> = scored.into_iter().collect();
    ranked.sort_by(|one, other| other.1.0.total_cmp(&one.1.0).then_with(|| one.0.cmp(&other.0)));
    let mut citations: Vec<Citation> = Vec::new();
    for ((file, line), (_, name)) in ranked {
        let path = project.sources[file].path.clone();
        // Of many with the same name none is meant.
        let alike =
            citations.iter().filter(|citation| citation.name.is_some() && last(&citation.name) == last(&name)).count();
        if citations.len() == CITATIONS_MAX || alike > 1 || answer.contains(&format!("{}:{}", path.display(), line + 1))
        {
            continue;
        }
        citations.push(Citation { path, line: line + 1, name });
    }
    citations
}

fn last(name: &Option<String>) -> Option<&str> {
    name.as_deref().map(|name| name.rsplit('.').next().unwrap_or(name))
}

/// Whether an answer shows a name as code.
fn quoted(answer: &str, name: &str) -> bool {
    answer.split('`').skip(1).step_by(2).any(|code| names::words(code).contains(name))
}

/// The line of a passage that has most of what the question and the answer say.
fn line_of(project: &Project, passage: &Passage, question: &str, answer: &str) -> Option<usize> {
    let wanted: Vec<String> = terms::of_question(&format!("{question} {answer}"));
    let lines: Vec<&str> = project.sources[passage.file].text.lines().collect();
    let code = answer.split('`').skip(1).step_by(2).map(str::trim).filter(|code| code.len() > 5);
    let code: Vec<&str> = code.collect();
    let scored = passage.lines.clone().filter_map(|at| {
        let line = lines.get(at)?;
        let has = terms::of_question(line).into_iter().filter(|term| wanted.contains(term)).count();
        let quotes = code.iter().filter(|code| line.contains(**code)).count();
        Some((has + quotes * 4, at))
    });
    let best = scored.max_by_key(|(score, at)| (*score, std::cmp::Reverse(*at)))?;
    (best.0 > 1).then_some(best.1)
}
