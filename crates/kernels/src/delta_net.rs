//! Recurrent state of Gated DeltaNet layers: slots, what takes drafted tokens back, and the operation that advances them.
//!
//! A slot holds one sequence's state after some position, all layers together, and a log of the rows after it that may yet
//! turn out wrong. A step says at which position it starts: as many logged rows as lie before it are applied to the state,
//! by the same arithmetic that computed them, and the others are forgotten. So a rejected draft costs no copy of the state,
//! and there is one path from a draft to the next step.
//!
//! The recurrence runs token by token and its sums in the order of elements, for prompts too: how tokens are cut into steps
//! changes no bit.

use crate::memory::Region;
use crate::runtime::{Runtime, Shared};
use crate::simd::{Correction, HEAD_MAX, Recurrence};

/// What a length is at least when something is divided by it.
const LENGTH_MIN: f32 = 1e-6;

/// Shape of the state of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateLayout {
    /// Layers that have one.
    pub layers: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// The key head of each value head.
    pub key_of: Vec<usize>,
    /// Elements of a head, a multiple of sixteen.
    pub head: usize,
    /// Rows that the convolution sees.
    pub taps: usize,
}

impl StateLayout {
    /// Channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Elements of all value heads.
    pub fn values(&self) -> usize {
        self.key_of.len() * self.head
    }

    fn keys(&self) -> usize {
        self.key_heads * self.head
    }

    /// Floats of one head's matrix.
    fn matrix(&self) -> usize {
        self.head * self.head
    }

    /// Floats of the rows before the next one that the convolution will see.
    fn before(&self) -> usize {
        (self.taps - 1) * self.channels()
    }

    /// Floats of one layer: the matrices of all heads, then those rows.
    fn layer(&self) -> usize {
        self.key_of.len() * self.matrix() + self.before()
    }

    /// Bytes of a whole state.
    pub fn bytes(&self) -> usize {
        self.layers * self.layer() * 4
    }

    /// Floats of a logged row in one layer: inputs of the convolution, keys, corrections and decays.
    fn logged(&self) -> usize {
        self.channels() + self.keys() + self.values() + self.key_of.len()
    }
}

/// The states of all sequences. Memory is taken from the system as slots are first used.
pub struct StateStore {
    /// Shape of each.
    pub layout: StateLayout,
    /// Number of slots.
    pub slots: usize,
    region: Region,
    tracks: Vec<Track>,
}

/// What a slot holds.
#[derive(Clone, Debug, Default)]
struct Track {
    /// Tokens its state has seen.
    position: usize,
    /// Rows after that whose effect is only logged.
    logged: usize,
    /// Room for those, all layers of a row together.
    log: Vec<Vec<f32>>,
}

/// A sequence's rows in a step.
#[derive(Clone, Copy, Debug)]
pub struct DeltaNetRows<'a> {
    /// Its slot.
    pub slot: usize,
    /// Position of its first row.
    pub start: usize,
    /// First row in the batch.
    pub row: usize,
    /// Number of rows.
    pub count: usize,
    /// How many of the last rows may turn out wrong.
    pub drafted: usize,
    /// Slots that get a copy of the state, and after how many of the rows.
    pub saves: &'a [(usize, usize)],
}

/// What a layer makes of its input, row by row of the batch.
pub struct DeltaNetInputs<'a> {
    /// Queries, keys and values before the convolution, `stride` floats apart.
    pub mixed: &'a [f32],
    /// Floats between their rows.
    pub stride: usize,
    /// Weights of the convolution, `[tap][channel]`.
    pub convolution: &'a [f32],
    /// Factor by which each value head's state decays, `[row][head]`.
    pub decay: &'a [f32],
    /// How much each value head corrects, `[row][head]`.
    pub beta: &'a [f32],
}

impl StateStore {
    /// Reserves room for `slots` states.
    pub fn new(layout: StateLayout, slots: usize) -> StateStore {
        assert!(layout.head.is_multiple_of(16) && layout.head <= HEAD_MAX && layout.taps >= 2);
        assert!(layout.key_of.iter().all(|&head| head < layout.key_heads), "key heads exist");
        StateStore { slots, region: Region::new(slots * layout.bytes()), tracks: vec![Track::default(); slots], layout }
    }

