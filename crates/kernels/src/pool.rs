//! Worker threads that share one piece of work at a time.
//!
//! A job is cut into numbered chunks that threads claim one by one, so a slow or busy core simply claims fewer. Each
//! thread first claims from a run of neighbouring chunks of its own, since memory is fastest when read straight on, and
//! then helps the others with theirs. The caller takes part. When all chunks are claimed the job is closed: a worker that was asleep or descheduled and did not
//! join in time is not waited for, only those that hold a chunk are. Workers spin briefly for the next job, since a
//! token is a chain of more than a hundred of them, and then sleep.
//!
//! One word holds the state: `job number << 32 | OPEN | threads inside`. Invariants:
//! a worker enters a job only by a compare-and-swap that sees it open, at most once per job;
//! the job's data is written only while the word is closed with nobody inside.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;
/// How long an idle worker looks for work before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

/// A piece of work, called with the number of each chunk.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

struct Shared {
    state: AtomicU64,
    /// The chunks of each thread that nobody has claimed yet.
    runs: Box<[Run]>,
    work: UnsafeCell<Option<*const Work<'static>>>,
    sleepers: AtomicUsize,
    stop: AtomicBool,
    panicked: AtomicBool,
}

/// A run of chunks, on a cache line of its own because every claim writes it.
#[repr(align(64))]
#[derive(Default)]
struct Run {
    next: AtomicUsize,
    end: AtomicUsize,
}

// SAFETY: the cell is written only while the state is closed with nobody inside, and read only by threads inside.
unsafe impl Sync for Shared {}
// SAFETY: the pointer is dereferenced only between opening and closing a job, while the caller's borrow is alive.
unsafe impl Send for Shared {}

/// A fixed set of threads; the one that calls [`Pool::run`] counts as one of them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool in which `threads` threads work, this one included.
    pub fn new(threads: usize) -> Pool {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            runs: (0..threads.max(1)).map(|_| Run::default()).collect(),
            work: UnsafeCell::new(None),
            sleepers: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panicked: AtomicBool::new(false),
        });
        let workers = (1..threads.max(1))
            .map(|i| {
                let shared = shared.clone();
                let worker = std::thread::Builder::new().name(format!("flint-cpu-{i}"));
                worker.spawn(move || work_until_stopped(&shared, i)).expect("the system can start a thread")
            })
            .collect();
        Pool { shared, workers }
    }

    /// Number of threads that work, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` once for every number below `chunks`, from all threads, and returns when all calls have returned.
    pub fn run(&mut self, chunks: usize, work: &Work<'_>) {
        if chunks <= 1 || self.workers.is_empty() {
            return (0..chunks).for_each(work);
        }
        let shared = &*self.shared;
        let job = (shared.state.load(Ordering::Relaxed) >> 32) + 1;
        let threads = shared.runs.len();
        for (i, run) in shared.runs.iter().enumerate() {
            run.next.store(i * chunks / threads, Ordering::Relaxed);
            run.end.store((i + 1) * chunks / threads, Ordering::Relaxed);
        }
        // SAFETY: closed with nobody inside (`&mut self` and the wait below), so no thread reads the cell now. The
        // lifetime of the borrow is dropped from the type; the job is closed and left by all before this returns.
        unsafe {
            *shared.work.get() = Some(std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work));
        }
        shared.state.store(job << 32 | OPEN, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            self.workers.iter().for_each(|worker| worker.thread().unpark());
        }
        claim(shared, 0, work);
        shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut rounds = 0u32;
        while shared.state.load(Ordering::Acquire) & INSIDE != 0 {
            rounds += 1;
            // A worker that holds a chunk may have lost its core to another program: let it have this one.
            if rounds < 2000 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        assert!(!shared.panicked.load(Ordering::SeqCst), "a worker thread panicked; its message is above");
    }
}

/// Claims and does chunks until none is left, those of run `own` first.
fn claim(shared: &Shared, own: usize, work: &Work<'_>) {
    for i in 0..shared.runs.len() {
        let run = &shared.runs[(own + i) % shared.runs.len()];
        let end = run.end.load(Ordering::Relaxed);
        loop {
            let chunk = run.next.fetch_add(1, Ordering::Relaxed);
            if chunk >= end {
                break;
            }
            work(chunk);
        }
    }
}

fn work_until_stopped(shared: &Shared, own: usize) {
    let mut done = 0;
    let mut idle_since: Option<Instant> = None;
    let mut rounds = 0u32;
    while !shared.stop.load(Ordering::Relaxed) {
        let state = shared.state.load(Ordering::Acquire);
        if state & OPEN != 0 && state >> 32 != done {
            if shared.state.compare_exchange_weak(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                done = state >> 32;
                let _leave = Leave(shared);
                // SAFETY: inside an open job: the cell is not written and the caller's borrow is alive until we leave.
                unsafe {
                    if let Some(work) = *shared.work.get() {
                        claim(shared, own, &*work);
                    }
                }
                idle_since = None;
            }
            continue;
        }
        rounds = rounds.wrapping_add(1);
        std::hint::spin_loop();
        if rounds.is_multiple_of(64) && idle_since.get_or_insert_with(Instant::now).elapsed() > SPIN {
            sleep(shared, done);
            idle_since = None;
        }
    }
}

/// Leaves the job when dropped, also when a chunk panics: the caller must not wait for ever.
struct Leave<'a>(&'a Shared);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.panicked.store(true, Ordering::SeqCst);
        }
        self.0.state.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Sleeps until unparked, unless a job was opened meanwhile.
fn sleep(shared: &Shared, done: u64) {
    shared.sleepers.fetch_add(1, Ordering::SeqCst);
    let state = shared.state.load(Ordering::SeqCst);
    let opened = state & OPEN != 0 && state >> 32 != done;
    if !opened && !shared.stop.load(Ordering::SeqCst) {
        std::thread::park();
    }
    shared.sleepers.fetch_sub(1, Ordering::SeqCst);
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker only ends by panicking if a kernel did; the caller has seen that panic already.
            let _ = worker.join();
        }
    }
}
