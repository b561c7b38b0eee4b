//! The directory the models live in, and the way from a name or a path to a file that may be used.
//!
//! Layout below the root: `models/NAME.gguf` is a finished, checked file and `models/NAME.gguf.verified` the record of
//! that check; `partial/NAME/` is what an unfinished pull has gathered, `partial/NAME.lock` who is working on it. Nothing
//! gets a name in `models/` before its sha256 was right.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::catalogue::{Catalogue, Entry};
use crate::disk;
use crate::error::Error;
use crate::lock::Lock;
use crate::reference::Reference;
use crate::verify::{self, Depth, Verdict};

const MODEL_EXTENSION: &str = "gguf";
const MODEL_MAGIC: [u8; 4] = *b"GGUF";

/// The local models.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    catalogue: Catalogue,
}

/// A file that may be loaded.
#[derive(Debug, Clone)]
pub struct Resolved<'a> {
    /// The file.
    pub path: PathBuf,
    /// What the catalogue says of it; nothing for a path the user gave.
    pub entry: Option<&'a Entry>,
}

/// How much of a model is on this disk, by a look at sizes only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Nothing.
    Absent,
    /// A pull was stopped and can be resumed.
    Partial {
        /// What it has gathered.
        bytes: u64,
    },
    /// There is a file; [`Store::resolve`] says whether it is good.
    Installed {
        /// Its size.
        bytes: u64,
    },
}

impl Store {
    /// The store of this user: `$FLINT_HOME`, else `$XDG_DATA_HOME/flint`, else `~/.local/share/flint`.
    pub fn open() -> Result<Store, Error> {
        Ok(Store::open_at(default_root()?, Catalogue::built_in()?))
    }

    /// A store in a given directory, which need not exist yet.
    pub fn open_at(root: impl Into<PathBuf>, catalogue: Catalogue) -> Store {
        Store { root: root.into(), catalogue }
    }

    /// The directory of this store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The models known by name.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// What a name of the catalogue or a reference to Hugging Face (`hf:OWNER/NAME/FILE`) stands for.
    pub fn find(&self, name: &str) -> Result<Entry, Error> {
        match Reference::parse(name) {
            Some(reference) => reference?.entry(),
            None => self.catalogue.find(name).cloned(),
        }
    }

