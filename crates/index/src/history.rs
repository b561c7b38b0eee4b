//! What the last commits were about and which files they changed, as git says it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::contents::Index;
use crate::rank::Query;

/// Commits that are read.
const COMMITS_MAX: &str = "--max-count=1500";

/// Bytes of one message, and files of one commit, that are read. A commit of more files is about none of them.
const MESSAGE_BYTES_MAX: usize = 1_000;
const FILES_MAX: usize = 40;

/// Bytes that git may say, and how long it may take.
const BYTES_MAX: u64 = 8 << 20;
const TIME_MAX: Duration = Duration::from_secs(5);

/// Words of a question that a commit must share to count for it.
const WORDS_MIN: usize = 2;

/// Commits, and the newest of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) head: String,
    pub(crate) commits: Vec<Commit>,
}

/// One commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Terms of its message, by number, sorted.
    pub(crate) terms: Vec<u32>,
    /// Files it changed, relative to the root of the repository.
    pub(crate) files: Vec<PathBuf>,
}

impl Index {
    /// Reads the last commits, where there are new ones. Nothing happens where there is no git.
    pub fn refresh_history(&mut self) {
        let Some(head) = git(&self.root, &["rev-parse", "HEAD"], 100) else { return };
        let head = String::from_utf8_lossy(&head).trim().to_owned();
        if head == self.history.head {
            return;
        }
        let format = "--format=%x01%B%x02";
        let arguments =
            ["log", COMMITS_MAX, "--no-merges", "--no-renames", "--relative", "--name-only", "-z", format, "HEAD"];
        let Some(said) = git(&self.root, &arguments, BYTES_MAX) else { return };
        let said = String::from_utf8_lossy(&said);
        let mut commits = Vec::new();
        for part in said.split('\u{1}').skip(1) {
            let Some((message, files)) = part.split_once('\u{2}') else { continue };
            let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
            let files: Vec<PathBuf> = files
                .split(['\0', '\n'])
                .filter(|file| !file.is_empty())
                .take(FILES_MAX + 1)
                .map(PathBuf::from)
                .collect();
            if files.is_empty() || files.len() > FILES_MAX {
                continue;
            }
            let mut terms = Vec::new();
            for (_, name) in crate::terms::identifiers(&message[..end]) {
                if let Some(name) = self.vocabulary.add(name) {
                    terms.extend_from_slice(self.vocabulary.terms_of(name));
                }
            }
            terms.sort_unstable();
            terms.dedup();
            commits.push(Commit { terms, files });
        }
        self.history = History { head, commits };
        self.changed = true;
    }

    /// Commits that changed a file and share words with a question.
    pub(crate) fn commits_about(&self, query: &Query, path: &Path) -> usize {
        let shares = |commit: &&Commit| {
            let shared = query.terms.iter().filter(|asked| commit.terms.binary_search(&asked.term).is_ok());
            shared.take(WORDS_MIN).count() == WORDS_MIN
        };
        let changed = self.history.commits.iter().filter(|commit| commit.files.iter().any(|file| file == path));
        changed.filter(shares).count()
    }
}

/// What git says, within limits; none where it says nothing in time or fails.
fn git(root: &Path, arguments: &[&str], bytes_max: u64) -> Option<Vec<u8>> {
    let mut command: Command = boundary::program::git(root)?;
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let (send, receive) = mpsc::channel();
    let out = child.stdout.take()?;
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        let read = out.take(bytes_max).read_to_end(&mut said);
        // Nobody waits any more where the time is over.
        let _ = send.send(read.map(|_| said));
    });
    let said = receive.recv_timeout(TIME_MAX);
    // It may have more to say than is read.
    let _ = child.kill();
    let _ = child.wait();
    let _ = reader.join();
    said.ok()?.ok().filter(|said| !said.is_empty())
}
