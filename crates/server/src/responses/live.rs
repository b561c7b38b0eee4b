//! Responses that run without a reader (`background`), and their events for whoever asks.
//!
//! A task of its own drives each to its end. Events are kept as JSON, so that a stream can be read from any point, any
//! number of times, while it runs and for a while after.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::responses::{Event, Response};
use tokio::sync::watch;

use super::run::{Run, Stop};

/// Most background responses remembered; the oldest that has ended makes way.
const ENTRIES_MAX: usize = 256;

/// Background responses by id.
#[derive(Default)]
pub struct Live {
    entries: Mutex<VecDeque<Arc<Entry>>>,
}

/// One background response.
pub struct Entry {
    id: String,
    state: Mutex<State>,
    /// Number of events so far; changes wake the readers.
    grown: watch::Sender<usize>,
    stop: watch::Sender<bool>,
}

struct State {
    response: Response,
    events: Vec<Arc<str>>,
    ended: bool,
}

impl Live {
    /// Drives `run` in the background. `None` when too many run already.
    pub fn spawn(&self, mut run: Run) -> Option<Arc<Entry>> {
        let entry = Arc::new(Entry {
            id: run.response().id.clone(),
            state: Mutex::new(State { response: run.response().clone(), events: Vec::new(), ended: false }),
            grown: watch::channel(0).0,
            stop: watch::channel(false).0,
        });
        self.add(&entry)?;
        let driven = Arc::clone(&entry);
        tokio::spawn(async move {
            let mut stop = driven.stop.subscribe();
            let mut stopping = false;
            loop {
                tokio::select! {
                    event = run.next() => match event {
                        Some(event) => driven.push(&event, run.response()),
                        None => break,
                    },
                    () = stopped(&mut stop), if !stopping => {
                        stopping = true;
                        run.stop(Stop::Cancelled);
                    }
                }
            }
            lock(&driven.state).ended = true;
            driven.grown.send_modify(|_| {});
        });
        Some(entry)
    }

    /// A background response that is still remembered.
    pub fn find(&self, id: &str) -> Option<Arc<Entry>> {
        lock(&self.entries).iter().find(|entry| entry.id == id).cloned()
    }

    /// Forgets a background response, stopping it first.
    pub fn remove(&self, id: &str) -> bool {
        let mut entries = lock(&self.entries);
        let Some(index) = entries.iter().position(|entry| entry.id == id) else { return false };
        if let Some(entry) = entries.remove(index) {
            entry.cancel();
        }
        true
    }

    fn add(&self, entry: &Arc<Entry>) -> Option<()> {
        let mut entries = lock(&self.entries);
        if entries.len() >= ENTRIES_MAX {
            let ended = entries.iter().position(|entry| lock(&entry.state).ended)?;
            entries.remove(ended);
        }
        entries.push_back(Arc::clone(entry));
        Some(())
    }
}

impl Entry {
    /// The response as it stands.
    pub fn response(&self) -> Response {
        lock(&self.state).response.clone()
    }

    /// Stops it at the next token.
    pub fn cancel(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until it has ended.
    pub async fn ended(&self) {
        let mut grown = self.grown.subscribe();
        while !lock(&self.state).ended {
            if grown.changed().await.is_err() {
                return;
            }
        }
    }

    /// Events from number `from` on, waiting until there are some; empty after the last.
    pub async fn events(&self, from: usize) -> Vec<Arc<str>> {
        let mut grown = self.grown.subscribe();
        loop {
            {
                let state = lock(&self.state);
                if state.events.len() > from {
                    return state.events[from..].to_vec();
                }
                if state.ended {
                    return Vec::new();
                }
            }
            if grown.changed().await.is_err() {
                return Vec::new();
            }
        }
    }

    fn push(&self, event: &Event, response: &Response) {
        let json: Arc<str> = serde_json::to_string(event).unwrap_or_default().into();
        let mut state = lock(&self.state);
        state.events.push(json);
        // The output only changes when an item is done; deltas need no copy.
        if state.response.output.len() != response.output.len() || state.response.status != response.status {
            state.response = response.clone();
        }
        if event.kind.ended().is_some() {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
