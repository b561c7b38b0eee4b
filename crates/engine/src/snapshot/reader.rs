//! The thread that reads saved blocks back, a few ahead of the engine, which takes them between steps.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};

use super::Store;
use super::file::Wanted;

/// Most blocks read and not yet taken by the engine; also the most it takes between two steps.
pub(crate) const READS_MAX: usize = 8;

/// A chain of blocks to read, parents first.
pub(super) struct Load {
    pub number: u64,
    pub blocks: Vec<Wanted>,
    /// Set when nobody wants the rest any more.
    pub stop: Arc<AtomicBool>,
}

/// What became of a load: its blocks in order, as many as could be read, then the end.
pub(crate) enum Loaded {
    /// The file of the next block.
    Block { load: u64, file: Vec<u8> },
    /// Nothing follows.
    End { load: u64 },
    /// The thread is gone, and every load with it.
    Gone,
}

/// The engine's side of the thread. Loads that wait are as many as sequences that wait for them.
pub(super) struct Reader {
    loads: Sender<Load>,
    loaded: Receiver<Loaded>,
}

impl Reader {
    pub fn start(store: Arc<Store>, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let (loads, inbox) = mpsc::channel::<Load>();
        let (outbox, loaded) = mpsc::sync_channel(READS_MAX);
        std::thread::Builder::new().name("flint-kv-read".into()).spawn(move || {
            for load in inbox {
                if read(&store, &load, &outbox, &wake).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { loads, loaded })
    }

    pub fn load(&self, load: Load) {
        // A send fails only when the thread is gone; `next` then says that the load is over.
        let _ = self.loads.send(load);
    }

    pub fn next(&self) -> Option<Loaded> {
        match self.loaded.try_recv() {
            Ok(loaded) => Some(loaded),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Loaded::Gone),
        }
    }
}

/// An error means that the engine is gone.
fn read(
    store: &Store,
    load: &Load,
    outbox: &SyncSender<Loaded>,
    wake: &impl Fn(),
) -> Result<(), mpsc::SendError<Loaded>> {
    let mut last = None;
    for wanted in &load.blocks {
        if load.stop.load(Ordering::Acquire) {
            break;
        }
        let Some(file) = store.read(wanted) else {
            break;
        };
        last = Some(wanted.name);
        outbox.send(Loaded::Block { load: load.number, file })?;
        wake();
    }
    outbox.send(Loaded::End { load: load.number })?;
    wake();
    if let Some(name) = last {
        store.touch(name);
    }
    Ok(())
}
