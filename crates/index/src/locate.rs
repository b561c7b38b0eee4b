//! Where something is: the files a question is about, with the definition in each that fits it best, and why.

use std::path::PathBuf;

use boundary::file::Folder;

use crate::contents::{Field, Index};
use crate::files;
use crate::outline::{self, Item, Kind, Language};
use crate::rank::Query;
use crate::terms;

/// How far the first must be ahead of the second to be sure of it: a part of its own score.
const SURE_GAP: f64 = 0.15;

/// Words that the first must share with the question to be sure of it.
const SURE_WORDS: usize = 2;

/// What a word in the name of a definition counts, where one in its text counts up to 1.
const NAME_WEIGHT: f64 = 2.0;

/// What it counts when a question names the definition.
const EXACT_WEIGHT: f64 = 4.0;

/// Files whose definitions are looked at; of the rest only the path is told.
const READ_MAX: usize = 5;

/// Words that are told as the reason.
const WORDS_TOLD: usize = 4;

/// A location that fits a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Location {
    /// Relative to the root.
    pub path: PathBuf,
    /// From 1.
    pub line: usize,
    /// What is defined there, with what it stands in: `Retry.increment`. None where it is the file as a whole.
    pub definition: Option<String>,
    /// Its first line.
    pub head: String,
    /// How well the file fits; only good for comparing.
    pub score: f64,
    /// Why it is told.
    pub why: Why,
}

/// Why a location is told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Why {
    /// The question names the definition.
    pub exact: bool,
    /// Words it shares with the question, the rarest first.
    pub words: Vec<String>,
    /// Commits that changed the file and share words with the question.
    pub commits: usize,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        if self.exact {
            parts.push("named in the question".to_owned());
        }
        match &self.words[..] {
            [] => {}
            [one] => parts.push(format!("1 word: {one}")),
            words => {
                let told: Vec<&str> = words.iter().take(WORDS_TOLD).map(String::as_str).collect();
                parts.push(format!("{} words: {}", words.len(), told.join(", ")));
            }
        }
        match self.commits {
            0 => {}
            1 => parts.push("1 commit".to_owned()),
            commits => parts.push(format!("{commits} commits")),
        }
        f.write_str(&parts.join("; "))
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)?;
        if let Some(definition) = &self.definition {
            write!(f, "  {definition}")?;
        }
        write!(f, "  ({})", self.why)
    }
}

/// The answer to a question after a location.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Located {
    /// Best first.
    pub locations: Vec<Location>,
    /// The first is far ahead of the second.
    pub sure: bool,
}

impl Index {
    /// The locations that fit a question best.
    pub fn locate(&self, question: &str, locations_max: usize) -> Located {
        let query = self.query(question);
        let ranked = self.ranked(&query);
        let gap = match &ranked[..] {
            [] => 0.0,
            [_] => 1.0,
            [first, second, ..] => 1.0 - second.score / first.score,
        };
        let folder = Folder::open(&self.root).ok();
        let mut locations = Vec::new();
        for (at, hit) in ranked.iter().take(locations_max).enumerate() {
            let mut location = Location {
                path: hit.path.to_owned(),
                line: 1,
                definition: None,
                head: String::new(),
                score: hit.score,
                why: Why { words: self.shared(&query, hit.number), ..Why::default() },
            };
            if at < READ_MAX {
                location.why.commits = self.commits_about(&query, hit.path);
                let text = folder.as_ref().and_then(|folder| folder.read(hit.path, files::FILE_BYTES_MAX).ok());
                if let Some(text) = text.and_then(|text| String::from_utf8(text).ok()) {
                    self.point(&query, question, &text, &mut location);
                }
            }
            locations.push(location);
        }
        let first = locations.first();
        let sure =
            first.is_some_and(|first| (first.why.exact || first.why.words.len() >= SURE_WORDS) && gap >= SURE_GAP);
        Located { locations, sure }
    }

    /// The words that a file shares with a question, the rarest first.
    fn shared(&self, query: &Query, file: u32) -> Vec<String> {
        let has = |term: u32| {
            self.postings.iter().any(|postings| {
                postings
                    .get(term as usize)
                    .is_some_and(|files| files.binary_search_by_key(&file, |(file, _)| *file).is_ok())
            })
        };
        let shared = query.terms.iter().filter(|asked| has(asked.term));
        let text = |term: u32| self.vocabulary.terms.text(term);
        let mut found: Vec<(f64, &str)> = shared.map(|asked| (asked.rarity[0], text(asked.term))).collect();
        found.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
        found.into_iter().map(|(_, term)| term.to_owned()).collect()
    }

