//! Gated DeltaNet layers on the CPU, and the recurrent state they carry.

use super::scratch::{numbers, quantize};
use super::{CpuModel, add_rows};
use crate::backend::{BackendError, Chunk, StateInfo};
use crate::config::{Config, DeltaNetConfig, OutputGate};
use crate::weights::{DeltaNet, Mixer, Rates};
use kernels::{
    Activations, Buffer, DeltaNetInputs, DeltaNetRows, Output, RowMap, Runtime, StateLayout, StateStore, output_stride,
};

/// Fewest and most slots a model has. Memory is taken as slots are first used.
const SLOTS: std::ops::RangeInclusive<usize> = 16..=1024;
/// Most drafted tokens of a chunk.
const DRAFTED_MAX: usize = 64;

/// The states of a model, and the buffers of a step that only these layers need.
pub(super) struct States {
    store: StateStore,
    config: DeltaNetConfig,
    /// Queries, keys and values before the convolution, rows x channels.
    mixed: Buffer<f32>,
    /// The same after it.
    convolved: Buffer<f32>,
    /// Gate of the output, rows x values.
    gate: Buffer<f32>,
    /// What beta and the decay are made of: one product or two.
    rates: [Buffer<f32>; 2],
    /// Rows x value heads.
    beta: Buffer<f32>,
    /// Likewise.
    decay: Buffer<f32>,
    /// What the heads read, rows x values.
    read: Buffer<f32>,
    /// Input of the output's product.
    output: Activations,
}

impl States {
    /// Room for states that together take about as much as the keys and values do, `kv_bytes`.
    pub fn new(config: &Config, delta: DeltaNetConfig, kv_bytes: usize) -> States {
        let layout = StateLayout {
            layers: config.layers - config.attention_layers(),
            key_heads: delta.key_heads,
            key_of: (0..delta.value_heads).map(|j| delta.key_head(j)).collect(),
            head: delta.head,
            taps: delta.taps,
        };
        let slots = (kv_bytes / layout.bytes()).clamp(*SLOTS.start(), *SLOTS.end());
        let (rows, values) = (super::ROWS_MAX, delta.values());
        let rates = || Buffer::new(rows * output_stride(2 * delta.value_heads));
        States {
            store: StateStore::new(layout, slots),
            config: delta,
            mixed: Buffer::new(rows * output_stride(delta.channels())),
            convolved: Buffer::new(rows * delta.channels()),
            gate: Buffer::new(rows * output_stride(values)),
            rates: [rates(), rates()],
            beta: Buffer::new(rows * delta.value_heads),
            decay: Buffer::new(rows * delta.value_heads),
            read: Buffer::new(rows * values),
            output: Activations::new(rows, values),
        }
    }

    pub fn info(&self) -> StateInfo {
        StateInfo { slots: self.store.slots, bytes: self.store.layout.bytes(), drafted_max: DRAFTED_MAX }
    }

    /// Beta and decay of every row and value head, from the products of the rates' matrices.
    fn rates_of(&mut self, delta: &DeltaNet, rows: usize) {
        let (heads, keys) = (self.config.value_heads, self.config.key_heads);
        for row in 0..rows {
            for j in 0..heads {
                let (beta, alpha) = match delta.rates {
                    Rates::Apart { .. } => {
                        let at = row * output_stride(heads) + j;
                        (self.rates[0][at], self.rates[1][at])
                    }
                    Rates::Together(_) => {
                        let (group, of_key) = (heads / keys, row * output_stride(2 * heads));
                        let at = of_key + j / group * 2 * group + j % group;
                        (self.rates[0][at], self.rates[0][at + group])
                    }
                };
                self.beta[row * heads + j] = 1.0 / (1.0 + (-beta).exp());
                let rate = delta.decay_rate[j] * softplus(alpha + delta.decay_bias[j]);
                self.decay[row * heads + j] = rate.exp();
            }
        }
    }
}

fn softplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp().ln_1p() }
}

/// The shares of a batch, as the kernels want them. `saves` is room for what they point to.
fn rows_of<'a>(batch: &[Chunk<'_>], saves: &'a mut Vec<Vec<(usize, usize)>>) -> Vec<DeltaNetRows<'a>> {
    let uses = || batch.iter().filter_map(|chunk| Some((chunk, chunk.state?)));
    saves.extend(uses().map(|(_, state)| state.saves.iter().map(|save| (save.after, save.slot as usize)).collect()));
    let mut row = 0;
    uses()
        .zip(saves.iter())
        .map(|((chunk, state), saves)| {
            let (slot, start, count) = (state.slot as usize, chunk.start, chunk.tokens.len());
            row += count;
            DeltaNetRows { slot, start, row: row - count, count, drafted: state.drafted, saves }
        })
        .collect()
}

