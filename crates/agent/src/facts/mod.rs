//! What is known about a workspace without a model: its files, what they define, what a question is about in them, and what
//! it asks for that is not there.
//!
//! A question is answered by a small model with the right thirty lines before it, or not at all. So the files are cut into
//! passages (a function, a head of a class, what stands between), those that fit the question are shown, and where things
//! are is said by the harness, which knows, in the form `path:line`.

mod cite;
mod names;
mod passages;
mod say;

use std::path::{Path, PathBuf};

use index::outline::{Item, Language};

use crate::command::Prompt;
use crate::context::{Gathered, Shown, definitions, files};
use crate::event::FileRead;

pub use cite::citations;
pub use names::{Missing, missing, paths};
pub use passages::Passage;
pub use say::{absent, citations as say_citations};

/// Bytes read of a workspace for one question; what comes later in the walk is not looked at.
const READ_BYTES_MAX: usize = 32 << 20;

/// Bytes of passages that a model is shown: about 1,800 tokens.
const SHOWN_BYTES_MAX: usize = 6_000;

/// Bytes of one mentioned file that is shown whole.
const WHOLE_BYTES_MAX: usize = 6_000;

/// Entries of a folder that are listed.
const LISTED_MAX: usize = 60;

/// The files of a workspace, read.
pub struct Project {
    /// The workspace.
    pub root: PathBuf,
    /// Its text files.
    pub sources: Vec<Source>,
    /// Paths of all files.
    pub paths: Vec<PathBuf>,
    /// Code that was not read, because there is too much of it: nothing is known of it.
    pub unread: Option<PathBuf>,
}

/// One file.
pub struct Source {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// What it defines.
    pub items: Vec<Item>,
}

/// What goes with a question.
#[derive(Default)]
pub struct Found {
    /// What the model is shown.
    pub gathered: Gathered,
    /// The passages in it, best first.
    pub passages: Vec<Passage>,
}

impl Project {
    /// Reads the files below `root`.
    pub fn read(root: &Path) -> Self {
        let walked = files::walk(root);
        let mut left = READ_BYTES_MAX;
        let mut sources = Vec::new();
        let mut unread = walked.cut.then(PathBuf::new);
        for (path, size) in &walked.files {
            let too_large = *size > files::FILE_BYTES_MAX;
            let size = usize::try_from(*size).unwrap_or(usize::MAX);
            if (size > left || too_large) && Language::of(path).is_some() {
                unread.get_or_insert_with(|| path.clone());
            }
            if size > left {
                continue;
            }
            if let Some(text) = files::read_text(root, path, files::FILE_BYTES_MAX) {
                left -= size;
                let items = definitions(path, &text);
                sources.push(Source { path: path.clone(), text, items });
            }
        }
        Self { root: root.to_owned(), sources, paths: walked.files.into_iter().map(|(path, _)| path).collect(), unread }
    }

    /// Whether all of its code could be shown.
    pub fn is_small(&self) -> bool {
        self.code().map(|(_, source)| source.text.len()).sum::<usize>() <= SHOWN_BYTES_MAX
    }

    fn code(&self) -> impl Iterator<Item = (usize, &Source)> {
        self.sources.iter().enumerate().filter(|(_, source)| files::is_source(&source.path))
    }

