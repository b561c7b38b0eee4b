//! Answers that are functions: each takes the place of the one that has its name.
//!
//! The comments and attributes above a function belong to it; when the answer leaves them out they stay, unless taking
//! them away is all it does. A class or `impl` block that comes back with only some of its members means those members.
//! Where names are not enough to tell two places apart, nothing is done. What the answer does not mention stays; a
//! definition goes only when that was asked for by its name.

use std::ops::Range;
use std::path::Path;

use index::outline::{self, Item, Kind, Language, indent};

use super::additions::Blank;
use super::elision::{self, Elided};
use super::locate::lines;
use super::{EditError, whole};

const SAY_WHICH: &str = "send the function inside the class or block it belongs to, or with its head unchanged";

/// What an answer makes of a file.
#[derive(Debug)]
pub struct Merged {
    /// The text of the file.
    pub text: String,
    /// Definitions of the answer that have no body in it, and stay as the file has them.
    pub left_out: Vec<String>,
}

/// The text of the file after the answer.
pub(super) fn resolve(path: &Path, old: &str, text: &str) -> Result<String, EditError> {
    merge(path, old, text, &|_| false).map(|merged| merged.text)
}

/// The same, where `goes` says of a name whether it was asked for that it goes.
pub(super) fn merge(path: &Path, old: &str, text: &str, goes: &dyn Fn(&str) -> bool) -> Result<Merged, EditError> {
    let unclear = |why: String| EditError::Unclear { path: path.to_owned(), why };
    let language = Language::of(path).ok_or_else(|| {
        unclear(
            "functions cannot be found in this kind of file; send the whole file, or quote the lines to change"
                .to_owned(),
        )
    })?;
    let found = found(language, text);
    if found.is_empty() {
        return Err(unclear("there is no function in the answer; send whole functions, or the whole file".to_owned()));
    }
    let file = outline::items(language, old);
    let mut merge = Merge::new(path, language, (old, &file), (text, &found), goes);
    merge.left_out = merge.bodies_left_out()?;
    merge.check_stray(text)?;
    let tops: Vec<&Item> = found.iter().filter(|item| is_top(item, &found)).collect();
    merge.all(&tops, &[])?;
    if tops.iter().any(|item| item.kind != Kind::Import) {
        merge.remove(&tops, &[]);
    }
    merge.imports(&tops);
    let left_out = std::mem::take(&mut merge.left_out);
    let text = whole::with_end_of(old, &merge.finish()?);
    match left_out.first() {
        Some(name) if text == old => Err(unclear(format!(
            "the answer leaves out code: `{name}` has no body; send it again with every line written out"
        ))),
        _ => Ok(Merged { text, left_out }),
    }
}

/// The items of an answer, which may be the inside of a class.
pub(super) fn found(language: Language, text: &str) -> Vec<Item> {
    let found = outline::items(language, text);
    match found.iter().any(|item| matches!(item.kind, Kind::Function | Kind::Type | Kind::Impl)) {
        true => found,
        false => outline::members(language, text),
    }
}

/// The functions of an answer that have no body in it where the file has one.
pub(super) fn left_out(path: &Path, language: Language, old: &str, text: &str) -> Result<Vec<String>, EditError> {
    let (file, found) = (outline::items(language, old), found(language, text));
    Merge::new(path, language, (old, &file), (text, &found), &|_| false).bodies_left_out()
}

/// Whether it stands in no other item of the answer.
fn is_top(item: &Item, all: &[Item]) -> bool {
    !all.iter().any(|other| other != item && encloses(other, item))
}

pub(super) fn encloses(outer: &Item, inner: &Item) -> bool {
    let contains = outer.lines.start <= inner.lines.start && outer.lines.end >= inner.lines.end;
    // Lines alone do not tell when a class and its members share one.
    contains && inner.parents.len() > outer.parents.len() && inner.parents[outer.parents.len()] == outer.name
}

