//! Which file a block of an answer belongs to, and what the file becomes.
//!
//! Models name the file in many ways: behind the fence, in the line above it, in a comment at the top, or not at all.
//! A block without a name belongs to the file that defines what the block defines. A block that names nothing and
//! defines nothing known is an example and changes nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::parser::Head;
use crate::context::{Shown, files, outline};
use crate::edit::{self, Change, ChangeKind, EditError};

/// Languages of blocks that are commands or their output, never the content of a file.
const TALK: &[&str] = &["sh", "bash", "shell", "console", "text", "txt", "plaintext", "output", "zsh", "terminal"];

/// What a block is matched against.
pub struct Surroundings<'a> {
    /// The workspace.
    pub root: &'a Path,
    /// Files the model has seen, as they are now.
    pub files: &'a [Shown],
    /// The task asks for something to go away, so a whole file may come back with less in it.
    pub removal: bool,
}

/// The file a block is about. A path that does not exist yet is a file to be made.
pub fn target(head: &Head, text: &str, around: &Surroundings<'_>) -> Option<PathBuf> {
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
        let new = rest.into_iter().next().or(alone).or_else(|| comment_path(text))?;
        looks_like_path(new).then(|| files::inside(around.root, new)).flatten()
    })
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
    if !covers_all(text, &old, around.removal) && !outline::items(text).is_empty() {
        let parts = Parts::new(text, path, around);
        let new = functions(path, &parts.definitions, &old)?;
        return Ok(parts.imports.iter().rev().fold(new, |text, line| with_import(text, line)));
    }
    resolve(ChangeKind::WholeFile { text: text.to_owned() }, Some(&old))
}

/// The text of a file now: as it is on disk, not as it was shown.
pub fn current(path: &Path, around: &Surroundings<'_>) -> Option<String> {
    let known = around.files.iter().find(|file| file.path == path);
    known.map(|file| file.text.clone()).or_else(|| files::read_text(&around.root.join(path), u64::MAX))
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
    let items = outline::items(text);
    let starts_alike = text.lines().next() == old.lines().next();
    let Some(last) = items.iter().rfind(|item| item.indent == 0) else {
        return starts_alike.then(|| (old, text.to_owned()));
    };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let done: String = lines[..last.first].concat();
    let base = if outline::items(&done).is_empty() {
        old.clone()
    } else {
        functions(path, &done, &old).unwrap_or_else(|_| old.clone())
    };
    let place = outline::items(&base).into_iter().find(|item| item.name == last.name)?;
    let before: String = base.split_inclusive('\n').take(place.first).collect();
    let depth = " ".repeat(place.indent);
    let unfinished = lines[last.first..].iter().map(|line| match line.trim().is_empty() {
        true => (*line).to_owned(),
        false => format!("{depth}{line}"),
    });
    Some((old, before + &unfinished.collect::<String>()))
}

/// The text with each of these definitions in the place of the one with the same name; new ones behind the last.
fn functions(path: &Path, definitions: &str, old: &str) -> Result<String, EditError> {
    let mut text = old.to_owned();
    let mut last = None;
    let lines: Vec<&str> = definitions.split_inclusive('\n').collect();
    let shallowest = outline::items(definitions).iter().map(|item| item.indent).min().unwrap_or(0);
    for item in outline::items(definitions).into_iter().filter(|item| item.indent == shallowest) {
        let new: String = lines[item.first..item.end].concat();
        let current: Vec<&str> = text.split_inclusive('\n').collect();
        let same: Vec<outline::Item> = outline::items(&text).into_iter().filter(|old| old.name == item.name).collect();
        let (first, end) = match same.as_slice() {
            [one] => (one.first, one.end),
            [] => {
                let end = last.unwrap_or(current.len());
                (end, end)
            }
            _ => {
                let why = format!("`{}` is defined more than once; send the whole file", item.name);
                return Err(EditError::Unclear { path: path.to_owned(), why });
            }
        };
        last = Some(first + new.lines().count());
        text = [&current[..first].concat(), &new, &current[end..].concat()].into_iter().cloned().collect();
    }
    Ok(text)
}

/// The parts of a block that go to different places.
struct Parts {
    imports: Vec<String>,
    definitions: String,
}

