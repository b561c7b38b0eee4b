//! Commits of what Flint changed, and of nothing else: what the user has in the same files and has not committed stays theirs.
//!
//! It is done with git's plumbing on an index of its own. `git add` and `git commit` would read the work tree, and with it run
//! the filters that a repository names; no hook is run either. A file whose committed form is not its text (filters,
//! encodings, carriage returns) is refused, and so is one in which the user's own changes meet Flint's.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use workspace::edit::{BYTES_MAX, Written};

use crate::turn_context::TurnContext;

/// Most characters of the first line of a message that is made from what was asked.
const SUBJECT_MAX: usize = 72;
/// Bytes of a message.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// What stands for no commit.
const NOTHING: &str = "0000000000000000000000000000000000000000";

/// When Flint commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum When {
    /// When it is told to.
    #[default]
    Off,
    /// After every turn that changed files and passed its check.
    Turn,
}

/// A turn's changes that are not committed.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The turn.
    pub turn: u32,
    /// What was asked.
    pub asked: String,
    /// The files.
    pub written: Vec<Written>,
}

/// Commits what is pending, and says so. `message` is the person's; an empty one is made from what was asked.
pub async fn run(ctx: &mut TurnContext, message: &str) {
    if ctx.uncommitted.is_empty() {
        return ctx.notice("There is nothing to commit: Flint changed no file since the last commit it made.").await;
    }
    let message = match message.trim() {
        "" => worded(&ctx.uncommitted),
        given => given.to_owned(),
    };
    if message.len() > MESSAGE_BYTES_MAX {
        return ctx.trouble(format!("a commit message has {} KiB at most", MESSAGE_BYTES_MAX >> 10)).await;
    }
    let (root, pending, said) = (ctx.root(), ctx.uncommitted.clone(), message.clone());
    let done = tokio::task::spawn_blocking(move || commit(&root, &pending, &said)).await;
    match done.unwrap_or_else(|error| Err(error.to_string())) {
        Ok(told) => {
            ctx.uncommitted.clear();
            ctx.notice(told).await;
        }
        Err(why) => ctx.trouble(format!("nothing was committed: {why}")).await,
    }
}

/// A message from what was asked.
fn worded(pending: &[Pending]) -> String {
    let first = |pending: &Pending| {
        let line = pending.asked.lines().next().unwrap_or_default().trim();
        match line.chars().count() > SUBJECT_MAX {
            true => line.chars().take(SUBJECT_MAX - 1).chain(['…']).collect(),
            false => line.to_owned(),
        }
    };
    let subject = pending.last().map(first).unwrap_or_default();
    let rest: String = pending.iter().rev().skip(1).rev().map(|turn| format!("- {}\n", first(turn))).collect();
    if rest.is_empty() { subject } else { format!("{subject}\n\nAnd before that:\n{rest}") }
}

/// A repository, and how git is run in it.
struct Repository {
    top: PathBuf,
    /// The workspace within it, `/` at its end, empty for all of it.
    prefix: String,
    head: Option<String>,
}

/// A file as the next commit has it.
struct Entry {
    path: String,
    mode: String,
    /// Its object; none when it goes.
    object: Option<String>,
}

