//! The files, folders and names that a message mentions, and those of them that do not exist.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::Project;
use crate::context::files;

/// Mentions of one message that are looked at.
const MENTIONS_MAX: usize = 16;

/// A message of more bytes, or of more than two lines, is taken for one with something pasted into it.
const PASTED_BYTES: usize = 400;

/// Names as near as this are told.
const NEAR: f64 = 0.82;

/// Endings by which a word is the name of a file.
const ENDINGS: &[&str] = &[
    "py", "pyi", "rs", "js", "ts", "jsx", "tsx", "mjs", "cjs", "go", "java", "kt", "c", "h", "cc", "cpp", "hpp", "cs",
    "rb", "php", "swift", "scala", "sh", "lua", "zig", "dart", "sql", "vue", "svelte", "cu", "md", "toml", "json",
    "yml", "yaml", "txt", "html", "css", "scss", "cfg", "ini", "lock", "csv", "xml", "rst", "env", "ipynb",
];

/// What looks like the name of a file and is that of a program or a library.
const NOT_FILES: &[&str] = &["node.js", "next.js", "vue.js", "react.js", "express.js", "three.js", "d3.js", "asp.net"];

/// Words after which a name follows.
const KINDS: &[&str] = &[
    "class",
    "function",
    "method",
    "struct",
    "enum",
    "trait",
    "interface",
    "module",
    "type",
    "constant",
    "variable",
    "klasse",
    "funktion",
    "methode",
    "konstante",
    "modul",
    "classe",
    "fonction",
    "méthode",
    "constante",
    "clase",
    "función",
    "método",
    "função",
    "módulo",
    "класс",
    "класса",
    "функция",
    "функции",
    "функцию",
    "метод",
    "метода",
];

/// Words between a kind and a name.
const BETWEEN: &[&str] = &[
    "called",
    "named",
    "namens",
    "mit",
    "dem",
    "namen",
    "appelée",
    "appelé",
    "nommée",
    "llamada",
    "llamado",
    "chamada",
    "chamado",
    "под",
    "названием",
];

/// Languages and the like: who names one asks about it and not about the project.
const GENERAL: &[&str] =
    &["rust", "python", "typescript", "javascript", "java", "golang", "kotlin", "general", "generally", "allgemein"];

/// What a message asks about that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// As it was written.
    pub written: String,
    /// It was meant as a file or folder.
    pub is_path: bool,
    /// What is there and called nearly so.
    pub near: Vec<String>,
}

/// The files and folders that exist and are mentioned.
pub fn paths(project: &Project, text: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for (word, explicit) in written_paths(text) {
        if let Some(path) = resolve(project, &word, explicit)
            && !found.contains(&path)
        {
            found.push(path);
        }
    }
    found
}

/// What a question is about that does not exist. Empty as soon as something it names does exist.
pub fn missing(project: &Project, text: &str) -> Vec<Missing> {
    let mut missing: Vec<Missing> = Vec::new();
    // What is pasted names files and names of elsewhere.
    let pasted = text.len() > PASTED_BYTES || text.trim().lines().count() > 2;
    for (word, explicit) in written_paths(text) {
        if resolve(project, &word, explicit).is_some() {
            return Vec::new();
        }
        if explicit || (is_file_name(&word) && !pasted && !word.starts_with('/')) {
            let near = near(&word, project.paths.iter().map(|path| path.to_string_lossy().into_owned()));
            missing.push(Missing { written: word, is_path: true, near });
        }
    }
    let lower = text.to_lowercase();
    let general = lower.split(|letter: char| !letter.is_alphanumeric()).any(|word| GENERAL.contains(&word));
    if general || pasted {
        return missing;
    }
    for name in written_names(text) {
        if missing.iter().any(|other| other.written.contains(&name)) {
            continue;
        }
        if occurs(project, &name) {
            return Vec::new();
        }
        let items = project.sources.iter().flat_map(|source| &source.items).map(|item| item.name.clone());
        let near = near(&name, items);
        missing.push(Missing { written: name, is_path: false, near });
    }
    missing.dedup();
    missing
}

/// The words of a text that could be names, as they are written.
pub fn words(text: &str) -> HashSet<&str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| word.len() > 1)
        .collect()
}

/// Whether a name stands anywhere in the project, as a word.
fn occurs(project: &Project, name: &str) -> bool {
    let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    project.sources.iter().any(|source| {
        source.text.match_indices(name).any(|(at, _)| {
            !is_part(source.text[..at].chars().next_back()) && !is_part(source.text[at + name.len()..].chars().next())
        })
    }) || project.paths.iter().any(|path| path.file_stem().is_some_and(|stem| stem.to_string_lossy() == name))
}

