//! The tools that only look: `read`, `list` and `search`. They change nothing, so several may run at once, and they run in
//! this process, because a step that starts no process costs microseconds.

use std::fmt::Write;
use std::path::Path;

use ignore::WalkBuilder;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;

use super::bound;
use super::path::WorkspacePath;

/// Lines that `read` gives unless asked for fewer.
const LINES_MAX: usize = 400;

/// Bytes of a file that is read or searched.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Entries that `list` shows.
const ENTRIES_MAX: usize = 300;

/// How deep `list` goes.
const DEPTH_MAX: usize = 3;

/// Lines that `search` shows, and how many of one file.
const MATCHES_MAX: usize = 100;
const MATCHES_PER_FILE_MAX: usize = 20;

/// Files that `search` opens.
const FILES_MAX: usize = 20_000;

/// Numbered lines of a file, from line `start`, which counts from 1.
pub fn read(root: &Path, path: &str, start: usize, lines: Option<usize>) -> Result<String, String> {
    let target = WorkspacePath::find(root, path)?;
    if target.absolute.is_dir() {
        return Err(format!("{} is a folder; use list", target.shown()));
    }
    let text = text_of(root, &target.absolute).map_err(|why| explain(root, &target, &why))?;
    let total = text.lines().count();
    let first = start.max(1);
    if first > total.max(1) {
        return Err(format!("{} has only {total} lines", target.shown()));
    }
    let wanted = lines.unwrap_or(LINES_MAX).clamp(1, LINES_MAX);
    let mut output = format!("{} ({total} lines)\n", target.shown());
    let mut last = first - 1;
    for (index, line) in text.lines().enumerate().skip(first - 1).take(wanted) {
        let line = bound::line(line);
        if output.len() + line.len() > bound::OUTPUT_BYTES_MAX {
            break;
        }
        // The number is set apart by a tab, so that a model does not take it for a part of the line.
        let _ = writeln!(output, "{}\t{line}", index + 1);
        last = index + 1;
    }
    if last < total {
        let _ = writeln!(output, "[{} more lines; read again with start = {}]", total - last, last + 1);
    }
    Ok(output)
}

/// What is in a folder and below it, without what git ignores.
pub fn list(root: &Path, path: &str) -> Result<String, String> {
    let target = WorkspacePath::find(root, path)?;
    if !target.absolute.is_dir() {
        let what = if target.absolute.exists() { "is a file; use read" } else { "does not exist" };
        return Err(format!("{} {what}", target.shown()));
    }
    let mut output = String::new();
    let walk = walk(&target.absolute).max_depth(Some(DEPTH_MAX)).sort_by_file_name(|a, b| a.cmp(b)).build();
    for (count, entry) in walk.filter_map(Result::ok).filter(|entry| entry.depth() > 0).enumerate() {
        if count == ENTRIES_MAX {
            output.push_str("[more is not shown; list a folder further down]\n");
            break;
        }
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        let shown = entry.path().strip_prefix(root).unwrap_or(entry.path()).display();
        let _ = writeln!(output, "{shown}{}", if is_dir { "/" } else { "" });
    }
    Ok(if output.is_empty() { format!("{} is empty\n", target.shown()) } else { output })
}

/// Lines that match a regular expression, or contain it where it is none.
pub fn search(root: &Path, pattern: &str, path: &str) -> Result<String, String> {
    let target = WorkspacePath::find(root, path)?;
    if pattern.is_empty() {
        return Err("the pattern is empty; say what to look for".to_owned());
    }
    if !target.absolute.exists() {
        return Err(explain(root, &target, "does not exist"));
    }
    let regex = expression(pattern)?;
    let (mut output, mut found, mut files) = (String::new(), 0, 0);
    let walk = walk(&target.absolute).sort_by_file_name(|a, b| a.cmp(b)).build();
    let is_file = |entry: &ignore::DirEntry| entry.file_type().is_some_and(|kind| kind.is_file());
    for entry in walk.filter_map(Result::ok).filter(is_file) {
        files += 1;
        if files > FILES_MAX {
            let _ = writeln!(output, "[stopped after {FILES_MAX} files; search in a folder]");
            break;
        }
        let Ok(text) = text_of(root, entry.path()) else { continue };
        let shown = entry.path().strip_prefix(root).unwrap_or(entry.path()).display().to_string();
        found += matches_of(&regex, &shown, &text, &mut output);
        if found >= MATCHES_MAX || output.len() > bound::OUTPUT_BYTES_MAX {
            output.push_str("[more matches are not shown; search for something rarer or in a folder]\n");
            break;
        }
    }
    Ok(if found == 0 { format!("no line matches {pattern:?} in {}\n", target.shown()) } else { output })
}

