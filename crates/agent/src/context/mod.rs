//! What a model is shown beside the task: the files a person mentions, or those that the task seems to be about.
//!
//! Small models lose their way in long prompts, so what is found by search is held to a budget of about 2,000 tokens;
//! what the person mentions is shown whatever it costs, up to a size that says so. A file is shown again only when it
//! is no longer what was shown last, so that the conversation only ever grows at its end.

pub mod files;
pub mod search;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use index::outline::{self, Item, Kind, Language};

use crate::command::Prompt;
use crate::event::FileRead;
use crate::shared_index::SharedIndex;
use crate::tools::bounded_line;

/// Bytes of files that nobody mentioned; about 2,000 tokens of code.
const FOUND_BYTES_MAX: usize = 7_000;

/// Bytes of one mentioned file that is shown whole; of larger ones the parts that fit the task are shown.
const WHOLE_BYTES_MAX: usize = 48 << 10;

/// Bytes of the map of a workspace.
const MAP_BYTES_MAX: usize = 2_000;

/// Lines before the first definition, and of one definition, that an excerpt has.
const EXCERPT_HEAD_LINES: usize = 40;
const EXCERPT_ITEM_LINES: usize = 200;

/// Mentions in one prompt; more are left out by name.
const MENTIONS_MAX: usize = 16;

/// Files named where several could be meant.
const NAMED_MAX: usize = 8;

/// What the model was shown of each file, by hash.
pub type Seen = HashMap<PathBuf, u64>;

/// A file as the model sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// All of it.
    pub text: String,
    /// What is shown when that is not all of it.
    pub excerpt: Option<String>,
}

/// What goes with a task.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Files to show now.
    pub fresh: Vec<Shown>,
    /// Files the task is about that the model has before it already.
    pub known: Vec<Shown>,
    /// A map of the rest.
    pub map: Option<String>,
    /// What the person should know, such as a mention that names nothing.
    pub notices: Vec<String>,
    /// Names in the message that could mean several files.
    pub unclear: Vec<Several>,
    /// Which lines of the files are shown, where that is known.
    pub parts: Vec<FileRead>,
}

/// A name that several things have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Several {
    /// As it was written.
    pub name: String,
    /// How each would be written so that it is clear.
    pub could: Vec<String>,
}

impl fmt::Display for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} could be {}; say which", self.name, self.could.join(" or "))
    }
}

impl Gathered {
    /// Every file the model has before it.
    pub fn files(&self) -> impl Iterator<Item = &Shown> {
        self.fresh.iter().chain(&self.known)
    }

    /// What is shown now, for the person.
    pub fn read(&self) -> Vec<FileRead> {
        if !self.parts.is_empty() {
            return self.parts.clone();
        }
        let read = |file: &Shown| FileRead { path: file.path.clone(), lines: Vec::new() };
        self.fresh.iter().map(read).collect()
    }
}

