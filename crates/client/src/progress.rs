//! How far an answer has come: which response, up to which event, and whether more will follow.
//!
//! Pure bookkeeping, so that "no event lost, none doubled" and "a steered answer goes on with its successor" can be
//! tested without a network.

use api::responses::{Event, EventKind};

use crate::wire;

/// What to do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// Hand it on.
    Deliver,
    /// Hand it on; nothing follows.
    Last,
    /// It was seen before the connection broke.
    Duplicate,
    /// Events before it are missing.
    Gap,
}

/// How far an answer has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The response under way, or the last one.
    pub response_id: Option<String>,
    /// Events delivered.
    pub events_seen: u64,
    /// The number of the last event of this response.
    last: Option<u64>,
    /// Two events had the same number: this provider does not number them.
    unnumbered: bool,
    /// The stream was taken up again at least once.
    resumed: bool,
    /// The response has ended.
    ended: bool,
    /// Steers that were sent and not yet answered.
    steers_sent: usize,
    /// Steers that will make a successor.
    steers_accepted: Vec<String>,
}

impl Progress {
    /// Takes note of an event.
    pub fn note(&mut self, event: &Event) -> Note {
        if let Some(note) = self.number(event) {
            return note;
        }
        self.events_seen += 1;
        match &event.kind {
            EventKind::SteerAccepted { steer } => {
                self.steers_sent = self.steers_sent.saturating_sub(1);
                self.steers_accepted.push(steer.id.clone());
            }
            EventKind::SteerPending { steer, .. } | EventKind::SteerFailed { steer, .. } => self.settle(&steer.id),
            kind if wire::is_start(kind) => {
                self.ended = false;
                self.steers_accepted.clear();
            }
            kind if wire::is_end(kind) => self.ended = true,
            _ => {}
        }
        if self.ended && !self.waits_for_steer() { Note::Last } else { Note::Deliver }
    }

    /// Checks the number. An answer to a steer need not be part of a response and may have none.
    fn number(&mut self, event: &Event) -> Option<Note> {
        let kind = &event.kind;
        if let Some(id) = wire::response_id(kind)
            && self.response_id.as_deref() != Some(id)
        {
            self.response_id = Some(id.to_owned());
            self.last = None;
        }
        let number = event.sequence_number;
        let of_steer = matches!(
            kind,
            EventKind::SteerAccepted { .. } | EventKind::SteerPending { .. } | EventKind::SteerFailed { .. }
        );
        if of_steer && number == 0 {
            return None;
        }
        if let Some(last) = self.last {
            if self.resumed && number <= last {
                return Some(Note::Duplicate);
            }
            if self.resumed && number > last + 1 {
                return Some(Note::Gap);
            }
            self.unnumbered |= number == last;
        }
        self.last = Some(number);
        None
    }

    fn settle(&mut self, steer: &str) {
        match self.steers_accepted.iter().position(|id| id == steer) {
            Some(index) => drop(self.steers_accepted.swap_remove(index)),
            None => self.steers_sent = self.steers_sent.saturating_sub(1),
        }
    }

    /// A steer was sent.
    pub fn steered(&mut self) {
        self.steers_sent += 1;
    }

    /// An error came while a response runs: true when it must be the answer to a steer, which leaves the response alone.
    pub fn error_is_of_steer(&mut self) -> bool {
        let is = self.steers_sent > 0 && !self.ended;
        self.steers_sent -= usize::from(is);
        is
    }

    /// Whether a steer may still bring a successor.
    pub fn waits_for_steer(&self) -> bool {
        self.steers_sent > 0 || !self.steers_accepted.is_empty()
    }

    /// Whether the response has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// The response and the number after which to take the stream up again, where that is possible.
    pub fn resume_point(&self) -> Option<(&str, u64)> {
        let id = self.response_id.as_deref()?;
        let last = self.last.filter(|_| !self.unnumbered && !self.ended)?;
        Some((id, last))
    }

    /// From here on numbers are checked.
    pub fn resume(&mut self) {
        self.resumed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn notes(progress: &mut Progress, events: &[Value]) -> Vec<Note> {
        events.iter().map(|event| progress.note(&serde_json::from_value(event.clone()).unwrap())).collect()
    }

    fn created(id: &str) -> Value {
        json!({"type": "response.created", "sequence_number": 0, "response": {"id": id}})
    }

    fn delta(number: u64) -> Value {
        json!({"type": "response.output_text.delta", "sequence_number": number, "item_id": "m", "output_index": 0,
               "content_index": 0, "delta": "x"})
    }

    fn end(id: &str, number: u64) -> Value {
        json!({"type": "response.completed", "sequence_number": number, "response": {"id": id, "status": "completed"}})
    }

    fn steer(name: &str, id: &str) -> Value {
        json!({"type": format!("response.steer.{name}"), "steer": {"id": id, "previous_response_id": "a"},
               "reason": "r", "required_input": [], "error": {"message": "m"}})
    }

    #[test]
    fn a_resumed_stream_loses_and_doubles_nothing() {
        let mut progress = Progress::default();
        notes(&mut progress, &[created("a"), delta(1), delta(2)]);
        assert_eq!(progress.resume_point(), Some(("a", 2)));
        progress.resume();
        let again = [created("a"), delta(2), delta(3), end("a", 4)];
        assert_eq!(notes(&mut progress, &again), [Note::Duplicate, Note::Duplicate, Note::Deliver, Note::Last]);
        assert_eq!(progress.events_seen, 5);
    }

    #[test]
    fn a_gap_after_resuming_is_seen() {
        let mut progress = Progress::default();
        notes(&mut progress, &[created("a"), delta(1)]);
        progress.resume();
        assert_eq!(notes(&mut progress, &[delta(3)]), [Note::Gap]);
    }

    #[test]
    fn events_without_numbers_cannot_be_resumed() {
        let mut progress = Progress::default();
        assert_eq!(notes(&mut progress, &[created("a"), delta(0)]), [Note::Deliver, Note::Deliver]);
        assert_eq!(progress.resume_point(), None);
    }

    #[test]
    fn a_steered_answer_goes_on_with_its_successor() {
        use Note::{Deliver, Last};
        let cases: &[(Vec<Value>, Vec<Note>)] = &[
            (vec![created("a"), end("a", 1)], vec![Deliver, Deliver]),
            (
                vec![created("a"), steer("accepted", "s"), end("a", 1), created("b"), delta(1), end("b", 2)],
                vec![Deliver, Deliver, Deliver, Deliver, Deliver, Last],
            ),
            (vec![created("a"), end("a", 1), steer("failed", "s")], vec![Deliver, Deliver, Last]),
            (vec![created("a"), steer("failed", "s"), end("a", 1)], vec![Deliver, Deliver, Last]),
            (
                vec![created("a"), steer("accepted", "s"), end("a", 1), steer("pending", "s")],
                vec![Deliver, Deliver, Deliver, Last],
            ),
        ];
        for (events, expected) in cases {
            let mut progress = Progress::default();
            progress.steered();
            assert_eq!(&notes(&mut progress, events), expected, "{events:?}");
        }
        let mut plain = Progress::default();
        assert_eq!(notes(&mut plain, &[created("a"), end("a", 1)]), [Deliver, Last]);
    }
}