fn matches_of(regex: &Regex, path: &str, text: &str, output: &mut String) -> usize {
    // Most files match nowhere: one pass over the whole text is faster than one per line.
    if !regex.is_match(text) {
        return 0;
    }
    let mut found = 0;
    for (index, line) in text.lines().enumerate().filter(|(_, line)| regex.is_match(line)) {
        if found == MATCHES_PER_FILE_MAX {
            let _ = writeln!(output, "{path}: [more]");
            break;
        }
        found += 1;
        let _ = writeln!(output, "{path}:{}: {}", index + 1, bound::line(line.trim_end()));
    }
    found
}

/// The pattern as a regular expression; a text such as `foo(` that is none is looked for literally.
fn expression(pattern: &str) -> Result<Regex, String> {
    let config = syntax::Config::new().multi_line(true);
    // A pattern may not make us build an automaton of gigabytes.
    let limits = Regex::config().nfa_size_limit(Some(10 << 20)).hybrid_cache_capacity(2 << 20);
    let build = |pattern: &str| {
        let built = Regex::builder().syntax(config).configure(limits.clone()).build(pattern);
        built.map_err(|error| format!("the pattern cannot be used: {error}"))
    };
    build(pattern).or_else(|_| build(&regex_syntax_escape(pattern)))
}

fn regex_syntax_escape(text: &str) -> String {
    let special = |c: char| c.is_ascii_punctuation();
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

/// A walk that leaves out what git ignores, in a repository or not, and hidden files other than a few that matter.
pub fn walk(folder: &Path) -> WalkBuilder {
    let shown = |name: &str| !name.starts_with('.') || [".github", ".gitignore", ".env.example"].contains(&name);
    let mut builder = index::walk::of(folder, move |entry| {
        let name = entry.file_name().to_string_lossy();
        let heavy = ["node_modules", "__pycache__"].contains(&name.as_ref());
        entry.depth() == 0 || (shown(&name) && !heavy && !entry.path().join("CACHEDIR.TAG").exists())
    });
    builder.hidden(false);
    builder
}

/// The text of a file of the workspace that is one.
fn text_of(root: &Path, path: &Path) -> Result<String, String> {
    use boundary::file::{FileError, read_below};
    let bytes = read_below(root, path, FILE_BYTES_MAX).map_err(|error| match error {
        FileError::Missing { .. } => "does not exist".to_owned(),
        FileError::NotRegular { .. } => "is not a plain file".to_owned(),
        FileError::Outside { .. } => "leads outside the workspace".to_owned(),
        FileError::TooLarge { .. } => {
            format!("is larger than {} MiB; use shell with head or grep", FILE_BYTES_MAX >> 20)
        }
        FileError::Io { source, .. } => format!("cannot be read: {source}"),
    })?;
    if bytes[..bytes.len().min(8192)].contains(&0) {
        return Err("is not text".to_owned());
    }
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// What went wrong, and a file of the same name elsewhere when there is one: models often forget a folder.
fn explain(root: &Path, target: &WorkspacePath, why: &str) -> String {
    let error = format!("{} {why}", target.shown());
    let Some(name) = target.relative.file_name().filter(|_| !target.absolute.exists()) else { return error };
    let elsewhere = walk(root).build().filter_map(Result::ok).take(FILES_MAX).find(|entry| entry.file_name() == name);
    match elsewhere {
        Some(entry) => {
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
            format!("{error}; there is {}", path.display())
        }
        None => error,
    }
}

#[cfg(test)]
#[path = "look/tests.rs"]
mod tests;
