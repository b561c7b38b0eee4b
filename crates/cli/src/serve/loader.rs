//! The models of this machine, as the server sees them.

use std::sync::Arc;

use anyhow::Context;
use engine::SnapshotOptions;
use hub::Store;
use model::gguf::Gguf;
use model::{Config, ConfigOptions};
use server::{LoadedModel, Loader, ModelCard};

use crate::device;
use crate::load::{self, CONTEXT_DEFAULT, LoadHow, LoadOptions};
use crate::models;

/// Finds models in the store and loads them, all in the same way.
pub struct StoreLoader {
    offers: Vec<Offer>,
    how: LoadHow,
    snapshots: Option<SnapshotOptions>,
}

struct Offer {
    card: ModelCard,
    /// The name or path to load.
    source: String,
    quantisation: String,
    after_tools: Option<String>,
}

impl StoreLoader {
    /// Offers `names`, or the default model and whatever else is here.
    pub fn new(names: &[String], how: LoadHow, snapshots: Option<SnapshotOptions>) -> anyhow::Result<Self> {
        let store = Store::open()?;
        let mut wanted = names.to_vec();
        if wanted.is_empty() {
            wanted.push(store.catalogue().default_name().to_owned());
            wanted.extend(store.installed().into_iter().map(|(entry, _)| entry.name.clone()));
        }
        let mut offers: Vec<Offer> = Vec::new();
        for name in &wanted {
            let offer = describe(&store, name, &how)?;
            if offers.iter().all(|other| other.card.name != offer.card.name) {
                offers.push(offer);
            }
        }
        Ok(Self { offers, how, snapshots })
    }
}

fn describe(store: &Store, name: &str, how: &LoadHow) -> anyhow::Result<Offer> {
    let asked = how.context.map_or(CONTEXT_DEFAULT, std::num::NonZeroUsize::get);
    if how.shape.is_none()
        && let Ok(entry) = store.catalogue().find(name)
    {
        let card = ModelCard {
            name: entry.name.clone(),
            aliases: entry.aliases.clone(),
            description: format!("{} parameters, {}, {}", entry.parameters, entry.quantisation, entry.licence),
            context: asked.min(entry.context as usize),
        };
        return Ok(Offer {
            card,
            source: entry.name.clone(),
            quantisation: entry.quantisation.clone(),
            after_tools: entry.after_tools.clone(),
        });
    }
    let path = models::ensure(name, how.offline)?;
    let broken = || format!("{} cannot be served", path.display());
    let gguf = Gguf::open(&path).with_context(broken)?;
    let config = match &how.shape {
        Some(shape) => device::shape(shape)?,
        None => Config::new(&gguf, ConfigOptions::default()).with_context(broken)?,
    };
    let weights = if how.random_weights { "random weights" } else { "see the file" };
    let stem = path.file_stem().map_or_else(|| name.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let card = ModelCard {
        name: stem,
        aliases: vec![name.to_owned()],
        description: format!("{} from a file", config.architecture),
        context: asked.min(config.context),
    };
    Ok(Offer { card, source: name.to_owned(), quantisation: weights.to_owned(), after_tools: None })
}

impl Loader for StoreLoader {
    fn cards(&self) -> Vec<ModelCard> {
        self.offers.iter().map(|offer| offer.card.clone()).collect()
    }

    fn load(&self, name: &str) -> Result<LoadedModel, String> {
        let offer = self.offers.iter().find(|offer| offer.card.name == name).ok_or("it is not offered")?;
        let options = LoadOptions { model: Some(offer.source.clone()), yarn: None, how: self.how.clone() };
        let loaded = load::load_with(&options, self.snapshots.clone()).map_err(|error| format!("{error:#}"))?;
        let file = loaded.facts.path.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(LoadedModel {
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
