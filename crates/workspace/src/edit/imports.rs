//! The imports of an answer: those that the file has not, and those that have grown.

use index::outline::{self, Item, Kind};

use super::function::{Merge, squeezed};

impl<'a> Merge<'a> {
    /// Imports of the answer that the file has not go below those it has.
    pub(super) fn imports(&mut self, tops: &[&Item]) {
        let code: Vec<String> = self.old.iter().map(|line| squeezed(line)).collect();
        let package = |item: &Item| item.name.starts_with("package ");
        let wanted = tops.iter().filter(|item| item.kind == Kind::Import && !package(item));
        let mut missing: Vec<String> = Vec::new();
        for import in
            wanted.filter(|item| !self.file.iter().any(|other| other.kind == Kind::Import && other.name == item.name))
        {
            if let Some(grown) = self.grown(import) {
                let lines = self.new[import.lines.clone()].iter().map(|line| line.trim_end().to_owned()).collect();
                self.edits.push((grown.lines.clone(), lines));
                continue;
            }
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

    /// The import of the file that an import of the answer has grown out of: it brings in all of that, from the same place.
    fn grown(&self, import: &Item) -> Option<&'a Item> {
        let words = |item: &Item| -> Vec<String> {
            let words = item.name.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
            words.map(str::to_owned).collect()
        };
        let wanted = words(import);
        let fits = |other: &&Item| {
            let has = words(other);
            other.kind == Kind::Import
                && other.parents.is_empty()
                && other.whole_lines
                && has.len() > 1
                && has[..2] == wanted[..wanted.len().min(2)]
                && has.iter().all(|word| wanted.contains(word))
        };
        let mut fitting = self.file.iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
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
}