/// Collects what goes with a task.
pub fn gather(root: &Path, index: &SharedIndex, prompt: &Prompt, seen: &Seen) -> Gathered {
    let mut gathered = Gathered::default();
    let mut paths = mentioned(root, prompt, &mut gathered);
    for path in &prompt.pinned {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    if let Some((path, _, _)) = &prompt.selection
        && !paths.contains(path)
    {
        paths.insert(0, path.clone());
    }
    let mut shown: Vec<Shown> = Vec::new();
    for path in paths {
        match files::text_or_why(root, &path, files::NAMED_BYTES_MAX) {
            Ok(text) => {
                let excerpt = (text.len() > WHOLE_BYTES_MAX).then(|| excerpt(&path, &text, prompt));
                shown.push(Shown { path, text, excerpt });
            }
            Err(why) => gathered.notices.push(why),
        }
    }
    if shown.is_empty() && seen.is_empty() {
        (shown, gathered.map) = find(root, index, prompt);
    } else if shown.is_empty() {
        shown = again(root, seen);
    } else {
        let more = tests_of(root, &shown);
        shown.extend(more);
    }
    for file in shown {
        let unchanged = seen.get(&file.path) == Some(&hash(&file.text));
        if unchanged { gathered.known.push(file) } else { gathered.fresh.push(file) }
    }
    gathered
}

/// A number that changes when a text does.
pub fn hash(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// The files a prompt names: by `@path`, or by a word that is the path of a file.
fn mentioned(root: &Path, prompt: &Prompt, gathered: &mut Gathered) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut walked: Option<files::Walk> = None;
    let notices = &mut gathered.notices;
    for word in prompt.text.split_whitespace() {
        let word = word.trim_matches(|letter: char| "\"'`()[]{}<>,;:!?*".contains(letter));
        let (name, explicit) = match word.strip_prefix('@') {
            Some(name) if !name.is_empty() => (name, true),
            _ => (word, false),
        };
        let name = name.trim_end_matches('.');
        let name = name.split_once(':').map_or(name, |(name, _)| name);
        if !explicit && !name.contains(['.', '/']) && !is_document(name) {
            continue;
        }
        let path = files::inside(root, name).filter(|path| root.join(path).is_file());
        let path = path.or_else(|| {
            let found = walked.get_or_insert_with(|| files::walk(root));
            match &by_end(found, name)[..] {
                [one] => Some(one.clone()),
                [] => None,
                several => {
                    let could = several.iter().take(NAMED_MAX).map(|path| path.display().to_string()).collect();
                    gathered.unclear.push(Several { name: name.to_owned(), could });
                    None
                }
            }
        });
        match path {
            Some(path) if paths.contains(&path) => {}
            Some(_) if paths.len() == MENTIONS_MAX => {
                notices.push(format!("@{name} was left out: {MENTIONS_MAX} files are shown at most"));
            }
            Some(path) => paths.push(path),
            None if explicit && root.join(name).is_dir() => {
                notices.push(format!("@{name} is a folder; mention the files in it that matter"));
            }
            None if explicit => notices.push(format!("there is no file @{name} in {}", root.display())),
            None => {}
        }
    }
    paths
}

/// Names that people write without their ending.
fn is_document(name: &str) -> bool {
    name.len() > 5 && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
}

/// The files that a name may mean which is not the path of one: those whose paths end with it, or one beside the root
/// where that is a document such as the README.
fn by_end(found: &files::Walk, name: &str) -> Vec<PathBuf> {
    let document = is_document(name);
    let fits = |path: &Path| match document {
        true => path.file_stem().is_some_and(|stem| stem == name),
        false => files::is_name(name) && path.ends_with(name),
    };
    let fitting: Vec<PathBuf> = found.files.iter().map(|(path, _)| path).filter(|path| fits(path)).cloned().collect();
    match fitting.iter().filter(|path| path.components().count() == 1).collect::<Vec<_>>()[..] {
        [top] if document => vec![top.clone()],
        _ => fitting,
    }
}

/// What to show when nothing is named: everything where that is little, else what a search finds, and a map.
fn find(root: &Path, index: &SharedIndex, prompt: &Prompt) -> (Vec<Shown>, Option<String>) {
    let found = files::walk(root);
    let sources: Vec<&(PathBuf, u64)> = found.files.iter().filter(|(path, _)| files::is_source(path)).collect();
    let bytes: u64 = sources.iter().map(|(_, size)| size).sum();
    if bytes as usize <= FOUND_BYTES_MAX {
        let read = sources.iter().filter_map(|(path, _)| {
            let text = files::read_text(root, path, files::FILE_BYTES_MAX)?;
            (!text.trim().is_empty()).then(|| Shown { path: path.clone(), text, excerpt: None })
        });
        let mut shown: Vec<Shown> = read.collect();
        shown.sort_by_key(|file| files::is_test(&file.path));
        return (shown, None);
    }
    let mut shown: Vec<Shown> = Vec::new();
    let mut left = FOUND_BYTES_MAX;
    for path in index.with(|index| search::search(index, &prompt.text)) {
        let Some(text) = files::read_text(root, &path, files::FILE_BYTES_MAX) else { continue };
        let excerpt = (text.len() > left).then(|| excerpt(&path, &text, prompt));
        let size = excerpt.as_ref().map_or(text.len(), String::len);
        if size <= left {
            left -= size;
            shown.push(Shown { path, text, excerpt });
        }
        if left < FOUND_BYTES_MAX / 8 {
            break;
        }
    }
    (shown, Some(map(root, &found)))
}

/// What the model saw before, where it has changed since.
fn again(root: &Path, seen: &Seen) -> Vec<Shown> {
    let mut paths: Vec<&PathBuf> = seen.keys().collect();
    paths.sort();
    let read = paths.into_iter().filter_map(|path| {
        let text = files::read_text(root, path, WHOLE_BYTES_MAX as u64)?;
        Some(Shown { path: path.clone(), text, excerpt: None })
    });
    read.collect()
}

/// The tests that belong to the files shown, as far as the budget goes: they say what the code should do.
fn tests_of(root: &Path, shown: &[Shown]) -> Vec<Shown> {
    let mut left = FOUND_BYTES_MAX.saturating_sub(shown.iter().map(|file| file.text.len()).sum());
    let stems: Vec<String> =
        shown.iter().filter(|file| !files::is_test(&file.path)).map(|file| stem(&file.path)).collect();
    if stems.is_empty() || left == 0 {
        return Vec::new();
    }
    let mut tests = Vec::new();
    for (path, size) in files::walk(root).files {
        let name = stem(&path);
        let bare = name.trim_start_matches("test_").trim_end_matches("_test").trim_end_matches(".test");
        let fits = files::is_test(&path) && stems.iter().any(|stem| stem == bare);
        if !fits || size as usize > left || shown.iter().any(|file| file.path == path) {
            continue;
        }
        if let Some(text) = files::read_text(root, &path, files::FILE_BYTES_MAX) {
            left -= text.len().min(left);
            tests.push(Shown { path, text, excerpt: None });
        }
    }
    tests
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// What a text defines; nothing where the language is not known.
pub fn definitions(path: &Path, text: &str) -> Vec<Item> {
    let mut items = Language::of(path).map(|language| outline::items(language, text)).unwrap_or_default();
    items.retain(|item| item.kind != Kind::Import);
    items
}

/// A long file made short: the definitions that fit the task whole, the rest as their first lines.
fn excerpt(path: &Path, text: &str, prompt: &Prompt) -> String {
    let words = index::terms::of_question(&prompt.text);
    let chosen = |item: &Item| {
        prompt.selection.as_ref().is_some_and(|(_, from, to)| item.lines.start < *to && *from <= item.lines.end)
    };
    let lines: Vec<&str> = text.lines().collect();
    let items = definitions(path, text);
    let head = items.first().map_or(lines.len(), |item| item.lines.start).min(EXCERPT_HEAD_LINES);
    let mut out: String = lines[..head].iter().map(|line| bounded_line(line) + "\n").collect();
    let mut until = 0;
    for item in items.iter().filter(|item| item.kind != Kind::Value || item.parents.is_empty()) {
        if item.head < until || out.len() > WHOLE_BYTES_MAX / 2 {
            continue;
        }
        let named = index::terms::of(&item.name).first().is_some_and(|name| words.contains(name));
        let fits = named || chosen(item);
        if fits && item.lines.len() <= EXCERPT_ITEM_LINES {
            out.extend(lines[item.lines.clone()].iter().map(|line| bounded_line(line) + "\n"));
            until = item.lines.end;
        } else {
            out.push_str(&bounded_line(lines[item.head]));
            out.push_str(" ...\n");
        }
    }
    out
}

/// The files of a workspace and what they define, a line each.
fn map(root: &Path, found: &files::Walk) -> String {
    let mut map = String::new();
    for (path, _) in found.files.iter().filter(|(path, _)| files::is_source(path) && !files::is_test(path)) {
        let Some(text) = files::read_text(root, path, files::FILE_BYTES_MAX) else { continue };
        let items = definitions(path, &text);
        // Values are left out: a file of data would fill the map.
        let defines = |item: &&Item| item.parents.is_empty() && item.kind != Kind::Value;
        let mut names: Vec<&str> = items.iter().filter(defines).map(|item| item.name.as_str()).collect();
        names.dedup();
        let line = format!("{}: {}\n", path.display(), names.join(", "));
        if map.len() + line.len() > MAP_BYTES_MAX {
            map.push_str("and more\n");
            break;
        }
        map.push_str(&line);
    }
    map
}

#[cfg(test)]
mod tests;
