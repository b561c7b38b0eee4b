//! What the person asked before, in this folder's sessions and in those to come.
//!
//! One line per prompt in a file that only its owner may read; ends of lines inside a prompt are written as `\n`. The file
//! is a convenience: if it cannot be read or written the screen goes on without it, once saying so.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Prompts kept in memory.
const ENTRIES_MAX: usize = 1_000;
/// Bytes read from the end of the file; when it has grown to twice as much it is written anew.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Earlier prompts, and where the person is among them.
#[derive(Debug, Default)]
pub struct History {
    entries: Vec<String>,
    file: Option<PathBuf>,
    /// The entry shown, and what had been written before going back.
    at: Option<(usize, String)>,
}

impl History {
    /// Reads a file of earlier prompts; a file that is not there is an empty one.
    pub fn open(file: Option<PathBuf>) -> (History, Option<io::Error>) {
        let read = file.as_deref().map_or(Ok(Vec::new()), read);
        let (entries, trouble) = match read {
            Ok(entries) => (entries, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        (History { entries, file, at: None }, trouble)
    }

    /// Remembers a prompt.
    pub fn add(&mut self, text: &str) -> io::Result<()> {
        self.at = None;
        if text.trim().is_empty() || self.entries.last().is_some_and(|last| last == text) {
            return Ok(());
        }
        if self.entries.len() == ENTRIES_MAX {
            self.entries.remove(0);
        }
        self.entries.push(text.to_owned());
        self.file.as_ref().map_or(Ok(()), |file| append(file, text, &self.entries))
    }

    /// The entry before, among those that begin like what is written.
    pub fn older(&mut self, written: &str) -> Option<String> {
        let (below, start) = match &self.at {
            Some((at, start)) => (*at, start.clone()),
            None => (self.entries.len(), written.to_owned()),
        };
        let found = (0..below).rev().find(|&at| self.entries[at].starts_with(&start))?;
        self.at = Some((found, start));
        Some(self.entries[found].clone())
    }

    /// The entry after; in the end what had been written.
    pub fn newer(&mut self) -> Option<String> {
        let (at, start) = self.at.take()?;
        let Some(found) = (at + 1..self.entries.len()).find(|&at| self.entries[at].starts_with(&start)) else {
            return Some(start);
        };
        self.at = Some((found, start));
        Some(self.entries[found].clone())
    }

    /// The person changed the text, so the next step back begins from it.
    pub fn leave(&mut self) {
        self.at = None;
    }
}

fn read(file: &Path) -> io::Result<Vec<String>> {
    let mut file = boundary::file::open(file).map_err(|error| match error {
        boundary::file::FileError::Io { source, .. } => source,
        error if error.is_missing() => io::ErrorKind::NotFound.into(),
        error => io::Error::other(error),
    })?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(FILE_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // Of a file that is read from the middle the first line is not whole.
    let mut entries: Vec<String> = text.lines().skip(usize::from(length > FILE_BYTES_MAX)).map(unescape).collect();
    entries.drain(..entries.len().saturating_sub(ENTRIES_MAX));
    Ok(entries)
}

fn append(path: &PathBuf, text: &str, entries: &[String]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    if options.open(path)?.metadata()?.len() > 2 * FILE_BYTES_MAX {
        let whole: String = entries.iter().map(|entry| escape(entry) + "\n").collect();
        let beside = path.with_extension("new");
        options.open(&beside)?.write_all(whole.as_bytes())?;
        return std::fs::rename(beside, path);
    }
    // One write of one line, so that two screens at the same time do not mix their lines.
    options.open(path)?.write_all((escape(text) + "\n").as_bytes())
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn unescape(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut letters = line.chars();
    while let Some(c) = letters.next() {
        match c {
            '\\' if letters.as_str().starts_with('n') => {
                letters.next();
                text.push('\n');
            }
            '\\' => text.push(letters.next().unwrap_or('\\')),
            c => text.push(c),
        }
    }
    text
}
