//! The way back: how tokens get from the engine thread to one reader without the engine ever waiting.
//!
//! A stream is not a queue of events but three slots (started, pending tokens, finished), so a reader that falls behind
//! finds one larger event instead of many small ones. Backpressure is a limit of pending tokens; beyond it the engine ends
//! the sequence with `SlowReader`. The lock is held only to move a few values, on both sides.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::event::{Event, FinishReason, Finished, RequestId, Started, TokenOut};
use crate::guard::guard;

/// The reading end. Dropping it cancels the sequence.
#[derive(Debug)]
pub struct Stream {
    id: RequestId,
    mailbox: Arc<Mailbox>,
}

/// Why [`Stream::try_recv`] gave no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TryRecvError {
    /// Nothing yet.
    #[error("nothing to read yet")]
    Empty,
    /// `Finished` was read; nothing will follow.
    #[error("the stream has ended")]
    Ended,
}

impl Stream {
    pub(crate) fn new(id: RequestId, mailbox: Arc<Mailbox>) -> Self {
        Self { id, mailbox }
    }

    /// The request this stream answers.
    pub fn id(&self) -> RequestId {
        self.id
    }

    /// Waits for the next event; `None` after `Finished`.
    pub fn recv(&self) -> Option<Event> {
        let mut slots = self.mailbox.lock();
        loop {
            match slots.take() {
                Ok(event) => return Some(event),
                Err(TryRecvError::Ended) => return None,
                Err(TryRecvError::Empty) => slots = self.mailbox.wait(slots),
            }
        }
    }

    /// As [`Stream::recv`], giving up with `Empty` after `timeout`.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Event, TryRecvError> {
        let deadline = Instant::now() + timeout;
        let mut slots = self.mailbox.lock();
        loop {
            let taken = slots.take();
            let left = deadline.saturating_duration_since(Instant::now());
            if taken != Err(TryRecvError::Empty) || left.is_zero() {
                return taken;
            }
            let waited = self.mailbox.ready.wait_timeout(slots, left);
            slots = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The next event if there is one now: with `Request::on_ready`, all an async caller needs.
    pub fn try_recv(&self) -> Result<Event, TryRecvError> {
        self.mailbox.lock().take()
    }

    /// Ends the sequence at the next step. Events already published, and `Finished`, can still be read.
    pub fn cancel(&self) {
        self.mailbox.cancel();
    }
}

impl Iterator for Stream {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.recv()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// The reader fell behind by more than the stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlowReader;

/// What engine and reader share.
pub(crate) struct Mailbox {
    slots: Mutex<Slots>,
    ready: Condvar,
    cancelled: AtomicBool,
    on_ready: Option<Box<dyn Fn() + Send + Sync>>,
    /// What `on_ready` said when it first panicked.
    broken: OnceLock<String>,
    tokens_max: usize,
}

#[derive(Default)]
struct Slots {
    started: Option<Started>,
    tokens: Vec<TokenOut>,
    finished: Option<Finished>,
    ended: bool,
}

impl Slots {
    /// Adds `tokens` unless they are too many. True when the reader should know.
    fn add(&mut self, tokens: &mut Vec<TokenOut>, tokens_max: usize) -> Result<bool, SlowReader> {
        if self.tokens.len() + tokens.len() > tokens_max {
            return Err(SlowReader);
        }
        let news = self.started.is_some() || !tokens.is_empty();
        self.tokens.append(tokens);
        Ok(news)
    }

    fn take(&mut self) -> Result<Event, TryRecvError> {
        if let Some(started) = self.started.take() {
            return Ok(Event::Started(started));
        }
        if !self.tokens.is_empty() {
            return Ok(Event::Tokens(std::mem::take(&mut self.tokens)));
        }
        match self.finished.take() {
            Some(finished) => Ok(Event::Finished(Box::new(finished))),
            None if self.ended => Err(TryRecvError::Ended),
            None => Err(TryRecvError::Empty),
        }
    }
}

impl Mailbox {
    pub fn new(tokens_max: usize, on_ready: Option<Box<dyn Fn() + Send + Sync>>) -> Self {
        Self {
            slots: Mutex::default(),
            ready: Condvar::new(),
            cancelled: AtomicBool::new(false),
            on_ready,
            broken: OnceLock::new(),
            tokens_max,
        }
    }