    /// Finds the checked file for a name of the catalogue, or for a path to any GGUF file. A name wins over a file of
    /// the same name in the current directory; `./NAME` means the file.
    pub fn resolve(&self, name_or_path: &str) -> Result<Resolved<'_>, Error> {
        if let Some(reference) = Reference::parse(name_or_path) {
            let missing = |error| match error {
                Error::NotInstalled { .. } => Error::NotInstalled { name: name_or_path.trim().to_owned() },
                other => other,
            };
            let path = self.checked(&reference?.entry()?, Depth::Recorded).map_err(missing)?;
            return Ok(Resolved { path, entry: None });
        }
        match self.catalogue.find(name_or_path) {
            Ok(entry) => {
                let path = self.checked(entry, Depth::Recorded)?;
                Ok(Resolved { path, entry: Some(entry) })
            }
            Err(unknown) => {
                let path = Path::new(name_or_path);
                let looks_like_path = name_or_path.contains(std::path::MAIN_SEPARATOR)
                    || path.extension().is_some_and(|extension| extension == MODEL_EXTENSION)
                    || path.exists();
                if !looks_like_path {
                    return Err(unknown);
                }
                check_given_file(path)?;
                Ok(Resolved { path: path.to_owned(), entry: None })
            }
        }
    }

    /// Whether the model is here, partly here or absent. Reads no file content.
    pub fn presence(&self, entry: &Entry) -> Presence {
        if let Ok(meta) = std::fs::metadata(self.model_path(entry)) {
            return Presence::Installed { bytes: meta.len() };
        }
        match disk::bytes_below(&self.staging(entry)) {
            0 => Presence::Absent,
            bytes => Presence::Partial { bytes },
        }
    }

    /// The models that have a file here.
    pub fn installed(&self) -> Vec<(&Entry, PathBuf)> {
        let entries = self.catalogue.entries().iter();
        let with_paths = entries.map(|entry| (entry, self.model_path(entry)));
        with_paths.filter(|(_, path)| path.exists()).collect()
    }

    /// The digest the local file had when it was last read in full, if there is one.
    pub fn recorded_sha256(&self, entry: &Entry) -> Option<String> {
        let path = self.model_path(entry);
        if !path.exists() {
            return None;
        }
        verify::read_record(&path).map(|record| record.sha256)
    }

    /// Deletes a model with everything a pull may have left; answers how many bytes that was.
    pub fn remove(&self, entry: &Entry) -> Result<u64, Error> {
        let path = self.model_path(entry);
        let staging = self.staging(entry);
        if !self.root.exists() {
            return Ok(0);
        }
        disk::create_dir(&self.partial_dir())?;
        let lock = Lock::try_take(&self.lock_path(entry))?;
        let lock = lock.ok_or_else(|| Error::Busy { name: entry.name.clone() })?;
        let bytes = std::fs::metadata(&path).map_or(0, |meta| meta.len()) + disk::bytes_below(&staging);
        disk::remove(&path)?;
        disk::remove(&verify::record_path(&path))?;
        disk::remove(&staging)?;
        lock.remove()?;
        Ok(bytes)
    }

    /// The path of the model's file after it was found good.
    pub(crate) fn checked(&self, entry: &Entry, depth: Depth) -> Result<PathBuf, Error> {
        let path = self.model_path(entry);
        if !path.exists() {
            return Err(Error::NotInstalled { name: entry.name.clone() });
        }
        match verify::check(&path, entry.bytes, entry.sha256.as_deref(), depth)? {
            Verdict::Good => Ok(path),
            Verdict::Damaged(reason) => Err(Error::Damaged { name: entry.name.clone(), path, reason }),
        }
    }

    /// Where the file of a model is, or would be.
    pub fn model_path(&self, entry: &Entry) -> PathBuf {
        self.root.join("models").join(format!("{}.{MODEL_EXTENSION}", entry.name))
    }

    /// Where an unfinished pull of a model gathers its bytes.
    pub(crate) fn staging(&self, entry: &Entry) -> PathBuf {
        self.partial_dir().join(&entry.name)
    }

    pub(crate) fn lock_path(&self, entry: &Entry) -> PathBuf {
        self.partial_dir().join(format!("{}.lock", entry.name))
    }

    pub(crate) fn partial_dir(&self) -> PathBuf {
        self.root.join("partial")
    }
}

fn default_root() -> Result<PathBuf, Error> {
    // An empty variable means unset, as the XDG specification has it; a relative XDG_DATA_HOME is to be ignored.
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = set("FLINT_HOME") {
        return Ok(home);
    }
    if let Some(data) = set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
        return Ok(data.join("flint"));
    }
    set("HOME").map(|home| home.join(".local/share/flint")).ok_or(Error::NoHome)
}

/// There is no digest for a file of the user's own, but the usual mistakes are told apart here.
fn check_given_file(path: &Path) -> Result<(), Error> {
    let refuse = |reason: String| Err(Error::NotAModelFile { path: path.to_owned(), reason });
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return refuse("there is no such file".to_owned());
        }
        Err(error) => return refuse(error.to_string()),
    };
    if !meta.is_file() {
        return refuse("it is not a regular file".to_owned());
    }
    let mut magic = [0; MODEL_MAGIC.len()];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    match read {
        Ok(()) if magic == MODEL_MAGIC => Ok(()),
        Ok(()) if path.extension().is_some_and(|extension| extension == "safetensors") => {
            refuse(format!("it is in the format safetensors. {}", crate::reference::NOT_GGUF))
        }
        Ok(()) => refuse(format!("it begins with {magic:02x?} where a GGUF file has \"GGUF\"")),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            refuse(format!("it has {} bytes", meta.len()))
        }
        Err(error) => refuse(error.to_string()),
    }
}
