//! Responses without a reader, and their events for whoever asks.
//!
//! Two kinds. A background response runs by itself, driven by a task of its own. One whose reader went away in the middle
//! is parked: the engine is free, what was said is kept, and it goes on where it stopped when its stream is asked for
//! again. Events are kept as JSON, so that a stream can be read from any point while it runs and for a while after.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::guard::owner::Owner;
use crate::lock::lock;

use api::responses::Response;
use axum::extract::ws::Utf8Bytes;
use tokio::sync::watch;

use super::run::{Run, Stop};
use super::socket::json;

/// Most responses remembered, parked ones included; the oldest that does not run makes way.
pub const ENTRIES_MAX: usize = 256;

/// Most responses whose events are kept though they have ended.
const ENDED_MAX: usize = 32;

/// How long a reader that comes back waits for its response to be parked.
const PARKING: Duration = Duration::from_secs(5);

/// Responses without a reader, by id.
#[derive(Default)]
pub struct Live {
    entries: Mutex<VecDeque<Arc<Entry>>>,
}

/// One of them.
pub struct Entry {
    id: String,
    owner: Owner,
    state: Mutex<State>,
    /// Number of events so far; changes wake the readers.
    grown: watch::Sender<usize>,
    stop: watch::Sender<bool>,
}

struct State {
    response: Response,
    events: Vec<Utf8Bytes>,
    phase: Phase,
}

enum Phase {
    /// A task drives it.
    Running,
    /// Its reader has just gone; the engine is ending it.
    Parking,
    /// It waits for a reader.
    Parked(Box<Run>),
    /// Its last event is among those kept.
    Ended,
}

impl Live {
    /// Drives `run` in the background. `None` when too many run already.
    pub fn spawn(&self, run: Run) -> Option<Arc<Entry>> {
        let entry = Entry::new(&run, Vec::new(), Phase::Running);
        self.add(&entry)?;
        tokio::spawn(Arc::clone(&entry).drive(run));
        Some(entry)
    }

    /// Keeps a run whose reader is gone, with the events it was given.
    pub fn park(&self, mut run: Run, events: Vec<Utf8Bytes>) {
        let entry = Entry::new(&run, events, Phase::Parking);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.add(&entry).is_some() {
            runtime.spawn(async move {
                run.pause().await;
                let mut state = lock(&entry.state);
                state.response = run.response().clone();
                state.phase = Phase::Parked(Box::new(run));
                drop(state);
                entry.grown.send_modify(|_| {});
            });
        }
    }

    /// Keeps the events of a response that has just ended, in place of those that ended before it.
    pub fn keep(&self, run: &Run, events: Vec<Utf8Bytes>) {
        let entry = Entry::new(run, events, Phase::Ended);
        let mut entries = lock(&self.entries);
        let is_ended = |entry: &Arc<Entry>| matches!(lock(&entry.state).phase, Phase::Ended);
        if entries.iter().filter(|entry| is_ended(entry)).count() >= ENDED_MAX
            && let Some(oldest) = entries.iter().position(is_ended)
        {
            entries.remove(oldest);
        }
        entries.push_back(entry);
    }

    /// A response of this owner that is still remembered.
    pub fn find(&self, owner: Owner, id: &str) -> Option<Arc<Entry>> {
        lock(&self.entries).iter().find(|entry| entry.id == id && entry.owner == owner).cloned()
    }

    /// Waits until all have ended.
    pub async fn ended(&self) {
        let entries: Vec<Arc<Entry>> = lock(&self.entries).iter().cloned().collect();
        for entry in entries {
            entry.ended().await;
        }
    }

    /// Forgets a response of this owner.
    pub fn remove(&self, owner: Owner, id: &str) -> bool {
        let mut entries = lock(&self.entries);
        let index = entries.iter().position(|entry| entry.id == id && entry.owner == owner);
        index.is_some_and(|index| entries.remove(index).is_some())
    }

