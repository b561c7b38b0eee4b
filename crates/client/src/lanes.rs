//! The lanes of one WebSocket: who listens on which, and when a lane is free again.
//!
//! Invariant: a lane that was given up before its response ended gets no new response until the server said that the old
//! one has ended, because events carry the name of their lane and not of their request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::responses::{Event, EventKind};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::wire;

/// What a server says to a cancel that came after the end.
const CANCELLED_TOO_LATE: &str = "response_not_found";

/// The lanes of one connection.
#[derive(Debug)]
pub(crate) struct Lanes {
    slots: Vec<Slot>,
    max: usize,
    claims: u64,
}

#[derive(Debug)]
struct Slot {
    /// None for the default lane, which is always the first.
    name: Option<Arc<str>>,
    state: State,
    last_response: Option<String>,
    /// When it was claimed last, in claims.
    claimed: u64,
    /// Cancels that were sent and that the server may still call too late. It answers in the order it was asked, so
    /// none is left once it has begun with what was asked after them.
    cancels: usize,
}

#[derive(Debug)]
enum State {
    Idle,
    Active(Listener),
    /// Nobody listens, but the server is not done.
    Draining,
    /// Given up while steers were under way: nobody can tell how many responses are still to come.
    Retired,
}

#[derive(Debug)]
struct Listener {
    sender: Sender<Event>,
    started: bool,
    ended: bool,
    stalled: Duration,
    too_slow: Arc<AtomicBool>,
}

/// A lane for one answer.
#[derive(Debug)]
pub(crate) struct Claim {
    /// Which of the connection's lanes.
    pub index: usize,
    /// Its name on the wire.
    pub name: Option<Arc<str>>,
    /// Its events.
    pub receiver: Receiver<Event>,
    /// Set when the reader was cut off.
    pub too_slow: Arc<AtomicBool>,
}

/// How an answer leaves its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Everything was received.
    Finished,
    /// It was dropped.
    Dropped,
    /// It was dropped after it had been steered.
    DroppedSteered,
}

impl Lanes {
    /// At most `max` answers at once.
    pub fn new(max: usize) -> Self {
        Self { slots: Vec::new(), max: max.max(1), claims: 0 }
    }

    /// A free lane; with `after`, only the one whose last response that was.
    pub fn claim(&mut self, after: Option<&str>, unread_max: usize) -> Option<Claim> {
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| matches!(slot.state, State::Idle));
        let index = match after {
            Some(id) => idle.into_iter().find(|(_, slot)| slot.last_response.as_deref() == Some(id))?.0,
            None => match idle.min_by_key(|(_, slot)| slot.claimed) {
                Some((index, _)) => index,
                None => self.add()?,
            },
        };
        let (sender, receiver) = channel(unread_max.max(1));
        let too_slow = Arc::new(AtomicBool::new(false));
        self.claims += 1;
        let slot = &mut self.slots[index];
        slot.claimed = self.claims;
        let listener =
            Listener { sender, started: false, ended: false, stalled: Duration::ZERO, too_slow: too_slow.clone() };
        slot.state = State::Active(listener);
        Some(Claim { index, name: slot.name.clone(), receiver, too_slow })
    }

    fn add(&mut self) -> Option<usize> {
        let index = self.slots.len();
        let name = (index > 0).then(|| Arc::from(format!("c{index}")));
        let slot = Slot { name, state: State::Idle, last_response: None, claimed: 0, cancels: 0 };
        (index < self.max).then(|| {
            self.slots.push(slot);
            index
        })
    }

    /// Takes note of an event and says who wants it.
    pub fn route(&mut self, event: &Event) -> Option<(usize, Sender<Event>)> {
        let index = self.slots.iter().position(|slot| slot.name == event.stream_id)?;
        let slot = &mut self.slots[index];
        let code = error_code(&event.kind);
        if let Some(id) = wire::response_id(&event.kind) {
            slot.last_response = Some(id.to_owned());
        }
        if code == Some(CANCELLED_TOO_LATE) && slot.cancels > 0 {
            slot.cancels -= 1;
            return None;
        }
        let starts = wire::is_start(&event.kind);
        match &mut slot.state {
            State::Idle | State::Retired => None,
            State::Draining => {
                if starts {
                    slot.cancels = 1;
                }
                if wire::is_end(&event.kind) || code.is_some() {
                    slot.state = State::Idle;
                }
                None
            }
            State::Active(listener) => {
                if starts {
                    (listener.started, listener.ended) = (true, false);
                    slot.cancels = 0;
                }
                listener.ended |= wire::is_end(&event.kind) || (code.is_some() && !listener.started);
                Some((index, listener.sender.clone()))
            }
        }
    }

    /// The listener of a lane has asked the server to stop.
    pub fn cancel_sent(&mut self, index: usize) {
        self.slots[index].cancels += 1;
    }

    /// Gives a lane back. True when the server must be told to stop.
    pub fn leave(&mut self, index: usize, how: Leave) -> bool {
        let slot = &mut self.slots[index];
        let State::Active(listener) = &slot.state else {
            return false;
        };
        let done = how == Leave::Finished || (how == Leave::Dropped && listener.ended);
        slot.state = match how {
            _ if done => State::Idle,
            Leave::DroppedSteered => State::Retired,
            _ => State::Draining,
        };
        slot.cancels += usize::from(!done);
        !done
    }

    /// How long this lane may still hold up the connection.
    pub fn stall_left(&self, index: usize, max: Duration) -> Duration {
        match &self.slots[index].state {
            State::Active(listener) => max.saturating_sub(listener.stalled),
            _ => Duration::ZERO,
        }
    }

    /// This lane has held up the connection.
    pub fn stalled(&mut self, index: usize, time: Duration) {
        if let State::Active(listener) = &mut self.slots[index].state {
            listener.stalled += time;
        }
    }

    /// Cuts off a reader that is too slow. True when the server must be told to stop.
    pub fn cut(&mut self, index: usize) -> bool {
        if let State::Active(listener) = &self.slots[index].state {
            listener.too_slow.store(true, Ordering::Release);
        }
        self.leave(index, Leave::Dropped)
    }

    /// The name of a lane on the wire.
    pub fn name(&self, index: usize) -> Option<Arc<str>> {
        self.slots[index].name.clone()
    }

    /// Whether an answer is under way.
    pub fn is_busy(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.state, State::Active(_)))
    }

    /// The connection is gone: everyone who listens gets to know.
    pub fn close(&mut self) {
        for slot in &mut self.slots {
            slot.state = State::Retired;
        }
        self.max = self.slots.len();
    }
}

