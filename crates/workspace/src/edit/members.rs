//! A class, a structure or a table that came back in part: its members take their places, its other lines are brought in
//! one by one, and what the answer does not mention stays.

use std::collections::HashSet;
use std::ops::Range;

use index::outline::{self, Item, Kind, Language};

use super::EditError;
use super::elision;
use super::function::{Merge, encloses};
use super::lines::{self, Alike, Reading};

impl<'a> Merge<'a> {
    /// Whether the file has members or lines that the answer's item neither has nor replaces.
    pub(super) fn is_partial(&self, item: &Item, old: &Item) -> bool {
        if old.lines.len() <= 1 {
            return !self.missing_members(item, old).is_empty();
        }
        let new: Vec<usize> = self.skeleton(item, self.found);
        let same: HashSet<&str> = new.iter().map(|at| self.new[*at].trim()).collect();
        let compared = Alike::default();
        let alike = |line: &str| new.iter().any(|at| compared.check(line, self.new[*at].trim()));
        let replaced = |line: &str| same.contains(line) || alike(line);
        let inside = self.head_end(old, &self.old)..old.lines.end;
        let lost = self.skeleton(old, self.file).into_iter().filter(|at| inside.contains(at)).any(|at| {
            let line = self.old[at].trim();
            !line.is_empty() && !replaced(line)
        });
        let elides = new.iter().any(|at| elision::says_so(self.new[*at]));
        let stubs = self.found.iter().any(|inner| encloses(item, inner) && self.left_out.contains(&inner.path()));
        lost || elides || stubs || !self.missing_members(item, old).is_empty()
    }

