//! Answers that are functions: each takes the place of the one that has its name.
//!
//! The comments and attributes above a function belong to it; when the answer leaves them out they stay, unless taking
//! them away is all it does. A class or `impl` block that comes back with only some of its members means those members.
//! Where names are not enough to tell two places apart, nothing is done.

use std::ops::Range;
use std::path::Path;

use super::locate::lines;
use super::{EditError, whole};
use crate::outline::{self, Item, Kind, Language, indent};

/// Most names listed in an error.
const NAMES_MAX: usize = 30;
const SAY_WHICH: &str = "send the function inside the class or block it belongs to, or with its head unchanged";

/// The text of the file after the answer.
pub(super) fn resolve(path: &Path, old: &str, text: &str) -> Result<String, EditError> {
    let unclear = |why: String| EditError::Unclear { path: path.to_owned(), why };
    let language = Language::of(path).ok_or_else(|| {
        unclear(
            "functions cannot be found in this kind of file; send the whole file, or quote the lines to change"
                .to_owned(),
        )
    })?;
    let mut found = outline::items(language, text);
    if !found.iter().any(|item| matches!(item.kind, Kind::Function | Kind::Type | Kind::Impl)) {
        found = outline::members(language, text);
    }
    if found.is_empty() {
        return Err(unclear("there is no function in the answer; send whole functions, or the whole file".to_owned()));
    }
    let file = outline::items(language, old);
    let mut merge =
        Merge { path, language, file: &file, old: lines(old), new: lines(text), found: &found, edits: Vec::new() };
    merge.check_stray(text)?;
    merge.check_elisions(old, text)?;
    let tops: Vec<&Item> = found.iter().filter(|item| is_top(item, &found)).collect();
    merge.all(&tops, &[])?;
    merge.imports(&tops);
    let text = merge.finish()?;
    Ok(whole::with_end_of(old, &text))
}

/// Whether it stands in no other item of the answer.
fn is_top(item: &Item, all: &[Item]) -> bool {
    !all.iter().any(|other| other != item && encloses(other, item))
}

fn encloses(outer: &Item, inner: &Item) -> bool {
    let contains = outer.lines.start <= inner.lines.start && outer.lines.end >= inner.lines.end;
    // Lines alone do not tell when a class and its members share one.
    contains && inner.parents.len() > outer.parents.len() && inner.parents[outer.parents.len()] == outer.name
}

struct Merge<'a> {
    path: &'a Path,
    language: Language,
    file: &'a [Item],
    old: Vec<&'a str>,
    new: Vec<&'a str>,
    found: &'a [Item],
    /// Lines of the file and what takes their place.
    edits: Vec<(Range<usize>, Vec<String>)>,
}

impl<'a> Merge<'a> {
    fn unclear(&self, why: String) -> EditError {
        EditError::Unclear { path: self.path.to_owned(), why }
    }