fn error_code(kind: &EventKind) -> Option<&str> {
    match kind {
        EventKind::Error { error, .. } => Some(error.code.as_deref().unwrap_or_default()),
        EventKind::Other(value) if value["type"] == "error" => {
            Some(value["error"]["code"].as_str().or(value["code"].as_str()).unwrap_or_default())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(name: &str, lane: Option<&str>) -> Event {
        let mut value = json!({"type": name, "response": {"id": "r"}});
        if let Some(lane) = lane {
            value["stream_id"] = lane.into();
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_lane_left_early_is_not_reused_until_the_server_is_done() {
        let mut lanes = Lanes::new(2);
        let first = lanes.claim(None, 4).unwrap();
        assert!(lanes.route(&event("response.created", None)).is_some());
        assert!(lanes.leave(first.index, Leave::Dropped), "the server must be told");
        let second = lanes.claim(None, 4).unwrap();
        assert_eq!(second.name.as_deref(), Some("c1"));
        assert!(lanes.claim(None, 4).is_none(), "two lanes, one draining");
        assert!(lanes.route(&event("response.incomplete", None)).is_none(), "nobody listens");
        assert_eq!(lanes.claim(None, 4).unwrap().index, first.index);
    }

    #[test]
    fn an_end_that_was_not_read_yet_still_frees_the_lane() {
        let mut lanes = Lanes::new(1);
        let claim = lanes.claim(None, 4).unwrap();
        lanes.route(&event("response.created", None));
        lanes.route(&event("response.completed", None));
        assert!(!lanes.leave(claim.index, Leave::Dropped));
        assert!(lanes.claim(Some("other"), 4).is_none());
        assert!(lanes.claim(Some("r"), 4).is_some(), "the lane of the response it continues");
    }

    #[test]
    fn a_late_complaint_about_a_cancel_does_not_reach_the_next_answer() {
        let mut lanes = Lanes::new(1);
        let claim = lanes.claim(None, 4).unwrap();
        lanes.route(&event("response.created", None));
        assert!(lanes.leave(claim.index, Leave::Dropped));
        lanes.route(&event("response.completed", None));
        let _next = lanes.claim(None, 4).unwrap();
        let complaint = |code: &str| -> Event {
            let error = json!({"type": "error", "status": 404, "error": {"message": "m", "code": code}});
            serde_json::from_value(error).unwrap()
        };
        assert!(lanes.route(&complaint("response_not_found")).is_none());
        assert!(lanes.route(&complaint("response_not_found")).is_some(), "only one cancel was sent");
    }

    #[test]
    fn a_late_complaint_does_not_free_a_lane_that_was_dropped_again() {
        let mut lanes = Lanes::new(1);
        let first = lanes.claim(None, 4).unwrap();
        lanes.route(&event("response.created", None));
        assert!(lanes.leave(first.index, Leave::Dropped));
        lanes.route(&event("response.completed", None));
        let second = lanes.claim(None, 4).unwrap();
        assert!(lanes.leave(second.index, Leave::Dropped), "dropped before its first event");
        let error = json!({"type": "error", "status": 404, "error": {"message": "m", "code": "response_not_found"}});
        lanes.route(&serde_json::from_value(error).unwrap());
        assert!(lanes.claim(None, 4).is_none(), "the second response is still to come");
        lanes.route(&event("response.created", None));
        lanes.route(&event("response.incomplete", None));
        assert!(lanes.claim(None, 4).is_some());
    }

    #[test]
    fn a_lane_left_while_steering_is_never_reused() {
        let mut lanes = Lanes::new(1);
        let claim = lanes.claim(None, 4).unwrap();
        lanes.route(&event("response.created", None));
        assert!(lanes.leave(claim.index, Leave::DroppedSteered));
        lanes.route(&event("response.incomplete", None));
        assert!(lanes.claim(None, 4).is_none());
    }
}