    fn add(&self, entry: &Arc<Entry>) -> Option<()> {
        let mut entries = lock(&self.entries);
        entries.retain(|other| other.id != entry.id);
        if entries.len() >= ENTRIES_MAX {
            let idle =
                entries.iter().position(|entry| matches!(lock(&entry.state).phase, Phase::Parked(_) | Phase::Ended))?;
            entries.remove(idle);
        }
        entries.push_back(Arc::clone(entry));
        Some(())
    }
}

impl Entry {
    fn new(run: &Run, events: Vec<Utf8Bytes>, phase: Phase) -> Arc<Self> {
        Arc::new(Self {
            id: run.response().id.clone(),
            owner: run.owner(),
            grown: watch::channel(events.len()).0,
            state: Mutex::new(State { response: run.response().clone(), events, phase }),
            stop: watch::channel(false).0,
        })
    }

    /// The response as it stands.
    pub fn response(&self) -> Response {
        lock(&self.state).response.clone()
    }

    /// Whether its reader is gone.
    pub fn is_parked(&self) -> bool {
        matches!(lock(&self.state).phase, Phase::Parked(_) | Phase::Parking)
    }

    /// Stops it at the next token.
    pub fn cancel(&self) {
        self.stop.send_replace(true);
    }

    /// Lets a parked response go on. It is driven to its end from now on, whether somebody reads or not.
    pub async fn wake(self: &Arc<Self>) {
        let mut grown = self.grown.subscribe();
        if self.is_parking() {
            // Its last tokens are on their way: at most one step.
            let _ = tokio::time::timeout(PARKING, grown.changed()).await;
        }
        if let Some(mut run) = self.unpark() {
            if let Err(error) = run.resume() {
                run.give_up(&error);
            }
            tokio::spawn(Arc::clone(self).drive(*run));
        }
    }

    fn unpark(&self) -> Option<Box<Run>> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut state.phase, Phase::Running) {
            Phase::Parked(run) => Some(run),
            other => {
                state.phase = other;
                None
            }
        }
    }

    fn is_parking(&self) -> bool {
        matches!(lock(&self.state).phase, Phase::Parking)
    }

    /// Waits until it has ended or is parked.
    pub async fn ended(&self) {
        let mut grown = self.grown.subscribe();
        while matches!(lock(&self.state).phase, Phase::Running | Phase::Parking) {
            if grown.changed().await.is_err() {
                return;
            }
        }
    }

    /// Events from number `from` on, waiting until there are some; empty after the last.
    pub async fn events(&self, from: usize) -> Vec<Utf8Bytes> {
        let mut grown = self.grown.subscribe();
        loop {
            {
                let state = lock(&self.state);
                if state.events.len() > from {
                    return state.events[from..].to_vec();
                }
                if matches!(state.phase, Phase::Ended) {
                    return Vec::new();
                }
            }
            if grown.changed().await.is_err() {
                return Vec::new();
            }
        }
    }

    async fn drive(self: Arc<Self>, mut run: Run) {
        let mut stop = self.stop.subscribe();
        let mut stopping = false;
        loop {
            tokio::select! {
                event = run.next() => match event {
                    Some(event) => self.push(json(&event), run.response()),
                    None => break,
                },
                () = stopped(&mut stop), if !stopping => {
                    stopping = true;
                    run.stop(Stop::Cancelled);
                }
            }
        }
        lock(&self.state).phase = Phase::Ended;
        self.grown.send_modify(|_| {});
    }

    fn push(&self, event: Utf8Bytes, response: &Response) {
        let mut state = lock(&self.state);
        state.events.push(event);
        // The response only changes when an item is done or its status does; deltas need no copy.
        let old = &state.response;
        if old.output.len() != response.output.len() || old.status != response.status || old.usage != response.usage {
            state.response = response.clone();
        }
        let count = state.events.len();
        drop(state);
        self.grown.send_replace(count);
    }
}

/// Resolves when the response is to stop.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending().await
    }
}
