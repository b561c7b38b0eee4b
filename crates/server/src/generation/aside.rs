//! Blocking work beside the threads that serve sockets, which ends early when nobody waits for it any more.

use std::cell::RefCell;

use text::confined::Wanted;

use crate::error::ApiError;

thread_local! {
    /// Whether the client of the work on this thread is still there.
    static WANTED: RefCell<Wanted> = RefCell::default();
}

/// Tells the work that its client left, when the future that waits for it is dropped.
struct Leaves(Wanted);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Runs work on a blocking thread. What it compiles is given up when this future is dropped.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let waiting = Leaves(Wanted::default());
    let wanted = waiting.0.clone();
    let done = tokio::task::spawn_blocking(move || {
        WANTED.set(wanted);
        let result = work();
        WANTED.set(Wanted::default());
        result
    });
    let done = done.await;
    drop(waiting);
    done.map_err(|error| ApiError::internal(error.to_string()))?
}

/// Whether anybody waits for the work on this thread.
pub fn wanted() -> Wanted {
    WANTED.with_borrow(Clone::clone)
}
