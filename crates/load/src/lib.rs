//! From a model's name to a running engine: the one place where the hub, the model, the text and the engine meet.
//!
//! Nothing here decides how tokens are used. Commands take a [`Loaded`] apart as they like.
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods))]

#[macro_use]
extern crate boundary;

pub mod bandwidth;
pub mod device;
pub mod fetch;
pub mod machine;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use engine::{Engine, EngineHandle, EngineOptions, SnapshotOptions};
use kernels::{Kernels, KvType};
use model::gguf::Gguf;
use model::{Backend, Config, ConfigOptions, CpuOptions};
use serde_json::{Value, json};
use text::{ChatTemplate, TextError, Tokenizer};

use crate::device::{DeviceChoice, Opened, device_choice};

/// Context that is made room for unless asked otherwise. Longer ones exist, but answers that far in are slow on a CPU.
pub const CONTEXT_DEFAULT: usize = 32768;

/// KV room for this many full contexts: one in use, and one of earlier prompts for the prefix cache.
const KV_CONTEXTS: usize = 2;

/// Which model to load, and how.
#[derive(Clone, Debug, Args)]
pub struct ModelOptions {
    /// Name of a model, or path to a GGUF file [default: the catalogue's default]
    #[arg(short, long, env = "FLINT_MODEL")]
    pub model: Option<String>,
    /// Stretch the context by this factor with YaRN, where the model's authors say so
    #[arg(long, value_name = "FACTOR", value_parser = yarn_factor)]
    pub yarn: Option<f32>,
    /// How to load it.
    #[command(flatten)]
    pub load: LoadOptions,
}

/// How any model is loaded.
#[derive(Clone, Debug, Args)]
pub struct LoadOptions {
    /// Where to compute: cpu, cuda, cuda:N, or auto for a card if there is one that can
    #[arg(long, default_value = "auto", value_parser = device_choice, env = "FLINT_DEVICE")]
    pub device: DeviceChoice,
    /// Threads that compute [default: all cores]
    #[arg(long)]
    pub threads: Option<NonZeroUsize>,
    /// Tokens of context to make room for; memory is taken as it is used [default: the model's, at most 32768]
    #[arg(long, value_name = "TOKENS")]
    pub context: Option<NonZeroUsize>,
    /// How keys and values are stored: f16, or q8 for half the memory
    #[arg(long = "kv", value_name = "TYPE", default_value = "f16", value_parser = kv_type)]
    pub kv_type: KvType,
    /// A smaller model of the same family that proposes what the model may say; it never changes the answer
    #[arg(long, value_name = "NAME")]
    pub draft_model: Option<String>,
    /// Never guess ahead: every token is decoded by itself. Answers are the same, only slower
    #[arg(long, conflicts_with = "draft_model", env = "FLINT_NO_DRAFTS")]
    pub no_drafts: bool,
    /// Use only what is already here
    #[arg(long)]
    pub offline: bool,
    /// A model of this shape for measuring: its weights are random and made on the card, --model gives the vocabulary
    #[arg(long, value_name = "NAME", requires = "random_weights", hide = true)]
    pub shape: Option<String>,
    /// Says that the weights of --shape are random
    #[arg(long, requires = "shape", hide = true)]
    pub random_weights: bool,
}

/// A model that runs.
pub struct Loaded {
    /// Takes token prompts.
    pub engine: EngineHandle,
    /// Makes them from text.
    pub tokenizer: Tokenizer,
    /// Writes conversations; a file without a usable template still runs raw prompts.
    pub template: Result<ChatTemplate, TextError>,
    /// What was loaded.
    pub facts: Facts,
}

/// A model that is loaded and not yet running: [`start_engine`] starts it.
pub struct Parts {
    /// Does the arithmetic.
    pub backend: Box<dyn Backend>,
    /// Proposes what it may say.
    pub draft_model: Option<Box<dyn Backend>>,
    /// As in [`Loaded`].
    pub tokenizer: Tokenizer,
    /// As in [`Loaded`].
    pub facts: Facts,
}

/// What was loaded, for reports.
pub struct Facts {
    /// The name asked for, or the path.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// The model's shape.
    pub config: Config,
    /// The CPU kernels in use, or the card.
    pub kernels: String,
    /// Threads that compute.
    pub threads: usize,
    /// How keys and values are stored.
    pub kv_type: KvType,
    /// Positions the KV cache has room for.
    pub kv_tokens: usize,
    /// Bytes of weights read per decoded token.
    pub bytes_per_token: usize,
    /// From the file's first byte to a model that can be stepped; a download is not counted.
    pub load_time: Duration,
}

/// Finds the model, fetching it when it is not here, and starts an engine on it.
pub fn load(options: &ModelOptions) -> anyhow::Result<Loaded> {
    load_with(options, None)
}

/// The same, with KV snapshots on disk.
pub fn load_with(options: &ModelOptions, snapshots: Option<SnapshotOptions>) -> anyhow::Result<Loaded> {
    let Parts { backend, draft_model, tokenizer, facts } = load_parts(options)?;
    let mut engine_options = EngineOptions { snapshots, ..EngineOptions::default() };
    if options.load.no_drafts {
        engine_options.draft_max = 0;
    }
    let engine = start_engine(backend, draft_model, &tokenizer, engine_options)?;
    let template = ChatTemplate::new(tokenizer.vocabulary());
    Ok(Loaded { engine, tokenizer, template, facts })
}