    /// Whether a step may start at `position`, or the state there be copied: at nothing, or at what the slot holds.
    pub fn reaches(&self, slot: usize, position: usize) -> bool {
        let track = self.tracks.get(slot);
        track.is_some_and(|track| (track.position..=track.position + track.logged).contains(&position))
    }

    /// The state in `from` after `position` tokens, copied to `to`. The two may be the same: then what was logged is applied.
    pub fn copy(&mut self, runtime: &mut Runtime, from: usize, to: usize, position: usize) {
        assert!(self.reaches(from, position) && to < self.slots, "slots exist and hold that position");
        let (rows, bytes) = (position - self.tracks[from].position, self.layout.bytes());
        if from != to {
            self.region.as_mut_slice().copy_within(from * bytes..(from + 1) * bytes, to * bytes);
        }
        for layer in 0..self.layout.layers {
            self.apply(runtime, layer, from, to, rows);
        }
        let log = std::mem::take(&mut self.tracks[to].log);
        self.tracks[to] = Track { position, logged: 0, log };
    }

    /// Whether nothing is logged in a slot.
    pub fn settled(&self, slot: usize) -> bool {
        self.tracks[slot].logged == 0
    }

    /// The bytes of a slot in which nothing is logged.
    pub fn bytes(&self, slot: usize) -> &[u8] {
        assert_eq!(self.tracks[slot].logged, 0, "what was logged has been applied");
        &self.region.as_slice()[slot * self.layout.bytes()..][..self.layout.bytes()]
    }

    /// Fills a slot with what [`StateStore::bytes`] gave after `position` tokens.
    pub fn set(&mut self, slot: usize, position: usize, bytes: &[u8]) {
        let size = self.layout.bytes();
        self.region.as_mut_slice()[slot * size..][..size].copy_from_slice(bytes);
        (self.tracks[slot].position, self.tracks[slot].logged) = (position, 0);
    }

    /// One layer of one slot: the matrices of its heads, and the rows the convolution will see.
    fn layer(&mut self, slot: usize, layer: usize) -> (&mut [f32], &mut [f32]) {
        let (size, at) = (self.layout.layer(), slot * self.layout.layers + layer);
        let matrices = self.layout.key_of.len() * self.layout.matrix();
        let start = self.region.as_mut_slice().as_mut_ptr().cast::<f32>();
        // SAFETY: the region is aligned and initialised, and holds `slots * layers` times `size` floats; slices index within.
        let floats = unsafe { std::slice::from_raw_parts_mut(start, self.slots * self.layout.layers * size) };
        floats[at * size..][..size].split_at_mut(matrices)
    }

    /// Applies the first `rows` logged rows of slot `from` to one layer of slot `to`.
    fn apply(&mut self, runtime: &mut Runtime, layer: usize, from: usize, to: usize, rows: usize) {
        if rows == 0 {
            return;
        }
        let log = std::mem::take(&mut self.tracks[from].log);
        let layout = self.layout.clone();
        let (channels, keys, head) = (layout.channels(), layout.keys(), layout.head);
        let part = |row: usize| &log[row][layer * layout.logged()..][..layout.logged()];
        let (matrices, before) = self.layer(to, layer);
        let (shared, kernel) = (Shared(matrices.as_mut_ptr()), runtime.kernels.correct);
        runtime.pool.run(layout.key_of.len(), &|j| {
            // SAFETY: each head is computed by one thread, and the matrices outlive the call.
            let state =
                unsafe { std::slice::from_raw_parts_mut(shared.get().add(j * layout.matrix()), layout.matrix()) };
            for row in 0..rows {
                let (_, rest) = part(row).split_at(channels);
                let (key, rest) = rest.split_at(keys);
                let (d, decay) = rest.split_at(layout.values());
                let key = &key[layout.key_of[j] * head..][..head];
                let correction = Correction { key, decay: decay[j], d: &d[j * head..][..head] };
                // SAFETY: the kernels fit this CPU.
                unsafe { kernel(&correction, state) };
            }
        });
        for row in 0..rows {
            push_row(before, &part(row)[..channels]);
        }
        self.tracks[from].log = log;
    }

