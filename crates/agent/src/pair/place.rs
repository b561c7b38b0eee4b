//! Which files a block of an answer belongs to, and what they become.
//!
//! Models name the file in many ways: behind the fence, in the line above it, in a comment at the top, or not at all, and
//! sometimes they name the wrong one. So every definition of a block goes to the file that has it already (`split`), and
//! the name only decides about what is new. What a block changes is what it shows: everything else of the file stays, and
//! where it is not clear what was meant nothing is written and the reason is told.

mod account;
mod split;
mod tests_of;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use index::outline::{Item, Kind, Language, fault};
use workspace::edit::{self, Change, ChangeKind, EditError};

use super::parser::Head;
use super::prompt::Task;
use super::request;
use crate::context::{Shown, definitions, files};

/// Languages of blocks that are commands or their output, never the content of a file.
const TALK: &[&str] = &["sh", "bash", "shell", "console", "text", "txt", "plaintext", "output", "zsh", "terminal"];

/// What a block is matched against.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The workspace.
    pub root: &'a Path,
    /// Files the model has seen, as they are now.
    pub files: &'a [Shown],
    /// What the task says about its answer.
    pub task: Task,
    /// What was asked.
    pub request: &'a str,
}

/// What the blocks of an answer make of the files.
#[derive(Debug, Default)]
pub struct Placed {
    /// The files that were touched, and what they become.
    pub files: Vec<(PathBuf, String)>,
    /// What was not placed.
    pub left: Vec<Left>,
}

/// Something in an answer that was not placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The number of its block.
    pub block: usize,
    /// What it is, such as the name of a definition.
    pub what: String,
    /// Why it was not placed, for the person.
    pub why: String,
    /// Files it could belong to.
    pub could: Vec<PathBuf>,
}

/// Why an answer cannot be placed: the number of the block, its file where that is known, and the reason.
#[derive(Debug)]
pub struct Refused {
    /// The number of the block.
    pub block: usize,
    /// The file.
    pub path: Option<PathBuf>,
    /// The reason, written for the model.
    pub why: EditError,
}

/// Places all blocks of an answer, or none. Later blocks build on earlier ones.
pub fn all(blocks: &[(&Head, &str)], around: &Surroundings<'_>) -> Result<Placed, Refused> {
    let mut files = around.files.to_vec();
    let mut placed = Placed::default();
    for (number, (head, text)) in blocks.iter().enumerate() {
        let parts = split::parts(head, text, &Surroundings { files: &files, ..*around });
        let parts = match parts {
            Ok(parts) => parts,
            Err(split::Nowhere { name, why, could }) => {
                let what = name.map_or_else(|| "a block".to_owned(), |name| format!("`{name}`"));
                placed.left.push(Left { block: number, what, why, could });
                continue;
            }
        };
        let left = parts.left.into_iter();
        placed.left.extend(left.map(|(what, nowhere)| Left {
            block: number,
            what,
            why: nowhere.why,
            could: nowhere.could,
        }));
        for (path, text) in parts.parts {
            let around = Surroundings { files: &files, ..*around };
            let edited = rewrite(&path, head, &text, &around);
            let edited = edited.map_err(|why| Refused { block: number, path: Some(path.clone()), why })?;
            for name in edited.left_out {
                let why = "the answer leaves out its body, so it stays as it is".to_owned();
                placed.left.push(Left { block: number, what: format!("`{name}`"), why, could: Vec::new() });
            }
            if let Some(line) = behind(&path, &text, &edited.text).filter(|_| !split::is_patch(head, &text)) {
                let why = "it stands behind the definitions, like an example of how to use them".to_owned();
                placed.left.push(Left { block: number, what: format!("`{line}`"), why, could: Vec::new() });
            }
            match files.iter_mut().find(|file| file.path == path) {
                Some(file) => file.text = edited.text,
                None => files.push(Shown { path: path.clone(), text: edited.text, excerpt: None }),
            }
            if !placed.files.iter().any(|(other, _)| *other == path) {
                placed.files.push((path, String::new()));
            }
        }
    }
    for (path, text) in &mut placed.files {
        if let Some(file) = files.iter().find(|file| file.path == *path) {
            text.clone_from(&file.text);
        }
    }
    Ok(placed)
}

/// The first file a block is about, as far as it has come. A path that does not exist yet is a file to be made.
pub fn target(head: &Head, text: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    split::parts(head, text, around).ok()?.parts.into_iter().next().map(|(path, _)| path)
}

