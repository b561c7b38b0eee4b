//! How often names of real commits are called unknown, and how often invented ones are: the curve of each level.
//!
//! `bench/names/README.md` says what is measured. `cargo run --release -p index --example names -- REPOSITORY LANGUAGE [COMMITS]
//! [--packages SITE_PACKAGES...]` prints one line for each level, without and with what is installed.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a laboratory, run by hand on data of the one who runs it"
)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use index::library::Library;
use index::names::{Level, Names, imported, scan};
use index::outline::Language;
use index::{Index, files, terms};

#[path = "git/mod.rs"]
mod git;

use git::{Blobs, run};

/// Invented names that are tried in each commit.
const INVENTED: usize = 8;

/// Files of one commit; larger ones are merges of history or generated.
const FILES_MAX: usize = 60;

#[derive(Default)]
struct Score {
    commits: usize,
    flagged: usize,
    sites: usize,
    alarms: usize,
    invented: usize,
    caught: usize,
    ms: Vec<f64>,
    examples: Vec<String>,
}

/// What counts as known.
#[derive(Clone, Copy, PartialEq)]
enum With {
    Project,
    Language,
    Packages,
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let packages = match arguments.iter().position(|argument| argument == "--packages") {
        Some(at) => arguments.split_off(at).split_off(1).into_iter().map(PathBuf::from).collect(),
        None => Vec::new(),
    };
    let verbose = arguments.iter().any(|argument| argument == "--verbose");
    arguments.retain(|argument| !argument.starts_with("--"));
    let language = match arguments[1].as_str() {
        "python" => Language::Python,
        "rust" => Language::Rust,
        _ => Language::Script,
    };
    let limit = arguments.get(2).map_or(110, |count| count.parse().unwrap());
    let repository = Path::new(&arguments[0]);
    let git = if repository.join("repo").is_dir() { repository.join("repo") } else { repository.to_owned() };
    let commits = commits(&git, language, limit);
    let mut configurations = vec![
        (With::Project, Level::Words),
        (With::Language, Level::Words),
        (With::Packages, Level::Words),
        (With::Packages, Level::Imports),
        (With::Packages, Level::Members),
    ];
    if packages.is_empty() && language == Language::Python {
        configurations.truncate(2);
    }
    let mut scores: Vec<Score> = configurations.iter().map(|_| Score::default()).collect();
    let mut tree = Tree::new(&git, language);
    let empty = Library::on(language, index::library::Shelf::default(), None).without_language();
    let plain = Library::on(language, index::library::Shelf::default(), None);
    let mut full = match packages.is_empty() {
        true => Library::of(language, &git, None),
        false => Library::in_folders(language, &packages, None),
    };
    // The project itself may be installed, in a version that has what these commits make.
    let own = repository.file_name().unwrap().to_string_lossy();
    let own = own.rsplit('+').next().unwrap();
    full = full.without(own).without(&format!("_{own}"));
    for commit in &commits {
        tree.go(&format!("{commit}^"));
        full.load(imported(&tree.index, language), 1);
        let changes = tree.changes(commit, language);
        for (_, _, text, _) in &changes {
            full.load(index::names::imported_by(language, text), 1);
        }
        // What the commit makes anywhere in it is known everywhere in it.
        let mut invented = Invented::new(&tree.index, commit);
        let tries: Vec<(usize, String, String)> =
            (0..INVENTED).filter_map(|_| invented.make(&changes, language)).collect();
        for ((with, level), score) in configurations.iter().zip(&mut scores) {
            let library = match with {
                With::Project => &empty,
                With::Language => &plain,
                With::Packages => &full,
            };
            measure(&tree.index, library, *level, &changes, &tries, commit, score);
        }
    }
    for ((with, level), score) in configurations.iter().zip(&scores) {
        let with = match with {
            With::Project => "project",
            With::Language => "+ language",
            With::Packages => "+ packages",
        };
        let mut ms = score.ms.clone();
        ms.sort_by(f64::total_cmp);
        println!(
            "{} {with:<11} {level:?}: commits {} flagged {} ({:.1} %); sites {} alarms {} ({:.1} per 1,000); invented {} caught {} \
             ({:.1} %); a file {:.1} ms (median), {:.1} (most)",
            repository.file_name().unwrap().to_string_lossy(),
            score.commits,
            score.flagged,
            100.0 * score.flagged as f64 / score.commits as f64,
            score.sites,
            score.alarms,
            1000.0 * score.alarms as f64 / score.sites as f64,
            score.invented,
            score.caught,
            100.0 * score.caught as f64 / score.invented.max(1) as f64,
            ms[ms.len() / 2],
            ms[ms.len() - 1],
        );
        if verbose {
            score.examples.iter().for_each(|example| println!("    {example}"));
        }
    }
}