fn commit(root: &Path, pending: &[Pending], message: &str) -> Result<String, String> {
    let repository = Repository::around(root)?;
    let mut paths: Vec<&Path> = Vec::new();
    for file in pending.iter().flat_map(|pending| &pending.written) {
        if !paths.contains(&file.path.as_path()) {
            paths.push(&file.path);
        }
    }
    let mut entries = Vec::new();
    for path in paths {
        let steps: Vec<&Written> =
            pending.iter().flat_map(|pending| &pending.written).filter(|file| file.path == path).collect();
        entries.extend(repository.entry(path, &steps).map_err(|why| format!("{}: {why}", path.display()))?);
    }
    if entries.is_empty() {
        return Err("the last commit has all of it already".to_owned());
    }
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let index = scratch.path().join("index");
    let own = |arguments: &[&str], input: &[u8]| repository.git(arguments, input, Some(&index));
    match &repository.head {
        Some(head) => own(&["read-tree", head], b"")?,
        None => own(&["read-tree", "--empty"], b"")?,
    };
    let lines = index_lines(&entries);
    own(&["update-index", "-z", "--index-info"], &lines)?;
    let tree = own(&["write-tree"], b"")?;
    let mut arguments = vec!["commit-tree", "--no-gpg-sign", "-F", "-"];
    if let Some(head) = &repository.head {
        arguments.extend(["-p", head]);
    }
    arguments.push(&tree);
    let made = repository.git(&arguments, message.as_bytes(), None)?;
    let before = repository.head.as_deref().unwrap_or(NOTHING);
    repository.git(&["update-ref", "-m", "flint: commit", "HEAD", &made, before], b"", None)?;
    let branch = repository.git(&["symbolic-ref", "-q", "--short", "HEAD"], b"", None);
    let branch = branch.unwrap_or_else(|_| "a detached HEAD".to_owned());
    let (short, subject) = (&made[..made.len().min(9)], message.lines().next().unwrap_or_default());
    let files = if entries.len() == 1 { "1 file".to_owned() } else { format!("{} files", entries.len()) };
    let back = match repository.head {
        Some(_) => "`git reset --soft HEAD~1` takes the commit back and leaves the files.",
        None => "It is the first commit.",
    };
    let mut told = format!("Committed {short} on {branch}, {files}: {subject}\n{back}");
    // The commit stands; git would show these files as changed back until its own index knows them.
    if let Err(why) = repository.git(&["update-index", "-z", "--index-info"], &lines, None) {
        told += &format!("\ngit's index could not be brought up to date ({why}); `git reset` does that.");
    }
    Ok(told)
}

/// Lines for `git update-index --index-info`.
fn index_lines(entries: &[Entry]) -> Vec<u8> {
    let line = |entry: &Entry| match &entry.object {
        Some(object) => format!("{} {object}\t{}\0", entry.mode, entry.path),
        None => format!("0 {NOTHING}\t{}\0", entry.path),
    };
    entries.iter().map(line).collect::<String>().into_bytes()
}