/// Words that are paths: those behind `@`, and those with a `/` or the ending of a file. With whether `@` stood there.
fn written_paths(text: &str) -> Vec<(String, bool)> {
    let is_path = |letter: char| letter.is_ascii_alphanumeric() || "_./-@+".contains(letter);
    let mut found: Vec<(String, bool)> = Vec::new();
    for word in text.split(|letter: char| !is_path(letter)) {
        let (name, explicit) = match word.strip_prefix('@') {
            // Of a package or a mail address the rest is no path of this project.
            Some(name) => (name, true),
            None if word.contains('@') => continue,
            None => (word, false),
        };
        let name = name.trim_end_matches(['.', '-']);
        let looks = explicit || is_file_name(name) || (name.contains('/') && !name.starts_with('/'));
        if name.len() > 1 && looks && !name.contains("//") && !found.iter().any(|(known, _)| known == name) {
            found.push((name.to_owned(), explicit));
        }
        if found.len() == MENTIONS_MAX {
            break;
        }
    }
    found
}

fn is_file_name(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let known = |ending: &str| ENDINGS.contains(&ending.to_ascii_lowercase().as_str());
    name.rsplit_once('.').is_some_and(|(stem, ending)| !stem.is_empty() && known(ending))
        && !NOT_FILES.contains(&word.to_ascii_lowercase().as_str())
}

/// The file or folder that a word names: by its path, or by its end when only one ends so.
fn resolve(project: &Project, word: &str, explicit: bool) -> Option<PathBuf> {
    let path = files::inside(&project.root, word)?;
    // A word with a slash may be two words; what is behind `@` or ends like a file is a path.
    if project.root.join(&path).exists() && (explicit || word.contains(['/', '.'])) {
        return Some(path);
    }
    let mut alike = project.paths.iter().filter(|known| known.ends_with(&path));
    let first = alike.next().cloned();
    if let Some(first) = first {
        return alike.next().is_none().then_some(first);
    }
    let trimmed = Path::new(word.trim_end_matches('/'));
    let folder = project.paths.iter().filter_map(|known| known.parent()).find(|folder| folder.ends_with(trimmed));
    folder.filter(|_| word.contains('/')).map(Path::to_owned)
}

/// Names of code: in backticks, with `_` or capitals inside, before `(`, or behind the word for what they are.
fn written_names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut push = |name: &str| {
        let name = name.trim_matches(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        let plain = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        let begins = name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
        if name.len() > 2 && plain && begins && !names.iter().any(|known| known == name) && names.len() < MENTIONS_MAX {
            names.push(name.to_owned());
        }
    };
    for (at, quoted) in text.split('`').enumerate() {
        if at % 2 == 1 && !quoted.contains(char::is_whitespace) {
            push(quoted.split(['(', '<']).next().unwrap_or_default());
        }
    }
    for word in text.split(|letter: char| !(letter.is_ascii_alphanumeric() || "_(./".contains(letter))) {
        if word.contains(['.', '/']) {
            continue;
        }
        let (name, called) = match word.split_once('(') {
            Some((name, _)) => (name, true),
            None => (word, false),
        };
        let letters: Vec<char> = name.chars().collect();
        let camel = letters.windows(2).any(|pair| pair[0].is_lowercase() && pair[1].is_uppercase());
        let snake = name.trim_matches('_').contains('_');
        if camel || snake || (called && name.len() > 2) {
            push(name);
        }
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        if !KINDS.contains(&word.to_lowercase().trim_matches(|letter: char| !letter.is_alphanumeric())) {
            continue;
        }
        let next = words[at + 1..].iter().find(|next| !BETWEEN.contains(&next.to_lowercase().as_str()));
        // A capital tells a name from the next word of the sentence.
        if let Some(next) = next.filter(|next| next.starts_with(|letter: char| letter.is_ascii_uppercase())) {
            let bare = next.trim_matches(|letter: char| !letter.is_alphanumeric() && letter != '_');
            if bare.is_ascii() && !bare.contains(['.', '/']) && bare.len() > 2 {
                push(bare);
            }
        }
    }
    names
}

/// Those of the known names that are called nearly so, the nearest first.
fn near(written: &str, known: impl Iterator<Item = String>) -> Vec<String> {
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let wanted = last(written);
    let mut scored: Vec<(f64, String)> = known
        .map(|name| (strsim::jaro_winkler(&wanted, &last(&name)), name))
        .filter(|(score, _)| *score >= NEAR)
        .collect();
    scored.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    scored.dedup_by(|one, other| one.1 == other.1);
    scored.into_iter().map(|(_, name)| name).take(3).collect()
}