/// The diff of a block for one file: the text before and after; none when it cannot be placed.
pub fn shown(path: &Path, head: &Head, text: &str, around: &Surroundings<'_>) -> Option<(String, String)> {
    let parts = split::parts(head, text, around).ok()?;
    let (_, text) = parts.parts.into_iter().find(|(other, _)| other == path)?;
    let new = rewrite(path, head, &text, around).ok()?.text;
    Some((current(path, around).unwrap_or_default(), new))
}

/// What the file becomes. The error is written for the model.
fn rewrite(path: &Path, head: &Head, text: &str, around: &Surroundings<'_>) -> Result<edit::Merged, EditError> {
    let old = current(path, around);
    let text = without_comment_path(path, text, old.as_deref());
    let resolve = |kind: ChangeKind, old: Option<&str>| {
        let text = edit::resolve(&Change { path: path.to_owned(), kind }, old)?;
        Ok(edit::Merged { text, left_out: Vec::new() })
    };
    let Some(old) = old else {
        let added = |line: &str| line.strip_prefix('+').map(|line| format!("{line}\n"));
        let text = if split::is_patch(head, text) { text.lines().filter_map(added).collect() } else { text.to_owned() };
        return resolve(ChangeKind::Create { text }, None);
    };
    let new = if split::is_patch(head, text) {
        patched(path, text, &old).map(|text| edit::Merged { text, left_out: Vec::new() })?
    } else {
        let goes = |name: &str| request::asks_to_remove(around.request, name);
        let left_out = edit::left_out(path, &old, text)?;
        let whole = left_out.is_empty() && account::covers_all(path, text, &old, &goes);
        match whole && account::lost(path, &old, text, &goes).is_none() {
            true => resolve(ChangeKind::WholeFile { text: text.to_owned() }, Some(&old))?,
            false => edit::merge(path, &old, &split::definitions_only(path, text, &old), &goes)?,
        }
    };
    check_parses(path, &old, &new.text)?;
    Ok(new)
}

/// The first line behind the last definition of a block that did not come into the file.
fn behind(path: &Path, text: &str, new: &str) -> Option<String> {
    let end = definitions(path, text).iter().map(|item| item.lines.end).max()?;
    let stands: HashSet<&str> = new.lines().map(str::trim).collect();
    let known = |line: &&str| line.trim().is_empty() || stands.contains(line.trim());
    text.lines().skip(end).find(|line| !known(line)).map(|line| line.trim().to_owned())
}

/// What could be read before must be readable after.
fn check_parses(path: &Path, old: &str, new: &str) -> Result<(), EditError> {
    let unclear = |why: String| Err(EditError::Unclear { path: path.to_owned(), why });
    if let Some(language) = Language::of(path) {
        return match fault(language, new) {
            Some(found) if fault(language, old).is_none() => unclear(format!(
                "with this answer the file is no longer whole code (line {}: {}); send the whole function, inside the \
                 class it belongs to",
                found.line, found.why
            )),
            _ => Ok(()),
        };
    }
    let wrong = |text: &str| match path.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => toml::from_str::<toml::Table>(text).err().map(|error| error.message().to_owned()),
        Some("json") => serde_json::from_str::<serde_json::Value>(text).err().map(|error| error.to_string()),
        _ => None,
    };
    match wrong(new) {
        Some(why) if wrong(old).is_none() => {
            unclear(format!("with this answer the file is no longer valid ({why}); send the whole file"))
        }
        _ => Ok(()),
    }
}

/// The text of a file now: as it is on disk, not as it was shown.
pub fn current(path: &Path, around: &Surroundings<'_>) -> Option<String> {
    let known = around.files.iter().find(|file| file.path == path);
    known.map(|file| file.text.clone()).or_else(|| files::read_text(around.root, path, files::NAMED_BYTES_MAX))
}

