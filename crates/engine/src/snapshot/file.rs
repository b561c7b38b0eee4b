//! One saved block, one file: its name, its header, and everything that must hold before its bytes are believed.
//!
//! The name is the block's key and depth, in a folder named after the model's fingerprint. A file is never synced and
//! never trusted: what a crash tore, a disk flipped or someone else put there fails the checks and is not used.

use std::path::{Path, PathBuf};

use model::BLOCK;

use crate::hash::{self, Key};

/// Bytes before the payload.
pub(crate) const HEADER: usize = 80 + BLOCK * 4;
/// How the names of files that are still being written end.
pub(super) const UNFINISHED: &str = "tmp";

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// The recurrent state after a block.
    State,
    /// Keys and values of a block.
    Block,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::State, Kind::Block];

    /// How the names of its files end.
    pub fn extension(self) -> &'static str {
        match self {
            Kind::State => "state",
            Kind::Block => "kv",
        }
    }

    fn magic(self) -> u64 {
        u64::from_le_bytes(match self {
            Kind::State => *b"flint-st",
            Kind::Block => *b"flint-kv",
        })
    }
}

const VERSION: u32 = 1;

/// Names one saved block. It fits one prefix of one model only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    /// The model's fingerprint.
    pub model: u64,
    /// How many blocks come before it.
    pub depth: u32,
    pub key: Key,
    pub kind: Kind,
}

impl Name {
    pub fn path(&self, directory: &Path) -> PathBuf {
        let folder = directory.join(format!("{:016x}", self.model));
        let (key, depth, extension) = (self.key, self.depth, self.kind.extension());
        folder.join(format!("{:016x}{:016x}-{depth}.{extension}", key.0, key.1))
    }

    /// The name that a file called `stem` in the folder of `model` stands for; only names as `path` writes them count.
    pub fn parse(model: u64, stem: &str, kind: Kind) -> Option<Self> {
        let (key, depth) = stem.split_once('-')?;
        let (first, second) = (key.get(..16)?, key.get(16..)?);
        let number = |text| u64::from_str_radix(text, 16).ok();
        let name = Self { model, depth: depth.parse().ok()?, key: Key(number(first)?, number(second)?), kind };
        (name.path(Path::new("")).file_stem()?.to_str()? == stem).then_some(name)
    }
}

/// What a file must turn out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub name: Name,
    pub parent: Key,
    pub tokens: Vec<u32>,
}

/// Why the bytes of a file are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Another size than a block of this model has: cut off while being written, or not ours.
    #[error("it has {found} bytes instead of {wanted}")]
    Size {
        /// Bytes of the file.
        found: u64,
        /// Bytes it should have.
        wanted: u64,
    },
    /// It does not begin as a saved block does, or was written by another version.
    #[error("it is not a saved block of this version")]
    Foreign,
    /// The bytes are not those that were written.
    #[error("its checksum is wrong")]
    Checksum,
    /// Sound, but of other tokens or of another model than its name says.
    #[error("it holds another block than its name says")]
    OtherBlock,
    /// A pipe, a device or a folder that stands in its place.
    #[error("it is not a regular file")]
    NotRegular,
    /// The name is not one the engine gives.
    #[error("its name is not that of a saved block")]
    Name,
}

/// The bytes that stand before `payload` in the file of `wanted`.
pub(super) fn header(wanted: &Wanted, payload: &[u8]) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER);
    header.extend(wanted.name.kind.magic().to_le_bytes());
    header.extend(VERSION.to_le_bytes());
    header.extend(wanted.name.depth.to_le_bytes());
    let (key, parent) = (wanted.name.key, wanted.parent);
    for word in [wanted.name.model, key.0, key.1, parent.0, parent.1, payload.len() as u64] {
        header.extend(word.to_le_bytes());
    }
    // The count is said as well, so that a build with another block size rejects the file.
    header.extend((wanted.tokens.len() as u64).to_le_bytes());
    for token in &wanted.tokens {
        header.extend(token.to_le_bytes());
    }
    let sum = hash::checksum(hash::checksum(0, &header), payload);
    header.extend(sum.to_le_bytes());
    header
}

/// Whether `file` is what was wanted, with a payload of `payload_bytes`: the payload is then everything after
/// [`HEADER`].
pub(super) fn check(file: &[u8], wanted: &Wanted, payload_bytes: usize) -> Result<(), Rejection> {
    let size = HEADER + payload_bytes;
    if file.len() != size {
        return Err(Rejection::Size { found: file.len() as u64, wanted: size as u64 });
    }
    let (found, payload) = file.split_at(HEADER);
    let expected = [wanted.name.kind.magic().to_le_bytes().as_slice(), &VERSION.to_le_bytes()].concat();
    if !found.starts_with(&expected) {
        return Err(Rejection::Foreign);
    }
    let (fields, sum) = found.split_at(HEADER - 8);
    if sum != hash::checksum(hash::checksum(0, fields), payload).to_le_bytes() {
        return Err(Rejection::Checksum);
    }
    // The file is as it was written; what remains is whether it is the right one, tokens included.
    if found == header(wanted, payload) { Ok(()) } else { Err(Rejection::OtherBlock) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        let tokens: Vec<u32> = (0..BLOCK as u32).collect();
        let parent = Key::ROOT.child(&[9; BLOCK]);
        Wanted { name: Name { model: 7, depth: 1, key: parent.child(&tokens), kind: Kind::Block }, parent, tokens }
    }

    fn file(wanted: &Wanted, payload: &[u8]) -> Vec<u8> {
        [header(wanted, payload), payload.to_vec()].concat()
    }

    #[test]
    fn names_survive_the_way_to_disk_and_back() {
        let name = Name { model: 0xab, depth: 12, key: Key(3, u64::MAX), kind: Kind::Block };
        let path = name.path(Path::new("snapshots"));
        assert_eq!(path, Path::new("snapshots/00000000000000ab/0000000000000003ffffffffffffffff-12.kv"));
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(Name::parse(0xab, stem, Kind::Block), Some(name));
        for bad in ["", "-", "0-0", &stem[1..], &stem.to_uppercase(), &format!("+{}", &stem[1..]), &format!("{stem}x")]
        {
            assert_eq!(Name::parse(0xab, bad, Kind::Block), None, "{bad}");
        }
    }

    #[test]
    fn only_the_very_file_that_was_written_passes() {
        let (wanted, payload) = (wanted(), [5; 100]);
        let whole = file(&wanted, &payload);
        assert_eq!(check(&whole, &wanted, 100), Ok(()));
        for length in 0..whole.len() {
            assert!(matches!(check(&whole[..length], &wanted, 100), Err(Rejection::Size { .. })));
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let want = if bit < 12 * 8 { Rejection::Foreign } else { Rejection::Checksum };
            assert_eq!(check(&flipped, &wanted, 100), Err(want), "bit {bit}");
        }
    }

    #[test]
    fn a_sound_file_of_something_else_does_not_pass() {
        let base = wanted();
        let name = base.name;
        let mut tokens = base.tokens.clone();
        tokens[31] = 0;
        let others = [
            Wanted { tokens, ..base.clone() },
            Wanted { parent: Key::ROOT, ..base.clone() },
            Wanted { name: Name { model: 8, ..name }, ..base.clone() },
            Wanted { name: Name { depth: 2, ..name }, ..base.clone() },
            Wanted { name: Name { key: Key(1, 2), ..name }, ..base.clone() },
        ];
        for other in others {
            assert_eq!(check(&file(&other, &[5; 100]), &base, 100), Err(Rejection::OtherBlock), "{other:?}");
        }
    }
}