impl Parts {
    /// Leaves out what belongs to another file that was shown, and examples of use behind the last definition.
    fn new(text: &str, path: &Path, around: &Surroundings<'_>) -> Self {
        let elsewhere: HashSet<String> = around
            .files
            .iter()
            .filter(|file| file.path != path)
            .flat_map(|file| outline::items(&file.text))
            .filter(|item| item.indent == 0)
            .map(|item| item.name)
            .collect();
        let old = current(path, around).unwrap_or_default();
        let here: HashSet<String> = outline::items(&old).into_iter().map(|item| item.name).collect();
        let lines: Vec<&str> = text.lines().collect();
        let shallowest = outline::items(text).iter().map(|item| item.indent).min().unwrap_or(0);
        let (mut definitions, mut at) = (String::new(), 0);
        let mut imports = Vec::new();
        for item in outline::items(text).into_iter().filter(|item| item.indent == shallowest) {
            let lead = lead_of(&lines, item.first, at);
            imports.extend(lines[at..lead].iter().filter(|line| is_import(line)).map(|line| (*line).to_owned()));
            at = item.end;
            if here.contains(&item.name) || !elsewhere.contains(&item.name) {
                definitions.extend(lines[lead..item.end].iter().map(|line| format!("{line}\n")));
                definitions.push('\n');
            }
        }
        Self { imports, definitions }
    }
}

/// The first line of what belongs to the definition at `first`: decorators, attributes and comments right above it.
fn lead_of(lines: &[&str], first: usize, floor: usize) -> usize {
    let belongs = |line: &str| {
        let start = line.trim_start();
        start.starts_with(['@', '#']) && !start.starts_with("#!")
            || start.starts_with("//")
            || start.starts_with("/**")
            || start.starts_with("* ")
    };
    let mut lead = first;
    while lead > floor && belongs(lines[lead - 1]) {
        lead -= 1;
    }
    lead
}

fn is_import(line: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    matches!(word, "import" | "use" | "#include") || (word == "from" && line.contains(" import "))
}

/// Adds an import where the others stand, unless the file has it.
fn with_import(text: String, import: &str) -> String {
    if text.lines().any(|line| line.trim() == import.trim()) {
        return text;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let place = lines.iter().position(|line| is_import(line)).unwrap_or(0);
    let gap = if lines.iter().any(|line| is_import(line)) { "" } else { "\n" };
    format!("{}{import}\n{gap}{}", lines[..place].concat(), lines[place..].concat())
}

/// Whether the block is the file as a whole rather than some of its definitions.
fn covers_all(text: &str, old: &str, removal: bool) -> bool {
    let top = |text: &str| -> Vec<String> {
        outline::items(text).into_iter().filter(|item| item.indent == 0).map(|item| item.name).collect()
    };
    let (new_names, old_names) = (top(text), top(old));
    let kept = old_names.iter().filter(|name| new_names.contains(name)).count();
    let head = |text: &str| {
        let end = outline::items(text).first().map_or(usize::MAX, |item| item.first);
        text.lines().take(end).filter(|line| !line.trim().is_empty()).count()
    };
    let all = kept == old_names.len() || (removal && kept * 2 >= old_names.len());
    // Behind the last definition stand examples of use, unless the file had such lines too.
    let tail = |text: &str| {
        let end = outline::items(text).iter().map(|item| item.end).max().unwrap_or(0);
        text.lines().skip(end).any(|line| !line.trim().is_empty())
    };
    all && head(text) >= head(old) && (!tail(text) || tail(old))
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
    let names: HashSet<String> = outline::items(text).into_iter().map(|item| item.name).collect();
    let shared = |file: &Shown| {
        let here: HashSet<String> = outline::items(&file.text).into_iter().map(|item| item.name).collect();
        names.intersection(&here).count()
    };
    let scored = around.files.iter().map(|file| (shared(file), !files::is_test(&file.path), file));
    let best = scored.filter(|(count, _, _)| *count > 0).max_by_key(|(count, code, _)| (*count, *code));
    best.map(|(_, _, file)| file.path.clone())
}

#[cfg(test)]
mod tests;