    /// Places items that stand beside each other in the answer. `inside`: what they stand in.
    fn all(&mut self, items: &[&'a Item], inside: &[String]) -> Result<(), EditError> {
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
        let partial = !self.missing_members(item, old).is_empty() || self.elides(item);
        if matches!(item.kind, Kind::Type | Kind::Impl) && (partial || item.kind == Kind::Impl && blocks > 1) {
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

    /// Comments and attributes: the answer's, and what it left out of the file's.
    fn lead(&self, item: &Item, old: &Item, body: &[String]) -> Vec<String> {
        let (new_head, old_head) = (item.head, old.head);
        let own = self.shifted(&self.new[item.lines.start..new_head], &item.indent, &old.indent);
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

    /// Members the file has and the answer's class has not.
    fn missing_members(&self, item: &Item, old: &Item) -> Vec<&'a Item> {
        let functions = |all: &'a [Item], of: &Item| -> Vec<&'a Item> {
            all.iter().filter(|inner| encloses(of, inner) && inner.kind == Kind::Function).collect()
        };
        let has = functions(self.found, item);
        functions(self.file, old)
            .into_iter()
            .filter(|member| !has.iter().any(|other| other.name == member.name))
            .collect()
    }

    fn elides(&self, item: &Item) -> bool {
        let text = self.new[item.lines.clone()].join("\n");
        whole::elision("", &text).is_some()
    }

    /// A class that came back in part: its members take their places, and everything else must be as it was.
    fn merge_members(&mut self, item: &'a Item, old: &Item) -> Result<(), EditError> {
        let inner: Vec<&Item> = self.found.iter().filter(|inner| encloses(item, inner)).collect();
        let members: Vec<&Item> = inner
            .iter()
            .copied()
            .filter(|member| matches!(member.kind, Kind::Function | Kind::Type))
            .filter(|member| !inner.iter().any(|other| encloses(other, member)))
            .collect();
        if item.kind == Kind::Type {
            self.check_outside_members(item, old, &members)?;
        }
        let inside: Vec<String> = old.parents.iter().cloned().chain([old.name.clone()]).collect();
        self.all(&members, &inside)
    }

    /// Fields and other lines of a class that came back in part must be lines the file has.
    fn check_outside_members(&self, item: &Item, old: &Item, members: &[&Item]) -> Result<(), EditError> {
        let code = outline::code_lines(self.language, &self.new.join("\n"));
        let expected = |at: &usize| {
            let line = self.new[*at].trim();
            let is_head = *at == item.head && line.contains(&item.name);
            let closes = code[*at].trim().trim_matches(['}', ';']).is_empty();
            let placeholder = matches!(line, "..." | "pass");
            let in_member = members.iter().any(|member| member.lines.contains(at));
            let known = || self.old[old.lines.clone()].iter().any(|other| other.trim() == line);
            in_member || is_head || closes || placeholder || known()
        };
        let Some(at) = (item.head..item.lines.end).find(|at| !expected(at)) else { return Ok(()) };
        let names: Vec<&str> = self.missing_members(item, old).iter().map(|member| member.name.as_str()).collect();
        Err(self.unclear(format!(
            "`{}` came back without {} but with other changes (`{}`); send all of it, or only the functions that change",
            item.name,
            names.join(", "),
            self.new[at].trim()
        )))
    }

    fn insert(&mut self, item: &Item, at: usize, indent: &str, blank: Blank) {
        let mut lines = self.shifted(&self.new[item.lines.clone()], &item.indent, indent);
        let count = match (item.kind, self.language == Language::Python && indent.is_empty()) {
            (Kind::Value, _) if blank == Blank::After => 1,
            (_, true) => 2,
            _ => 1,
        };
        match blank {
            Blank::Before => drop(lines.splice(0..0, vec![String::new(); count])),
            Blank::After => lines.extend(vec![String::new(); count]),
        }
        self.edits.push((at..at, lines));
    }

    /// Puts something new at the end of what it stands in, or of the file.
    fn append(&mut self, item: &Item, inside: &[String]) -> Result<(), EditError> {
        let owner = match inside {
            [] => item.parents.clone(),
            inside => inside.to_vec(),
        };
        let holds = |other: &&Item| {
            matches!(other.kind, Kind::Type | Kind::Impl | Kind::Value)
                && other.parents.iter().chain([&other.name]).cloned().collect::<Vec<_>>().ends_with(&owner)
        };
        // Methods of Go and definitions outside a C++ class stand beside it.
        let beside = inside.is_empty()
            && (self.language == Language::Go || owner.is_empty() || self.language == Language::CLike);
        if !beside {
            let holder = self.file.iter().filter(|_| !owner.is_empty()).find(holds);
            let Some(holder) = holder else { return Err(self.unknown(item, &owner)) };
            let member =
                self.file.iter().rev().find(|other| encloses(holder, other) && other.parents.ends_with(&owner));
            let (at, indent) = match member {
                Some(member) => (member.lines.end, member.indent.clone()),
                None => {
                    let end = holder.lines.end - usize::from(self.language != Language::Python);
                    (end, format!("{}    ", holder.indent))
                }
            };
            self.insert(item, at, &indent, Blank::Before);
            return Ok(());
        }
        let is_method = item.takes_self() && item.kind == Kind::Function && owner.is_empty();
        if is_method || !item.indent.is_empty() {
            return Err(self.unknown(item, &[]));
        }
        let code = outline::code_lines(self.language, &self.old.join("\n"));
        let main =
            self.old.iter().position(|line| self.language == Language::Python && line.starts_with("if __name__"));
        let end = main.unwrap_or(self.old.len());
        let at = (0..end)
            .rev()
            .find(|at| !code[*at].trim().is_empty() || !self.old[*at].trim().is_empty())
            .map_or(0, |at| at + 1);
        match at {
            0 => self.insert(item, 0, "", Blank::After),
            _ => self.insert(item, at, "", Blank::Before),
        }
        Ok(())
    }

    fn unknown(&self, item: &Item, owner: &[String]) -> EditError {
        let functions = self.file.iter().filter(|other| other.kind == Kind::Function);
        let mut names: Vec<String> = functions.map(Item::path).collect();
        names.truncate(NAMES_MAX);
        let place = if owner.is_empty() { String::new() } else { format!(" in {}", owner.join(".")) };
        self.unclear(format!(
            "there is no `{}`{place}; the file has {}; to add it, send it inside the class it belongs to",
            item.name,
            if names.is_empty() { "no functions".to_owned() } else { names.join(", ") },
        ))
    }

    /// Imports of the answer that the file has not go below those it has.
    fn imports(&mut self, tops: &[&Item]) {
        let code: Vec<String> = self.old.iter().map(|line| squeezed(line)).collect();
        let package = |item: &Item| item.name.starts_with("package ");
        let wanted = tops.iter().filter(|item| item.kind == Kind::Import && !package(item));
        let mut missing: Vec<String> = Vec::new();
        for import in
            wanted.filter(|item| !self.file.iter().any(|other| other.kind == Kind::Import && other.name == item.name))
        {
            let lines = &self.new[import.lines.clone()];
            let whole_group = lines.len() > 1 && lines.iter().all(|line| code.contains(&squeezed(line)));
            if !whole_group {
                missing.extend(lines.iter().map(|line| line.trim_end().to_owned()));
            }
        }
        if missing.is_empty() {
            return;
        }
        let tops = self
            .file
            .iter()
            .filter(|item| item.kind == Kind::Import && item.indent.is_empty() && item.parents.is_empty());
        let last = tops.map(|item| item.lines.end).max();
        let at = last.unwrap_or_else(|| self.after_preamble());
        if last.is_none() {
            missing.push(String::new());
        }
        self.edits.insert(0, (at..at, missing));
    }

    /// The first line that is no comment, inner attribute or documentation of the file.
    fn after_preamble(&self) -> usize {
        let code = outline::code_lines(self.language, &self.old.join("\n"));
        let first = self.file.iter().map(|item| item.lines.start).min().unwrap_or(self.old.len());
        let is_preamble = |at: &usize| {
            let line = code[*at].trim();
            line.is_empty() || line.starts_with("#!") || line.starts_with('"')
        };
        (0..first).take_while(is_preamble).count().min(first)
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

    /// A function that leaves out a part of its body must not be written. Between members it only says that they stay.
    fn check_elisions(&self, old: &str, text: &str) -> Result<(), EditError> {
        for item in self.found.iter().filter(|item| item.kind == Kind::Function) {
            let answer = lines(text)[item.head..item.lines.end].join("\n");
            if let Some((line, text)) = whole::elision(old, &answer) {
                return Err(EditError::Fragment { path: self.path.to_owned(), line: item.head + line, text });
            }
        }
        Ok(())
    }

    fn shifted(&self, lines: &[&str], from: &str, to: &str) -> Vec<String> {
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

/// Which side of a new item gets the empty lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blank {
    Before,
    After,
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

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<&str>>().join(" ")
}

fn is_comment(line: &str, language: Language) -> bool {
    let line = line.trim_start();
    match language {
        Language::Python => line.starts_with('#'),
        _ => line.starts_with("//") || line.starts_with("/*") || line.starts_with('*'),
    }
}