pub(super) struct Merge<'a> {
    pub(super) path: &'a Path,
    pub(super) language: Language,
    pub(super) file: &'a [Item],
    pub(super) old: Vec<&'a str>,
    pub(super) new: Vec<&'a str>,
    pub(super) found: &'a [Item],
    /// Whether it was asked for that something of this name goes.
    pub(super) goes: &'a dyn Fn(&str) -> bool,
    /// Lines of the file and what takes their place.
    pub(super) edits: Vec<(Range<usize>, Vec<String>)>,
    /// Paths of definitions whose bodies the answer leaves out.
    pub(super) left_out: Vec<String>,
}

impl<'a> Merge<'a> {
    fn new(
        path: &'a Path,
        language: Language,
        (old, file): (&'a str, &'a [Item]),
        (new, found): (&'a str, &'a [Item]),
        goes: &'a dyn Fn(&str) -> bool,
    ) -> Self {
        let (old, new) = (lines(old), lines(new));
        Self { path, language, file, old, new, found, goes, edits: Vec::new(), left_out: Vec::new() }
    }

    pub(super) fn unclear(&self, why: String) -> EditError {
        EditError::Unclear { path: self.path.to_owned(), why }
    }

    /// Places items that stand beside each other in the answer. `inside`: what they stand in.
    pub(super) fn all(&mut self, items: &[&'a Item], inside: &[String]) -> Result<(), EditError> {
        let items: Vec<&Item> = items.iter().copied().filter(|item| item.kind != Kind::Import).collect();
        let mut places: Vec<Option<&Item>> = Vec::new();
        for item in &items {
            if !item.whole_lines {
                let why = format!("`{}` shares a line with other code; put it on lines of its own", item.name);
                return Err(self.unclear(why));
            }
            places.push(self.place(item, inside)?);
        }
        let mut fresh_tail: Vec<&Item> = Vec::new();
        for (number, item) in items.iter().enumerate() {
            match places[number] {
                Some(_) if self.left_out.contains(&item.path()) => {}
                Some(old) => self.replace(item, old)?,
                None => {
                    let before = places[..number].iter().rev().flatten().next().copied();
                    let after = places[number..].iter().flatten().next().copied();
                    match (before, after) {
                        (Some(before), _) => self.insert(item, before.lines.end, &before.indent, Blank::Before),
                        (None, Some(after)) => self.insert(item, after.lines.start, &after.indent, Blank::After),
                        (None, None) => fresh_tail.push(item),
                    }
                }
            }
        }
        fresh_tail.into_iter().try_for_each(|item| self.append(item, inside))
    }

    /// The item of the file that an item of the answer replaces; none when it is new.
    fn place(&self, item: &Item, inside: &[String]) -> Result<Option<&'a Item>, EditError> {
        let path = if inside.is_empty() { &item.parents[..] } else { inside };
        let same = |other: &&Item| {
            other.name == item.name
                && (other.kind == item.kind || is_definition(other) && is_definition(item))
                && (path.is_empty() || other.parents.ends_with(path))
        };
        let mut left: Vec<&Item> = self.file.iter().filter(same).collect();
        let filters: [&dyn Fn(&&Item) -> bool; 4] = [
            &|other| other.has_body == item.has_body,
            &|other| other.takes_self() == item.takes_self(),
            &|other| other.signature == item.signature,
            &|other| other.indent == item.indent,
        ];
        for keeps in filters {
            if left.len() > 1 && left.iter().any(keeps) {
                left.retain(|other| keeps(other));
            }
        }
        match left[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            // The members of a block that stands twice are looked for in both.
            [first, ..] if item.kind == Kind::Impl => Ok(Some(first)),
            _ => {
                let place = |item: &&Item| format!("{} (line {})", item.path(), item.head + 1);
                let places = left.iter().map(place).collect();
                let what = format!("`{}`", item.name);
                Err(EditError::Ambiguous { path: self.path.to_owned(), what, places, hint: SAY_WHICH })
            }
        }
    }

    fn replace(&mut self, item: &'a Item, old: &Item) -> Result<(), EditError> {
        if !old.whole_lines {
            let why = format!(
                "`{}` at line {} shares its lines with other code; send the whole file",
                old.name,
                old.head + 1
            );
            return Err(self.unclear(why));
        }
        let blocks = self.file.iter().filter(|other| other.kind == old.kind && other.name == old.name).count();
        let holds = matches!(item.kind, Kind::Type | Kind::Impl | Kind::Value);
        if holds && (self.is_partial(item, old) || item.kind == Kind::Impl && blocks > 1) {
            return self.merge_members(item, old);
        }
        let body = self.body(item, old);
        let mut lines = self.lead(item, old, &body);
        lines.extend(body);
        self.edits.push((old.lines.clone(), lines));
        Ok(())
    }