/// A changed file: path, the lines that are new, its text, the names that it makes.
type Change = (PathBuf, HashSet<usize>, String, HashSet<String>);

fn measure(
    index: &Index,
    library: &Library,
    level: Level,
    changes: &[Change],
    tries: &[(usize, String, String)],
    commit: &str,
    score: &mut Score,
) {
    let made: HashSet<&str> = changes.iter().flat_map(|(_, _, _, made)| made.iter().map(String::as_str)).collect();
    let names = Names::new(index, library, level).with_made(made.iter().copied());
    let mut flagged = false;
    for (path, fresh, text, _) in changes {
        let begun = Instant::now();
        let found = names.unknown(path, text, |line| fresh.contains(&line));
        score.ms.push(begun.elapsed().as_secs_f64() * 1e3);
        flagged |= !found.is_empty();
        score.alarms += found.len();
        score.sites +=
            scan::scan(library.language(), text).sites.iter().filter(|site| fresh.contains(&site.line)).count();
        for one in found {
            score.examples.push(format!("{} {}:{} {one}", &commit[..8], path.display(), one.line + 1));
        }
    }
    score.commits += 1;
    score.flagged += usize::from(flagged);
    for (file, name, text) in tries {
        let (path, fresh, ..) = &changes[*file];
        let found = names.unknown(path, text, |line| fresh.contains(&line));
        score.invented += 1;
        score.caught += usize::from(found.iter().any(|one| one.name == *name));
    }
}

/// Names of which one word was swapped for another of the project's.
struct Invented {
    words: Vec<String>,
    dice: u64,
}

impl Invented {
    fn new(index: &Index, commit: &str) -> Self {
        let words: BTreeSet<String> = index
            .names()
            .filter(|name| name.contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
            .flat_map(|name| name.split('_').filter(|part| part.len() > 2).map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let dice = u64::from_str_radix(&commit[..15], 16).unwrap() | 1;
        Self { words: words.into_iter().collect(), dice }
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) as usize % sides.max(1)
    }

    /// The number of a file, a name that nobody gave, and the text with it.
    fn make(&mut self, changes: &[Change], language: Language) -> Option<(usize, String, String)> {
        let mut sites = Vec::new();
        for (number, (_, fresh, text, made)) in changes.iter().enumerate() {
            for site in scan::scan(language, text).sites {
                let snake = site.name.trim_matches('_').contains('_')
                    && site.name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                if fresh.contains(&site.line) && snake && !made.contains(site.name) {
                    sites.push((number, site.at, site.name.to_owned()));
                }
            }
        }
        if sites.is_empty() || self.words.is_empty() {
            return None;
        }
        let (number, at, name) = sites[self.roll(sites.len())].clone();
        let mut parts: Vec<&str> = name.split('_').collect();
        let full: Vec<usize> = (0..parts.len()).filter(|at| !parts[*at].is_empty()).collect();
        let place = full[self.roll(full.len())];
        let at_word = self.roll(self.words.len());
        let word = self.words[at_word].clone();
        if parts[place] == word {
            return None;
        }
        parts[place] = &word;
        let invented = parts.join("_");
        let text = &changes[number].2;
        let text = format!("{}{invented}{}", &text[..at], &text[at + name.len()..]);
        Some((number, invented, text))
    }
}

/// The last commits without merges that change code of a language.
fn commits(git: &Path, language: Language, limit: usize) -> Vec<String> {
    let pattern = match language {
        Language::Python => "*.py",
        Language::Rust => "*.rs",
        _ => "*.ts",
    };
    let limit = format!("-{limit}");
    let said = run(git, &["log", "--no-merges", "--format=%H", "--diff-filter=AM", &limit, "HEAD", "--", pattern]);
    let mut found: Vec<String> = said.lines().map(str::to_owned).collect();
    found.reverse();
    found
}

/// The tree of one commit as an index.
struct Tree {
    git: PathBuf,
    language: Language,
    index: Index,
    known: HashMap<PathBuf, String>,
    blobs: Blobs,
}

impl Tree {
    fn new(git: &Path, language: Language) -> Self {
        let (index, known, blobs) = (Index::new(Path::new("/nowhere")), HashMap::new(), Blobs::new(git));
        Self { git: git.to_owned(), language, index, known, blobs }
    }

