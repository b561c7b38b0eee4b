//! Launching Gated DeltaNet layers: as kernels for several rows, as a phase of a persistent step for one.

use super::phase::{DELTA, STORE, Work};
use super::recorder::Recorder;
use super::{Kernels, Module, room};
use crate::arguments::*;
use crate::blocks::*;
use crate::device::{Device, Function};
use crate::error::Error;

/// Rows that a warp multiplies with a row of the rates, and warps of a block.
const GATE_ROWS: usize = 8;
const WARPS: usize = 8;
/// Rows that a warp of `delta_prepare` has, but for steps of so few.
const PREPARE_ROWS: usize = 8;
const PREPARE_ALONE: usize = 64;
const THREADS: u32 = 256;
/// Columns of a head that a block of `delta_scan` has.
const SCAN_COLUMNS: usize = 32;

/// The kernels.
pub(super) struct Deltas {
    gates: Function,
    prepare: Function,
    scan: Function,
    norm: Function,
    settle: Function,
}

impl Deltas {
    pub fn new(device: &Device, module: &Module) -> Result<Deltas, Error> {
        let function = |name| module.function(device, name, false);
        Ok(Deltas {
            gates: function("delta_gates")?,
            prepare: function("delta_prepare")?,
            scan: function("delta_scan")?,
            norm: function("delta_norm")?,
            settle: function("delta_settle")?,
        })
    }
}

impl Kernels {
    fn deltas(&self) -> Result<&Deltas, Error> {
        self.deltas.as_ref().ok_or_else(|| Error::Unsupported("Gated DeltaNet layers".to_owned()))
    }

    /// What is between the products of a DeltaNet layer.
    pub fn delta(&self, call: &DeltaCall<'_>) -> Result<(), Error> {
        let (deltas, DeltaShape { key_heads, value_heads, .. }) = (self.deltas()?, call.shape);
        let (rows, shape, columns) = (call.rows, call.shape, call.norm.0.len());
        assert!(columns.is_multiple_of(8) && call.weights.rates.len() == 2 * value_heads * columns, "rates of a row");
        room(call.x, rows * columns, "the residual");
        assert!(call.stride.is_multiple_of(4), "rows begin at multiples of 16 bytes");
        room(call.mixed, rows * call.stride, "mixed rows");
        room(call.ready, rows * shape.channels(), "rows after the convolution");
        room(call.factors, rows * value_heads * 4, "factors");
        room(call.o, rows * shape.values(), "results");
        room(call.positions, rows, "positions");
        room(call.row_sequences, rows, "sequences");
        room(call.runs, call.sequences * DELTA_RUN_WORDS, "runs");
        let mut a = Arguments::default();
        let (output, halves) = match call.output {
            DeltaOutput::Floats(output) => {
                room(output, rows * shape.values(), "the output");
                (a.at(output), 0)
            }
            DeltaOutput::Halves(output) => {
                room(output, rows * shape.values(), "the output");
                (0, a.at(output))
            }
        };
        let states = &call.states;
        let delta = delta_block(&mut a, call);
        let log = a.at(states.log) + (call.layer * states.log_rows * shape.log_bytes()) as u64;
        let mut params = DeltaRowsBlock {
            delta,
            x: a.at(call.x),
            norm: a.at(call.norm.0.all()),
            gates: a.at(call.weights.rates.all()),
            mixed: a.at(call.mixed),
            rates: 0,
            ready: a.at(call.ready),
            factors: a.at(call.factors),
            o: a.at(call.o),
            output,
            halves,
            positions: a.at(call.positions),
            sequences: a.at(call.row_sequences),
            runs: a.at(call.runs),
            log,
            log_bytes: shape.log_bytes() as u64,
            stride: call.stride as u32,
            rates_stride: call.stride as u32,
            rows: rows as u32,
            columns: columns as u32,
            epsilon: call.norm.1,
            padding: 0,
        };
        if let Some(rates) = call.rates {
            room(rates, rows * 2 * value_heads, "rates");
            (params.rates, params.rates_stride) = (a.at(rates), 2 * value_heads as u32);
        } else {
            assert!(call.stride >= shape.width(), "room for rates");
            params.rates = params.mixed + 4 * shape.rates() as u64;
        }
        let held = || Arguments { held: a.held.clone() };
        let count = rows as u32;
        let groups = |items: usize| items.div_ceil(WARPS) as u32;
        let gates = (groups(2 * value_heads), rows.div_ceil(GATE_ROWS) as u32, 1);
        if call.rates.is_none() {
            self.launch(&deltas.gates, gates, THREADS, 0, held(), &params)?;
        }
        // A warp has several rows where there are many: taps are read once for them, and rows before them too.
        let each = if rows > PREPARE_ALONE { PREPARE_ROWS } else { 1 };
        let prepare = (rows.div_ceil(each) as u32, groups(key_heads + value_heads), 1);
        self.launch(&deltas.prepare, prepare, THREADS, 0, held(), &params)?;
        let scan = ((value_heads * DELTA_HEAD / SCAN_COLUMNS) as u32, call.sequences as u32, 1);
        self.launch(&deltas.scan, scan, THREADS, 0, held(), &params)?;
        self.launch(&deltas.norm, (count, groups(value_heads), 1), THREADS, 0, held(), &params)
    }

