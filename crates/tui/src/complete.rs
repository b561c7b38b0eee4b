//! Completion: commands after `/`, files after `@`.

use std::path::Path;

use crate::slash::COMMANDS;

/// Files remembered for completion. In a larger folder the person types the path, or more of it.
const FILES_MAX: usize = 50_000;
/// Offers shown.
const OFFERS_MAX: usize = 8;

/// What could be meant, and what it would replace.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// First byte of the text that is replaced; it ends at the cursor.
    pub from: usize,
    /// What could stand there, and a word about it.
    pub offers: Vec<(String, &'static str)>,
    /// Which one is chosen.
    pub chosen: usize,
}

/// What the text before the cursor asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// A command.
    Command(&'a str),
    /// A word after a command.
    Argument(&'static [&'static str], usize),
    /// A file: where its name begins.
    File(usize),
    /// Nothing.
    Nothing,
}

/// What the text before the cursor asks for.
pub fn wanted(before: &str) -> Wanted<'_> {
    let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
    let word = &before[start..];
    let takes_path = ["/add ", "/drop "].iter().any(|name| before.starts_with(name));
    if takes_path && !word.starts_with('@') {
        return Wanted::File(start);
    }
    if word.starts_with('@') {
        return Wanted::File(start + 1);
    }
    if !before.starts_with('/') {
        return Wanted::Nothing;
    }
    if start == 0 {
        return Wanted::Command(word);
    }
    let name = before.split_whitespace().next().unwrap_or_default();
    let choices = COMMANDS.iter().find(|spec| spec.name == name).map_or(&[][..], |spec| spec.choices);
    let first_argument = before[..start].split_whitespace().count() == 1;
    if choices.is_empty() || !first_argument { Wanted::Nothing } else { Wanted::Argument(choices, start) }
}

/// Offers for the text before the cursor. `None` when there are none, or when the only one stands there already.
pub fn complete(before: &str, files: &[String]) -> Option<Completion> {
    let (from, offers): (usize, Vec<(String, &'static str)>) = match wanted(before) {
        Wanted::Nothing => return None,
        Wanted::Command(word) => {
            let named = COMMANDS.iter().filter(|spec| spec.name.starts_with(word));
            (0, named.map(|spec| (spec.name.to_owned(), spec.help)).collect())
        }
        Wanted::Argument(choices, start) => {
            let like = choices.iter().filter(|choice| choice.starts_with(&before[start..]));
            (start, like.map(|choice| ((*choice).to_owned(), "")).collect())
        }
        Wanted::File(start) => {
            (start, best(&before[start..], files).into_iter().map(|file| (file.to_owned(), "")).collect())
        }
    };
    let done = offers.len() == 1 && offers[0].0 == before[from..];
    (!offers.is_empty() && !done).then_some(Completion { from, offers, chosen: 0 })
}

/// The files that fit best what was typed.
fn best<'a>(typed: &str, files: &'a [String]) -> Vec<&'a str> {
    let typed = typed.to_lowercase();
    let mut found: Vec<(usize, &str)> =
        files.iter().filter_map(|file| rank(&typed, file).map(|rank| (rank, file.as_str()))).collect();
    found.sort_unstable_by_key(|&(rank, file)| (rank, file.len(), file));
    found.truncate(OFFERS_MAX);
    found.into_iter().map(|(_, file)| file).collect()
}

/// Smaller is better: the beginning of the name, then inside the name, then inside the path, then letters in order.
fn rank(typed: &str, file: &str) -> Option<usize> {
    let path = file.to_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    if path.starts_with(typed) || name.starts_with(typed) {
        return Some(0);
    }
    if name.contains(typed) {
        return Some(1);
    }
    if path.contains(typed) {
        return Some(2);
    }
    let mut letters = path.chars();
    typed.chars().all(|wanted| letters.any(|letter| letter == wanted)).then_some(3)
}

/// The files of a folder, relative to it, without what git ignores. Blocking; runs beside the screen.
pub fn files(root: &Path) -> Vec<String> {
    let walk = index::walk::of(root, |entry| entry.file_name() != ".git").hidden(false).build();
    let files = walk.flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let relative = files.filter_map(|entry| Some(entry.path().strip_prefix(root).ok()?.to_str()?.to_owned()));
    let mut found: Vec<String> = relative.take(FILES_MAX).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(before: &str) -> Vec<String> {
        let files = ["src/main.rs", "src/parser/mod.rs", "README.md", "tests/parser.rs"].map(str::to_owned);
        let found = complete(before, &files);
        found.into_iter().flat_map(|found| found.offers).map(|(offer, _)| offer).collect()
    }

    #[test]
    fn commands_and_their_words_are_offered() {
        assert_eq!(offers("/re"), ["/redo", "/rewind", "/resume"]);
        assert_eq!(offers("/undo"), [""; 0], "what is whole needs no offer");
        assert_eq!(offers("/approvals on"), ["on-request", "on-failure"]);
        assert_eq!(offers("fix /un"), [""; 0]);
    }

    #[test]
    fn files_are_found_by_name_path_and_letters() {
        assert_eq!(offers("look at @pars"), ["tests/parser.rs", "src/parser/mod.rs"]);
        assert_eq!(offers("@readme"), ["README.md"]);
        assert_eq!(offers("@smrs"), ["src/main.rs", "src/parser/mod.rs"]);
        assert_eq!(offers("mail me@pars"), [""; 0]);
    }

    #[test]
    fn what_git_ignores_is_not_offered() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".git")).unwrap();
        std::fs::create_dir_all(folder.path().join("target")).unwrap();
        for (name, text) in [(".gitignore", "target\n"), ("a.rs", ""), ("target/x", ""), (".git/config", "")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(files(folder.path()), [".gitignore", "a.rs"]);
    }
}