    fn go(&mut self, commit: &str) {
        let mut tree = HashMap::new();
        for line in run(&self.git, &["ls-tree", "-r", commit]).lines() {
            let Some((facts, path)) = line.split_once('\t') else { continue };
            let (facts, path) = (facts.split_whitespace().collect::<Vec<_>>(), PathBuf::from(path));
            let code = files::is_source(&path) || Language::of(&path) == Some(self.language);
            if facts[0].starts_with("100") && code && files::would_read(&path) {
                tree.insert(path, facts[2].to_owned());
            }
        }
        let index = &mut self.index;
        self.known.retain(|path, _| {
            tree.contains_key(path) || {
                index.remove(path);
                false
            }
        });
        for (path, blob) in tree {
            if self.known.get(&path) == Some(&blob) {
                continue;
            }
            match String::from_utf8(self.blobs.read(&blob))
                .ok()
                .filter(|text| text.len() as u64 <= files::FILE_BYTES_MAX)
            {
                Some(text) => self.index.put(&path, &text),
                None => self.index.remove(&path),
            }
            self.known.insert(path, blob);
        }
    }

    fn changes(&mut self, commit: &str, language: Language) -> Vec<Change> {
        let said = run(&self.git, &["diff", "--no-renames", "-U0", "--diff-filter=AM", &format!("{commit}^"), commit]);
        let mut fresh: Vec<(PathBuf, HashSet<usize>)> = Vec::new();
        for line in said.lines() {
            if let Some(path) = line.strip_prefix("+++ b/") {
                fresh.push((PathBuf::from(path), HashSet::new()));
            } else if let Some(rest) = line.strip_prefix("@@ ") {
                let new = rest.split_whitespace().nth(1).unwrap().trim_start_matches('+');
                let (start, count) = new.split_once(',').unwrap_or((new, "1"));
                let (start, count): (usize, usize) = (start.parse().unwrap(), count.parse().unwrap());
                fresh.last_mut().unwrap().1.extend((start..start + count).map(|line| line - 1));
            }
        }
        fresh.retain(|(path, _)| Language::of(path) == Some(language));
        fresh.truncate(FILES_MAX);
        let read = |(path, lines): (PathBuf, HashSet<usize>)| {
            let blob = run(&self.git, &["rev-parse", &format!("{commit}:{}", path.display())]);
            let text = String::from_utf8(self.blobs.read(blob.trim())).ok()?;
            let made = scan::scan(language, &text);
            let mut made: HashSet<String> = made.made.iter().map(|name| (*name).to_owned()).collect();
            made.extend(index::outline::items(language, &text).into_iter().map(|item| item.name));
            made.extend(terms::identifiers(&path.to_string_lossy()).map(|(_, name)| name.to_owned()));
            Some((path, lines, text, made))
        };
        fresh.into_iter().filter_map(read).collect()
    }
}