    /// Notes where a slot is after a step.
    pub fn advance(&mut self, steps: &[DeltaNetRows<'_>]) {
        for step in steps {
            let track = &mut self.tracks[step.slot];
            (track.position, track.logged) = (step.start + step.count - step.drafted, step.drafted);
            for &(after, slot) in step.saves {
                (self.tracks[slot].position, self.tracks[slot].logged) = (step.start + after, 0);
            }
        }
    }
}

/// Moves the rows up by one and puts `row` at the end.
fn push_row(rows: &mut [f32], row: &[f32]) {
    rows.copy_within(row.len().., 0);
    let last = rows.len() - row.len();
    rows[last..].copy_from_slice(row);
}

impl Runtime {
    /// One layer's step for several sequences: convolution, then the recurrence token by token. `convolved` is room for the
    /// rows of queries, keys and values; `out` gets the rows of all value heads. [`StateStore::advance`] comes after all layers.
    pub fn delta_net(
        &mut self,
        store: &mut StateStore,
        layer: usize,
        steps: &[DeltaNetRows<'_>],
        inputs: &DeltaNetInputs<'_>,
        convolved: &mut [f32],
        out: &mut [f32],
    ) {
        for step in steps {
            check(store, step);
            if step.start == 0 {
                let (matrices, before) = store.layer(step.slot, layer);
                matrices.fill(0.0);
                before.fill(0.0);
            } else {
                let rows = step.start - store.tracks[step.slot].position;
                store.apply(self, layer, step.slot, step.slot, rows);
            }
            let (row, floats) = (store.layout.layers * store.layout.logged(), &mut store.tracks[step.slot].log);
            while floats.len() < step.drafted {
                floats.push(vec![0.0; row]);
            }
        }
        self.convolve(store, layer, steps, inputs, convolved);
        self.recur(store, layer, steps, inputs, convolved, out);
        for step in steps {
            keep_rows(store, layer, step, inputs, convolved);
        }
    }

    /// The convolution of every row, and the lengths of its queries and keys.
    fn convolve(
        &mut self,
        store: &mut StateStore,
        layer: usize,
        steps: &[DeltaNetRows<'_>],
        inputs: &DeltaNetInputs<'_>,
        convolved: &mut [f32],
    ) {
        let layout = store.layout.clone();
        let (channels, keys, before) = (layout.channels(), layout.keys(), layout.taps - 1);
        let (convolve, unit) = (self.kernels.convolve, self.kernels.unit_heads);
        let scale = 1.0 / (layout.head as f32).sqrt();
        for step in steps {
            let earlier = &*store.layer(step.slot, layer).1;
            let rows = &mut convolved[step.row * channels..][..step.count * channels];
            self.rows_of(rows, channels, &|i, out| {
                let mut seen: [&[f32]; 8] = [&[]; 8];
                for (tap, seen) in seen.iter_mut().enumerate().take(layout.taps) {
                    // Rows of this step stand behind those before it.
                    *seen = match (i + tap).checked_sub(before) {
                        Some(own) => &inputs.mixed[(step.row + own) * inputs.stride..][..channels],
                        None => &earlier[(i + tap) * channels..][..channels],
                    };
                }
                // SAFETY: the kernels fit this CPU.
                unsafe {
                    convolve(&seen[..layout.taps], inputs.convolution, out);
                    unit(&mut out[..keys], layout.head, LENGTH_MIN, scale);
                    unit(&mut out[keys..2 * keys], layout.head, LENGTH_MIN, 1.0);
                }
            });
        }
    }

    /// The recurrence of every head of every sequence.
    fn recur(
        &mut self,
        store: &mut StateStore,
        layer: usize,
        steps: &[DeltaNetRows<'_>],
        inputs: &DeltaNetInputs<'_>,
        convolved: &[f32],
        out: &mut [f32],
    ) {
        let layout = store.layout.clone();
        let (heads, matrix, head) = (layout.key_of.len(), layout.matrix(), layout.head);
        let (keys, values) = (layout.keys(), layout.values());
        assert!(steps.iter().all(|s| (s.row + s.count) * values <= out.len()), "rows exist");
        let pointer = |slot: usize, store: &mut StateStore| Shared(store.layer(slot, layer).0.as_mut_ptr());
        let states: Vec<_> = steps.iter().map(|step| pointer(step.slot, store)).collect();
        let saves: Vec<Vec<_>> =
            steps.iter().map(|s| s.saves.iter().map(|&(_, slot)| pointer(slot, store)).collect()).collect();
        let logs: Vec<Vec<_>> = steps
            .iter()
            .map(|step| {
                let rows = store.tracks[step.slot].log.iter_mut().take(step.drafted);
                rows.map(|row| Shared(row[layer * layout.logged()..].as_mut_ptr())).collect()
            })
            .collect();
        let (out, kernel) = (Shared(out.as_mut_ptr()), self.kernels.recur);
        self.pool.run(steps.len() * heads, &|chunk| {
            let (s, j) = (chunk / heads, chunk % heads);
            let step = &steps[s];
            // SAFETY: every sequence has a slot of its own, and each of its heads is computed by one thread.
            let own = unsafe { std::slice::from_raw_parts_mut(states[s].get().add(j * matrix), matrix) };
            let (mut tried, mut dropped) = (Vec::new(), [0.0; HEAD_MAX]);
            for i in 0..step.count {
                let row = &convolved[(step.row + i) * layout.channels()..][..layout.channels()];
                let key_head = layout.key_of[j] * head;
                let rates = (step.row + i) * heads + j;
                let recurrence = Recurrence {
                    query: &row[key_head..][..head],
                    key: &row[keys + key_head..][..head],
                    value: &row[2 * keys + j * head..][..head],
                    decay: inputs.decay[rates],
                    beta: inputs.beta[rates],
                };
                // SAFETY: the row exists, and this head's part of it is this thread's alone.
                let result =
                    unsafe { std::slice::from_raw_parts_mut(out.get().add((step.row + i) * values + j * head), head) };
                let drafted = (i + step.drafted).checked_sub(step.count);
                if drafted == Some(0) {
                    tried = own.to_vec();
                }
                // SAFETY: a logged row is this sequence's, this head's part of it this thread's; the kernels fit this CPU.
                unsafe {
                    match drafted {
                        None => kernel(&recurrence, own, &mut dropped[..head], result),
                        Some(r) => {
                            let log = logs[s][r].get().add(layout.channels() + keys);
                            let d = std::slice::from_raw_parts_mut(log.add(j * head), head);
                            kernel(&recurrence, &mut tried, d, result);
                            *log.add(values + j) = recurrence.decay;
                        }
                    }
                }
                for (&(after, _), save) in step.saves.iter().zip(&saves[s]) {
                    if after == i + 1 {
                        // SAFETY: slots of one step are all different, and this head of it is this thread's.
                        unsafe { std::slice::from_raw_parts_mut(save.get().add(j * matrix), matrix) }
                            .copy_from_slice(own);
                    }
                }
            }
        });
    }
}

/// What is asked of a step, said once where it would otherwise be memory that is wrong.
fn check(store: &StateStore, step: &DeltaNetRows<'_>) {
    assert!(step.start == 0 || store.reaches(step.slot, step.start), "the slot holds what comes before the step");
    assert!(step.drafted < step.count, "the first row of a step is certain");
    let certain = step.count - step.drafted;
    assert!(step.saves.iter().all(|&(after, slot)| (1..=certain).contains(&after) && slot < store.slots));
}

/// Keeps the inputs of the convolution that later rows will see, and logs those of drafted rows with their keys.
fn keep_rows(
    store: &mut StateStore,
    layer: usize,
    step: &DeltaNetRows<'_>,
    inputs: &DeltaNetInputs<'_>,
    convolved: &[f32],
) {
    let (channels, keys) = (store.layout.channels(), store.layout.keys());
    let (size, certain, taps) = (store.layout.logged(), step.count - step.drafted, store.layout.taps);
    let mixed = |i: usize| &inputs.mixed[(step.row + i) * inputs.stride..][..channels];
    let before = store.layer(step.slot, layer).1.to_vec();
    let window = |store: &mut StateStore, end: usize, slot: usize| {
        let rows = store.layer(slot, layer).1.chunks_exact_mut(channels);
        for (i, row) in rows.enumerate() {
            // Counted from the first of the rows before the step.
            let earlier = &before[((end + i) * channels).min(before.len() - channels)..][..channels];
            row.copy_from_slice((end + i + 1).checked_sub(taps).map_or(earlier, mixed));
        }
    };
    step.saves.iter().for_each(|&(after, slot)| window(store, after, slot));
    window(store, certain, step.slot);
    for i in certain..step.count {
        let log = &mut store.tracks[step.slot].log[i - certain][layer * size..][..size];
        log[..channels].copy_from_slice(mixed(i));
        let key = &convolved[(step.row + i) * channels + keys..][..keys];
        log[channels..channels + keys].copy_from_slice(key);
    }
}
