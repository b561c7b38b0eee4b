//! Rows of a step: which of them somebody wants, and how a batch is cut into steps.

use super::{DECODE_ROWS_MAX, ROWS_MAX};
use crate::backend::{Chunk, StateUse, Want};

/// Most rows of a sequence that are computed like single tokens, 32 after 32: a token and the longest draft behind it.
const DRAFT_ROWS: usize = 65;

/// Most rows through experts, where they are no draft: few rows visit experts one by one, 32 in 19 ms where all together take 7 (30B-A3B,
/// H200, 2026-11-17).
const EXPERT_DECODE_ROWS_MAX: usize = 8;

/// Most rows of a sequence whose products are cut into parts, so that all of a card has something to do. Measured, in ARCHITECTURE.
const PREFILL_SHORT_ROWS_MAX: usize = 512;

/// How a chunk's rows are computed. That is for the chunk alone to say, not for its neighbours: what a sequence says must not depend
/// on the prompts that are read beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// Like single tokens, at most [`DECODE_ROWS_MAX`] at once.
    Decode,
    /// In half precision, each product cut into parts that are added up.
    PrefillShort,
    /// In half precision, each product whole.
    PrefillLong,
}

impl StepKind {
    pub const ALL: [StepKind; 3] = [StepKind::Decode, StepKind::PrefillShort, StepKind::PrefillLong];

    pub fn of(chunk: &Chunk<'_>, experts: bool) -> StepKind {
        let decode = match chunk.want {
            Want::All => DRAFT_ROWS,
            _ if experts => EXPERT_DECODE_ROWS_MAX,
            _ => DECODE_ROWS_MAX,
        };
        match chunk.tokens.len() {
            rows if rows <= decode => StepKind::Decode,
            rows if rows <= PREFILL_SHORT_ROWS_MAX => StepKind::PrefillShort,
            _ => StepKind::PrefillLong,
        }
    }

    /// Most rows of one step.
    pub fn rows_max(self) -> usize {
        match self {
            StepKind::Decode => DECODE_ROWS_MAX,
            StepKind::PrefillShort => PREFILL_SHORT_ROWS_MAX,
            StepKind::PrefillLong => ROWS_MAX,
        }
    }
}

/// Cuts chunks into steps of at most so many rows, in order. A chunk that is longer, a long draft, follows itself.
pub(super) fn groups<'a, 'b: 'a>(chunks: impl Iterator<Item = &'a Chunk<'b>>, rows_max: usize) -> Vec<Vec<Chunk<'b>>> {
    let mut groups: Vec<Vec<Chunk<'b>>> = Vec::new();
    let mut room = 0;
    for chunk in chunks {
        let mut start = chunk.start;
        for (i, tokens) in parts(chunk, rows_max).into_iter().enumerate() {
            let state =
                chunk.state.map(|state| part_of_state(state, start + tokens.len() == chunk.start + chunk.tokens.len()));
            // Rows that follow others of their sequence need those to be done.
            if i > 0 || tokens.len() > room || groups.is_empty() {
                groups.push(Vec::new());
                room = rows_max;
            }
            room -= tokens.len();
            groups.last_mut().into_iter().for_each(|group| group.push(Chunk { tokens, start, state, ..*chunk }));
            start += tokens.len();
        }
    }
    groups
}

/// A chunk's tokens in parts. Drafted ones are all in the last, which has one before them at least.
fn parts<'b>(chunk: &Chunk<'b>, rows_max: usize) -> Vec<&'b [u32]> {
    let drafted = chunk.state.map_or(0, |state| state.drafted);
    if chunk.tokens.len() <= rows_max || drafted == 0 {
        return chunk.tokens.chunks(rows_max).collect();
    }
    let (certain, last) = chunk.tokens.split_at(chunk.tokens.len() - drafted - 1);
    certain.chunks(rows_max).chain([last]).collect()
}

/// What a part of a chunk does with its state: only the last leaves drafted tokens, and copies.
fn part_of_state(state: StateUse<'_>, is_last: bool) -> StateUse<'_> {
    if is_last { state } else { StateUse { drafted: 0, saves: &[], ..state } }
}

/// Rows of a step whose logits are wanted, in order.
pub(super) fn wanted_rows(batch: &[Chunk<'_>]) -> Vec<usize> {
    let mut row = 0;
    let mut wanted = Vec::new();
    for chunk in batch {
        wanted.extend(chunk.wanted().map(|own| row + own));
        row += chunk.tokens.len();
    }
    wanted
}

/// Cuts rows into runs of neighbours, at most [`DECODE_ROWS_MAX`] long, as first row and length.
pub(super) fn runs(rows: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &row in rows {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == row && *count < DECODE_ROWS_MAX => *count += 1,
            _ => runs.push((row, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_rows_are_cut_into_runs() {
        let chunk = |tokens: &'static [u32], want| Chunk { tokens, start: 0, blocks: &[], want, state: None };
        let batch = [
            chunk(&[1, 2], Want::All),
            chunk(&[3], Want::Last),
            chunk(&[4, 5, 6], Want::Nothing),
            chunk(&[7, 8], Want::Last),
        ];
        assert_eq!(wanted_rows(&batch), [0, 1, 2, 7]);
        assert_eq!(runs(&[0, 1, 2, 7]), [(0, 3), (7, 1)]);
        let prefill: Vec<usize> = (0..DECODE_ROWS_MAX + 1).collect();
        assert_eq!(runs(&prefill), [(0, DECODE_ROWS_MAX), (DECODE_ROWS_MAX, 1)]);
    }

    #[test]
    fn a_chunk_says_by_itself_how_it_is_computed() {
        let tokens = [7; 600];
        let kind = |rows: usize, want, experts| {
            StepKind::of(&Chunk { tokens: &tokens[..rows], start: 0, blocks: &[], want, state: None }, experts)
        };
        for (rows, dense, experts, draft) in [
            (8, StepKind::Decode, StepKind::Decode, StepKind::Decode),
            (9, StepKind::Decode, StepKind::PrefillShort, StepKind::Decode),
            (32, StepKind::Decode, StepKind::PrefillShort, StepKind::Decode),
            (33, StepKind::PrefillShort, StepKind::PrefillShort, StepKind::Decode),
            (66, StepKind::PrefillShort, StepKind::PrefillShort, StepKind::PrefillShort),
            (513, StepKind::PrefillLong, StepKind::PrefillLong, StepKind::PrefillLong),
        ] {
            assert_eq!((kind(rows, Want::Last, false), kind(rows, Want::Last, true)), (dense, experts), "{rows} rows");
            assert_eq!(
                (kind(rows, Want::All, false), kind(rows, Want::All, true)),
                (draft, draft),
                "a draft of {rows}"
            );
        }
    }

    #[test]
    fn long_drafts_are_cut_into_steps_that_follow_each_other() {
        let tokens = [7; 70];
        let chunk =
            |count: usize, start| Chunk { tokens: &tokens[..count], start, blocks: &[], want: Want::All, state: None };
        let batch = [chunk(1, 5), chunk(30, 9), chunk(70, 100), chunk(1, 3), chunk(26, 2)];
        let shape = |group: &Vec<Chunk<'_>>| group.iter().map(|c| (c.start, c.tokens.len())).collect::<Vec<_>>();
        let shapes: Vec<_> = groups(batch.iter(), DECODE_ROWS_MAX).iter().map(shape).collect();
        let expected: [&[(usize, usize)]; 5] =
            [&[(5, 1), (9, 30)], &[(100, 32)], &[(132, 32)], &[(164, 6), (3, 1)], &[(2, 26)]];
        assert_eq!(shapes, expected);
    }
}
