//! `POST /v1/embeddings`: texts as vectors, by models that do nothing else.
//!
//! They are small, stay in memory once they were asked for, and compute one text after the other beside the engines.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::FieldError;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::endpoints::body;
use crate::error::ApiError;
use crate::generation::aside;
use crate::models::rate::Rate;
use crate::models::{Loader, ModelCard};
use crate::shared::Shared;
use crate::telemetry::metrics::Rejection;

/// Texts in one request, as OpenAI counts them.
const INPUTS_MAX: usize = 2048;

/// Requests that wait for the one that is computed.
const WAITING_MAX: usize = 64;

/// How long a request waits for those before it.
const PATIENCE: Duration = Duration::from_secs(120);

/// The name that llama.vscode gives every model for embeddings.
const ANY: &str = "GPT-4";

/// A model that turns texts into vectors.
pub trait Embedder: Send + Sync {
    /// Numbers of a vector.
    fn dimensions(&self) -> usize;

    /// Most tokens of a text.
    fn context(&self) -> usize;

    /// Number of token ids.
    fn vocabulary(&self) -> usize;

    /// The tokens of a text, with those that stand around every text. It may leave out what comes after `most` of them,
    /// and then gives more than `most`.
    fn tokens(&self, text: &str, most: usize) -> Vec<u32>;

    /// The same tokens, at most `most` of them: the end of the text is left out, and not what stands around it.
    fn cut(&self, tokens: Vec<u32>, most: usize) -> Vec<u32>;

    /// The vector of some tokens, of length one. Blocking.
    fn embed(&self, tokens: &[u32]) -> Result<Vec<f32>, String>;
}

/// A text to be embedded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// As text.
    Text(String),
    /// As tokens of the model's own vocabulary.
    Tokens(Vec<u32>),
}

/// What becomes of a text that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// It loses its end.
    Cut,
    /// It is refused.
    Refuse,
}

/// What came of one text.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// The vector.
    pub vector: Vec<f32>,
    /// Tokens that were read.
    pub tokens: usize,
}

/// The models of a server that embed.
pub struct Embedders {
    loader: Arc<dyn Loader>,
    slots: Vec<Slot>,
    waiting: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

struct Slot {
    card: ModelCard,
    embedder: Arc<OnceLock<Arc<dyn Embedder>>>,
}

impl Embedders {
    /// The models of a loader, none of them loaded.
    pub fn new(loader: Arc<dyn Loader>) -> Self {
        let slots = loader.embedders().into_iter().map(|card| Slot { card, embedder: Arc::default() }).collect();
        let (waiting, turn) = (Arc::new(Semaphore::new(WAITING_MAX)), Arc::new(Semaphore::new(1)));
        Self { loader, slots, waiting, turn }
    }

    /// The models on offer.
    pub fn cards(&self) -> impl Iterator<Item = &ModelCard> {
        self.slots.iter().map(|slot| &slot.card)
    }

    /// Whether this is one of them.
    pub fn offers(&self, name: &str) -> bool {
        self.cards().any(|card| card.name == name)
    }

    /// Whether this one is in memory.
    pub fn has(&self, name: &str) -> bool {
        self.slots.iter().any(|slot| slot.card.name == name && slot.embedder.get().is_some())
    }

    fn slot(&self, name: Option<&str>) -> Result<&Slot, ApiError> {
        let found = match name {
            None | Some(ANY) => self.slots.first(),
            Some(name) => self.slots.iter().find(|slot| slot.card.answers_to(name)),
        };
        found.ok_or_else(|| {
            let known: Vec<&str> = self.cards().map(|card| card.name.as_str()).collect();
            let message = match (name, known.as_slice()) {
                (_, []) => "no model here makes embeddings; fetch one with `flint models pull all-minilm`".to_owned(),
                (name, _) => {
                    let name = name.unwrap_or_default();
                    format!("{name:?} makes no embeddings here; this server has {} for them", known.join(", "))
                }
            };
            let error = ApiError::not_found("model_not_found", message).because(Rejection::Model);
            ApiError { param: Some("model".to_owned()), ..error }
        })
    }