    /// Tells of the start.
    pub fn start(&self, started: Started) {
        self.lock().started = Some(started);
        self.wake();
    }

    /// Moves `tokens` to the reader, or nothing when they do not fit. Wakes it when there is something new.
    pub fn push(&self, tokens: &mut Vec<TokenOut>) -> Result<(), SlowReader> {
        let news = self.lock().add(tokens, self.tokens_max)?;
        if news {
            self.wake();
        }
        Ok(())
    }

    /// Ends the stream with its last tokens; only the first call counts.
    pub fn finish(&self, mut tokens: Vec<TokenOut>, mut finished: Finished) {
        {
            let mut slots = self.lock();
            if slots.add(&mut tokens, self.tokens_max).is_err() {
                finished.reason = FinishReason::SlowReader;
            }
            if !slots.ended {
                slots.ended = true;
                slots.finished = Some(finished);
            }
        }
        self.wake();
    }

    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Why the reader can no longer be woken, if so.
    pub fn broken(&self) -> Option<&str> {
        self.broken.get().map(String::as_str)
    }

    fn wake(&self) {
        self.ready.notify_one();
        // Called even after it panicked: the reader must have a chance to hear of the end.
        if let Some(on_ready) = &self.on_ready
            && let Err(error) = guard("on_ready", on_ready)
        {
            self.broken.get_or_init(|| error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, slots: MutexGuard<'a, Slots>) -> MutexGuard<'a, Slots> {
        self.ready.wait(slots).unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::event::{Timings, Usage};

    fn tokens(ids: std::ops::Range<u32>) -> Vec<TokenOut> {
        ids.map(|id| TokenOut { id, logprob: None, top: Vec::new() }).collect()
    }

    fn finished(reason: FinishReason) -> Finished {
        Finished { tokens: Vec::new(), reason, tail: Vec::new(), usage: Usage::default(), timings: Timings::default() }
    }

    #[test]
    fn events_come_in_order_and_tokens_coalesce() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let on_ready = Box::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        let mailbox = Arc::new(Mailbox::new(4, Some(on_ready)));
        let stream = Stream::new(RequestId(1), Arc::clone(&mailbox));
        assert_eq!(stream.try_recv(), Err(TryRecvError::Empty));
        assert_eq!(stream.recv_timeout(Duration::ZERO), Err(TryRecvError::Empty));

        let started = Started { prompt_tokens: 3, cached_tokens: 0, restored_tokens: 0, miss: None, seed: 1 };
        mailbox.start(started.clone());
        mailbox.push(&mut tokens(0..2)).unwrap();
        mailbox.push(&mut tokens(2..4)).unwrap();
        assert_eq!(mailbox.push(&mut tokens(4..5)), Err(SlowReader));
        mailbox.finish(tokens(4..5), finished(FinishReason::Length));
        mailbox.finish(Vec::new(), finished(FinishReason::Length));
        assert!(calls.load(Ordering::Relaxed) >= 3);

        let events: Vec<Event> = std::iter::from_fn(|| stream.recv()).collect();
        let want = [
            Event::Started(started),
            Event::Tokens(tokens(0..4)),
            Event::Finished(Box::new(finished(FinishReason::SlowReader))),
        ];
        assert_eq!(events, want);
        assert_eq!(stream.try_recv(), Err(TryRecvError::Ended));
        assert!(!mailbox.is_cancelled());
        drop(stream);
        assert!(mailbox.is_cancelled());
    }
}
