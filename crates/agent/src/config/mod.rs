//! The configuration: one typed [`Config`] out of files, profiles, the environment and the command line.
//!
//! Names follow Codex where the meaning is the same, so that a person's habits hold. Later layers win: defaults, the
//! user's file, the project's files from its root to the folder, the profile, the environment, the command line. A
//! project is other people's text: it may tighten safeguards, never loosen them, and may set what a task needs once its
//! user trusts it (see [`crate::trust`]).
//! [`Loaded::settings`] says for every value where it came from.

mod error;
mod keys;
mod layers;
mod provider;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use client::WireApi;
pub use error::ConfigError;
pub use keys::{ByProject, KEYS, Key, Kind};
pub use layers::{Ignored, Origin, Setting};
pub use provider::Provider;

use crate::command::Style;
use crate::trust::{self, Standing, Trust};
use crate::{approval, commit, intent, names};
use layers::Layers;

/// Everything a person can choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// The model asked for; none takes the provider's default.
    pub model: Option<String>,
    /// The provider's name, a key of `model_providers` or a built-in one; `flint` is the private server.
    pub model_provider: String,
    /// Providers, built-in ones included.
    #[serde(default)]
    pub model_providers: BTreeMap<String, Provider>,
    /// The working style; none lets the model's catalogue entry decide.
    pub style: Option<Style>,
    /// When a person is asked.
    pub approval_policy: approval::Policy,
    /// What commands may touch.
    pub sandbox_mode: sandbox::Mode,
    /// What `workspace-write` means in detail.
    pub sandbox_workspace_write: sandbox::WorkspaceWrite,
    /// How much of the AGENTS.md files is read, in all.
    pub project_doc_max_bytes: usize,
    /// Tokens the model's context holds; none asks the server.
    pub model_context_window: Option<usize>,
    /// Tokens in the context at which it is made shorter.
    pub model_auto_compact_token_limit: Option<usize>,
    /// Whether messages change files.
    pub intent: intent::Setting,
    /// What is done about names in an answer that nothing knows.
    pub names: names::Setting,
    /// A shell command that must succeed after an edit. A trusted project may set it: then it always runs in the sandbox.
    pub check: Option<String>,
    /// When Flint commits what it changed.
    pub commit: commit::When,
    /// Randomness of answers.
    pub temperature: Option<f64>,
    /// Longest answer in tokens.
    pub max_output_tokens: Option<usize>,
    /// `/try`.
    #[serde(rename = "try")]
    pub candidates: Candidates,
    /// Where the screen is drawn.
    pub screen: Screen,
    /// The screen.
    pub tui: Tui,
    /// What is kept of sessions.
    pub history: History,
    /// The profile in use.
    pub profile: Option<String>,
}

/// How `/try` works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidates {
    /// How many.
    pub count: usize,
    /// A shell command that must succeed; none takes `Config::check`.
    pub check: Option<String>,
}

/// The screen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tui {
    /// Lines of text without a drawn screen.
    pub plain: bool,
    /// Draw on the terminal's second screen.
    pub alternate_screen: bool,
}

/// Where the screen is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Screen {
    /// On all of the terminal.
    Full,
    /// Below what it shows, so that its scrollback keeps the conversation.
    Inline,
}

/// What is kept of sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Whether anything is.
    pub persistence: Persistence,
    /// Size above which the oldest sessions go.
    pub max_bytes: Option<u64>,
}

/// Whether sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Persistence {
    /// All of them.
    SaveAll,
    /// None.
    None,
}

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The folder of the user's config.toml.
    pub user_dir: Option<PathBuf>,
    /// The folder worked in.
    pub cwd: PathBuf,
    /// The profile asked for; it wins over the one the configuration names.
    pub profile: Option<String>,
    /// `key=value`, in the order given. Options such as `-m` are put here by the caller.
    pub overrides: Vec<String>,
    /// The environment.
    pub env: HashMap<String, String>,
}

impl Sources {
    /// The sources of this process, for work in `cwd`.
    pub fn of_process(cwd: impl Into<PathBuf>) -> Self {
        let env: HashMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { user_dir: user_dir(&env), cwd: cwd.into(), profile: None, overrides: Vec::new(), env }
    }

    /// The user's file, whether or not it exists.
    pub fn user_file(&self) -> Option<PathBuf> {
        self.user_dir.as_ref().map(|dir| dir.join("config.toml"))
    }
}

/// `$FLINT_HOME`, else `$XDG_CONFIG_HOME/flint`, else `~/.config/flint`. An empty variable means unset.
fn user_dir(env: &HashMap<String, String>) -> Option<PathBuf> {
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FLINT_HOME")
        .or_else(|| set("XDG_CONFIG_HOME").filter(|path| path.is_absolute()).map(|path| path.join("flint")))
        .or_else(|| set("HOME").map(|path| path.join(".config/flint")))
}

