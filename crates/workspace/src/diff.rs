//! Differences between two texts, as a person reads them: whole lines, in hunks with three lines around each.
//!
//! One renderer serves finished and growing changes, so that the diff on the screen does not jump when the last token
//! arrives. The lines themselves are compared by `similar`; only the unfinished case needs an algorithm of its own.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag};

/// Lines shown around each change, as every tool does.
const CONTEXT: usize = 3;
/// After this long the comparison settles for a longer diff. Reached only by large files with little in common.
const PATIENCE: Duration = Duration::from_millis(200);
/// A growing change with more differences than this is compared as if it were whole: the table of the search holds the
/// square of this number of entries (4 MB).
const GROWING_DISTANCE_MAX: usize = 1000;

/// Unified diff without file headers; empty when the texts are equal.
pub fn unified(old: &str, new: &str) -> String {
    let (old, new) = (split(old), split(new));
    render(&compare(&old, &new), &old, &new)
}

/// Unified diff with the two header lines, as `git apply` and `patch` read it; empty when the texts are equal.
pub fn with_headers(path: &Path, old: &str, new: &str) -> String {
    let hunks = unified(old, new);
    if hunks.is_empty() {
        return hunks;
    }
    let side = |letter: char, text: &str| match text.is_empty() {
        true => "/dev/null".to_owned(),
        false => format!("{letter}/{}", path.display()),
    };
    format!("--- {}\n+++ {}\n{hunks}", side('a', old), side('b', new))
}

/// How many lines a change adds and removes.
pub fn lines(old: &str, new: &str) -> (usize, usize) {
    let (old, new) = (split(old), split(new));
    count(&compare(&old, &new))
}

/// The diff of an answer that is still being written, and the lines it adds and removes so far.
///
/// Lines of `old` that the answer has not reached count as kept, not as removed. The unfinished last line is shown only
/// once it can no longer become the old line at its place.
pub fn growing(old: &str, new_so_far: &str) -> (String, (usize, usize)) {
    let old = split(old);
    let mut new = split(new_so_far);
    let partial = match new.last() {
        Some(last) if !last.ends_with('\n') => new.pop(),
        _ => None,
    };
    let mut ops = compare_start(&old, &new);
    let reached = ops.last().map_or(0, |op| op.old_range().end);
    if let Some(partial) = partial
        && !old.get(reached).is_some_and(|line| line.starts_with(partial))
    {
        ops.push(DiffOp::Insert { old_index: reached, new_index: new.len(), new_len: 1 });
        new.push(partial);
    }
    if reached < old.len() {
        ops.push(DiffOp::Equal { old_index: reached, new_index: new.len(), len: old.len() - reached });
        new.extend_from_slice(&old[reached..]);
    }
    let ops = merged(&ops);
    (render(&ops, &old, &new), count(&ops))
}

/// Lines with their ends, so that a missing last newline is a difference like any other.
fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// What turns `old` into `new`.
pub(crate) fn compare(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    let deadline = Instant::now().checked_add(PATIENCE);
    similar::capture_diff_slices_deadline(Algorithm::Myers, old, new, deadline)
}

/// What differs: ranges of lines that go, and those that come in their place.
pub(crate) fn hunks(old: &[&str], new: &[&str]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut hunks: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    let (mut old_at, mut new_at) = (0, 0);
    // The operations are in order and cover both sides; where an insertion says it stands in `old` may be off by what it was
    // moved over.
    for op in compare(old, new) {
        let (gone, come) = match op.tag() {
            DiffTag::Equal => {
                old_at += op.old_range().len();
                new_at += op.old_range().len();
                continue;
            }
            DiffTag::Delete => (op.old_range().len(), 0),
            DiffTag::Insert => (0, op.new_range().len()),
            DiffTag::Replace => (op.old_range().len(), op.new_range().len()),
        };
        let (old_end, new_end) = (old_at + gone, new_at + come);
        match hunks.last_mut().filter(|last| (last.0.end, last.1.end) == (old_at, new_at)) {
            Some(last) => (last.0.end, last.1.end) = (old_end, new_end),
            None => hunks.push((old_at..old_end, new_at..new_end)),
        }
        (old_at, new_at) = (old_end, new_end);
    }
    hunks
}

