//! Finding sessions: by id, by time, by words.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::Serialize;

use super::{EXTENSION, Line, Record, SessionError};

/// The newest so many sessions are listed and searched; older ones can still be opened by id.
const SESSIONS_MAX: usize = 1000;
/// Longest title shown.
const TITLE_CHARS_MAX: usize = 120;

/// One session, for a list.
#[derive(Clone, Debug, Serialize)]
pub struct SessionLine {
    /// Its id.
    pub session: String,
    /// Its first prompt.
    pub title: String,
    /// The folder it works in.
    pub folder: PathBuf,
    /// Turns.
    pub turns: usize,
    /// Unix seconds of its last change.
    pub at: u64,
}

/// The sessions of a folder, last used first.
pub fn list(sessions: &Path) -> Result<Vec<SessionLine>, SessionError> {
    search(sessions, "")
}

/// The sessions in which every one of these words occurs, last used first.
pub fn search(sessions: &Path, words: &str) -> Result<Vec<SessionLine>, SessionError> {
    let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    let found = newest(sessions)?.into_iter().filter_map(|(path, at)| describe(&path, at, &words));
    Ok(found.collect())
}

/// The session whose id is this or begins with it.
pub(super) fn unique(sessions: &Path, id: &str) -> Result<String, SessionError> {
    let names = names(sessions)?;
    if names.iter().any(|name| name == id) {
        return Ok(id.to_owned());
    }
    let mut fitting = names.into_iter().filter(|name| !id.is_empty() && name.starts_with(id));
    match (fitting.next(), fitting.count()) {
        (None, _) => Err(SessionError::Unknown { session: id.to_owned() }),
        (Some(one), 0) => Ok(one),
        (Some(_), more) => Err(SessionError::Ambiguous { session: id.to_owned(), count: more + 1 }),
    }
}

fn names(sessions: &Path) -> Result<Vec<String>, SessionError> {
    let entries = match std::fs::read_dir(sessions) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(SessionError::io(sessions))?,
    };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.filter_map(|name| Some(name.strip_suffix(EXTENSION)?.strip_suffix('.')?.to_owned())).collect())
}

fn newest(sessions: &Path) -> Result<Vec<(PathBuf, u64)>, SessionError> {
    let with_time = |name: String| {
        let path = sessions.join(format!("{name}.{EXTENSION}"));
        let at = std::fs::metadata(&path).and_then(|data| data.modified()).ok()?;
        Some((path, at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())))
    };
    let mut found: Vec<(PathBuf, u64)> = names(sessions)?.into_iter().filter_map(with_time).collect();
    // Ids sort by time too, which settles what changed in the same second.
    found.sort_by(|a, b| (b.1, &b.0).cmp(&(a.1, &a.0)));
    found.truncate(SESSIONS_MAX);
    Ok(found)
}

/// What a list shows of a session, if it has all the words. One without a prompt is no session to come back to.
fn describe(path: &Path, at: u64, words: &[String]) -> Option<SessionLine> {
    let file = boundary::file::open(path).ok()?;
    let mut missing: Vec<&String> = words.iter().collect();
    let (mut title, mut folder, mut turns) = (None, PathBuf::new(), 0u32);
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&line);
        let is = |kind: &str| text.contains(&format!("\"type\":\"{kind}\""));
        // Most of a session are items; they are looked at only while words are missing, and never parsed.
        if !missing.is_empty() && (is("prompt") || is("item")) {
            let lower = text.to_lowercase();
            missing.retain(|word| !lower.contains(word.as_str()));
        }
        if !is("meta") && !is("prompt") {
            continue;
        }
        match serde_json::from_slice::<Line>(&line).map(|line| line.record) {
            Ok(Record::Meta { folder: found, .. }) => folder = found,
            Ok(Record::Prompt { turn, text }) => {
                turns = turn;
                title.get_or_insert(text);
            }
            _ => {}
        }
    }
    let title: String =
        title.filter(|_| missing.is_empty())?.lines().next().unwrap_or("").chars().take(TITLE_CHARS_MAX).collect();
    let session = path.file_stem()?.to_str()?.to_owned();
    Some(SessionLine { session, title, folder, turns: turns as usize, at })
}
