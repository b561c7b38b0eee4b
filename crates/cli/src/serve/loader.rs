//! The models of this machine, as the server sees them.

use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::Context;
use engine::SnapshotOptions;
use hub::Store;
use load::{CONTEXT_DEFAULT, LoadOptions, ModelOptions, device, fetch};
use model::gguf::Gguf;
use model::{Config, ConfigOptions, EncoderConfig};
use server::{Embedder, FileFacts, Loader, ModelCard, ModelParts};

use super::embedder::StoredEmbedder;

/// Finds models in the store and loads them, all in the same way.
pub struct StoreLoader {
    offers: Vec<Offer>,
    load: LoadOptions,
    snapshots: Option<SnapshotOptions>,
}

struct Offer {
    card: ModelCard,
    /// The name or path to load.
    source: String,
    quantisation: String,
    after_tools: Option<String>,
    /// It turns texts into vectors and writes none.
    embeds: bool,
}

impl StoreLoader {
    /// Offers `names`, or the default model and whatever else is here.
    pub fn new(names: &[String], load: LoadOptions, snapshots: Option<SnapshotOptions>) -> anyhow::Result<Self> {
        let store = Store::open()?;
        let mut wanted = names.to_vec();
        if wanted.is_empty() {
            wanted.push(store.catalogue().default_name().to_owned());
            wanted.extend(store.installed().into_iter().map(|(entry, _)| entry.name.clone()));
        }
        let mut offers: Vec<Offer> = Vec::new();
        for name in &wanted {
            let offer = describe(&store, name, &load)?;
            if offers.iter().all(|other| other.card.name != offer.card.name) {
                offers.push(offer);
            }
        }
        Ok(Self { offers, load, snapshots })
    }
}

fn describe(store: &Store, name: &str, load: &LoadOptions) -> anyhow::Result<Offer> {
    let asked = load.context.map_or(CONTEXT_DEFAULT, std::num::NonZeroUsize::get);
    if load.shape.is_none()
        && let Ok(entry) = store.catalogue().find(name)
    {
        let card = ModelCard {
            name: entry.name.clone(),
            aliases: entry.aliases.clone(),
            description: format!("{} parameters, {}, {}", entry.parameters, entry.quantisation, entry.licence),
            context: asked.min(entry.context as usize),
            file: FileFacts {
                family: entry.architecture.clone(),
                parameters: entry.parameters.clone(),
                quantisation: entry.quantisation.clone(),
                bytes: entry.bytes.unwrap_or_default(),
                sha256: entry.sha256.clone().unwrap_or_default(),
            },
        };
        return Ok(Offer {
            card,
            source: entry.name.clone(),
            quantisation: entry.quantisation.clone(),
            after_tools: entry.after_tools.clone(),
            embeds: entry.embeds,
        });
    }
    let path = fetch::ensure(name, load.offline)?;
    let broken = || format!("{} cannot be served", path.display());
    let gguf = Gguf::open(&path).with_context(broken)?;
    let stem = path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let embeds = EncoderConfig::is_encoder(&gguf);
    let (family, context) = if embeds {
        ("bert".to_owned(), EncoderConfig::new(&gguf).with_context(broken)?.context)
    } else {
        let config = match &load.shape {
            Some(shape) => device::shape(shape)?,
            None => Config::new(&gguf, ConfigOptions::default()).with_context(broken)?,
        };
        (config.architecture, asked.min(config.context))
    };
    let weights = if load.random_weights { "random weights" } else { "see the file" };
    let card = ModelCard {
        name: stem,
        aliases: vec![name.to_owned()],
        description: format!("{family} from a file"),
        context,
        file: FileFacts { family, bytes: gguf.file_len, ..FileFacts::default() },
    };
    Ok(Offer { card, source: name.to_owned(), quantisation: weights.to_owned(), after_tools: None, embeds })
}

impl Loader for StoreLoader {
    fn cards(&self) -> Vec<ModelCard> {
        self.offers.iter().filter(|offer| !offer.embeds).map(|offer| offer.card.clone()).collect()
    }

    fn embedders(&self) -> Vec<ModelCard> {
        self.offers.iter().filter(|offer| offer.embeds).map(|offer| offer.card.clone()).collect()
    }

    fn load_embedder(&self, name: &str) -> Result<Box<dyn Embedder>, String> {
        let offer =
            self.offers.iter().find(|offer| offer.embeds && offer.card.name == name).ok_or("it is not offered")?;
        let threads = self.load.threads.map_or_else(load::cores, NonZeroUsize::get);
        let embedder =
            fetch::ensure(&offer.source, self.load.offline).and_then(|path| StoredEmbedder::load(&path, threads));
        Ok(Box::new(embedder.map_err(|error| format!("{error:#}"))?))
    }

    fn load(&self, name: &str) -> Result<ModelParts, String> {
        let offer = self.offers.iter().find(|offer| offer.card.name == name).ok_or("it is not offered")?;
        let options = ModelOptions { model: Some(offer.source.clone()), yarn: None, load: self.load.clone() };
        let loaded = load::load_with(&options, self.snapshots.clone()).map_err(|error| format!("{error:#}"))?;
        let file = loaded.facts.path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(ModelParts {
            fingerprint: loaded.engine.info().fingerprint,
            engine: loaded.engine,
            tokenizer: Arc::new(loaded.tokenizer),
            template: loaded.template,
            served_model: file.unwrap_or_else(|| offer.card.name.clone()),
            quantisation: offer.quantisation.clone(),
            context: offer.card.context,
            after_tools: offer.after_tools.clone(),
        })
    }
}