/// Finds and loads the model and leaves it to the caller to start engines.
pub fn load_parts(options: &ModelOptions) -> anyhow::Result<Parts> {
    let name = match &options.model {
        Some(name) => name.clone(),
        None => fetch::default_name()?,
    };
    let path = fetch::ensure(&name, options.load.offline)?;
    let kernels = Kernels::best()?;
    let start = Instant::now();
    let loading = || {
        let hint = "`flint models list` shows models that can be fetched by name";
        format!("{} cannot be loaded ({hint})", path.display())
    };
    let gguf = Gguf::open(&path).with_context(loading)?;
    let tokenizer = Tokenizer::from_gguf(&gguf).with_context(loading)?;
    let config_options = ConfigOptions { yarn_factor: options.yarn };
    let config = match &options.load.shape {
        // As many tokens as there are words for, whatever the original has.
        Some(shape) => Config { vocab: tokenizer.vocabulary().len(), ..device::shape(shape)? },
        None => Config::new(&gguf, config_options).with_context(loading)?,
    };
    drop(gguf);
    let kv_tokens = context(options, config.context)? * KV_CONTEXTS;
    let threads = options.load.threads.map_or_else(cores, NonZeroUsize::get);
    let cpu = CpuOptions { threads, kv_tokens, kv_type: options.load.kv_type, config: config_options, kernels };
    let opened = match &options.load.shape {
        Some(_) => device::open_random(config.clone(), options.load.device, cpu),
        None => device::open(&path, options.load.device, cpu).with_context(loading),
    };
    let Opened { backend, kernels, .. } = opened?;
    let bytes_per_token = backend.info().bytes_per_token;
    let draft_model = match &options.load.draft_model {
        Some(name) => Some(load_draft_model(name, &tokenizer, &options.load, cpu)?),
        None => None,
    };
    let facts = Facts {
        name: options.load.shape.as_ref().map_or(name, |shape| format!("{shape} (random weights)")),
        path,
        config,
        kernels,
        threads,
        kv_type: options.load.kv_type,
        kv_tokens,
        bytes_per_token,
        load_time: start.elapsed(),
    };
    Ok(Parts { backend, draft_model, tokenizer, facts })
}

/// Cores this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// An engine on a model. Its usual limits hold; it never steps more rows than the model takes.
pub fn start_engine(
    model: Box<dyn Backend>,
    draft_model: Option<Box<dyn Backend>>,
    tokenizer: &Tokenizer,
    options: EngineOptions,
) -> anyhow::Result<EngineHandle> {
    let vocabulary = tokenizer.vocabulary();
    let ids = 0..u32::try_from(vocabulary.len()).context("the vocabulary has more tokens than ids")?;
    let token_bytes = Arc::new(ids.map(|id| vocabulary.token_bytes(id)).collect());
    let options = EngineOptions { token_bytes, ..options };
    Ok(Engine::start_with_draft_model(model, draft_model, options)?)
}

/// A model that drafts for another: every token id must stand for the same text in both.
fn load_draft_model(
    name: &str,
    tokenizer: &Tokenizer,
    load: &LoadOptions,
    cpu: CpuOptions,
) -> anyhow::Result<Box<dyn Backend>> {
    let path = fetch::ensure(name, load.offline)?;
    let loading = || format!("the draft model {name} cannot be loaded");
    let drafts = Tokenizer::from_gguf(&Gguf::open(&path).with_context(loading)?).with_context(loading)?;
    let (ours, theirs) = (tokenizer.vocabulary(), drafts.vocabulary());
    let same = |id: u32| ours.token_bytes(id) == theirs.token_bytes(id);
    let count = u32::try_from(ours.len()).context("the vocabulary has more tokens than ids")?;
    if ours.len() != theirs.len() || !(0..count).all(same) {
        bail!("{name} cannot draft for this model: their tokens differ; choose a smaller model of the same family");
    }
    let cpu = CpuOptions { kv_tokens: cpu.kv_tokens / KV_CONTEXTS, config: ConfigOptions::default(), ..cpu };
    Ok(device::open(&path, load.device, cpu).with_context(loading)?.backend)
}

fn context(options: &ModelOptions, model_context: usize) -> anyhow::Result<usize> {
    match options.load.context.map(NonZeroUsize::get) {
        None => Ok(model_context.min(CONTEXT_DEFAULT)),
        Some(wanted) if wanted <= model_context => Ok(wanted),
        Some(wanted) => bail!(
            "--context {wanted} is more than the {model_context} tokens of this model; \
             ask for less, or stretch it with --yarn where its authors say so"
        ),
    }
}

fn kv_type(text: &str) -> Result<KvType, String> {
    match text {
        "f16" => Ok(KvType::F16),
        "q8" => Ok(KvType::Q8),
        _ => Err("it is f16 or q8".to_owned()),
    }
}

fn yarn_factor(text: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(factor) if (1.0..=64.0).contains(&factor) => Ok(factor),
        _ => Err("it is a number from 1 to 64".to_owned()),
    }
}

impl Facts {
    /// The facts as JSON.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "path": self.path,
            "architecture": self.config.architecture,
            "context": self.config.context,
            "kernels": self.kernels,
            "threads": self.threads,
            "kv": match self.kv_type {
                KvType::F16 => "f16",
                KvType::Q8 => "q8",
            },
            "kv_tokens": self.kv_tokens,
            "bytes_per_token": self.bytes_per_token,
            "load_ms": milliseconds(self.load_time),
            "resident_bytes_max": resident_bytes_max(),
        })
    }
}

/// Milliseconds with three digits after the point: JSON has no use for more.
pub fn milliseconds(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

/// Most memory this process ever held, where the system tells (Linux).
fn resident_bytes_max() -> Option<u64> {
    kilobytes(Path::new("/proc/self/status"), "VmHWM")
}

/// Bytes behind a `Key:   123 kB` line, as Linux writes them.
#[allow(clippy::disallowed_methods, reason = "the system's own files")]
pub fn kilobytes(file: &Path, key: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    let number: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(number * 1024)
}