    /// Brings kept rows of a logged step onto a state, in all layers.
    pub fn delta_settle(&self, call: &DeltaSettleCall<'_>) -> Result<(), Error> {
        let (shape, states) = (call.shape, &call.states);
        check_states(shape, states);
        let slot_bytes = states.layers * shape.layer_bytes();
        let slots = states.states.len / slot_bytes;
        assert!(slots > call.from.max(call.to) as usize, "slots that exist");
        assert!(call.first + call.kept <= states.log_rows, "rows of the log");
        let mut a = Arguments::default();
        let delta = DeltaBlock {
            states: a.at(states.states),
            slot_bytes: slot_bytes as u64,
            key_heads: shape.key_heads as u32,
            value_heads: shape.value_heads as u32,
            grouped: u32::from(shape.grouped),
            ..DeltaBlock::default()
        };
        let params = DeltaSettleBlock {
            delta,
            log: a.at(states.log),
            layer_bytes: shape.layer_bytes() as u64,
            log_bytes: shape.log_bytes() as u64,
            log_layer: (states.log_rows * shape.log_bytes()) as u64,
            from: call.from,
            to: call.to,
            first: call.first as u32,
            kept: call.kept as u32,
            start: call.start as u32,
            padding: 0,
        };
        let grid = (shape.value_heads as u32, states.layers as u32, 1);
        self.launch(&self.deltas()?.settle, grid, THREADS, 0, a, &params)
    }
}

fn check_states(shape: DeltaShape, states: &DeltaStates<'_>) {
    let slot = states.layers * shape.layer_bytes();
    assert!(states.states.len.is_multiple_of(slot), "whole slots");
    assert!(states.log.len >= states.layers * states.log_rows * shape.log_bytes(), "room for the log");
}

fn delta_block(a: &mut Arguments, call: &DeltaCall<'_>) -> DeltaBlock {
    let (shape, states, weights) = (call.shape, &call.states, &call.weights);
    check_states(shape, states);
    assert!(call.layer < states.layers, "the layer is inside a slot");
    assert_eq!(weights.taps.len(), shape.channels() * DELTA_TAPS, "taps of every channel");
    assert_eq!((weights.dt.len(), weights.a.len()), (shape.value_heads, shape.value_heads), "rates of every head");
    assert_eq!(weights.norm.len(), DELTA_HEAD, "a norm of a head");
    DeltaBlock {
        states: a.at(states.states),
        taps: a.at(weights.taps.all()),
        dt: a.at(weights.dt.all()),
        a: a.at(weights.a.all()),
        norm: a.at(weights.norm.all()),
        slot_bytes: (states.layers * shape.layer_bytes()) as u64,
        layer_offset: (call.layer * shape.layer_bytes()) as u64,
        epsilon: call.norm.1,
        key_heads: shape.key_heads as u32,
        value_heads: shape.value_heads as u32,
        grouped: u32::from(shape.grouped),
    }
}

/// A row of floats that blocks of a product multiply its normalised input with too.
#[derive(Clone, Copy)]
pub(super) struct Dots {
    /// The first row.
    matrix: u64,
    /// Rows.
    count: u32,
    columns: u32,
    /// Place of the first result in the output.
    output: u32,
    /// Multiprocessors.
    blocks: u32,
}

impl Dots {
    /// The row of a block, and the place of its result: the last blocks have one each.
    pub fn of(&self, block: u32) -> Option<(u64, u32)> {
        let own = (block + self.count).checked_sub(self.blocks)?;
        Some((self.matrix + 4 * u64::from(own) * u64::from(self.columns), self.output + own))
    }
}

impl Recorder<'_> {
    /// The phase after the product that made its rows, which makes alpha and beta besides.
    pub(super) fn add_delta(&mut self, call: &DeltaCall<'_>) -> Result<(), Error> {
        assert_eq!((call.rows, call.sequences), (1, 1), "a persistent step is for one row");
        let (shape, columns) = (call.shape, call.norm.0.len());
        let DeltaOutput::Floats(output) = call.output else {
            return Err(Error::Unsupported("a persistent step in half precision".to_owned()));
        };
        let mut a = Arguments::default();
        let delta = delta_block(&mut a, call);
        let blocks = self.kernels.device.facts().multiprocessors;
        let (mut mixed, mut output) = (a.at(call.mixed), a.at(output));
        let dots = Dots {
            matrix: a.at(call.weights.rates.all()),
            count: 2 * shape.value_heads as u32,
            columns: columns as u32,
            output: shape.rates() as u32,
            blocks,
        };
        let made = self.phases.last_mut().filter(|phase| phase.kind == STORE && phase.output.plain == mixed);
        let made = made.ok_or_else(|| Error::Unsupported("a state without the product before".to_owned()))?;
        made.dots = Some(dots);
        let every = (0..blocks).filter(|&block| dots.of(block).is_some()).all(|block| made.on_block(block).0.tiles > 0);
        if dots.count > blocks || !every {
            return Err(Error::Unsupported("a persistent step with so many heads".to_owned()));
        }
        let (runs, start) = (a.at(call.runs), delta.states + delta.layer_offset);
        self.held.extend(a.held);
        let input = self.read(&mut mixed)?;
        let copies = self.kernels.options.attended_copies();
        let output_mark = self.write_copies(&mut output, shape.values(), copies)?;
        self.slots =
            DeltaSlotsBlock { runs, slot_bytes: delta.slot_bytes, heads: shape.value_heads as u32, padding: 0 };
        let params = DeltaPhaseBlock { delta, output };
        self.push(DELTA, input, output_mark, Work::State { start, input: mixed }, &params);
        Ok(())
    }
}