    /// Finds the definition of a file that a question is about.
    fn point(&self, query: &Query, question: &str, text: &str, location: &mut Location) {
        let Some(language) = Language::of(&location.path) else { return };
        let items: Vec<Item> = outline::items(language, text)
            .into_iter()
            .filter(|item| !matches!(item.kind, Kind::Import | Kind::Impl))
            .collect();
        if items.is_empty() {
            return;
        }
        let rarity = |term: &str| {
            let term = self.vocabulary.terms.find(term)?;
            let asked = query.terms.iter().find(|asked| asked.term == term)?;
            Some(asked.rarity[Field::Text as usize])
        };
        let mut own: Vec<std::collections::HashMap<String, f64>> = vec![Default::default(); items.len()];
        for (number, line) in text.lines().enumerate() {
            // The innermost item around a line is the last one to begin above it.
            let Some(at) = items.iter().rposition(|item| item.lines.contains(&number)) else { continue };
            for term in terms::of(line) {
                if rarity(&term).is_some() {
                    *own[at].entry(term).or_default() += 1.0;
                }
            }
        }
        let named: Vec<&str> = terms::identifiers(question).map(|(_, name)| name).collect();
        let is_exact = |item: &Item| is_telling(&item.name) && named.contains(&item.name.as_str());
        let score = |(item, own): (&Item, &std::collections::HashMap<String, f64>)| {
            let body: f64 =
                own.iter().map(|(term, times)| rarity(term).unwrap_or_default() * times / (times + 1.0)).sum();
            let name: f64 = terms::of(&item.name).iter().filter_map(|term| rarity(term)).sum();
            let exact = if is_exact(item) { EXACT_WEIGHT * name.max(1.0) } else { 0.0 };
            body + NAME_WEIGHT * name + exact
        };
        let scores: Vec<f64> = items.iter().zip(&own).map(score).collect();
        let best = (0..items.len()).max_by(|one, other| scores[*one].total_cmp(&scores[*other]).then(other.cmp(one)));
        let Some((item, _)) = best.map(|at| (&items[at], scores[at])).filter(|(_, score)| *score > 0.0) else { return };
        let parent = item.parents.last().map(|parent| crate::record::short(parent)).filter(|name| !name.is_empty());
        location.line = item.head + 1;
        location.definition =
            Some(parent.map_or_else(|| item.name.clone(), |parent| format!("{parent}.{}", item.name)));
        location.head.clone_from(&item.signature);
        location.why.exact = is_exact(item);
    }
}

/// Whether a word can only be a name, and not one of a sentence.
fn is_telling(name: &str) -> bool {
    name.len() > 2 && (name.trim_matches('_').contains('_') || name.chars().skip(1).any(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_question_is_answered_with_a_line_and_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "src/retry.py",
            "import time\n\nclass Retry:\n    def __init__(self):\n        self.left = 3\n\n    def increment(self):\n        \
             # a retry is used up\n        self.left -= 1\n",
        );
        write("src/pool.py", "class Pool:\n    def get(self):\n        return self.queue.pop()\n");
        write("tests/test_retry.py", "def test_retry_increment():\n    retry = Retry()\n    retry.increment()\n");
        write("README.md", "Retries are counted.\n");
        let mut index = Index::new(folder.path());
        index.refresh();
        let found = index.locate("who counts how many retries are left after an increment?", 3);
        let first = &found.locations[0];
        assert_eq!((first.path.as_path(), first.line), (Path::new("src/retry.py"), 7));
        assert_eq!(first.definition.as_deref(), Some("Retry.increment"));
        assert_eq!(first.head, "def increment(self)");
        assert!(found.sure, "{found:?}");
        assert_eq!(first.why.to_string(), "3 words: left, increment, retry");
        let named = index.locate("what does test_retry_increment do", 3);
        assert_eq!(named.locations[0].path, Path::new("tests/test_retry.py"));
        assert!(named.locations[0].why.exact);
        assert_eq!(index.locate("what is the weather", 3), Located::default());
    }
}
