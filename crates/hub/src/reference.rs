//! A file of a Hugging Face repository that the catalogue does not know: `hf:OWNER/NAME/FILE.gguf`.
//!
//! Such a model has no digest of ours. What the hub publishes is checked and remembered, as for an entry of the catalogue
//! without one, and its name in the store is made of the reference.

use sha2::{Digest, Sha256};

use crate::catalogue::{Entry, Source, Style};
use crate::error::Error;

const SCHEME: &str = "hf:";
/// Longest reference worth reading.
const LENGTH_MAX: usize = 400;
/// Longest readable part of a name in the store.
const NAME_MAX: usize = 48;

/// A repository, and maybe a file in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// `owner/name`.
    pub repo: String,
    /// The file.
    pub file: Option<String>,
    /// Branch, tag or commit.
    pub revision: String,
}

impl Reference {
    /// Reads `hf:OWNER/NAME`, `hf:OWNER/NAME/FILE`, either with `@REVISION`; nothing where the text is no reference.
    pub fn parse(text: &str) -> Option<Result<Reference, Error>> {
        let rest = text.trim().strip_prefix(SCHEME)?;
        let wrong = |reason: &str| Error::Reference { text: text.to_owned(), reason: reason.to_owned() };
        let (path, revision) = rest.rsplit_once('@').unwrap_or((rest, "main"));
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
        let pieces: Vec<&str> = path.split('/').collect();
        let good = |piece: &&str| !piece.is_empty() && !piece.starts_with('.') && piece.chars().all(plain);
        if text.len() > LENGTH_MAX || pieces.len() < 2 || !pieces.iter().all(good) || !good(&revision) {
            return Some(Err(wrong("write hf:OWNER/NAME/FILE.gguf")));
        }
        let file = Some(pieces[2..].join("/")).filter(|file| !file.is_empty());
        Some(Ok(Reference { repo: pieces[..2].join("/"), file, revision: revision.to_owned() }))
    }

    /// The model that this file is.
    pub fn entry(&self) -> Result<Entry, Error> {
        let wrong = |reason: String| Error::Reference { text: self.to_string(), reason };
        let Some(file) = &self.file else {
            return Err(wrong("name a file of it; `flint models search` lists them".to_owned()));
        };
        if !file.to_lowercase().ends_with(".gguf") {
            return Err(wrong(NOT_GGUF.to_owned()));
        }
        if is_part(file) {
            let advice = "join them with `llama-gguf-split --merge`, or take a smaller quantisation in one file";
            return Err(wrong(format!(
                "the file is one of several parts, and Flint reads models in one file; {advice}"
            )));
        }
        let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".gguf");
        let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
        let readable: String = stem.chars().map(kept).take(NAME_MAX).collect();
        let digest = Sha256::digest(self.to_string().as_bytes());
        let short: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(Entry {
            name: format!("hf-{readable}-{short}"),
            aliases: Vec::new(),
            architecture: String::new(),
            parameters: "not known".to_owned(),
            quantisation: "see its name".to_owned(),
            context: 0,
            licence: format!("see {}", self.repo),
            bytes: None,
            sha256: None,
            after_tools: None,
            style: Style::default(),
            embeds: false,
            advice: None,
            sources: vec![Source::HuggingFace {
                repo: self.repo.clone(),
                file: file.clone(),
                revision: self.revision.clone(),
            }],
        })
    }
}

/// What there is to say of a file in another format.
pub(crate) const NOT_GGUF: &str = "Flint reads GGUF files; `flint models search NAME` finds the same model as one";

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}", self.repo)?;
        if let Some(file) = &self.file {
            write!(f, "/{file}")?;
        }
        if self.revision != "main" {
            write!(f, "@{}", self.revision)?;
        }
        Ok(())
    }
}

/// Whether a file's name says that there are more parts.
pub fn is_part(file: &str) -> bool {
    let stem = file.trim_end_matches(".gguf");
    stem.rsplit_once("-of-").is_some_and(|(before, count)| {
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        digits(count) && before.len() >= 5 && digits(&before[before.len() - 5..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference, Error> {
        Reference::parse(text).unwrap()
    }

    #[test]
    fn references_are_read_and_written() {
        let whole = parse("hf:Owner/Model-GGUF/sub/model-Q4_K_M.gguf@v1").unwrap();
        assert_eq!((&*whole.repo, whole.file.as_deref()), ("Owner/Model-GGUF", Some("sub/model-Q4_K_M.gguf")));
        assert_eq!(whole.to_string(), "hf:Owner/Model-GGUF/sub/model-Q4_K_M.gguf@v1");
        assert_eq!(parse("hf:a/b").unwrap().file, None);
        assert!(Reference::parse("qwen3-coder").is_none());
        for bad in ["hf:", "hf:a", "hf:a//b", "hf:../b/c.gguf", "hf:a/b/../c.gguf", "hf:a/b/c?d.gguf", "hf:a/b@x/y"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_entry_has_a_name_of_its_own() {
        let name = |text: &str| parse(text).unwrap().entry().unwrap().name;
        let one = name("hf:a/b/model-Q4_K_M.gguf");
        assert!(one.starts_with("hf-model-q4-k-m-"), "{one}");
        assert_ne!(one, name("hf:a/c/model-Q4_K_M.gguf"));
        assert_eq!(one, name("hf:a/b/model-Q4_K_M.gguf"));
        let why = |text: &str| parse(text).unwrap().entry().unwrap_err().to_string();
        assert!(why("hf:a/b/model.safetensors").contains("reads GGUF"));
        assert!(why("hf:a/b/m-00001-of-00003.gguf").contains("parts"));
        assert!(why("hf:a/b").contains("name a file"));
    }
}
