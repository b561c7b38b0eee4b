//! The thread that writes: it takes blocks from a short queue, so that no disk is ever waited for by the engine.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

use super::Store;
use super::file::{Name, Wanted};
use crate::hash::Key;

/// What the writer is asked to do.
pub(super) enum Job {
    /// Save a block.
    Write { wanted: Wanted, payload: Vec<u8> },
    /// A saved block is in use.
    Touch { name: Name, parent: Key },
}

/// The engine's side of the thread. The queue is bounded by its one sender, who asks [`Writer::queued`] first.
pub(super) struct Writer {
    store: Arc<Store>,
    jobs: Sender<Job>,
    shared: Arc<Queue>,
    /// Nothing is ever sent: it closes when the thread is done.
    done: Receiver<()>,
}

#[derive(Default)]
struct Queue {
    /// Blocks and states not yet written, and their bytes.
    writes: AtomicUsize,
    bytes: AtomicUsize,
    /// Set when nobody waits for the rest any more.
    abandoned: AtomicBool,
}

impl Writer {
    pub fn start(store: Arc<Store>) -> io::Result<Self> {
        let (jobs, inbox) = mpsc::channel();
        let (alive, done) = mpsc::channel();
        let shared = Arc::new(Queue::default());
        let (thread_store, queue) = (Arc::clone(&store), Arc::clone(&shared));
        std::thread::Builder::new().name("flint-kv-write".into()).spawn(move || {
            let _alive: Sender<()> = alive;
            run(&thread_store, &inbox, &queue);
        })?;
        Ok(Self { store, jobs, shared, done })
    }

    pub fn queued(&self) -> usize {
        self.shared.writes.load(Ordering::Acquire)
    }

    pub fn queued_bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Acquire)
    }

    /// Touches are few, one per admission or block, and quickly done, so only blocks are counted.
    pub fn send(&self, job: Job) {
        if let Job::Write { payload, .. } = &job {
            self.shared.writes.fetch_add(1, Ordering::AcqRel);
            self.shared.bytes.fetch_add(payload.len(), Ordering::AcqRel);
        }
        // A send fails only when the thread is gone, that is after a panic: then the queue fills and blocks are lost.
        let _ = self.jobs.send(job);
    }

    /// Waits until the queue is empty, or until `deadline`: the rest is then lost.
    pub fn close(self, deadline: Instant) {
        drop(self.jobs);
        let patience = deadline.saturating_duration_since(Instant::now());
        if self.done.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            self.shared.abandoned.store(true, Ordering::Release);
            let rest = self.shared.writes.load(Ordering::Acquire);
            self.store.lost.fetch_add(rest as u64, Ordering::Relaxed);
        }
    }
}

fn run(store: &Store, inbox: &Receiver<Job>, queue: &Queue) {
    for job in inbox {
        if queue.abandoned.load(Ordering::Acquire) {
            return;
        }
        match job {
            Job::Touch { name, parent } => {
                store.index().learn_parent(&name, parent);
                store.touch(name);
            }
            Job::Write { wanted, payload } => {
                // It may have come twice: evicted, computed again and evicted again while the first waited here.
                if store.index().contains(&wanted.name) {
                    store.touch(wanted.name);
                } else {
                    let counter = if store.write(&wanted, &payload) { &store.written } else { &store.lost };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                queue.bytes.fetch_sub(payload.len(), Ordering::AcqRel);
                queue.writes.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}
