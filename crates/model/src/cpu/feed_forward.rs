//! The feed-forward part of a layer: one network for all tokens, or a few experts for each.

use super::scratch::{Scratch, numbers, quantize};
use super::{CpuModel, add_rows};
use crate::config::Config;
use crate::weights::{Expert, FeedForward};
use kernels::{Matrix, Output, RowMap, Runtime, output_stride};
use std::ops::Range;

impl CpuModel {
    /// `x += feed_forward(norm(x))`.
    pub(super) fn feed_forward(&mut self, i: usize, rows: usize) {
        let (config, s, runtime, layer) = (&self.config, &mut self.scratch, &mut self.runtime, &self.weights.layers[i]);
        let width = config.embedding;
        runtime.rms_norm(&s.x, &layer.feed_forward_norm, config.epsilon, &mut s.normed.values[..rows * width]);
        match &layer.feed_forward {
            FeedForward::Dense(expert) => dense(runtime, config, s, expert, rows),
            FeedForward::Experts { router, experts, shared_gate } => {
                let mixture = Mixture { router, experts, shared_gate: shared_gate.as_deref() };
                mixture.add(runtime, config, s, rows);
            }
        }
    }
}

fn dense(runtime: &mut Runtime, config: &Config, s: &mut Scratch, expert: &Expert, rows: usize) {
    let map = numbers(rows);
    let (width, ff, all) = (config.embedding, config.feed_forward, RowMap { input: map, output: map });
    quantize(runtime, &mut s.normed, rows, &[&expert.gate, &expert.up]);
    let gate = Output { matrix: &expert.gate, rows: all, out: &mut s.gate };
    let up = Output { matrix: &expert.up, rows: all, out: &mut s.up };
    runtime.matmul(&s.normed, &mut [gate, up]);
    runtime.silu_multiply(&s.gate, &s.up, output_stride(ff), ff, &mut s.gated.values[..rows * ff]);
    quantize(runtime, &mut s.gated, rows, &[&expert.down]);
    runtime.matmul(&s.gated, &mut [Output { matrix: &expert.down, rows: all, out: &mut s.added }]);
    add_rows(runtime, &mut s.x[..rows * width], &s.added, width, None);
}

/// One token's visit to one expert.
#[derive(Clone, Copy)]
struct Visit {
    row: u32,
    expert: usize,
    weight: f32,
}

/// A feed-forward part with experts.
struct Mixture<'a> {
    router: &'a Matrix,
    /// Where there is a shared one it is the last.
    experts: &'a [Expert],
    shared_gate: Option<&'a [f32]>,
}

impl Mixture<'_> {
    /// The visits of a row: to the experts of its choice, and to the shared one.
    fn visits(&self, row: usize, scores: &[f32], x: &[f32], used: usize) -> Vec<Visit> {
        let shared = self.shared_gate.map(|gate| Visit {
            row: row as u32,
            expert: self.experts.len() - 1,
            weight: 1.0 / (1.0 + (-dot(gate, x)).exp()),
        });
        choose(row, scores, used).chain(shared).collect()
    }

    fn add(&self, runtime: &mut Runtime, config: &Config, s: &mut Scratch, rows: usize) {
        let Mixture { router, experts, .. } = *self;
        let map = numbers(rows);
        let (width, ff) = (config.embedding, config.feed_forward);
        let all = RowMap { input: map, output: map };
        let used = config.experts.map_or(1, |experts| experts.used);
        // The shared expert may be of another format than the others.
        let last = &experts[experts.len() - 1];
        quantize(runtime, &mut s.normed, rows, &[router, &experts[0].gate, &experts[0].up, &last.gate, &last.up]);
        runtime.matmul(&s.normed, &mut [Output { matrix: router, rows: all, out: &mut s.scores }]);
        let (count, stride) = (router.rows, output_stride(router.rows));
        let mut visits: Vec<Visit> = (0..rows)
            .flat_map(|row| {
                let (scores, x) = (&s.scores[row * stride..][..count], &s.normed.values[row * width..][..width]);
                self.visits(row, scores, x, used)
            })
            .collect();
        // Visits to one expert stand together, so that its weights are read once for all of them.
        visits.sort_by_key(|visit| visit.expert);
        let input: Vec<u32> = visits.iter().map(|visit| visit.row).collect();
        let groups = groups(&visits);

        let gates = split(&mut s.gate, &groups, output_stride(ff));
        let ups = split(&mut s.up, &groups, output_stride(ff));
        let mut outputs = Vec::with_capacity(2 * groups.len());
        for (((expert, range), gate), up) in groups.iter().zip(gates).zip(ups) {
            let rows = RowMap { input: &input[range.clone()], output: numbers(range.len()) };
            outputs.push(Output { matrix: &experts[*expert].gate, rows, out: gate });
            outputs.push(Output { matrix: &experts[*expert].up, rows, out: up });
        }
        runtime.matmul(&s.normed, &mut outputs);
        runtime.silu_multiply(&s.gate, &s.up, output_stride(ff), ff, &mut s.gated.values[..visits.len() * ff]);
        quantize(runtime, &mut s.gated, visits.len(), &[&experts[0].down, &last.down]);
        let added = split(&mut s.added, &groups, output_stride(width));
        let mut outputs: Vec<Output<'_>> = groups
            .iter()
            .zip(added)
            .map(|((expert, range), out)| Output {
                matrix: &experts[*expert].down,
                rows: RowMap { input: &numbers(range.end)[range.clone()], output: numbers(range.len()) },
                out,
            })
            .collect();
        runtime.matmul(&s.gated, &mut outputs);
        // Added in the order of expert numbers for every row, whatever else is in the batch.
        for (i, visit) in visits.iter().enumerate() {
            let added = &s.added[i * width..][..width];
            let x = &mut s.x[visit.row as usize * width..][..width];
            x.iter_mut().zip(added).for_each(|(x, a)| *x += visit.weight * a);
        }
    }
}

/// The experts a row visits: the likeliest of a softmax over all, with their probabilities scaled to sum to one.
fn choose(row: usize, scores: &[f32], used: usize) -> impl Iterator<Item = Visit> {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut ranked: Vec<(usize, f32)> = scores.iter().map(|s| (s - largest).exp()).enumerate().collect();
    let likelier = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if used < ranked.len() {
        ranked.select_nth_unstable_by(used, likelier);
    }
    ranked.truncate(used);
    ranked.sort_unstable_by(likelier);
    let total: f32 = ranked.iter().map(|(_, p)| p).sum();
    ranked.into_iter().map(move |(expert, p)| Visit { row: row as u32, expert, weight: p / total })
}

/// The sum of products, in an order that is the same for every row.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum()
}

/// Ranges of sorted visits that go to the same expert.
fn groups(visits: &[Visit]) -> Vec<(usize, Range<usize>)> {
    let mut groups: Vec<(usize, Range<usize>)> = Vec::new();
    for (i, visit) in visits.iter().enumerate() {
        match groups.last_mut() {
            Some((expert, range)) if *expert == visit.expert => range.end = i + 1,
            _ => groups.push((visit.expert, i..i + 1)),
        }
    }
    groups
}

/// The rows of each group, as separate slices.
fn split<'a>(mut all: &'a mut [f32], groups: &[(usize, Range<usize>)], stride: usize) -> Vec<&'a mut [f32]> {
    let mut parts = Vec::with_capacity(groups.len());
    for (_, range) in groups {
        let (own, rest) = all.split_at_mut(range.len() * stride);
        parts.push(own);
        all = rest;
    }
    parts
}
