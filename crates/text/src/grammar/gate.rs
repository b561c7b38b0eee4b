//! Who may compile now: few at a time, one for each owner, the one served longest ago first.
//!
//! Compiling takes up to seconds where somebody means harm. Whoever sends such grammars waits for himself, not others
//! for him.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::GrammarError;
use crate::confined::Wanted;

/// Grammars compiled at once.
pub(super) const SLOTS: usize = 2;
/// Who may wait, of one owner.
const WAITING_OWNER_MAX: usize = 8;
/// Grammars that may wait to be compiled, of all owners.
pub const WAITING_MAX: usize = 64;
/// Owners whose turn is remembered.
const OWNERS_MAX: usize = 1024;
/// How often a waiting thread looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(20);

/// The gate.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Owners at work, by place.
    working: [Option<u64>; SLOTS],
    /// Tickets and their owners, in the order they came.
    waiting: Vec<(u64, u64)>,
    /// When each owner last had a turn.
    served: HashMap<u64, u64>,
    clock: u64,
}

/// A place at work, given back when dropped.
pub(super) struct Slot<'a> {
    gate: &'a Gate,
    pub index: usize,
}

impl Gate {
    /// Waits for a place. `owner` is whoever asks.
    pub fn enter(&self, owner: u64, wanted: &Wanted) -> Result<Slot<'_>, GrammarError> {
        let mut state = self.lock();
        let own = state.waiting.iter().filter(|(_, other)| *other == owner).count();
        if own >= WAITING_OWNER_MAX || state.waiting.len() >= WAITING_MAX {
            return Err(GrammarError::Busy);
        }
        state.clock += 1;
        let ticket = state.clock;
        state.waiting.push((ticket, owner));
        loop {
            if !wanted.still() {
                state.waiting.retain(|(other, _)| *other != ticket);
                self.changed.notify_all();
                return Err(GrammarError::Left);
            }
            if let Some(index) = state.place(ticket) {
                return Ok(Slot { gate: self, index });
            }
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a place, where one is free and it is this ticket's turn.
    fn place(&mut self, ticket: u64) -> Option<usize> {
        let index = self.working.iter().position(Option::is_none)?;
        let able = self.waiting.iter().filter(|(_, owner)| !self.working.contains(&Some(*owner)));
        let &(next, owner) = able.min_by_key(|(ticket, owner)| (self.served.get(owner).copied(), *ticket))?;
        if next != ticket {
            return None;
        }
        self.waiting.retain(|(other, _)| *other != ticket);
        self.working[index] = Some(owner);
        if self.served.len() >= OWNERS_MAX {
            self.served.clear();
        }
        self.clock += 1;
        self.served.insert(owner, self.clock);
        Some(index)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.gate.lock().working[self.index] = None;
        self.gate.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_one_place_and_others_pass_his_queue() {
        let gate = Gate::default();
        let first = gate.enter(1, &Wanted::default()).unwrap();
        let gone = Wanted::default();
        gone.leave();
        assert!(matches!(gate.enter(1, &gone), Err(GrammarError::Left)));
        {
            let mut state = gate.lock();
            state.waiting.extend([(100, 1), (101, 1), (102, 2)]);
            assert_eq!(state.place(100), None, "he is at work");
            assert_eq!(state.place(102), Some(1));
            assert_eq!(state.place(101), None, "no place is free");
        }
        drop(first);
        let mut state = gate.lock();
        assert_eq!(state.place(101), None, "not his turn");
        assert_eq!(state.place(100), Some(0));
    }

    #[test]
    fn queues_have_an_end() {
        let gate = Gate::default();
        let _at_work = gate.enter(7, &Wanted::default()).unwrap();
        gate.lock().waiting.extend((0..WAITING_OWNER_MAX as u64).map(|ticket| (ticket, 7)));
        assert!(matches!(gate.enter(7, &Wanted::default()), Err(GrammarError::Busy)));
        assert!(gate.enter(8, &Wanted::default()).is_ok());
    }
}