/// Where sessions and checkpoints are: `$FLINT_HOME/state`, else `$XDG_STATE_HOME/flint`, else `~/.local/state/flint`.
pub fn state_dir(env: &HashMap<String, String>) -> Option<PathBuf> {
    let set = |name: &str| env.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FLINT_HOME")
        .map(|path| path.join("state"))
        .or_else(|| set("XDG_STATE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("flint")))
        .or_else(|| set("HOME").map(|path| path.join(".local/state/flint")))
}

/// A configuration and how it came to be.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Lines that must be shown: what has no effect and why.
    pub warnings: Vec<String>,
    /// Every value that is set, by dotted key, with its origin.
    pub settings: BTreeMap<String, Setting>,
    /// Profiles there are.
    pub profiles: Vec<String>,
    /// Configuration files that were read.
    pub files: Vec<PathBuf>,
    /// The trust its user put into the project.
    pub trust: ProjectTrust,
    /// What no command may write: those files, and the folders of configuration, sessions and checkpoints.
    pub protected: Vec<PathBuf>,
}

/// How the project stands with its user.
#[derive(Clone, Debug, Default)]
pub struct ProjectTrust {
    /// The folder that is trusted or not: the repository, or the folder itself where there is none.
    pub root: PathBuf,
    /// How it stands.
    pub standing: Standing,
    /// Its configuration files, with what they hold.
    pub files: BTreeMap<PathBuf, String>,
    /// Its settings that have no effect because it is not trusted.
    pub ignored: Vec<Ignored>,
}

impl ProjectTrust {
    /// What has no effect and what to do about it, in one line; none when there is nothing of the kind.
    pub fn line(&self) -> Option<String> {
        let mut keys: Vec<&str> = self.ignored.iter().map(|ignored| ignored.key.as_str()).collect();
        keys.dedup();
        let file = &self.ignored.first()?.file;
        let why = match self.standing {
            Standing::Changed => "its configuration changed since you trusted it",
            _ => "this folder is not trusted",
        };
        let (keys, file) = (keys.join(", "), file.display());
        Some(format!("{why}, so {keys} of {file} has no effect; read it, then run `flint trust` to let it take effect"))
    }
}

impl Loaded {
    /// Whether the value of a key was set by the project, and not by the user in any way.
    pub fn is_projects(&self, key: &str) -> bool {
        matches!(self.origin(key), Origin::Project(_))
    }

    /// What commands may touch when they work in `workspace`.
    pub fn sandbox_policy(&self, workspace: &Path) -> sandbox::Policy {
        let detail = &self.config.sandbox_workspace_write;
        sandbox::Policy::new(self.config.sandbox_mode, detail, workspace, &self.protected)
    }

    /// Where a value came from.
    pub fn origin(&self, key: &str) -> &Origin {
        self.settings.get(key).map_or(&Origin::Default, |setting| &setting.origin)
    }
}

impl Config {
    /// Reads all layers.
    pub fn load(sources: &Sources) -> Result<Loaded, ConfigError> {
        let mut layers = Layers::of_defaults();
        let mut files = Vec::new();
        let user_file = sources.user_file();
        let mut profiles = Table::new();
        if let Some(path) = &user_file
            && let Some(mut table) = layers::read_file(path)?
        {
            profiles = take_profiles(&mut table, path)?;
            layers.add(&table, &Origin::User(path.clone()))?;
            files.push(path.clone());
        }
        let trust = add_project(&mut layers, sources, user_file.as_deref())?;
        files.extend(trust.files.keys().cloned());
        add_profile(&mut layers, &profiles, sources)?;
        add_environment(&mut layers, sources)?;
        for text in &sources.overrides {
            layers.add(&layers::read_override(text)?, &Origin::CommandLine)?;
        }
        let mut config: Config = Value::Table(layers.table()).try_into().map_err(|error: toml::de::Error| {
            let message = error.message().to_owned();
            ConfigError::Syntax { origin: "the configuration".to_owned(), message }
        })?;
        provider::add_built_in(&mut config.model_providers);
        if !config.model_providers.contains_key(&config.model_provider) {
            return Err(provider::unknown(&config));
        }
        let warnings = std::mem::take(&mut layers.warnings);
        let profiles = profiles.keys().cloned().collect();
        let own = sources.user_dir.clone().into_iter().chain(state_dir(&sources.env));
        let protected = own.chain(files.iter().cloned()).collect();
        Ok(Loaded { config, warnings, settings: layers.settings(), profiles, files, trust, protected })
    }

    /// The provider in use.
    pub fn provider(&self) -> &Provider {
        self.model_providers.get(&self.model_provider).expect("loading checks that the provider exists")
    }
}

/// Puts the project's files over the user's, as far as the user trusts them.
fn add_project(layers: &mut Layers, sources: &Sources, user_file: Option<&Path>) -> Result<ProjectTrust, ConfigError> {
    let state = state_dir(&sources.env);
    let known = Trust::read(state.as_deref()).unwrap_or_else(|error| {
        layers.warnings.push(error.to_string());
        Trust::default()
    });
    let mut trust = ProjectTrust { root: project_root(&sources.cwd), ..ProjectTrust::default() };
    for path in project_files(&sources.cwd).into_iter().filter(|path| Some(path.as_path()) != user_file) {
        let Some(bytes) = layers::read_bytes(&path, Some(&trust.root))? else { continue };
        let digest = trust::digest(&bytes);
        layers.trusted = known.covers(&trust.root, &path, &digest);
        layers.add(&layers::parse(&path, &bytes)?, &Origin::Project(path.clone()))?;
        trust.files.insert(path, digest);
    }
    trust.standing = known.standing(&trust.root, &trust.files);
    trust.ignored = std::mem::take(&mut layers.ignored);
    layers.warnings.extend(trust.line());
    Ok(trust)
}

fn take_profiles(table: &mut Table, path: &Path) -> Result<Table, ConfigError> {
    match table.remove("profiles") {
        None => Ok(Table::new()),
        Some(Value::Table(profiles)) => Ok(profiles),
        Some(_) => Err(ConfigError::Value {
            key: "profiles".to_owned(),
            objection: "must be tables such as [profiles.fast]".to_owned(),
            origin: path.display().to_string(),
        }),
    }
}

/// Puts the chosen profile over the files. The others are looked at as well, so that a misspelt key shows before its
/// profile is needed.
fn add_profile(layers: &mut Layers, profiles: &Table, sources: &Sources) -> Result<(), ConfigError> {
    let variable = sources.env.get("FLINT_PROFILE").filter(|value| !value.is_empty()).cloned();
    let asked = sources.profile.clone().or(variable).or_else(|| layers.text("profile").map(str::to_owned));
    for (name, settings) in profiles {
        let origin = Origin::Profile(name.clone());
        let chosen = asked.as_ref() == Some(name);
        let Value::Table(settings) = settings else {
            let objection = "must be a table".to_owned();
            return Err(ConfigError::Value { key: format!("profiles.{name}"), objection, origin: origin.to_string() });
        };
        let mut trial = Layers::default();
        trial.add(settings, &origin)?;
        layers.warnings.append(&mut trial.warnings);
        if chosen {
            let warned = layers.warnings.len();
            layers.add(settings, &origin)?;
            layers.warnings.truncate(warned);
        }
    }
    if let Some(name) = asked.filter(|name| !name.is_empty()) {
        if !profiles.contains_key(&name) {
            return Err(ConfigError::Profile { name, known: profiles.keys().cloned().collect() });
        }
        let origin = if sources.profile.is_some() { Origin::CommandLine } else { Origin::Profile(name.clone()) };
        layers.put(vec!["profile".to_owned()], Value::String(name), origin);
    }
    Ok(())
}

/// `FLINT_` and the key in capitals, such as `FLINT_SANDBOX_MODE`. Empty means unset.
fn add_environment(layers: &mut Layers, sources: &Sources) -> Result<(), ConfigError> {
    for key in KEYS.iter().filter(|key| key.path != "profile") {
        let Some(name) = key.variable() else { continue };
        let Some(text) = sources.env.get(&name).filter(|text| !text.is_empty()) else { continue };
        let value = match key.kind {
            Kind::Text | Kind::Choice(_) => Value::String(text.clone()),
            _ => match layers::read_override(&format!("value={text}"))?.remove("value") {
                Some(value) => value,
                None => continue,
            },
        };
        layers.add(&Table::from_iter([(key.path.to_owned(), value)]), &Origin::Environment(name))?;
    }
    Ok(())
}

/// The project's files, from its root to the folder worked in.
fn project_files(cwd: &Path) -> Vec<PathBuf> {
    folders_from_root(cwd).into_iter().map(|folder| folder.join(".flint/config.toml")).collect()
}

/// The project's root, which is the nearest folder with a `.git`, and every folder from there to `cwd`. Without a root
/// only `cwd` itself.
pub(crate) fn folders_from_root(cwd: &Path) -> Vec<PathBuf> {
    let root = project_root(cwd);
    let mut folders: Vec<PathBuf> =
        cwd.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_owned).collect();
    folders.reverse();
    folders
}

/// The nearest folder with a `.git`, else `cwd` itself.
pub fn project_root(cwd: &Path) -> PathBuf {
    cwd.ancestors().find(|folder| folder.join(".git").exists()).unwrap_or(cwd).to_owned()
}
