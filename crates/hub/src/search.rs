//! Asks Hugging Face what there is: models by a word, and the files of one.

use serde::Deserialize;

use crate::cache::HuggingFace;
use crate::error::SourceError;
use crate::huggingface::Hub;

/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 8 << 20;
/// Models asked for.
const FOUND_MAX: usize = 20;

/// A repository with GGUF files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `owner/name`.
    pub repo: String,
    /// In the last month.
    pub downloads: u64,
    /// Its likes.
    pub likes: u64,
    /// Its licence, where it names one.
    pub licence: Option<String>,
}

/// A file of a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepoFile {
    /// Its path.
    pub file: String,
    /// Its size.
    pub bytes: Option<u64>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    #[serde(default)]
    downloads: u64,
    #[serde(default)]
    likes: u64,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
struct Repository {
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
}

impl HuggingFace {
    /// Repositories with GGUF files whose names hold a word, the most fetched first.
    pub fn search(&self, word: &str) -> Result<Vec<Found>, SourceError> {
        let hub = Hub::at(self)?;
        let query = format!("search={}&filter=gguf&sort=downloads&direction=-1&limit={FOUND_MAX}", quoted(word));
        let models: Vec<Model> = hub.ask(&format!("models?{query}"), ANSWER_BYTES_MAX)?;
        let found = |model: Model| Found {
            licence: model.tags.iter().find_map(|tag| tag.strip_prefix("license:")).map(str::to_owned),
            repo: model.id,
            downloads: model.downloads,
            likes: model.likes,
        };
        Ok(models.into_iter().map(found).take(FOUND_MAX).collect())
    }

    /// The files of a repository, `owner/name`.
    pub fn files(&self, repo: &str) -> Result<Vec<RepoFile>, SourceError> {
        let hub = Hub::at(self)?;
        let repository: Repository = hub.ask(&format!("models/{repo}?blobs=true"), ANSWER_BYTES_MAX)?;
        let file = |sibling: Sibling| RepoFile { file: sibling.rfilename, bytes: sibling.size };
        Ok(repository.siblings.into_iter().map(file).collect())
    }
}

/// A word as an address takes it.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    word.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
