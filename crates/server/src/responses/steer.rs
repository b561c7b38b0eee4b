//! Steers that have been accepted and not applied yet.
//!
//! A steer belongs to one response. It is applied when that response has ended, which the connection brings about at the
//! next token; if the response ended by calling tools, it waits for their results.

use std::sync::Arc;

use api::ErrorPayload;
use api::responses::event::SteerState;
use api::responses::{Event, EventKind, InputItem, OutputItem, Steer};
use serde_json::{Value, json};

use super::lanes::LaneId;
use crate::ids;

/// The steers of one lane.
#[derive(Default)]
pub struct Steers {
    accepted: Vec<Accepted>,
}

struct Accepted {
    state: SteerState,
    items: Vec<Value>,
    input: Value,
}

impl Steers {
    /// Accepts a steer, or says why not.
    pub fn accept(&mut self, steer: &Steer, limit: usize, lane: LaneId, replies: &mut Vec<Event>) -> bool {
        if self.accepted.len() >= limit {
            let message = format!("{limit} steers wait already; wait until they are applied");
            replies.push(Self::refuse(steer, "too_many_pending_steers", message, lane));
            return false;
        }
        let items = InputItem::list(steer.input.clone());
        let items = items.and_then(|items| InputItem::read_list("input", &items).map(|_| items));
        let items = match items {
            Ok(items) => items,
            Err(error) => {
                replies.push(Self::refuse(steer, "invalid_input", error.to_string(), lane));
                return false;
            }
        };
        let previous_response_id = steer.previous_response_id.clone();
        let state = SteerState { id: ids::new("steer"), previous_response_id, input: None };
        replies.push(event(EventKind::SteerAccepted { steer: state.clone() }, lane));
        self.accepted.push(Accepted { state, items, input: steer.input.clone() });
        true
    }

    /// The answer to a steer that cannot be.
    pub fn refuse(steer: &Steer, code: &str, message: String, lane: LaneId) -> Event {
        let previous_response_id = steer.previous_response_id.clone();
        let state = SteerState { id: ids::new("steer"), previous_response_id, input: Some(steer.input.clone()) };
        event(EventKind::SteerFailed { steer: state, error: payload(code, message) }, lane)
    }

    /// Whether something was said to this response.
    pub fn has(&self, response: &str) -> bool {
        self.accepted.iter().any(|steer| steer.state.previous_response_id == response)
    }

    /// Takes all that was said to this response.
    pub fn take(&mut self, response: &str) -> Vec<Value> {
        let taken = self.accepted.extract_if(.., |steer| steer.state.previous_response_id == response);
        taken.flat_map(|steer| steer.items).collect()
    }

    /// Tells that steers of this response wait for the results of its calls.
    pub fn wait(&self, response: &str, calls: &[&OutputItem], lane: LaneId, replies: &mut Vec<Event>) {
        let stub = |item: &&OutputItem| {
            let kind = match item {
                OutputItem::CustomToolCall { .. } => "custom_tool_call_output",
                _ => "function_call_output",
            };
            json!({"type": kind, "call_id": item.call_id()})
        };
        let required_input: Vec<Value> = calls.iter().map(stub).collect();
        for steer in self.accepted.iter().filter(|steer| steer.state.previous_response_id == response) {
            let kind = EventKind::SteerPending {
                steer: steer.state.clone(),
                reason: "waiting_for_required_input".to_owned(),
                required_input: required_input.clone(),
            };
            replies.push(event(kind, lane.clone()));
        }
    }

    /// Gives back what was said to a response that failed.
    pub fn fail(&mut self, response: Option<&str>, lane: LaneId, replies: &mut Vec<Event>) {
        let Some(response) = response else { return };
        for steer in self.accepted.extract_if(.., |steer| steer.state.previous_response_id == response) {
            let state = SteerState { input: Some(steer.input), ..steer.state };
            let message = "the response failed before the steer could be applied; say it again".to_owned();
            replies.push(event(
                EventKind::SteerFailed { steer: state, error: payload("response_failed", message) },
                lane.clone(),
            ));
        }
    }
}

fn payload(code: &str, message: String) -> ErrorPayload {
    ErrorPayload { kind: "invalid_request_error".to_owned(), code: Some(code.to_owned()), message, param: None }
}

fn event(kind: EventKind, stream_id: Option<Arc<str>>) -> Event {
    Event { kind, sequence_number: 0, stream_id }
}
