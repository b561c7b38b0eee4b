//! A text file as it was read, and the one way it is written.
//!
//! Models see and write plain text with line feeds; what else a file is made of (byte order mark, encoding, carriage
//! returns, mode, owner) is remembered here and put back. Writing is: a new file beside the old one, synced, then renamed
//! over it, so a reader and a crash see either the old text or the new. Hard links to the old file keep the old text, and
//! extended attributes are not copied.

use std::fs::{Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use super::EditError;

/// Larger files are not edited as text. No model reads this much, and it keeps a mistaken path harmless.
pub const BYTES_MAX: u64 = 8 << 20;

/// How characters stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// UTF-16, low byte first.
    Utf16Le,
    /// UTF-16, high byte first.
    Utf16Be,
    /// One byte per character. Any file that is not UTF-8 and has no NUL reads as this and writes back byte for byte.
    Latin1,
}

/// How lines end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnds {
    /// `\n`.
    Lf,
    /// `\r\n`.
    Crlf,
    /// Some of each: a kept line keeps its own, a new line ends as the line before it.
    Mixed,
}

/// A text file as it was read.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Its text, with `\n` at line ends and without a byte order mark.
    pub text: String,
    /// How its lines end.
    pub line_ends: LineEnds,
    /// How its characters stand.
    pub encoding: Encoding,
    /// Whether it begins with a byte order mark.
    pub bom: bool,
    /// The text with its line ends, where they are mixed.
    raw: Option<String>,
    /// What was read; `None` for a file that was not there.
    seen: Option<Seen>,
    /// The file a new one takes its mode from.
    like: Option<Metadata>,
}

#[derive(Clone, Debug)]
struct Seen {
    hash: [u8; 32],
    size: u64,
    metadata: Metadata,
}

impl TextFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, EditError> {
        let (bytes, metadata) = read_bytes(path)?;
        let (text, encoding, bom) =
            decode(&bytes).map_err(|why| EditError::NotText { path: path.to_owned(), why: why.to_owned() })?;
        let (returns, feeds) = (text.matches("\r\n").count(), text.matches('\n').count());
        let line_ends = match returns {
            0 => LineEnds::Lf,
            _ if returns == feeds => LineEnds::Crlf,
            _ => LineEnds::Mixed,
        };
        let plain = if line_ends == LineEnds::Lf { text.clone() } else { text.replace("\r\n", "\n") };
        let raw = (line_ends == LineEnds::Mixed).then_some(text);
        let seen = Some(Seen { hash: Sha256::digest(&bytes).into(), size: bytes.len() as u64, metadata });
        Ok(Self { text: plain, line_ends, encoding, bom, raw, seen, like: None })
    }

    /// A file that is not there yet: writing it fails when it has come into being.
    pub fn absent() -> Self {
        let (line_ends, encoding) = (LineEnds::Lf, Encoding::Utf8);
        Self { text: String::new(), line_ends, encoding, bom: false, raw: None, seen: None, like: None }
    }

    /// A file that is not there yet and shall be like this one: encoding, line ends and mode.
    pub(super) fn moved(mut self) -> Self {
        self.like = self.seen.take().map(|seen| seen.metadata).or(self.like);
        self
    }

    /// Whether it was there when it was read.
    pub fn exists(&self) -> bool {
        self.seen.is_some()
    }

    fn metadata(&self) -> Option<&Metadata> {
        self.seen.as_ref().map(|seen| &seen.metadata).or(self.like.as_ref())
    }

    /// SHA-256 of the bytes that were read.
    pub fn hash(&self) -> Option<[u8; 32]> {
        self.seen.as_ref().map(|seen| seen.hash)
    }

    /// How many bytes were read.
    pub(super) fn size(&self) -> u64 {
        self.seen.as_ref().map_or(0, |seen| seen.size)
    }

    /// Its permission bits, or those a new one takes.
    pub(super) fn mode(&self) -> Option<u32> {
        self.metadata().map(|data| data.mode() & 0o7777)
    }

    /// Whether the file on disk is still the one that was read.
    pub fn is_current(&self, path: &Path) -> Result<bool, EditError> {
        match (&self.seen, read_bytes(path)) {
            (None, Err(EditError::Missing { .. })) => Ok(true),
            (None, Ok(_)) | (Some(_), Err(EditError::Missing { .. })) => Ok(false),
            (Some(seen), Ok((bytes, _))) => Ok(seen.hash[..] == Sha256::digest(&bytes)[..]),
            (_, Err(error)) => Err(error),
        }
    }

    /// The bytes of a new text in this file's clothes, or the error of an encoding that has no such character.
    pub(super) fn bytes(&self, path: &Path, text: &str) -> Result<Vec<u8>, EditError> {
        self.encode(text).map_err(|character| EditError::NotText {
            path: path.to_owned(),
            why: format!("its encoding has one byte per character and cannot hold `{character}`; use plain characters"),
        })
    }

    /// The same. Fails with the character.
    fn encode(&self, text: &str) -> Result<Vec<u8>, char> {
        let ended = match (self.line_ends, &self.raw) {
            (LineEnds::Lf, _) => text.to_owned(),
            (LineEnds::Mixed, Some(raw)) => with_mixed_ends(raw, text),
            _ => text.replace('\n', "\r\n"),
        };
        let marked = if self.bom { format!("\u{feff}{ended}") } else { ended };
        match self.encoding {
            Encoding::Utf8 => Ok(marked.into_bytes()),
            Encoding::Utf16Le => Ok(marked.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Encoding::Utf16Be => Ok(marked.encode_utf16().flat_map(u16::to_be_bytes).collect()),
            Encoding::Latin1 => marked.chars().map(|c| u8::try_from(u32::from(c)).map_err(|_| c)).collect(),
        }
    }
}

