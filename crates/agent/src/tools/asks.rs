//! Questions to the person that wait for an answer. The asker waits here; the answer comes through the partner's commands.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot};

use crate::{Approval, ApprovalAsk, Decision, Event};

/// Open questions of a session.
#[derive(Default)]
pub struct Asks {
    numbers: Arc<AtomicU64>,
    waiting: Mutex<BTreeMap<u64, oneshot::Sender<Decision>>>,
}

impl Asks {
    /// Questions that take their numbers from here.
    pub fn new(numbers: Arc<AtomicU64>) -> Self {
        Self { numbers, waiting: Mutex::default() }
    }

    /// Asks and waits. `No` when nobody can answer any more.
    pub async fn ask(&self, events: &mpsc::Sender<Event>, what: ApprovalAsk, why: String) -> Decision {
        let ask = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.with(|waiting| waiting.insert(ask, sender));
        // Taken back should the asker be dropped while it waits.
        let _guard = Waiting { asks: self, ask };
        if events.send(Event::ApprovalAsked(Approval { ask, what, why })).await.is_err() {
            return Decision::No;
        }
        let decision = answer.await.unwrap_or(Decision::No);
        let _ = events.send(Event::ApprovalSettled { ask }).await;
        decision
    }

    /// Answers a question. False when it is not open.
    pub fn decide(&self, ask: u64, decision: Decision) -> bool {
        self.with(|waiting| waiting.remove(&ask)).is_some_and(|sender| sender.send(decision).is_ok())
    }

    /// Answers whatever is open, as when the person redirects or stops the turn instead of answering.
    pub fn decide_all(&self, decision: Decision) {
        for (_, sender) in self.with(std::mem::take) {
            let _ = sender.send(decision);
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<u64, oneshot::Sender<Decision>>) -> T) -> T {
        work(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Waiting<'a> {
    asks: &'a Asks,
    ask: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.asks.with(|waiting| waiting.remove(&self.ask));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> ApprovalAsk {
        ApprovalAsk::Command { command: "make".to_owned(), prefix: "make".to_owned() }
    }

    #[tokio::test]
    async fn an_answer_reaches_its_question() {
        let (asks, (events, mut heard)) = (Arc::new(Asks::default()), mpsc::channel(8));
        let asking = tokio::spawn({
            let (asks, events) = (Arc::clone(&asks), events.clone());
            async move { asks.ask(&events, command(), "because".to_owned()).await }
        });
        let Some(Event::ApprovalAsked(approval)) = heard.recv().await else { panic!("no question") };
        assert!(!asks.decide(approval.ask + 1, Decision::Yes));
        assert!(asks.decide(approval.ask, Decision::Always));
        assert!(!asks.decide(approval.ask, Decision::No), "answered twice");
        assert_eq!(asking.await.unwrap(), Decision::Always);
        assert!(matches!(heard.recv().await, Some(Event::ApprovalSettled { ask }) if ask == approval.ask));
    }

    #[tokio::test]
    async fn a_dropped_question_is_forgotten_and_the_rest_can_be_settled_at_once() {
        let (asks, (events, mut heard)) = (Asks::default(), mpsc::channel(8));
        {
            let mut asking = Box::pin(asks.ask(&events, command(), String::new()));
            assert!(futures_poll(&mut asking).await.is_none());
        }
        let Some(Event::ApprovalAsked(approval)) = heard.recv().await else { panic!("no question") };
        assert!(!asks.decide(approval.ask, Decision::Yes));
        let mut asking = Box::pin(asks.ask(&events, command(), String::new()));
        assert!(futures_poll(&mut asking).await.is_none());
        asks.decide_all(Decision::Stop);
        assert_eq!(asking.await, Decision::Stop);
    }

    /// Polls once.
    async fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        tokio::select! { biased; output = future => Some(output), () = std::future::ready(()) => None }
    }
}
