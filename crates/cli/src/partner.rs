//! What every command that starts the partner shares: its arguments, and how they become options.

use std::path::{Path, PathBuf};

use agent::config::{Config, Sources};
use agent::local::ServerSpec;
use agent::{PartnerOptions, Style};
use anyhow::{Context, bail};
use clap::Args;
use hub::Store;

use crate::{models, serve, trust};

/// Arguments of every command that starts the partner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct PartnerArgs {
    /// Folder to work in [default: this one]
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Name of a model, or path to a GGUF file [default: the configuration's, else the catalogue's]
    #[arg(short, long)]
    pub model: Option<String>,
    /// Profile of the configuration
    #[arg(short, long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Setting that wins over the configuration, such as style=agent; repeatable
    #[arg(short = 'c', long = "config", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Keep no session and no checkpoints on disk
    #[arg(long)]
    pub ephemeral: bool,
    /// Use only models that are already here
    #[arg(long)]
    pub offline: bool,
}

/// What happens when the model is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fetch {
    /// It is fetched, and the person is told.
    Tells,
    /// It is fetched once the person said so.
    Asks,
    /// It is not needed.
    Never,
}

impl PartnerArgs {
    /// Takes what stood before the name of the command, unless it was said after it too.
    pub fn take_before(&mut self, before: Self) {
        let after = std::mem::replace(self, before);
        self.folder = after.folder.or(self.folder.take());
        self.model = after.model.or(self.model.take());
        self.profile = after.profile.or(self.profile.take());
        // Of settings the last one wins.
        self.settings.extend(after.settings);
        self.ephemeral |= after.ephemeral;
        self.offline |= after.offline;
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the folder and the configuration can be worked with, without fetching or starting anything.
    pub fn check(&self) -> anyhow::Result<()> {
        Config::load(&self.sources()?)?;
        Ok(())
    }

    /// Reads the configuration, and fetches the model when it is a local one that is not here: told to the person first.
    pub fn options(&self) -> anyhow::Result<PartnerOptions> {
        self.options_with(Fetch::Tells)
    }

    /// The same for a screen, which asks the person before anything is fetched.
    pub fn options_of_screen(&self) -> anyhow::Result<PartnerOptions> {
        self.options_with(Fetch::Asks)
    }

    /// The same for work that asks no model, and so fetches none.
    pub fn options_without_model(&self) -> anyhow::Result<PartnerOptions> {
        self.options_with(Fetch::Never)
    }

    fn options_with(&self, fetch: Fetch) -> anyhow::Result<PartnerOptions> {
        let root = self.root()?;
        let sources = self.sources()?;
        let mut config = Config::load(&sources)?;
        let store = Store::open()?;
        let default_model = store.catalogue().default_name().to_owned();
        let mut names = Vec::new();
        if config.config.is_local() && fetch != Fetch::Never {
            let asked = config.config.model.clone().unwrap_or_else(|| default_model.clone());
            let mut asks = fetch == Fetch::Asks;
            if config.is_projects("model") {
                trust::may_fetch(&store, &asked)?;
                asks = false;
            }
            if !self.offline {
                models::tell_of_fetch(&store, &asked, asks)?;
            }
            let path = load::fetch::ensure_for(&asked, self.offline, &boundary::program::workspace_of(&root))?;
            let name = match store.catalogue().find(&asked) {
                Ok(entry) => entry.name.clone(),
                Err(_) => path.file_stem().map_or_else(|| asked.clone(), |stem| stem.to_string_lossy().into_owned()),
            };
            names.push(if name == asked || store.catalogue().find(&asked).is_ok() { name.clone() } else { asked });
            names.extend(store.installed().into_iter().map(|(entry, _)| entry.name.clone()));
            config.config.model = Some(name);
        }
        names.dedup();
        let state = serve::state_directory(None)?;
        let server = ServerSpec {
            program: std::env::current_exe().context("the path of this program")?,
            arguments: server_arguments(&state, self.offline),
            models: names,
            state: state.clone(),
        };
        let limit = config.config.project_doc_max_bytes;
        let instructions = agent::instructions::read(sources.user_dir.as_deref(), &root, limit);
        config.warnings.extend(instructions.warnings);
        let known = |entry: &hub::Entry| (entry.name.clone(), style_of(entry));
        Ok(PartnerOptions {
            root,
            state,
            sources,
            server,
            default_model,
            models: models::known,
            known_models: store.catalogue().entries().iter().map(known).collect(),
            instructions: instructions.text,
            instruction_files: instructions.files,
            ephemeral: self.ephemeral,
            resume: None,
            output_schema: None,
            checks: false,
            config,
        })
    }

    /// Where the configuration comes from.
    pub fn sources(&self) -> anyhow::Result<Sources> {
        let mut sources = Sources::of_process(self.root()?);
        sources.profile = self.profile.clone();
        sources.overrides = self.settings.clone();
        sources.overrides.extend(self.model.iter().map(|model| format!("model={}", toml_text(model))));
        Ok(sources)
    }

    /// The folder to work in, whole and without links.
    pub fn root(&self) -> anyhow::Result<PathBuf> {
        let folder = self.folder.as_deref().unwrap_or(Path::new("."));
        let root = folder.canonicalize().with_context(|| format!("{} cannot be worked in", folder.display()))?;
        if !root.is_dir() {
            bail!("{} is not a folder", root.display());
        }
        Ok(root)
    }
}

/// Ends the private server.
pub fn stop() -> anyhow::Result<()> {
    let state = serve::state_directory(None)?;
    let spec = ServerSpec { program: PathBuf::new(), arguments: Vec::new(), models: Vec::new(), state };
    let ran = agent::local::stop(&spec)?;
    outln!("{}", if ran { "the local server has stopped" } else { "no local server was running" });
    Ok(())
}

/// The private server keeps its own state, so that a `flint serve` beside it is not disturbed.
fn server_arguments(state: &Path, offline: bool) -> Vec<String> {
    let mut arguments = vec!["--state".to_owned(), state.join("partner").display().to_string()];
    arguments.extend(["--idle-minutes", "60"].map(str::to_owned));
    if offline {
        arguments.push("--offline".to_owned());
    }
    arguments
}

/// The style the catalogue gives a model.
fn style_of(entry: &hub::Entry) -> Style {
    match entry.style {
        hub::Style::Pair => Style::Pair,
        hub::Style::Agent => Style::Agent,
    }
}

/// A text as TOML writes it.
fn toml_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