/// Writes a new text of a file that was read as `file`, at once or not at all.
///
/// Refuses when somebody else wrote the file since. Between the last look and the rename are a few microseconds in which
/// another writer would be overwritten; no file system offers better without locks that editors do not take.
pub fn write_atomic(path: &Path, new_text: &str, file: &TextFile) -> Result<(), EditError> {
    let io = |source| EditError::Io { path: path.to_owned(), source };
    let bytes = file.bytes(path, new_text)?;
    // A link stays a link: what it points to is written.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if file.seen.as_ref().is_some_and(|seen| seen.metadata.permissions().mode() & 0o222 == 0) {
        let why = std::io::Error::new(ErrorKind::PermissionDenied, "the file is read-only; make it writable first");
        return Err(io(why));
    }
    if !file.exists()
        && let Some(parent) = target.parent()
    {
        std::fs::create_dir_all(parent).map_err(io)?;
    }
    let fresh = Fresh::write(&target, &bytes, file.metadata()).map_err(io)?;
    if !file.is_current(&target)? {
        return Err(EditError::Changed { path: path.to_owned() });
    }
    match file.exists() {
        true => fresh.replace(&target).map_err(io),
        false => fresh.create(&target).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => EditError::Changed { path: path.to_owned() },
            _ => io(error),
        }),
    }
}

/// A file that is not yet in its place. It is removed when it never gets there.
pub(crate) struct Fresh {
    path: PathBuf,
    placed: bool,
}

/// How the names of files begin that are about to take another's place.
const FRESH_PREFIX: &str = ".flint-write-";

