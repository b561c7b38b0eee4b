//! Finished responses as links of a chain: what a later request needs to continue from them.
//!
//! A turn holds its parent, so a conversation in use stays whole in memory whatever the limits drop. Stored turns go to
//! SQLite as well and come back from there after a restart.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use api::responses::{Response, Status};
use serde_json::Value;

use crate::error::ApiError;
use crate::guard::owner::Owner;
use crate::lock::lock;
use crate::sessions::store::{Record, Store, StoreError};
use crate::shared::Shared;

/// One response and what led to it.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The turn it continues.
    pub parent: Option<Arc<Turn>>,
    /// Items that came with its request.
    pub input: Vec<Value>,
    /// The response as it ended.
    pub response: Response,
    /// What the model generated.
    pub tokens: Arc<[u32]>,
    /// The weights that generated it; tokens mean nothing to others.
    pub fingerprint: u64,
    /// Who may read, continue, cancel and delete it.
    pub owner: Owner,
}

impl Turn {
    /// This turn and those before it, the first one last.
    pub fn back(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Turn>> {
        std::iter::successors(Some(self), |turn| turn.parent.as_ref())
    }

    /// The turns from the first to this one.
    pub fn chain(self: &Arc<Self>) -> Vec<Arc<Turn>> {
        let mut turns: Vec<Arc<Turn>> = self.back().cloned().collect();
        turns.reverse();
        turns
    }

    /// What is stored of it. Turns before it that are not stored become part of its input; all of them when it is to
    /// stand `alone`.
    fn record(self: &Arc<Self>, alone: bool) -> Record {
        let unstored: Vec<Arc<Turn>> = std::iter::successors(self.parent.clone(), |turn| turn.parent.clone())
            .take_while(|turn| alone || !turn.response.store)
            .collect();
        let oldest = unstored.last().unwrap_or(self);
        let parent = oldest.parent.as_ref().map(|parent| parent.response.id.clone());
        let mut input: Vec<Value> = Vec::new();
        for turn in unstored.iter().rev() {
            input.extend(turn.input.iter().cloned());
            input.extend(turn.response.output.iter().filter_map(|item| serde_json::to_value(item).ok()));
        }
        input.extend(self.input.iter().cloned());
        Record {
            id: self.response.id.clone(),
            parent,
            model: self.response.model.clone(),
            fingerprint: self.fingerprint,
            created: self.response.created_at,
            input: json(&input),
            response: json(&self.response),
            tokens: self.tokens.to_vec(),
            owner: self.owner.number(),
        }
    }

    fn from_record(owner: Owner, record: Record, parent: Option<Arc<Turn>>) -> Result<Self, serde_json::Error> {
        Ok(Self {
            parent,
            input: serde_json::from_str(&record.input)?,
            response: serde_json::from_str(&record.response)?,
            tokens: record.tokens.into(),
            fingerprint: record.fingerprint,
            owner,
        })
    }
}

/// A long chain must not overflow the stack when it is dropped.
impl Drop for Turn {
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        while let Some(mut turn) = parent.and_then(Arc::into_inner) {
            parent = turn.parent.take();
        }
    }
}

/// Our own types always have a JSON form.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// Most turns kept in memory for their ids; those in use live on through their children.
const TURNS_MAX: usize = 4096;

/// Stored turns: in memory first, in SQLite for good.
pub struct Turns {
    store: Arc<Store>,
    recent: Mutex<Recent>,
}

#[derive(Default)]
struct Recent {
    turns: HashMap<(Owner, String), Arc<Turn>>,
    order: VecDeque<(Owner, String)>,
}

impl Turns {
    /// Turns over a store.
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, recent: Mutex::default() }
    }

    /// Keeps a turn. It is found from now on, and on disk when this returns.
    pub async fn keep(&self, turn: Arc<Turn>) -> Result<(), ApiError> {
        self.remember(Arc::clone(&turn));
        let store = Arc::clone(&self.store);
        self.blocking(move || {
            let record = turn.record(false);
            let put = match store.put(&record) {
                // The turn before it was deleted or evicted while this one was made.
                Err(StoreError::NoParent { .. }) => store.put(&turn.record(true)),
                // It was kept before it was whole.
                Err(StoreError::Exists(_)) => store.update_response(&record.id, &record.response, &record.tokens),
                put => put,
            };
            put.map_err(|error| error.to_string())
        })
        .await
    }

    /// A stored turn of this owner with all before it. Another's is looked for in the same places as one that never
    /// was, and found in none.
    pub async fn find(&self, owner: Owner, id: &str) -> Result<Option<Arc<Turn>>, ApiError> {
        let wanted = (owner, id.to_owned());
        if let Some(turn) = self.lock().turns.get(&wanted) {
            return Ok(Some(Arc::clone(turn)));
        }
        let store = Arc::clone(&self.store);
        let records =
            self.blocking(move || store.chain(owner.number(), &wanted.1).map_err(|error| error.to_string())).await?;
        let Some(records) = records else { return Ok(None) };
        let mut turn: Option<Arc<Turn>> = None;
        for record in records {
            let id = record.id.clone();
            let next = Turn::from_record(owner, record, turn.take());
            turn = Some(Arc::new(next.map_err(|error| ApiError::internal(format!("stored response {id}: {error}")))?));
        }
        if let Some(turn) = &turn {
            self.remember(Arc::clone(turn));
        }
        Ok(turn)
    }

    /// Forgets a turn of this owner; false when there was none. Turns that continue it keep what they need.
    pub async fn delete(&self, owner: Owner, id: &str) -> Result<bool, ApiError> {
        let wanted = (owner, id.to_owned());
        self.lock().turns.remove(&wanted);
        let store = Arc::clone(&self.store);
        self.blocking(move || store.delete(owner.number(), &wanted.1).map_err(|error| error.to_string())).await
    }

    fn remember(&self, turn: Arc<Turn>) {
        let mut recent = self.lock();
        let id = (turn.owner, turn.response.id.clone());
        if recent.turns.insert(id.clone(), turn).is_none() {
            recent.order.push_back(id);
        }
        while recent.order.len() > TURNS_MAX
            && let Some(oldest) = recent.order.pop_front()
        {
            recent.turns.remove(&oldest);
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, ApiError> {
        let done = tokio::task::spawn_blocking(work).await;
        let result = done.map_err(|error| error.to_string()).and_then(|result| result);
        result.map_err(|error| ApiError::internal(format!("the response store failed: {error}")))
    }

    fn lock(&self) -> MutexGuard<'_, Recent> {
        lock(&self.recent)
    }
}

/// The stored turn that a request continues: one that is gone, another's, or has not ended, is an error.
pub async fn find_parent(shared: &Shared, owner: Owner, id: Option<&str>) -> Result<Option<Arc<Turn>>, ApiError> {
    let Some(id) = id else { return Ok(None) };
    if let Some(entry) = shared.live.find(owner, id)
        && !entry.is_parked()
        && matches!(entry.response().status, Status::InProgress | Status::Queued)
    {
        return Err(ApiError::bad_field("previous_response_id", format!("response {id:?} has not ended yet")));
    }
    let found = shared.turns.find(owner, id).await?;
    found.map(Some).ok_or_else(|| ApiError::previous_not_found(id))
}