impl Repository {
    fn around(root: &Path) -> Result<Self, String> {
        let mut found = Self { top: root.to_owned(), prefix: String::new(), head: None };
        let top = found.git(&["rev-parse", "--show-toplevel"], b"", None);
        let top = top.map_err(|why| format!("git does not work in this folder ({why})"))?;
        let (top, root) = (PathBuf::from(top), root.canonicalize().map_err(|error| error.to_string())?);
        let top = top.canonicalize().map_err(|error| error.to_string())?;
        let below = root.strip_prefix(&top).map_err(|_| "the repository's work tree is another folder")?;
        let below = below.to_str().ok_or("the folder's name is not UTF-8")?;
        found.prefix = if below.is_empty() { String::new() } else { format!("{below}/") };
        found.top = top;
        let folder = PathBuf::from(found.git(&["rev-parse", "--absolute-git-dir"], b"", None)?);
        for name in ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply"] {
            if folder.join(name).symlink_metadata().is_ok() {
                return Err("a merge or a rebase is under way; finish it first".to_owned());
            }
        }
        found.head = found.git(&["rev-parse", "-q", "--verify", "HEAD^{commit}"], b"", None).ok();
        Ok(found)
    }

    /// What the next commit has for a file; none when it has it already.
    fn entry(&self, path: &Path, steps: &[&Written]) -> Result<Option<Entry>, String> {
        let written = path.to_str().ok_or("its name is not UTF-8")?;
        let path = format!("{}{written}", self.prefix);
        self.plain(&path)?;
        let committed = self.committed(&path)?;
        if self.staged(&path)? != committed.as_ref().map(|(_, object, _)| object.clone()) {
            return Err("you have staged changes of it; commit or unstage them first".to_owned());
        }
        let mode = committed.as_ref().map_or("100644", |(mode, ..)| mode).to_owned();
        let mut text = committed.as_ref().map(|(.., text)| text.clone());
        for step in steps {
            text = match (text, &step.old, &step.new) {
                (None, None, new) => new.clone(),
                (Some(ours), Some(old), Some(new)) if ours == *old => Some(new.clone()),
                (Some(ours), Some(old), Some(new)) => Some(self.merged(&ours, old, new)?),
                (Some(ours), Some(old), None) if ours == *old => None,
                _ => return Err("you have changes of it that were never committed; commit them first".to_owned()),
            };
        }
        let object = match &text {
            Some(text) => Some(self.git(&["hash-object", "-w", "--no-filters", "--stdin"], text.as_bytes(), None)?),
            None => None,
        };
        let unchanged = object == committed.map(|(_, object, _)| object);
        Ok((!unchanged).then_some(Entry { path, mode, object }))
    }

    /// Whether the committed form of a file is its text, and git does not ignore it.
    fn plain(&self, path: &str) -> Result<(), String> {
        let names = ["filter", "ident", "working-tree-encoding"];
        let said = self.git(&[&["check-attr", "-z"], &names[..], &["--", path]].concat(), b"", None)?;
        let values = said.split('\0').skip(2).step_by(3);
        if let Some((name, _)) = names.iter().zip(values).find(|(_, value)| !matches!(*value, "unspecified" | "unset"))
        {
            return Err(format!("git converts it (the attribute `{name}`); commit it with git"));
        }
        match self.git(&["check-ignore", "-q", "--", path], b"", None) {
            Ok(_) => Err("git ignores it".to_owned()),
            Err(_) => Ok(()),
        }
    }

    /// Mode, object and text of a file in the last commit.
    fn committed(&self, path: &str) -> Result<Option<(String, String, String)>, String> {
        let Some(head) = &self.head else { return Ok(None) };
        let line = self.git(&["ls-tree", "-z", "-l", head, "--", path], b"", None)?;
        let mut words = line.split(['\t', '\0']).next().unwrap_or_default().split_whitespace();
        let (Some(mode), Some(_), Some(object), Some(size)) = (words.next(), words.next(), words.next(), words.next())
        else {
            return Ok(None);
        };
        if !mode.starts_with("100") {
            return Err("it is a link or a submodule; commit it with git".to_owned());
        }
        if size.parse::<u64>().map_or(true, |size| size > BYTES_MAX) {
            return Err("it is too large; commit it with git".to_owned());
        }
        let bytes = self.bytes(&["cat-file", "blob", object], b"", None)?;
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\r') && !text.starts_with('\u{feff}'));
        let text = text.ok_or("its committed form has carriage returns or is not UTF-8; commit it with git")?;
        Ok(Some((mode.to_owned(), object.to_owned(), text)))
    }

    /// The object of a file in the user's index.
    fn staged(&self, path: &str) -> Result<Option<String>, String> {
        let line = self.git(&["ls-files", "-s", "-z", "--", path], b"", None)?;
        Ok(line.split_whitespace().nth(1).map(str::to_owned))
    }

    /// What was committed, with what Flint made of another version of it.
    fn merged(&self, ours: &str, old: &str, new: &str) -> Result<String, String> {
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut names = Vec::new();
        for (name, text) in [("ours", ours), ("old", old), ("new", new)] {
            let path = scratch.path().join(name);
            std::fs::write(&path, text).map_err(|error| error.to_string())?;
            names.push(path.to_string_lossy().into_owned());
        }
        let merged = self.bytes(&["merge-file", "-p", &names[0], &names[1], &names[2]], b"", None);
        let merged = merged.map_err(|_| "your own changes stand in the same lines; commit them first".to_owned())?;
        String::from_utf8(merged).map_err(|error| error.to_string())
    }

    fn git(&self, arguments: &[&str], input: &[u8], index: Option<&Path>) -> Result<String, String> {
        let bytes = self.bytes(arguments, input, index)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
    }

    /// What git prints; what it complains about when it fails.
    fn bytes(&self, arguments: &[&str], input: &[u8], index: Option<&Path>) -> Result<Vec<u8>, String> {
        let mut command: Command = boundary::program::git(&self.top).ok_or("there is no git outside of this folder")?;
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(index) = index {
            command.env("GIT_INDEX_FILE", index);
        }
        let mut child = command.spawn().map_err(|error| format!("git: {error}"))?;
        let mut stdin = child.stdin.take().ok_or("git takes no input")?;
        let (sent, ended) = std::thread::scope(|scope| {
            let sent = scope.spawn(move || stdin.write_all(input));
            let ended = child.wait_with_output();
            (sent.join(), ended)
        });
        let ended = ended.map_err(|error| format!("git: {error}"))?;
        if !ended.status.success() {
            let why = String::from_utf8_lossy(&ended.stderr);
            return Err(why.lines().find(|line| !line.trim().is_empty()).unwrap_or("git failed").to_owned());
        }
        // A git that has heard enough closes its input; that it succeeded is what counts.
        drop(sent);
        Ok(ended.stdout)
    }
}