/// What the file looks like while the block is being written: everything before the place that is reached, and the
/// block so far. Made for `diff::growing`, which keeps the rest.
pub fn so_far(path: &Path, head: &Head, text: &str, around: &Surroundings<'_>) -> Option<(String, String)> {
    let Some(old) = current(path, around) else {
        return Some((String::new(), text.to_owned()));
    };
    let text = without_comment_path(path, text, Some(&old));
    if split_info(&head.info).0 == "diff" {
        return None;
    }
    let Some(last) = definitions(path, text).into_iter().rfind(|item| item.parents.is_empty()) else {
        let starts_alike = text.lines().next() == old.lines().next();
        return starts_alike.then(|| (old, text.to_owned()));
    };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let done = split::definitions_only(path, &lines[..last.lines.start].concat(), &old);
    let base = edit::merge(path, &old, &done, &|_| false).map_or_else(|_| old.clone(), |merged| merged.text);
    let place = definitions(path, &base).into_iter().find(|item| item.name == last.name)?;
    let before: String = base.split_inclusive('\n').take(place.head).collect();
    let depth = place.indent.strip_prefix(last.indent.as_str()).unwrap_or_default();
    let unfinished = lines[last.head..].iter().map(|line| match line.trim().is_empty() {
        true => (*line).to_owned(),
        false => format!("{depth}{line}"),
    });
    Some((old, before + &unfinished.collect::<String>()))
}

/// A diff or a patch in a block, hunk after hunk.
fn patched(path: &Path, text: &str, old: &str) -> Result<String, EditError> {
    let text = match text.contains("*** Begin Patch") {
        true => text.to_owned(),
        false => {
            let hunks = text.lines().filter(|line| !line.starts_with("---") && !line.starts_with("+++"));
            let hunks: String = hunks.map(|line| format!("{}\n", bare_hunk(line))).collect();
            format!("*** Begin Patch\n*** Update File: {}\n{hunks}*** End Patch\n", path.display())
        }
    };
    edit::patch::parse(&text)?.iter().try_fold(old.to_owned(), |text, change| edit::resolve(change, Some(&text)))
}

/// `@@ -1,2 +3,4 @@ context` without the numbers, which models get wrong.
fn bare_hunk(line: &str) -> &str {
    if line.starts_with("@@ -") { "@@" } else { line }
}

/// The language behind a fence, and the words after it.
fn split_info(info: &str) -> (&str, Vec<&str>) {
    let mut parts = info.split(|letter: char| letter.is_whitespace() || ":={}\"',".contains(letter));
    let first = parts.next().unwrap_or_default();
    (first, parts.filter(|word| !word.is_empty()).collect())
}

/// Words that may be paths, without the marks of Markdown around them.
fn words(line: &str) -> Vec<&str> {
    let line = line.trim_start_matches(['#', '-', '>', ' ']).trim();
    let line = line.strip_prefix("File:").or_else(|| line.strip_prefix("Path:")).unwrap_or(line);
    let trimmed = line.split_whitespace().map(|word| word.trim_matches(|letter: char| "*`_\"'():,;".contains(letter)));
    trimmed.map(|word| word.trim_end_matches('.')).filter(|word| !word.is_empty()).collect()
}

/// The path in a comment that is the first line.
fn comment_path(text: &str) -> Option<&str> {
    let line = text.lines().next()?.trim();
    let inner = ["//", "#", "--", "/*", "<!--"].iter().find_map(|mark| line.strip_prefix(mark))?;
    let inner = inner.trim_end_matches("*/").trim_end_matches("-->").trim();
    (looks_like_path(inner) && !inner.contains(' ')).then_some(inner)
}

fn without_comment_path<'a>(path: &Path, text: &'a str, old: Option<&str>) -> &'a str {
    let names = comment_path(text).is_some_and(|named| path.ends_with(named) || Path::new(named).ends_with(path));
    let was_there = old.is_some_and(|old| old.lines().next() == text.lines().next());
    match text.split_once('\n') {
        Some((_, rest)) if names && !was_there => rest.trim_start_matches('\n'),
        _ => text,
    }
}

fn looks_like_path(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    let letters = |ending: &str| (1..=8).contains(&ending.len()) && ending.chars().all(char::is_alphanumeric);
    name.rsplit_once('.').is_some_and(|(stem, ending)| !stem.is_empty() && letters(ending) && !stem.contains('('))
        || matches!(name, "Makefile" | "Dockerfile")
}

/// The existing file that a word names: by its path, or by its end when only one file that was shown ends so.
fn existing(word: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    let path = files::inside(around.root, word)?;
    if around.root.join(&path).is_file() || around.files.iter().any(|file| file.path == path) {
        return Some(path);
    }
    let mut alike = around.files.iter().filter(|file| file.path.ends_with(&path));
    let first = alike.next().map(|file| file.path.clone());
    first.filter(|_| alike.next().is_none())
}

#[cfg(test)]
mod tests;