impl Fresh {
    pub(crate) fn write(target: &Path, bytes: &[u8], like: Option<&Metadata>) -> std::io::Result<Self> {
        Self::at(target, |path| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
            file.write_all(bytes)?;
            if let Some(like) = like {
                // Only root may give files away; for others the owner is the same already.
                let _ = std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()));
                file.set_permissions(like.permissions())?;
            }
            // Without this a power cut after the rename may leave an empty file.
            file.sync_data()
        })
    }

    /// Makes something beside `target`, under a name of its own.
    pub(crate) fn at(target: &Path, make: impl FnOnce(&Path) -> std::io::Result<()>) -> std::io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = target.with_file_name(format!("{FRESH_PREFIX}{}-{number}", std::process::id()));
        // One of this name is left over from a process that had the same number.
        let _ = std::fs::remove_file(&path);
        let fresh = Self { path, placed: false };
        make(&fresh.path)?;
        Ok(fresh)
    }

    /// Takes the place of what is there.
    pub(crate) fn replace(mut self, target: &Path) -> std::io::Result<()> {
        std::fs::rename(&self.path, target)?;
        self.placed = true;
        Ok(())
    }

    /// Takes a place where nothing is, or fails with `AlreadyExists`.
    fn create(self, target: &Path) -> std::io::Result<()> {
        match std::fs::hard_link(&self.path, target) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
            // File systems without hard links.
            Err(_) => self.replace(target),
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.placed {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether a file name is that of an unfinished write. Such a file is never part of the user's work; it can be removed
/// once the process that began it is gone.
pub fn is_leftover(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(FRESH_PREFIX))
}

/// Removes an unfinished write whose process is gone.
pub(crate) fn remove_leftover(path: &Path) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let process = name.strip_prefix(FRESH_PREFIX).and_then(|rest| rest.split('-').next());
    let Some(process) = process.and_then(|id| id.parse::<u32>().ok()) else { return };
    let alive = Path::new("/proc").join(process.to_string()).exists() || !Path::new("/proc/self").exists();
    if !alive {
        let _ = std::fs::remove_file(path);
    }
}

fn read_bytes(path: &Path) -> Result<(Vec<u8>, Metadata), EditError> {
    use boundary::file::FileError;
    use std::io::Read;
    let not_text = |why: String| EditError::NotText { path: path.to_owned(), why };
    let io = |source: std::io::Error| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => EditError::Missing { path: path.to_owned() },
        _ => EditError::Io { path: path.to_owned(), source },
    };
    let file = boundary::file::open(path).map_err(|error| match error {
        FileError::Missing { path } => EditError::Missing { path },
        FileError::Io { source, .. } => io(source),
        _ => not_text("it is no regular file".to_owned()),
    })?;
    let metadata = file.metadata().map_err(io)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(not_text(format!("it is larger than {} MiB", BYTES_MAX >> 20)));
    }
    Ok((bytes, metadata))
}

fn decode(bytes: &[u8]) -> Result<(String, Encoding, bool), &'static str> {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
        if rest.is_empty() { String::from_utf16(&units).ok() } else { None }
    };
    let broken = "it begins as UTF-16 and does not go on so";
    match bytes {
        [0xff, 0xfe, rest @ ..] => Ok((utf16(rest, u16::from_le_bytes).ok_or(broken)?, Encoding::Utf16Le, true)),
        [0xfe, 0xff, rest @ ..] => Ok((utf16(rest, u16::from_be_bytes).ok_or(broken)?, Encoding::Utf16Be, true)),
        _ if bytes.contains(&0) => Err("it contains NUL bytes, so it is not text"),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => match text.strip_prefix('\u{feff}') {
                Some(rest) => Ok((rest.to_owned(), Encoding::Utf8, true)),
                None => Ok((text.to_owned(), Encoding::Utf8, false)),
            },
            Err(_) => Ok((bytes.iter().map(|byte| char::from(*byte)).collect(), Encoding::Latin1, false)),
        },
    }
}

/// Gives every kept line the end it had, and every new line the end of the line before it.
fn with_mixed_ends(raw: &str, text: &str) -> String {
    let old: Vec<&str> = raw.split_inclusive('\n').collect();
    let bare: Vec<String> = old.iter().map(|line| line.replace("\r\n", "\n")).collect();
    let bare: Vec<&str> = bare.iter().map(String::as_str).collect();
    let new: Vec<&str> = text.split_inclusive('\n').collect();
    let mut returns = old.first().is_some_and(|line| line.ends_with("\r\n"));
    let mut out = String::with_capacity(raw.len());
    for op in crate::diff::compare(&bare, &new) {
        let kept = op.tag() == similar::DiffTag::Equal;
        for (offset, line) in new[op.new_range()].iter().enumerate() {
            if kept {
                returns = old[op.old_range().start + offset].ends_with("\r\n");
            }
            match line.strip_suffix('\n') {
                Some(line) if returns => out.extend([line, "\r\n"]),
                _ => out.push_str(line),
            }
        }
    }
    out
}
