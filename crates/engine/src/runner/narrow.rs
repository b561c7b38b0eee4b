//! A step whose rows are narrowed down by the backend: masks are made while it runs, picks from shortlists after it.
//!
//! Where a pick cannot be told from its shortlist, which happens where a filter keeps hundreds of tokens, the step is run
//! again for logits. It writes the same keys and values at the same places, so nothing is lost but time. A model with
//! recurrent state is past the step then, so its logits are fetched instead.

use model::{Backend, BackendError, Chunk};

use super::Runner;
use crate::constraint::Constraint;
use crate::guard::guard;
use crate::sequence::Sequence;

/// What is left to do for a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Remaining {
    /// The runner has its picks.
    Nothing,
    /// The step is done, and the runner has its logits.
    Picking,
    /// The step.
    All,
}

/// Fills the runner's picks, or its logits.
pub(super) fn picks(runner: &mut Runner) -> Result<Remaining, BackendError> {
    // Constraints change when they are asked, and the batch borrows the sequences.
    let stepped = runner.scheduler.running.iter_mut().filter(|sequence| sequence.rows > 0);
    let mut constraints: Vec<Option<Box<dyn Constraint>>> = stepped.map(Sequence::lend_constraint).collect();
    let picked = run(runner, &mut constraints);
    let stepped = runner.scheduler.running.iter_mut().filter(|sequence| sequence.rows > 0);
    stepped.zip(constraints).for_each(|(sequence, constraint)| sequence.take_back(constraint));
    picked
}

fn run(runner: &mut Runner, constraints: &mut [Option<Box<dyn Constraint>>]) -> Result<Remaining, BackendError> {
    let Runner { backend, scheduler, lists, picks, logits, scratch, limits, .. } = runner;
    let stepped: Vec<&Sequence> = scheduler.running.iter().filter(|sequence| sequence.rows > 0).collect();
    let batch: Vec<Chunk<'_>> = stepped.iter().map(|sequence| sequence.chunk()).collect();
    // The sequence of each wanted row, and the position of what is picked from it.
    let rows: Vec<(usize, usize)> = batch
        .iter()
        .enumerate()
        .flat_map(|(i, chunk)| chunk.wanted().map(move |row| (i, chunk.start + row + 1)))
        .collect();
    let asks: Vec<_> = rows.iter().map(|&(i, _)| stepped[i].sampler().ask()).collect();
    let mut failed = false;
    let mut mask = |row: usize, words: &mut [u32]| {
        let Some(constraint) = &mut constraints[rows[row].0] else { return false };
        match guard("constraint", || constraint.allowed().map(|mask| mask.map(|mask| copy(mask, words)))) {
            Ok(Ok(None)) => false,
            Ok(Ok(Some(true))) => true,
            // What is wrong with it shows when the row is picked from.
            _ => {
                failed = true;
                false
            }
        }
    };
    let done = backend.shortlist(&batch, &asks, &mut mask, lists)?;
    // What is computed once more must not meet a state that has seen it already.
    let again = !done || backend.info().states.is_none();
    if !done || failed {
        return if again { Ok(Remaining::All) } else { fetch(backend.as_mut(), rows.len(), limits.vocab, logits) };
    }
    picks.clear();
    for (row, (&(i, position), list)) in rows.iter().zip(lists.iter()).enumerate() {
        let mut part = |range| backend.part_of_row(row, range).ok();
        match stepped[i].sampler().choose(list, limits.vocab, position, scratch, &mut part) {
            Some(token) => picks.push(token),
            None if again => return Ok(Remaining::All),
            None => return fetch(backend.as_mut(), rows.len(), limits.vocab, logits),
        }
    }
    Ok(Remaining::Nothing)
}

/// The logits of the step that was just run, as far as its masks allow.
fn fetch(
    backend: &mut dyn Backend,
    rows: usize,
    vocab: usize,
    logits: &mut Vec<f32>,
) -> Result<Remaining, BackendError> {
    logits.clear();
    for row in 0..rows {
        logits.extend(backend.part_of_row(row, 0..vocab)?);
    }
    Ok(Remaining::Picking)
}

/// Copies a mask; false when it has fewer bits than there are tokens.
fn copy(mask: &[u32], words: &mut [u32]) -> bool {
    let enough = mask.len() >= words.len();
    if enough {
        words.copy_from_slice(&mask[..words.len()]);
    }
    enough
}
