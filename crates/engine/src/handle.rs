//! The engine's whole interface: submit, cancel, place in the queue, stats, shut down.
//!
//! Submissions pass through one small locked inbox with a limit per priority class. Cancelling sets a flag in the stream's
//! mailbox, which the engine reads before every step, so a cancel can neither be lost nor queue up.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use model::{BLOCK, Backend, ModelInfo};

use crate::event::RequestId;
use crate::hash;
use crate::request::{Bounds, Priority, Request, SubmitError};
use crate::runner::Runner;
use crate::sequence::Sequence;
use crate::snapshot::{SnapshotNotice, Snapshots, Store};
use crate::stats::Stats;
use crate::stream::{Mailbox, Stream};
use crate::{EngineOptions, TokenBytes};

/// Starts engines.
#[derive(Debug)]
pub struct Engine;

/// The system did not give the engine what it needs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No thread.
    #[error("no thread for the engine")]
    Thread(#[source] std::io::Error),
    /// The draft model knows other tokens.
    #[error("the draft model has {draft_vocab} tokens and the model {vocab}; choose one of the same family")]
    DraftVocabulary {
        /// Token ids of the model.
        vocab: usize,
        /// Token ids of the draft model.
        draft_vocab: usize,
    },
    /// The draft model cannot go back.
    #[error("the draft model has recurrent state, and a draft model must go back; choose one that only attends")]
    DraftState,
    /// No place for snapshots.
    #[error("the snapshot directory {} cannot be used; choose another or turn snapshots off", .directory.display())]
    Snapshots {
        /// The one that was asked for.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl Engine {
    /// Starts the thread that owns `backend` until the last handle is dropped.
    pub fn start(backend: Box<dyn Backend>, options: EngineOptions) -> Result<EngineHandle, StartError> {
        Self::start_with_draft_model(backend, None, options)
    }

    /// The same with a smaller model that proposes what the larger one may say. Both must mean the same by every token
    /// id, which only the caller can know; here their numbers of ids are compared.
    pub fn start_with_draft_model(
        backend: Box<dyn Backend>,
        draft_model: Option<Box<dyn Backend>>,
        options: EngineOptions,
    ) -> Result<EngineHandle, StartError> {
        let info = backend.info().clone();
        if let Some(draft_vocab) = draft_model.as_ref().map(|model| model.info().vocab)
            && draft_vocab != info.vocab
        {
            return Err(StartError::DraftVocabulary { vocab: info.vocab, draft_vocab });
        }
        if draft_model.as_ref().is_some_and(|model| model.info().states.is_some()) {
            return Err(StartError::DraftState);
        }
        let tokens_max = info.context.min(info.blocks * BLOCK);
        let has_token_bytes = !TokenBytes::is_empty(&options.token_bytes);
        let bounds = Bounds { vocab: info.vocab, tokens_max, has_token_bytes };
        let shared = Arc::new(Shared::default());
        let snapshots = open_snapshots(&options, &info, &shared)?;
        let store = snapshots.as_ref().map(|snapshots| Arc::clone(&snapshots.store));
        let runner_shared = Arc::clone(&shared);
        let runner_options = options.clone();
        let thread = std::thread::Builder::new()
            .name("flint-engine".into())
            .spawn(move || {
                Runner::new(backend, draft_model, &runner_options, tokens_max, runner_shared, snapshots).run()
            })
            .map_err(StartError::Thread)?;
        let owner = Owner { shared, store, thread: Mutex::new(Some(thread)), info, options, bounds };
        Ok(EngineHandle { owner: Arc::new(owner) })
    }
}

fn open_snapshots(
    options: &EngineOptions,
    info: &ModelInfo,
    shared: &Arc<Shared>,
) -> Result<Option<Snapshots>, StartError> {
    let Some(options) = &options.snapshots else {
        return Ok(None);
    };
    let shared = Arc::clone(shared);
    let opened = Snapshots::open(options, info, move || shared.nudge());
    let directory = options.directory.clone();
    opened.map(Some).map_err(|source| StartError::Snapshots { directory, source })
}

/// A way to reach one engine; clones reach the same. Streams do not keep the engine alive, handles do.
#[derive(Clone)]
pub struct EngineHandle {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<Shared>,
    store: Option<Arc<Store>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    info: ModelInfo,
    options: EngineOptions,
    bounds: Bounds,
}

impl EngineHandle {
    /// Puts a request into its priority class's queue, or says at once why not.
    pub fn submit(&self, request: Request) -> Result<Stream, SubmitError> {
        request.check(&self.owner.bounds)?;
        self.owner.shared.submit(request, &self.owner.options)
    }

    /// Ends a sequence at the next step. Does nothing when it has ended already.
    pub fn cancel(&self, id: RequestId) {
        if let Some(mailbox) = self.owner.shared.lock().live.get(&id) {
            mailbox.cancel();
        }
    }

    /// The engine's counters after its last step, and its queues now.
    pub fn stats(&self) -> Stats {
        let mut stats = *lock(&self.owner.shared.stats);
        stats.queued = self.owner.shared.lock().queued();
        stats.snapshots = self.owner.store.as_ref().map(|store| store.counts()).unwrap_or_default();
        stats
    }

    /// What happened to snapshots since the last call that a person may want to read, for the caller's log. At most 64
    /// are kept; further ones only count in [`Stats::snapshots`].
    pub fn take_snapshot_notices(&self) -> Vec<SnapshotNotice> {
        self.owner.store.as_ref().map(|store| store.take_notices()).unwrap_or_default()
    }

    /// How many requests of the same or a more urgent priority class wait before this one; 0 is next. `None` once it has started
    /// or ended. Costs a look at the queue, at most `queue_max` entries, and never waits for a step.
    pub fn place(&self, id: RequestId) -> Option<usize> {
        let preempted = lock(&self.owner.shared.stats).preempted;
        self.owner.shared.lock().place(id, preempted)
    }

    /// Facts about the model it runs.
    pub fn info(&self) -> &ModelInfo {
        &self.owner.info
    }

    /// Longest sequence, prompt and output, it can hold: the model's context, or less when KV blocks are few.
    pub fn tokens_max(&self) -> usize {
        self.owner.bounds.tokens_max
    }

    /// Requests that may wait in each priority class.
    pub fn queue_max(&self) -> usize {
        self.owner.options.queue_max
    }

    /// Sequences that may run at once.
    pub fn running_max(&self) -> usize {
        self.owner.options.running_max
    }

    /// Ends every stream with `Shutdown` after the step in progress and waits for the thread. Dropping the last handle
    /// does the same.
    pub fn shutdown(&self) {
        self.owner.shutdown();
    }
}

impl Owner {
    fn shutdown(&self) {
        self.shared.close();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic of the engine thread has been told to every stream; here it has nothing to add.
            let _ = thread.join();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// What handles and the engine thread share.
#[derive(Default)]
pub(crate) struct Shared {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    stats: Mutex<Stats>,
}

#[derive(Default)]
struct Inbox {
    arrived: Vec<Sequence>,
    /// Every request that has not ended, so that it can be cancelled by id.
    live: HashMap<RequestId, Arc<Mailbox>>,
    /// Requests that have not started, by priority class, here or in the scheduler.
    queued: [BTreeSet<RequestId>; 2],
    ids: u64,
    closed: bool,
    /// Something other than a request wants the engine's attention.
    nudged: bool,
}

impl Inbox {
    fn queued(&self) -> [usize; 2] {
        Priority::ALL.map(|priority| self.queued[priority.index()].len())
    }

    /// Sequences that were `preempted` are older than any that has not started, so they go before all of their priority class.
    fn place(&self, id: RequestId, preempted: [usize; 2]) -> Option<usize> {
        let priority = self.queued.iter().position(|queue| queue.contains(&id))?;
        let urgent: usize = self.queued[..priority].iter().map(BTreeSet::len).sum();
        let before = self.queued[priority].range(..id).count();
        Some(urgent + before + preempted[..=priority].iter().sum::<usize>())
    }
}

impl Shared {
    fn submit(&self, request: Request, options: &EngineOptions) -> Result<Stream, SubmitError> {
        let priority = request.priority;
        let mut inbox = self.lock();
        if inbox.closed {
            return Err(SubmitError::Closed);
        }
        if inbox.queued[priority.index()].len() >= options.queue_max {
            return Err(SubmitError::Overloaded { priority, limit: options.queue_max });
        }
        // Ids are given out under the lock, so that they follow the order of the queue.
        inbox.ids += 1;
        let id = RequestId(inbox.ids);
        let mut request = request;
        let mailbox = Arc::new(Mailbox::new(options.stream_tokens_max, request.on_ready.take()));
        let seed = hash::mix(options.seed ^ hash::mix(id.0));
        let sequence = Sequence::new(id, request, seed, Arc::clone(&mailbox));
        inbox.arrived.push(sequence);
        inbox.live.insert(id, Arc::clone(&mailbox));
        inbox.queued[priority.index()].insert(id);
        drop(inbox);
        self.wake.notify_one();
        Ok(Stream::new(id, mailbox))
    }

    /// Moves new requests to `arrived`, waiting up to `patience` for one. False once the engine is closed.
    pub fn receive(&self, patience: Duration, arrived: &mut Vec<Sequence>) -> bool {
        // None is for ever.
        let deadline = Instant::now().checked_add(patience);
        let mut inbox = self.lock();
        while inbox.arrived.is_empty() && !inbox.closed && !inbox.nudged {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            inbox = match left {
                Some(Duration::ZERO) => break,
                Some(left) => self.wake.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.wake.wait(inbox).unwrap_or_else(PoisonError::into_inner),
            };
        }
        inbox.nudged = false;
        arrived.append(&mut inbox.arrived);
        !inbox.closed
    }

    /// Ends the engine's wait.
    pub fn nudge(&self) {
        self.lock().nudged = true;
        self.wake.notify_one();
    }

    pub fn left_queue(&self, id: RequestId, priority: Priority) {
        self.lock().queued[priority.index()].remove(&id);
    }

    pub fn forget(&self, id: RequestId) {
        self.lock().live.remove(&id);
    }

    pub fn write_stats(&self, stats: &Stats) {
        *lock(&self.stats) = *stats;
    }

    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        lock(&self.inbox)
    }
}

/// A lock is only ever poisoned by a panic elsewhere that left plain counters behind, which stay usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
