//! The `apply_patch` format, which many models are trained to write.
//!
//! ```text
//! *** Begin Patch
//! *** Update File: src/a.py
//! *** Move to: src/b.py
//! @@ class A:
//!  kept
//! -gone
//! +new
//! *** Add File: c.txt
//! +text
//! *** Delete File: d.txt
//! *** End Patch
//! ```
//!
//! Lenient where the meaning is clear: spaces around markers, a shell here-document or a code fence around the patch, a
//! missing begin or end marker, blank lines that lost their leading space, line numbers of a unified diff after `@@`.

use std::path::PathBuf;

use super::{Change, ChangeKind, EditError, Hunk};

const ADD: &str = "*** Add File:";
const DELETE: &str = "*** Delete File:";
const UPDATE: &str = "*** Update File:";
const MOVE: &str = "*** Move to:";
const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const END_OF_FILE: &str = "*** End of File";

/// The changes of a patch, in order.
pub fn parse(text: &str) -> Result<Vec<Change>, EditError> {
    let text = super::with_line_feeds(text);
    let all: Vec<&str> = text.lines().collect();
    let first = all.iter().position(|line| is_marker(line)).unwrap_or(all.len());
    let mut reader = Reader { lines: &all, at: first };
    let mut changes = Vec::new();
    while let Some(line) = reader.peek() {
        let line = line.trim();
        let path_after = |marker: &str| line.strip_prefix(marker).map(|path| PathBuf::from(path.trim()));
        if line == END {
            break;
        } else if let Some(path) = path_after(ADD) {
            changes.push(reader.add(path));
        } else if let Some(path) = path_after(DELETE) {
            reader.at += 1;
            changes.push(Change { path, kind: ChangeKind::Delete });
        } else if let Some(path) = path_after(UPDATE) {
            reader.update(path, &mut changes)?;
        } else if line == BEGIN || line.is_empty() || line.starts_with("```") {
            reader.at += 1;
        } else {
            return Err(reader.error("expected `*** Update File:`, `*** Add File:` or `*** Delete File:` and a path"));
        }
    }
    match changes.iter().find(|change| change.path.as_os_str().is_empty()) {
        Some(_) => Err(EditError::Patch { line: first + 1, why: "a file marker has no path".to_owned() }),
        None if changes.is_empty() => {
            Err(reader.error("there is no file in it; begin with `*** Update File:` and a path"))
        }
        None => Ok(changes),
    }
}

fn is_marker(line: &str) -> bool {
    let line = line.trim();
    line == BEGIN || line == END || [ADD, DELETE, UPDATE].iter().any(|marker| line.starts_with(marker))
}

struct Reader<'a> {
    lines: &'a [&'a str],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).copied()
    }

    fn error(&self, why: &str) -> EditError {
        EditError::Patch { line: self.at + 1, why: why.to_owned() }
    }

    fn add(&mut self, path: PathBuf) -> Change {
        self.at += 1;
        let mut text = String::new();
        while let Some(line) = self.peek().filter(|line| !is_marker(line)) {
            // A line without `+` can only be text that lost it, or the fence around the patch.
            let line = line.strip_prefix('+').or((!line.starts_with("```")).then_some(line));
            text.extend(line.into_iter().flat_map(|line| [line, "\n"]));
            self.at += 1;
        }
        Change { path, kind: ChangeKind::Create { text } }
    }

    fn update(&mut self, path: PathBuf, changes: &mut Vec<Change>) -> Result<(), EditError> {
        self.at += 1;
        let to = self.peek().and_then(|line| line.trim().strip_prefix(MOVE)).map(|to| PathBuf::from(to.trim()));
        self.at += usize::from(to.is_some());
        let mut hunks: Vec<Hunk> = Vec::new();
        while let Some(line) = self.peek().filter(|line| !is_marker(line) && !line.starts_with("```")) {
            if line.trim_end() == END_OF_FILE {
                self.at += 1;
                hunks.iter_mut().last().into_iter().for_each(|hunk| hunk.at_end = true);
                continue;
            }
            let hunk = self.hunk(hunks.is_empty())?;
            if hunk != Hunk::default() {
                hunks.push(hunk);
            }
        }
        if hunks.is_empty() && to.is_none() {
            return Err(self.error("an update without changes; write `@@`, then lines that begin with ` `, `-` or `+`"));
        }
        if !hunks.is_empty() {
            changes.push(Change { path: path.clone(), kind: ChangeKind::Hunks { hunks } });
        }
        changes.extend(to.map(|to| Change { path, kind: ChangeKind::Move { to } }));
        Ok(())
    }

    fn hunk(&mut self, first: bool) -> Result<Hunk, EditError> {
        let mut hunk = Hunk::default();
        let mut headed = false;
        while let Some(heading) = self.peek().and_then(|line| line.strip_prefix("@@")) {
            hunk.below.extend(heading_text(heading).map(str::to_owned));
            headed = true;
            self.at += 1;
        }
        if !headed && !first {
            return Err(self.error("expected `@@`, or a line that begins with ` `, `-` or `+`"));
        }
        while let Some(line) = self.peek() {
            let (sign, rest) = match line.chars().next() {
                None => (' ', ""),
                Some(sign @ (' ' | '-' | '+')) => (sign, &line[1..]),
                _ => break,
            };
            if is_marker(line) {
                break;
            }
            if sign != '+' {
                hunk.old.push(rest.to_owned());
            }
            if sign != '-' {
                hunk.new.push(rest.to_owned());
            }
            self.at += 1;
        }
        if hunk.old.is_empty() && hunk.new.is_empty() && self.peek().is_some_and(|line| !is_marker(line)) {
            return Err(self.error("every line of a change begins with ` ` (kept), `-` (gone) or `+` (new)"));
        }
        trim_blank_tail(&mut hunk);
        Ok(hunk)
    }
}

/// The heading after `@@`, without the line numbers of a unified diff.
fn heading_text(heading: &str) -> Option<&str> {
    let heading = heading.trim();
    let numbers = |text: &str| {
        text.starts_with('-') && text.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | ',' | ' '))
    };
    let text = match heading.split_once("@@") {
        Some((range, text)) if numbers(range.trim()) => text.trim(),
        _ if numbers(heading) => "",
        _ => heading.strip_suffix("@@").unwrap_or(heading).trim(),
    };
    (!text.is_empty()).then_some(text)
}

/// Blank lines before the next marker are spacing of the patch, not lines of the file.
fn trim_blank_tail(hunk: &mut Hunk) {
    while hunk.old.last().is_some_and(String::is_empty) && hunk.new.last().is_some_and(String::is_empty) {
        hunk.old.pop();
        hunk.new.pop();
    }
}
