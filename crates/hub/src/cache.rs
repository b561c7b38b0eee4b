//! What Hugging Face's own tools leave around: the endpoint, the token, and a cache of files already fetched.
//!
//! `HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_CACHE` mean what they mean to `huggingface_hub`. In its cache a large
//! file is a blob named by its sha256, so a model another program fetched can be checked and used without the network.

use std::path::{Path, PathBuf};

use crate::catalogue::{Entry, Source, is_sha256};
use crate::disk;
use crate::error::{Error, SourceError};
use crate::progress::Event;
use crate::pull::{Fetched, Job};
use crate::verify;

/// The longest token or name of a commit worth reading.
const TEXT_BYTES_MAX: u64 = 4096;

/// How to reach Hugging Face, and what of it is here already.
#[derive(Debug, Clone, Default)]
pub struct HuggingFace {
    /// Its address, instead of the usual one.
    pub endpoint: Option<String>,
    /// Shown to that address only.
    pub token: Option<Token>,
    /// The folder of its tools' cache.
    pub cache: Option<PathBuf>,
}

/// A secret, which is never printed.
#[derive(Clone)]
pub struct Token(String);

impl HuggingFace {
    /// From the environment, and the token also from the file that `hf auth login` writes.
    pub fn from_env() -> HuggingFace {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        let home = path("HF_HOME")
            .or_else(|| path("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("huggingface")))
            .or_else(|| path("HOME").map(|path| path.join(".cache/huggingface")));
        let saved = || text(&home.as_ref()?.join("token"));
        let text_of = |name: &str| set(name).and_then(|value| value.into_string().ok());
        HuggingFace {
            endpoint: text_of("HF_ENDPOINT"),
            token: text_of("HF_TOKEN").or_else(saved).as_deref().and_then(Token::new),
            cache: path("HF_HUB_CACHE").or_else(|| home.as_ref().map(|home| home.join("hub"))),
        }
    }

    /// Whether a model need not be fetched, because the cache has it.
    pub fn has(&self, entry: &Entry) -> bool {
        self.cached(entry).is_some()
    }

    /// The file of a model in the cache, and the sha256 it is named by.
    pub(crate) fn cached(&self, entry: &Entry) -> Option<(PathBuf, String)> {
        let cache = self.cache.as_deref()?;
        entry.sources.iter().find_map(|source| match source {
            Source::HuggingFace { repo, file, revision } => {
                let folder = cache.join(format!("models--{}", repo.replace('/', "--")));
                let sha256 = entry.sha256.clone().or_else(|| named(&folder, file, revision))?;
                let blob = folder.join("blobs").join(&sha256);
                blob.is_file().then_some((blob, sha256))
            }
            Source::Packages { .. } => None,
        })
    }
}

/// The digest of a file at a branch, tag or commit, by the links of the cache.
fn named(folder: &Path, file: &str, revision: &str) -> Option<String> {
    let commit = text(&folder.join("refs").join(revision)).unwrap_or_else(|| revision.to_owned());
    if !commit.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return None;
    }
    let blob = std::fs::read_link(folder.join("snapshots").join(commit).join(file)).ok()?;
    blob.file_name()?.to_str().filter(|name| is_sha256(name)).map(str::to_owned)
}

fn text(path: &Path) -> Option<String> {
    let bytes = boundary::file::read(path, TEXT_BYTES_MAX).ok()?;
    Some(String::from_utf8(bytes).ok()?.trim().to_owned())
}

/// Takes a file of the cache into staging, without a second copy where the file system allows that, and checks it.
pub(crate) fn take(job: &mut Job<'_>, blob: &Path, sha256: String) -> Result<Fetched, SourceError> {
    let bytes = std::fs::metadata(blob).map_err(Error::io("read", blob))?.len();
    job.compare(bytes, &sha256)?;
    job.progress.event(Event::Source { source: job.source, resumed: 0 });
    let path = job.staging.join(format!("{sha256}.cached"));
    disk::remove(&path)?;
    if std::fs::hard_link(blob, &path).is_err() {
        job.require_disk(bytes)?;
        std::fs::copy(blob, &path).map_err(Error::io("copy", blob))?;
    }
    job.progress.event(Event::Verifying);
    let found = verify::sha256_of(&path)?;
    if found != sha256 {
        return Err(SourceError::Mismatch { what: "sha256", got: found, expected: sha256 });
    }
    Ok(Fetched { path, sha256 })
}

impl Token {
    /// Nothing for a text that is empty or could not be sent.
    pub fn new(text: &str) -> Option<Token> {
        let text = text.trim();
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        plain.then(|| Token(text.to_owned()))
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(hidden)")
    }
}