    /// Members the file has and the answer's item has not.
    fn missing_members(&self, item: &Item, old: &Item) -> Vec<&'a Item> {
        let functions = |all: &'a [Item], of: &Item| -> Vec<&'a Item> {
            all.iter().filter(|inner| encloses(of, inner) && inner.kind == Kind::Function).collect()
        };
        let has = functions(self.found, item);
        let missing = |member: &&Item| !has.iter().any(|other| other.name == member.name);
        functions(self.file, old).into_iter().filter(missing).collect()
    }

    /// Members of an item that stand in no other member.
    fn members(item: &Item, all: &'a [Item]) -> Vec<&'a Item> {
        let inner: Vec<&Item> = all.iter().filter(|inner| encloses(item, inner)).collect();
        let holds = |member: &&Item| matches!(member.kind, Kind::Function | Kind::Type);
        let outermost = |member: &&Item| !inner.iter().any(|other| encloses(other, member));
        inner.iter().copied().filter(holds).filter(outermost).collect()
    }

    /// The lines of an item outside of its members.
    fn skeleton(&self, item: &Item, all: &'a [Item]) -> Vec<usize> {
        let members = Self::members(item, all);
        let bare = |at: &usize| !members.iter().any(|member| member.lines.contains(at));
        item.lines.clone().filter(bare).collect()
    }

    /// The line behind the head of an item.
    fn head_end(&self, item: &Item, text: &[&str]) -> usize {
        let code = outline::code_lines(self.language, &text[item.head..item.lines.end].join("\n"));
        let opens = |line: &String| line.trim_end().ends_with([':', '{', '=', '[', '(']);
        item.head + code.iter().position(opens).map_or(1, |at| at + 1)
    }

    /// Puts in what the answer has of an item, and leaves the rest as it is.
    pub(super) fn merge_members(&mut self, item: &'a Item, old: &Item) -> Result<(), EditError> {
        let members = Self::members(item, self.found);
        self.check_shared_lines(item, old)?;
        self.merge_lines(item, old);
        let inside: Vec<String> = old.parents.iter().cloned().chain([old.name.clone()]).collect();
        self.all(&members, &inside)?;
        self.remove(&members, &inside);
        Ok(())
    }

    /// A table on one line cannot be brought into one of several lines.
    fn check_shared_lines(&self, item: &Item, old: &Item) -> Result<(), EditError> {
        if item.lines.len() - (item.head - item.lines.start) > 1 || item.kind != Kind::Value {
            return Ok(());
        }
        let says = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
        };
        let has = says(self.new[item.head]);
        let missing = says(&self.old[old.head..old.lines.end].join(" ")).into_iter().find(|word| !has.contains(word));
        let Some(word) = missing else { return Ok(()) };
        Err(self.unclear(format!("`{}` came back without `{word}`; send all of it", item.name)))
    }

    fn merge_lines(&mut self, item: &Item, old: &Item) {
        let (old_head, new_head) = (self.head_end(old, &self.old), self.head_end(item, &self.new));
        let shifted = |range: Range<usize>| self.shifted(&self.new[range], &item.indent, &old.indent);
        let mut edits = Vec::new();
        let head = shifted(item.head..new_head);
        if head != self.old[old.head..old_head] && item.kind != Kind::Impl {
            let mut head = head;
            self.keep_visibility(&mut head, old);
            edits.push((old.head..old_head, head));
        }
        let (old_text, new_text) = (self.documentation(old_head, &self.old), self.documentation(new_head, &self.new));
        if let (Some(before), Some(after)) = (&old_text, &new_text) {
            edits.push((before.clone(), shifted(after.clone())));
        }
        let apart = |at: &usize, text: &Option<Range<usize>>| text.as_ref().is_none_or(|text| !text.contains(at));
        let both = old_text.is_some() && new_text.is_some();
        let old_rest: Vec<(usize, &str)> = self
            .skeleton(old, self.file)
            .into_iter()
            .filter(|at| *at >= old_head && apart(at, &old_text))
            .map(|at| (at, self.old[at]))
            .collect();
        let new_rest: Vec<usize> = self
            .skeleton(item, self.found)
            .into_iter()
            .filter(|at| *at >= new_head && (!both || apart(at, &new_text)))
            .filter(|at| !elision::says_so(self.new[*at]) && !matches!(self.new[*at].trim(), "..." | "pass"))
            .collect();
        // A comment that stands for members is not one of the class's own.
        let stands: HashSet<&str> = old_rest.iter().map(|(_, old)| old.trim()).collect();
        let known = |line: &str| stands.contains(line.trim());
        let code = outline::code_lines(self.language, &self.new.join("\n"));
        let members = Self::members(item, self.found);
        // One right above a field belongs to that.
        let documents = |at: usize| {
            let next =
                (at + 1..item.lines.end).find(|at| !code[*at].trim().is_empty() || self.new[*at].trim().is_empty());
            next.is_some_and(|at| {
                !code[at].trim().trim_matches(['}', ';', ')', ']']).is_empty()
                    && !members.iter().any(|member| member.lines.contains(&at))
            })
        };
        let new_rest = new_rest.into_iter().filter(|at| {
            let comment = code[*at].trim().is_empty() && !self.new[*at].trim().is_empty();
            !comment || known(self.new[*at]) || documents(*at)
        });
        let new_lines: Vec<String> = new_rest.flat_map(|at| shifted(at..at + 1)).collect();
        let goes = |line: &str| {
            let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.len() > 1);
            words.any(|word| (self.goes)(word))
        };
        let begins = old_text.as_ref().map_or(old_head, |text| text.end);
        edits.extend(lines::merge(&old_rest, &new_lines, begins, Reading::Members, goes));
        edits.retain(|(range, new)| !(range.is_empty() && new.is_empty()));
        self.edits.extend(edits);
    }

    /// The documentation of a class, which is one text.
    fn documentation(&self, from: usize, text: &[&str]) -> Option<Range<usize>> {
        if self.language != Language::Python {
            return None;
        }
        let code = outline::code_lines(self.language, &text.join("\n"));
        let first = (from..text.len()).find(|at| !text[*at].trim().is_empty())?;
        let is_text = |at: &usize| {
            let line = code[*at].trim();
            text[*at].trim().is_empty() && line.is_empty() || !line.is_empty() && line.chars().all(|c| c == '"')
        };
        let end = (first..text.len()).take_while(is_text).filter(|at| !text[*at].trim().is_empty()).last()? + 1;
        Some(first..end)
    }
}