    /// The new item from its head on. A visibility that the answer left out stays, unless taking it away is all it does.
    fn body(&self, item: &Item, old: &Item) -> Vec<String> {
        let body = self.shifted(&self.new[item.head..item.lines.end], &item.indent, &old.indent);
        let own = visibility(self.new[item.head]);
        let kept = visibility(self.old[old.head]);
        if kept.is_empty() || !own.is_empty() {
            return body;
        }
        let mut shown = body.clone();
        shown[0].insert_str(old.indent.len(), kept);
        if shown == self.old[old.head..old.lines.end] { body } else { shown }
    }

    /// A head that came without its visibility gets that of the file.
    pub(super) fn keep_visibility(&self, head: &mut [String], old: &Item) {
        let kept = visibility(self.old[old.head]);
        if let Some(first) = head.first_mut().filter(|first| visibility(first).is_empty()) {
            first.insert_str(old.indent.len().min(first.len()), kept);
        }
    }

    /// Comments and attributes: the answer's, and what it left out of the file's.
    fn lead(&self, item: &Item, old: &Item, body: &[String]) -> Vec<String> {
        let (new_head, old_head) = (item.head, old.head);
        let mut own = self.shifted(&self.new[item.lines.start..new_head], &item.indent, &old.indent);
        own.retain(|line| !elision::says_so(line) || self.old.iter().any(|old| old.trim() == line.trim()));
        let kept: Vec<String> = self.old[old.lines.start..old_head].iter().map(|line| (*line).to_owned()).collect();
        let old_body: Vec<&str> = self.old[old_head..old.lines.end].to_vec();
        if old_body == body {
            // Nothing else differs, so the difference is what was asked for.
            return own;
        }
        let is_comment = |line: &String| is_comment(line, self.language);
        match (own.iter().any(is_comment), own.iter().any(|line| !is_comment(line))) {
            (false, false) => kept,
            (true, true) => own,
            (true, false) => own.into_iter().chain(kept.into_iter().filter(|line| !is_comment(line))).collect(),
            (false, true) => kept.into_iter().filter(is_comment).chain(own).collect(),
        }
    }

    /// Code outside any item says something this cannot do.
    fn check_stray(&self, text: &str) -> Result<(), EditError> {
        let code = outline::code_lines(self.language, text);
        for (at, line) in self.new.iter().enumerate() {
            let known = || self.old.iter().any(|other| other.trim() == line.trim());
            let covered = self.found.iter().any(|item| item.lines.contains(&at));
            let bare = code[at].trim();
            if !covered && !bare.is_empty() && !matches!(bare, "..." | "}" | "\"\"\"\"\"\"") && !known() {
                let why = format!(
                    "line {} of the answer is outside any function: `{}`; send only whole functions, or the whole file",
                    at + 1,
                    line.trim()
                );
                return Err(self.unclear(why));
            }
        }
        Ok(())
    }

    /// The functions of the answer that have no body in it where the file has one.
    fn bodies_left_out(&self) -> Result<Vec<String>, EditError> {
        let mut paths = Vec::new();
        for item in self.found.iter().filter(|item| item.kind == Kind::Function) {
            if let Ok(Some(old)) = self.place(item, &[])
                && self.has_no_body(item, old)?
            {
                paths.push(item.path());
            }
        }
        Ok(paths)
    }

    /// Whether the answer leaves out the whole body of a function. One that leaves out a part of it must not be written.
    fn has_no_body(&self, item: &Item, old: &Item) -> Result<bool, EditError> {
        if item.kind != Kind::Function || old.kind != Kind::Function {
            return Ok(false);
        }
        let (file, answer) = (&self.old[old.head..old.lines.end], &self.new[item.head..item.lines.end]);
        let fragment = |line: usize, text: String| {
            Err(EditError::Fragment { path: self.path.to_owned(), line: item.head + line, text })
        };
        match elision::of(self.language, file, answer) {
            Elided::Body => Ok(true),
            Elided::Lines(line, text) => fragment(line + 1, text),
            Elided::Nothing => match elision::in_words(&self.old.join("\n"), &answer.join("\n")) {
                Some((line, text)) => fragment(line, text),
                None => Ok(false),
            },
        }
    }

