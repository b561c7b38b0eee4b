//! What an answer has and the file has not: where it goes, and the empty lines around it.

use index::outline::{self, Item, Kind, Language};

use super::EditError;
use super::function::{Merge, encloses};

/// Most names listed in an error.
const NAMES_MAX: usize = 30;

/// Which side of a new item gets the empty lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blank {
    Before,
    After,
}

impl Merge<'_> {
    /// Puts something new at a line of the file.
    pub(super) fn insert(&mut self, item: &Item, at: usize, indent: &str, blank: Blank) {
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
    pub(super) fn append(&mut self, item: &Item, inside: &[String]) -> Result<(), EditError> {
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
}