/// What turns some beginning of `old` into `new`: the beginning for which the fewest lines differ.
///
/// This is Myers' greedy search (An O(ND) Difference Algorithm, 1986) that ends as soon as `new` is used up, wherever it
/// then stands in `old`; among equally short ways it takes the one that keeps most lines.
fn compare_start(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    // `furthest[d][k + d]`: how many lines of `old` are used after d differences when k more of old than of new are.
    let mut furthest: Vec<Vec<usize>> = Vec::new();
    for distance in 0..=GROWING_DISTANCE_MAX.min(old.len() + new.len()) {
        let mut row = vec![usize::MAX; 2 * distance + 1];
        for slot in (0..=2 * distance).step_by(2) {
            let Some(mut x) = step(&furthest, distance, slot, old.len(), new.len()) else { continue };
            let mut y = x + distance - slot;
            while x < old.len() && y < new.len() && old[x] == new[y] {
                (x, y) = (x + 1, y + 1);
            }
            row[slot] = x;
        }
        // The higher slot has fewer insertions, and so more lines kept.
        let done = |slot: &usize| row[*slot] != usize::MAX && row[*slot] + distance - slot == new.len();
        let end = (0..=2 * distance).rev().step_by(2).find(done);
        furthest.push(row);
        if let Some(slot) = end {
            return walk_back(&furthest, slot, old.len(), new.len());
        }
    }
    let mut ops = compare(old, new);
    if let Some(DiffOp::Delete { .. }) = ops.last() {
        ops.pop();
    }
    ops
}

/// Where the way with `distance` differences on this diagonal begins: one more line inserted, or one more removed.
fn step(furthest: &[Vec<usize>], distance: usize, slot: usize, old: usize, new: usize) -> Option<usize> {
    let Some(before) = furthest.last() else { return Some(0) };
    let at = |slot: Option<usize>| slot.and_then(|slot| before.get(slot)).copied().filter(|x| *x != usize::MAX);
    // The row before is shorter by two, so the same diagonal stands one slot lower there.
    let removed = at(slot.checked_sub(2)).map(|x| x + 1).filter(|x| *x <= old);
    let inserted = at(Some(slot)).filter(|x| x + distance - slot <= new);
    removed.max(inserted)
}

fn walk_back(furthest: &[Vec<usize>], end: usize, old: usize, new: usize) -> Vec<DiffOp> {
    let mut ops = Vec::new();
    let mut slot = end;
    for distance in (0..furthest.len()).rev() {
        let x = furthest[distance][slot];
        let begin = step(&furthest[..distance], distance, slot, old, new).unwrap_or(0);
        let y = begin + distance - slot;
        if x > begin {
            ops.push(DiffOp::Equal { old_index: begin, new_index: y, len: x - begin });
        }
        if distance == 0 {
            break;
        }
        let before = &furthest[distance - 1];
        let removed = slot >= 2 && before[slot - 2] != usize::MAX && before[slot - 2] + 1 == begin;
        if removed {
            ops.push(DiffOp::Delete { old_index: begin - 1, old_len: 1, new_index: y });
            slot -= 2;
        } else {
            ops.push(DiffOp::Insert { old_index: begin, new_index: y - 1, new_len: 1 });
        }
    }
    ops.reverse();
    ops
}

/// Brings each run of removals and insertions into the order a reader expects: all that goes, then all that comes.
fn merged(ops: &[DiffOp]) -> Vec<DiffOp> {
    let mut merged: Vec<DiffOp> = Vec::new();
    for op in ops {
        let same = |last: &DiffOp| (last.tag() == DiffTag::Equal) == (op.tag() == DiffTag::Equal);
        match merged.last_mut() {
            Some(last) if same(last) => {
                let (old, new) = (last.old_range(), last.new_range());
                let old_len = op.old_range().end - old.start;
                let new_len = op.new_range().end - new.start;
                *last = match op.tag() {
                    DiffTag::Equal => DiffOp::Equal { old_index: old.start, new_index: new.start, len: old_len },
                    _ => DiffOp::Replace { old_index: old.start, old_len, new_index: new.start, new_len },
                };
            }
            _ => merged.push(*op),
        }
    }
    merged
}

fn count(ops: &[DiffOp]) -> (usize, usize) {
    let changed = ops.iter().filter(|op| op.tag() != DiffTag::Equal);
    changed.fold((0, 0), |(added, removed), op| (added + op.new_range().len(), removed + op.old_range().len()))
}

fn render(ops: &[DiffOp], old: &[&str], new: &[&str]) -> String {
    let mut out = String::new();
    for group in similar::group_diff_ops(ops.to_vec(), CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |start: usize, end: usize| match end - start {
            1 => format!("{}", start + 1),
            // An empty side is named by the line before it.
            0 => format!("{start},0"),
            len => format!("{},{len}", start + 1),
        };
        let old_range = range(first.old_range().start, last.old_range().end);
        let new_range = range(first.new_range().start, last.new_range().end);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "@@ -{old_range} +{new_range} @@");
        for op in &group {
            if op.tag() == DiffTag::Equal {
                old[op.old_range()].iter().for_each(|line| push(&mut out, ' ', line));
            } else {
                old[op.old_range()].iter().for_each(|line| push(&mut out, '-', line));
                new[op.new_range()].iter().for_each(|line| push(&mut out, '+', line));
            }
        }
    }
    out
}

fn push(out: &mut String, sign: char, line: &str) {
    out.push(sign);
    out.push_str(line);
    if !line.ends_with('\n') {
        out.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests;
