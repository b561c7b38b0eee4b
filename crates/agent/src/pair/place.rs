//! Which file a block of an answer belongs to, and what the file becomes.
//!
//! Models name the file in many ways: behind the fence, in the line above it, in a comment at the top, or not at all.
//! A block without a name belongs to the file that defines what the block defines. A block that names nothing and
//! defines nothing known is an example and changes nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::parser::Head;
use super::prompt::Task;
use crate::context::{Shown, definitions, files};
use crate::edit::{self, Change, ChangeKind, EditError};
use crate::outline::{Item, Kind};

/// Languages of blocks that are commands or their output, never the content of a file.
const TALK: &[&str] = &["sh", "bash", "shell", "console", "text", "txt", "plaintext", "output", "zsh", "terminal"];

/// What a block is matched against.
pub struct Surroundings<'a> {
    /// The workspace.
    pub root: &'a Path,
    /// Files the model has seen, as they are now.
    pub files: &'a [Shown],
    /// What the task says about its answer.
    pub task: Task,
}

/// The file a block is about. A path that does not exist yet is a file to be made.
pub fn target(head: &Head, text: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    if around.task.question {
        return None;
    }
    let (language, rest) = split_info(&head.info);
    let named = rest.iter().chain([&language]).find_map(|word| existing(word, around));
    let named = named.or_else(|| words(&head.heading).iter().rev().find_map(|word| existing(word, around)));
    if let Some(path) = named.or_else(|| comment_path(text).and_then(|path| existing(path, around))) {
        return Some(path);
    }
    if TALK.contains(&language.to_lowercase().as_str()) {
        return None;
    }
    by_definitions(text, around).or_else(|| {
        let alone = words(&head.heading);
        let alone = if alone.len() == 1 { alone.first().copied() } else { None };
        let named = rest.into_iter().next().or(alone).or_else(|| comment_path(text));
        let new = named.filter(|name| looks_like_path(name)).and_then(|name| files::inside(around.root, name));
        new.or_else(|| meant(language, text, around))
    })
}

/// The file that is meant when nothing names it: the only one shown that is no test, if the block is of its language and
/// defines something.
fn meant(language: &str, text: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    let mut code = around.files.iter().filter(|file| !files::is_test(&file.path));
    let (file, None) = (code.next()?, code.next()) else { return None };
    let defines = !definitions(&file.path, text).is_empty();
    (defines && files::language(&file.path) == language).then(|| file.path.clone())
}

/// What the file becomes. The error is written for the model.
pub fn rewrite(path: &Path, head: &Head, text: &str, around: &Surroundings<'_>) -> Result<String, EditError> {
    let old = current(path, around);
    let text = without_comment_path(path, text, old.as_deref());
    let resolve = |kind: ChangeKind, old: Option<&str>| edit::resolve(&Change { path: path.to_owned(), kind }, old);
    let Some(old) = old else {
        return resolve(ChangeKind::Create { text: text.to_owned() }, None);
    };
    let (language, _) = split_info(&head.info);
    if language == "diff" || language == "patch" || text.trim_start().starts_with("*** Begin Patch") {
        return patched(path, text, &old);
    }
    if !definitions(path, text).is_empty() && !covers_all(path, text, &old, around.task.removal) {
        return resolve(ChangeKind::Function { text: own_part(path, text, &old, around) }, Some(&old));
    }
    resolve(ChangeKind::WholeFile { text: text.to_owned() }, Some(&old))
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
    let done = own_part(path, &lines[..last.lines.start].concat(), &old, around);
    let change = Change { path: path.to_owned(), kind: ChangeKind::Function { text: done } };
    let base = edit::resolve(&change, Some(&old)).unwrap_or_else(|_| old.clone());
    let place = definitions(path, &base).into_iter().find(|item| item.name == last.name)?;
    let before: String = base.split_inclusive('\n').take(place.head).collect();
    let depth = place.indent.strip_prefix(last.indent.as_str()).unwrap_or_default();
    let unfinished = lines[last.head..].iter().map(|line| match line.trim().is_empty() {
        true => (*line).to_owned(),
        false => format!("{depth}{line}"),
    });
    Some((old, before + &unfinished.collect::<String>()))
}

/// The block without what belongs to another file that was shown, without imports of the file itself, and without the
/// examples of use that models write behind the last definition.
fn own_part(path: &Path, text: &str, old: &str, around: &Surroundings<'_>) -> String {
    let others = around.files.iter().filter(|file| file.path != path);
    let elsewhere: HashSet<String> =
        others.flat_map(|file| definitions(&file.path, &file.text)).map(|item| item.name).collect();
    let here: HashSet<String> = definitions(path, old).into_iter().map(|item| item.name).collect();
    let items = definitions(path, text);
    let end = items.iter().map(|item| item.lines.end).max().unwrap_or(0);
    let foreign = |line: usize| {
        items.iter().any(|item| {
            item.lines.contains(&line)
                && item.parents.is_empty()
                && elsewhere.contains(&item.name)
                && !here.contains(&item.name)
        })
    };
    let module = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let of_itself = |line: &str| {
        let mut words = line.split_whitespace();
        matches!(words.next(), Some("from" | "import")) && words.next() == Some(module.as_str())
    };
    let kept = text.lines().enumerate().take(end).filter(|(at, line)| !foreign(*at) && !of_itself(line));
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

/// Whether the block is the file as a whole rather than some of its definitions.
fn covers_all(path: &Path, text: &str, old: &str, removal: bool) -> bool {
    let (new_items, old_items) = (definitions(path, text), definitions(path, old));
    let top = |items: &[Item]| -> Vec<String> {
        items.iter().filter(|item| item.parents.is_empty()).map(|item| item.name.clone()).collect()
    };
    let (new_names, old_names) = (top(&new_items), top(&old_items));
    let kept = old_names.iter().filter(|name| new_names.contains(name)).count();
    let all = kept == old_names.len() || (removal && kept * 2 >= old_names.len());
    let head = |text: &str, items: &[Item]| {
        let end = items.first().map_or(usize::MAX, |item| item.lines.start);
        text.lines().take(end).filter(|line| !line.trim().is_empty()).count()
    };
    // Behind the last definition stand examples of use, unless the file had such lines too.
    let tail = |text: &str, items: &[Item]| {
        let end = items.iter().map(|item| item.lines.end).max().unwrap_or(0);
        text.lines().skip(end).any(|line| !line.trim().is_empty())
    };
    let as_long = head(text, &new_items) >= head(old, &old_items);
    all && as_long && (!tail(text, &new_items) || tail(old, &old_items))
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

/// The file that defines most of what the text defines; between equals the one that is no test.
fn by_definitions(text: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
    let names = |path: &Path, text: &str| -> HashSet<String> {
        let items = definitions(path, text).into_iter().filter(|item| item.kind != Kind::Value);
        items.map(|item| item.name).collect()
    };
    let shared = |file: &Shown| names(&file.path, text).intersection(&names(&file.path, &file.text)).count();
    let scored = around.files.iter().map(|file| (shared(file), !files::is_test(&file.path), file));
    let best = scored.filter(|(count, _, _)| *count > 0).max_by_key(|(count, code, _)| (*count, *code));
    best.map(|(_, _, file)| file.path.clone())
}

#[cfg(test)]
mod tests;