    /// The model behind a slot. Blocking; called by one at a time.
    fn loaded(
        loader: &dyn Loader,
        name: &str,
        slot: &OnceLock<Arc<dyn Embedder>>,
    ) -> Result<Arc<dyn Embedder>, ApiError> {
        if let Some(embedder) = slot.get() {
            return Ok(Arc::clone(embedder));
        }
        let embedder = loader.load_embedder(name);
        let embedder: Arc<dyn Embedder> =
            embedder.map_err(|error| ApiError::internal(format!("{name} could not be loaded: {error}")))?.into();
        tracing::info!(model = name, "model loaded");
        Ok(Arc::clone(slot.get_or_init(|| embedder)))
    }
}

/// The vectors of some texts, in their order.
pub async fn embed(
    shared: &Shared,
    model: Option<&str>,
    input: Vec<Input>,
    length: Length,
    dimensions: Option<usize>,
) -> Result<Vec<Embedded>, ApiError> {
    let slot = shared.embedders.slot(model)?;
    if input.len() > INPUTS_MAX {
        return Err(ApiError::bad_field("input", format!("{} texts, at most {INPUTS_MAX} are taken", input.len())));
    }
    let busy = || {
        let message = "too many requests for embeddings wait; try again shortly";
        ApiError::overloaded(message, 1, Rate::queue(WAITING_MAX, 0))
    };
    let _place = Arc::clone(&shared.embedders.waiting).try_acquire_owned().map_err(|_| busy())?;
    let turn = Arc::clone(&shared.embedders.turn).acquire_owned();
    let turn = tokio::time::timeout(PATIENCE, turn).await.map_err(|_| busy())?.map_err(|_| busy())?;
    // The turn goes along with the work, which cannot be stopped in the middle of a text.
    let turn = Arc::new(turn);
    let (loader, name, cell) =
        (Arc::clone(&shared.embedders.loader), slot.card.name.clone(), Arc::clone(&slot.embedder));
    let held = Arc::clone(&turn);
    let embedder = aside::run(move || {
        let _held = held;
        Embedders::loaded(&*loader, &name, &cell)
    })
    .await?;
    if dimensions.is_some_and(|count| count != embedder.dimensions()) {
        let message = format!("this model gives {} numbers for each text, and no other count", embedder.dimensions());
        return Err(ApiError::bad_field("dimensions", message));
    }
    let mut embedded = Vec::with_capacity(input.len());
    for (index, input) in input.into_iter().enumerate() {
        if shared.is_closing() {
            return Err(ApiError::closing());
        }
        let (embedder, held) = (Arc::clone(&embedder), Arc::clone(&turn));
        let one = aside::run(move || {
            let _held = held;
            embed_one(&*embedder, index, input, length)
        });
        embedded.push(one.await?);
    }
    Ok(embedded)
}

fn embed_one(embedder: &dyn Embedder, index: usize, input: Input, length: Length) -> Result<Embedded, ApiError> {
    let most = embedder.context();
    let mut tokens = match input {
        Input::Text(text) => embedder.tokens(&text, most),
        Input::Tokens(tokens) => tokens,
    };
    let path = format!("input[{index}]");
    if let Some(id) = tokens.iter().find(|id| **id as usize >= embedder.vocabulary()) {
        let message =
            format!("{id} is not a token of this model: send text (in LangChain, `check_embedding_ctx_length=False`)");
        return Err(ApiError::bad_field(path, message));
    }
    if tokens.len() > most {
        if length == Length::Refuse {
            let message = format!("the text has more than the {most} tokens that this model reads; shorten it");
            let error = ApiError::bad_field(path, message).code("context_length_exceeded");
            return Err(error.because(Rejection::ContextLength));
        }
        tokens = embedder.cut(tokens, most);
    }
    let vector = embedder.embed(&tokens).map_err(ApiError::internal)?;
    Ok(Embedded { vector, tokens: tokens.len() })
}

/// `POST /v1/embeddings`.
pub async fn create(State(shared): State<Arc<Shared>>, body: Body) -> Result<Response, ApiError> {
    let mut fields = body::fields(body, &shared.limits).await?;
    let model: Option<String> = fields.take("model")?;
    let input = read_input(fields.need("input")?)?;
    let dimensions = fields.take_count("dimensions", 1)?;
    let packed = match fields.take::<String>("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(other) => {
            let message = format!("must be float or base64, not {other:?}");
            return Err(ApiError::bad_field("encoding_format", message));
        }
    };
    let embedded = embed(&shared, model.as_deref(), input, Length::Refuse, dimensions).await?;
    let tokens: usize = embedded.iter().map(|one| one.tokens).sum();
    let datum = |(index, one): (usize, &Embedded)| {
        let embedding = if packed { Value::from(base64(&one.vector)) } else { Value::from(&one.vector[..]) };
        json!({"object": "embedding", "index": index, "embedding": embedding})
    };
    Ok(body::json(&json!({
        "object": "list",
        "data": embedded.iter().enumerate().map(datum).collect::<Vec<Value>>(),
        "model": model.unwrap_or_default(),
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    })))
}

/// A text, tokens, or a list of either.
fn read_input(input: Value) -> Result<Vec<Input>, FieldError> {
    let wrong = || FieldError::new("input", "must be a string, an array of strings, or tokens");
    let tokens = |items: &[Value]| -> Option<Vec<u32>> {
        items.iter().map(|item| item.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
    };
    let items = match input {
        Value::String(text) => return Ok(vec![Input::Text(text)]),
        Value::Array(items) if items.is_empty() => return Err(FieldError::new("input", "must not be empty")),
        Value::Array(items) => items,
        _ => return Err(wrong()),
    };
    if items[0].is_number() {
        return Ok(vec![Input::Tokens(tokens(&items).ok_or_else(wrong)?)]);
    }
    let read = |item: Value| match item {
        Value::String(text) => Some(Input::Text(text)),
        Value::Array(ids) if !ids.is_empty() => tokens(&ids).map(Input::Tokens),
        _ => None,
    };
    items.into_iter().map(read).collect::<Option<_>>().ok_or_else(wrong)
}

/// The bytes of the numbers, least significant first, as OpenAI packs them.
fn base64(vector: &[f32]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let word = three.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let letter = char::from(LETTERS[(word >> (18 - 6 * place)) as usize & 63]);
            text.push(if place <= three.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_of_every_form() {
        let text = |text: &str| Input::Text(text.to_owned());
        assert_eq!(read_input(json!("a")), Ok(vec![text("a")]));
        assert_eq!(read_input(json!(["a", "b"])), Ok(vec![text("a"), text("b")]));
        assert_eq!(read_input(json!([1, 2])), Ok(vec![Input::Tokens(vec![1, 2])]));
        assert_eq!(read_input(json!([[1], [2]])), Ok(vec![Input::Tokens(vec![1]), Input::Tokens(vec![2])]));
        for wrong in [json!([]), json!(1), json!([1, "a"]), json!([[]]), json!([-1]), json!([{}])] {
            assert_eq!(read_input(wrong).unwrap_err().param, "input");
        }
    }

    #[test]
    fn vectors_are_packed_as_others_unpack_them() {
        // Python: base64.b64encode(struct.pack("<3f", 1, -2.5, 0.1))
        assert_eq!(base64(&[1.0, -2.5, 0.1]), "AACAPwAAIMDNzMw9");
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, 1.0]), "AACAPwAAgD8=");
    }
}