impl CpuModel {
    /// Whether every chunk's slot holds what comes before it.
    pub(super) fn check_states(&self, batch: &[Chunk<'_>]) -> Result<(), BackendError> {
        let Some(states) = &self.states else { return Ok(()) };
        for (chunk, state) in batch.iter().filter_map(|chunk| Some((chunk, chunk.state?))) {
            if chunk.start > 0 {
                reached(&states.store, state.slot, chunk.start)?;
            }
        }
        Ok(())
    }

    pub(super) fn advance_states(&mut self, batch: &[Chunk<'_>]) {
        if let Some(states) = &mut self.states {
            states.store.advance(&rows_of(batch, &mut Vec::new()));
        }
    }

    /// `x += output(norm(state(convolution(norm(x)))) * gate)`; `state_layer` counts the layers that have state.
    pub(super) fn delta_net(&mut self, i: usize, state_layer: usize, batch: &[Chunk<'_>], rows: usize) {
        let (config, s, runtime, layer) = (&self.config, &mut self.scratch, &mut self.runtime, &self.weights.layers[i]);
        let (Mixer::DeltaNet(delta), Some(states)) = (&layer.mixer, &mut self.states) else { return };
        let (width, values, map) = (config.embedding, states.config.values(), numbers(rows));
        let all = RowMap { input: map, output: map };
        runtime.rms_norm(&s.x, &layer.norm, config.epsilon, &mut s.normed.values[..rows * width]);
        let matrices: Vec<_> = [&delta.qkv, &delta.gate].into_iter().chain(delta.rates.matrices()).collect();
        quantize(runtime, &mut s.normed, rows, &matrices);
        let [first, second] = &mut states.rates;
        let outs = [&mut states.mixed, &mut states.gate, first, second];
        let outputs = matrices.into_iter().zip(outs);
        let mut outputs: Vec<_> = outputs.map(|(matrix, out)| Output { matrix, rows: all, out }).collect();
        runtime.matmul(&s.normed, &mut outputs);
        states.rates_of(delta, rows);
        let inputs = DeltaNetInputs {
            mixed: &states.mixed,
            stride: output_stride(states.config.channels()),
            convolution: &delta.convolution,
            decay: &states.decay,
            beta: &states.beta,
        };
        let mut saves = Vec::new();
        let steps = rows_of(batch, &mut saves);
        runtime.delta_net(&mut states.store, state_layer, &steps, &inputs, &mut states.convolved, &mut states.read);
        finish(runtime, config.epsilon, states, &delta.norm, rows * values);
        quantize(runtime, &mut states.output, rows, &[&delta.output]);
        let out = Output { matrix: &delta.output, rows: all, out: &mut s.added };
        runtime.matmul(&states.output, &mut [out]);
        add_rows(runtime, &mut s.x[..rows * width], &s.added, width, None);
    }

    pub(super) fn copy_state(&mut self, from: u32, to: u32, position: usize) -> Result<(), BackendError> {
        let states = self.states.as_mut().ok_or_else(no_state)?;
        reached(&states.store, from, position)?;
        if to as usize >= states.store.slots {
            return Err(BackendError::BadBatch(format!("state slot {to} does not exist")));
        }
        states.store.copy(&mut self.runtime, from as usize, to as usize, position);
        Ok(())
    }

    pub(super) fn export_state(&self, slot: u32, position: usize, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        let store = &self.states.as_ref().ok_or_else(no_state)?.store;
        reached(store, slot, position)?;
        bytes.clear();
        match store.settled(slot as usize) {
            true => bytes.extend_from_slice(store.bytes(slot as usize)),
            false => return Err(BackendError::BadBatch(format!("state slot {slot} holds drafted tokens"))),
        }
        Ok(())
    }

    pub(super) fn import_state(&mut self, slot: u32, position: usize, bytes: &[u8]) -> Result<(), BackendError> {
        let store = &mut self.states.as_mut().ok_or_else(no_state)?.store;
        let wanted = store.layout.bytes();
        if slot as usize >= store.slots || bytes.len() != wanted {
            let found = bytes.len();
            return Err(BackendError::BadBatch(format!("{found} bytes for state slot {slot}, where {wanted} go")));
        }
        store.set(slot as usize, position, bytes);
        Ok(())
    }
}

/// Norm of each head of what was read, and the gate.
fn finish(runtime: &mut Runtime, epsilon: f32, states: &mut States, norm: &[f32], all: usize) {
    let (values, stride) = (states.config.values(), output_stride(states.config.values()));
    runtime.rms_norm(&states.read[..all], norm, epsilon, &mut states.convolved[..all]);
    let out = &mut states.output.values[..all];
    match states.config.gate {
        OutputGate::Silu => runtime.silu_multiply(&states.gate, &states.convolved, stride, values, out),
        OutputGate::Sigmoid => runtime.sigmoid_multiply(&states.gate, &states.convolved, stride, values, out),
    }
}

fn reached(store: &StateStore, slot: u32, position: usize) -> Result<(), BackendError> {
    match store.reaches(slot as usize, position) {
        true => Ok(()),
        false => Err(BackendError::BadBatch(format!("state slot {slot} does not hold the state at {position}"))),
    }
}

fn no_state() -> BackendError {
    BackendError::BadBatch("the model has no recurrent state".to_owned())
}