    /// Takes out what was asked for by name and the answer no longer has, beside what it has.
    pub(super) fn remove(&mut self, items: &[&Item], inside: &[String]) {
        let beside =
            self.file.iter().filter(|old| old.parents == inside && old.kind != Kind::Import && old.whole_lines);
        let gone = beside.filter(|old| (self.goes)(&old.name) && !items.iter().any(|item| item.name == old.name));
        let blank = |at: usize| self.old.get(at).is_some_and(|line| line.trim().is_empty());
        let mut edits = Vec::new();
        for old in gone {
            let Range { mut start, mut end } = old.lines.clone();
            while blank(end) {
                end += 1;
            }
            while end == self.old.len() && start > 0 && blank(start - 1) {
                start -= 1;
            }
            // The last member of a class has its blank lines above it.
            if end == old.lines.end && !inside.is_empty() && start > 0 && blank(start - 1) {
                start -= 1;
            }
            edits.push((start..end, Vec::new()));
        }
        self.edits.extend(edits);
    }

    pub(super) fn shifted(&self, lines: &[&str], from: &str, to: &str) -> Vec<String> {
        let tabs = self.old.iter().filter(|line| line.starts_with('\t')).count();
        let spaced = !lines.iter().any(|line| indent(line).contains('\t'));
        let tabbed = spaced && tabs * 2 > self.old.iter().filter(|line| line.starts_with([' ', '\t'])).count();
        let step = lines
            .iter()
            .filter_map(|line| line.strip_prefix(from).filter(|line| !line.trim_start().starts_with('*')))
            .map(indent)
            .filter(|own| !own.is_empty());
        let step = step.map(str::len).min().unwrap_or(4);
        let shift = |line: &&str| {
            if line.trim().is_empty() {
                return String::new();
            }
            let Some(rest) = line.strip_prefix(from) else { return (*line).to_owned() };
            let own = indent(rest);
            match tabbed && !own.is_empty() && own.bytes().all(|byte| byte == b' ') {
                true => format!("{to}{}{}", "\t".repeat(own.len() / step), &rest[own.len() - own.len() % step..]),
                false => format!("{to}{rest}"),
            }
        };
        lines.iter().map(shift).collect()
    }

    fn finish(mut self) -> Result<String, EditError> {
        self.edits.sort_by_key(|(range, _)| range.start);
        if let Some(pair) = self.edits.windows(2).find(|pair| pair[0].0.end > pair[1].0.start) {
            return Err(self.unclear(format!(
                "two functions of the answer meet at line {}; send them as one",
                pair[1].0.start + 1
            )));
        }
        let mut out: Vec<&str> = Vec::new();
        let mut at = 0;
        for (range, new) in &self.edits {
            out.extend(&self.old[at..range.start]);
            out.extend(new.iter().map(String::as_str));
            at = range.end;
        }
        out.extend(&self.old[at..]);
        Ok(out.iter().flat_map(|line| [*line, "\n"]).collect())
    }
}

fn is_definition(item: &Item) -> bool {
    matches!(item.kind, Kind::Function | Kind::Value)
}

/// `export`, `export default`, `pub`, `pub(…)` at the beginning of a head, with the space behind.
fn visibility(head: &str) -> &str {
    let head = head.trim_start();
    let end = match head {
        _ if head.starts_with("export default ") => "export default ".len(),
        _ if head.starts_with("export ") => "export ".len(),
        _ if head.starts_with("pub ") => "pub ".len(),
        _ if head.starts_with("pub(") => head.find(") ").map_or(0, |at| at + 2),
        _ => 0,
    };
    &head[..end]
}

pub(super) fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<&str>>().join(" ")
}

fn is_comment(line: &str, language: Language) -> bool {
    let line = line.trim_start();
    match language {
        Language::Python => line.starts_with('#'),
        _ => line.starts_with("//") || line.starts_with("/*") || line.starts_with('*'),
    }
}