    /// What goes with a question: the files and folders it names, and the passages that fit it.
    pub fn find(&self, prompt: &Prompt) -> Found {
        let mut found = Found::default();
        let mut left = SHOWN_BYTES_MAX;
        let mut named = paths(self, &prompt.text);
        let asked_about = named.len();
        named.extend(prompt.pinned.iter().filter(|path| !named.contains(path)).cloned().collect::<Vec<_>>());
        let mut within: Vec<usize> = Vec::new();
        for path in &named {
            if self.root.join(path).is_dir() {
                found.gathered.map.get_or_insert_default().push_str(&self.listing(path));
            } else if let Some(index) = self.sources.iter().position(|source| source.path == *path) {
                let source = &self.sources[index];
                if source.text.len() <= WHOLE_BYTES_MAX.min(left) {
                    left -= source.text.len();
                    self.show_whole(index, prompt, &mut found);
                } else {
                    within.push(index);
                }
            }
        }
        let whole: Vec<PathBuf> = found.gathered.fresh.iter().map(|file| file.path.clone()).collect();
        let among = |index: usize| {
            let path = &self.sources[index].path;
            !whole.contains(path) && (within.is_empty() || within.contains(&index))
        };
        // Whoever names a file asks about it. What others say about it is worth less than room for the answer.
        let names_one = named[..asked_about].iter().any(|path| whole.contains(path));
        if !names_one || !within.is_empty() {
            let passages = passages::best(self, prompt, left, &among);
            self.show(&passages, &mut found);
            found.passages.extend(passages);
        }
        if found.gathered.map.is_none() && found.gathered.fresh.is_empty() {
            if self.is_small() {
                self.code().for_each(|(index, _)| self.show_whole(index, prompt, &mut found));
            }
            found.gathered.map = Some(self.listing(Path::new("")));
        }
        found
    }

    fn show_whole(&self, index: usize, prompt: &Prompt, found: &mut Found) {
        let source = &self.sources[index];
        found.gathered.parts.push(FileRead { path: source.path.clone(), lines: Vec::new() });
        found.gathered.fresh.push(Shown { path: source.path.clone(), text: source.text.clone(), excerpt: None });
        found.passages.extend(passages::best(self, prompt, usize::MAX, &|other| other == index));
    }

    /// Shows passages, those of a file together and in its order.
    fn show(&self, passages: &[Passage], found: &mut Found) {
        let mut order: Vec<usize> = Vec::new();
        for passage in passages {
            if !order.contains(&passage.file) {
                order.push(passage.file);
            }
        }
        for file in order {
            let source = &self.sources[file];
            let mut parts: Vec<(usize, usize)> = passages
                .iter()
                .filter(|passage| passage.file == file)
                .map(|passage| (passage.lines.start, passage.lines.end))
                .collect();
            parts.sort_unstable();
            parts.dedup_by(|next, before| {
                let joins = next.0 <= before.1;
                if joins {
                    before.1 = before.1.max(next.1);
                }
                joins
            });
            let lines: Vec<&str> = source.text.lines().collect();
            let mut excerpt = String::new();
            for (start, end) in &parts {
                if *start > 0 {
                    excerpt += "...\n";
                }
                for line in &lines[*start..(*end).min(lines.len())] {
                    excerpt += &crate::tools::bounded_line(line);
                    excerpt.push('\n');
                }
            }
            let all = parts.first() == Some(&(0, lines.len()));
            let shown = parts.iter().map(|(start, end)| (start + 1, *end)).collect();
            found
                .gathered
                .parts
                .push(FileRead { path: source.path.clone(), lines: if all { Vec::new() } else { shown } });
            found.gathered.fresh.push(Shown {
                path: source.path.clone(),
                text: source.text.clone(),
                excerpt: (!all).then_some(excerpt),
            });
        }
    }

    /// What a folder holds: its files with what they define, and its folders.
    fn listing(&self, folder: &Path) -> String {
        let mut lines: Vec<String> = Vec::new();
        for path in self.paths.iter().filter(|path| path.starts_with(folder)) {
            let Ok(below) = path.strip_prefix(folder) else { continue };
            let line = match below.components().count() {
                1 => self.line(path),
                _ => match below.components().next() {
                    Some(first) => format!("{}/", folder.join(first).display()),
                    None => continue,
                },
            };
            if lines.last() != Some(&line) {
                lines.push(line);
            }
        }
        let more = lines.len().saturating_sub(LISTED_MAX);
        lines.truncate(LISTED_MAX);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines.join("\n") + "\n"
    }

    fn line(&self, path: &Path) -> String {
        let items = self.sources.iter().find(|source| source.path == path).map(|source| source.items.as_slice());
        let top = items.unwrap_or_default().iter().filter(|item| item.parents.is_empty());
        let names: Vec<&str> = top.map(|item| item.name.as_str()).take(8).collect();
        match names.is_empty() {
            true => path.display().to_string(),
            false => format!("{}: {}", path.display(), names.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests;
