//! A step of many rows: prompts, in half precision on tensor cores.
//!
//! Weights are unpacked in flight to the tensor cores. Where a card cannot do that for hundreds of rows as fast as it multiplies, and
//! where matrices are floats, long steps write every matrix out in half precision just before it is used, into one scratch buffer. Rows
//! through experts are in `expert_rows.rs`.

use super::decode::delta_weights;
use super::expert_rows::{ExpertRows, in_halves};
use super::inputs::Inputs;
use super::rows::StepKind;
use super::weights::{Attention, Delta, Layer, Mixer};
use super::{Net, ROWS_MAX, SEQUENCES_MAX};
use crate::backend::Chunk;
use ::cuda::{
    AddPartsCall, Buffer, DeltaCall, DeltaOutput, DeltaShape, EmbedCall, Error, ExpandCall, FlashCall, GemmCall,
    GemmOutput, GemmPackedCall, GemmPackedThen, Matrix, NormCall, Part, Pinned, QueryTile, ScaleRowsCall, Slice,
    StoreCall, pack,
};

/// Query rows of one tile of attention.
const TILE: usize = 64;
/// Tiles of a step: each is full or the last of its sequence.
const TILES_MAX: usize = ROWS_MAX / TILE + SEQUENCES_MAX;

/// Most parts that rows are cut into where a matrix has few outputs, and super-blocks of the shortest.
const CUTS_MAX: usize = 8;
const CUT_SUPERS: usize = 2;

/// Buffers of such a step.
pub(super) struct Prefill {
    inputs: Inputs,
    tiles: Buffer<QueryTile>,
    tiles_image: Pinned<QueryTile>,
    x: Buffer<f32>,
    heads: Buffer<f32>,
    /// Input of a product: the normalised stream, or what attention gave.
    half: Buffer<u16>,
    queries: Buffer<u16>,
    gated: Buffer<u16>,
    state_rows: Option<StateRows>,
    /// Where matrices are written out, if any are.
    expanded: Buffer<u16>,
    /// Of medium steps: results of the parts that rows are cut into.
    parts: Buffer<f32>,
    /// Where there are experts.
    visits: Option<ExpertRows>,
}

/// What layers with recurrent states need.
struct StateRows {
    mixed: Buffer<f32>,
    /// Of every layer with a state, what alpha and beta are made with, in half precision as their input is.
    matrices: Vec<Buffer<u16>>,
    rates: Buffer<f32>,
    ready: Buffer<f32>,
    factors: Buffer<f32>,
    o: Buffer<f32>,
}

impl StateRows {
    fn new(net: &Net, shape: DeltaShape) -> Result<StateRows, Error> {
        let rows = |floats: usize| Buffer::zeroed(&net.device, ROWS_MAX * floats);
        let deltas = net.weights.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Delta(delta) => Some(delta),
            Mixer::Attention(_) => None,
        });
        Ok(StateRows {
            mixed: rows(shape.channels() + shape.values())?,
            matrices: deltas.map(|delta| in_halves(net, &delta.rates)).collect::<Result<_, _>>()?,
            rates: rows(2 * shape.value_heads)?,
            ready: rows(shape.channels())?,
            factors: rows(4 * shape.value_heads)?,
            o: rows(shape.values())?,
        })
    }
}

impl Prefill {
    pub fn new(net: &Net) -> Result<Prefill, Error> {
        let (config, device) = (&net.config, &net.device);
        let (width, q) = (config.embedding, config.heads * config.head);
        let (first, mixed) = net.mixer_widths();
        // Experts that are chosen have what they need for themselves.
        let alone = config.experts.is_none_or(|experts| experts.shared);
        let ff = if alone { config.feed_forward } else { 0 };
        let largest = if net.kernels.expands() { width * first.max(2 * ff).max(mixed) } else { 0 };
        Ok(Prefill {
            inputs: Inputs::new(device, ROWS_MAX, SEQUENCES_MAX, net.table_stride)?,
            tiles: Buffer::zeroed(device, TILES_MAX)?,
            tiles_image: Pinned::zeroed(device, TILES_MAX)?,
            x: Buffer::zeroed(device, ROWS_MAX * width)?,
            heads: Buffer::zeroed(device, ROWS_MAX * net.heads_width())?,
            half: Buffer::zeroed(device, ROWS_MAX * width.max(mixed))?,
            state_rows: net.states.as_ref().map(|states| StateRows::new(net, states.shape)).transpose()?,
            queries: Buffer::zeroed(device, ROWS_MAX * q)?,
            gated: Buffer::zeroed(device, ROWS_MAX * ff)?,
            expanded: Buffer::zeroed(device, largest)?,
            parts: Buffer::zeroed(device, StepKind::PrefillShort.rows_max() * CUTS_MAX * width.max(first))?,
            visits: config.experts.map(|experts| ExpertRows::new(net, experts)).transpose()?,
        })
    }

    /// The residual stream after a step.
    pub fn residual(&self) -> &Buffer<f32> {
        &self.x
    }

    /// Starts a step.
    pub fn run(&mut self, net: &Net, kind: StepKind, batch: &[Chunk<'_>]) -> Result<(), Error> {
        // The images may still be in flight to the card for the step before.
        net.device.synchronize()?;
        self.inputs.send(batch, &net.begin_states(batch)?)?;
        let tiles = self.send_tiles(batch)?;
        let rows = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        let tokens = self.inputs.first_tokens(rows);
        net.kernels.embed(&EmbedCall { table: &net.weights.embeddings, tokens, output: self.x.all() })?;
        for i in 0..net.weights.layers.len() {
            self.mix(net, i, (kind, rows, batch.len()), tiles)?;
            self.feed_forward(net, i, (kind, rows))?;
        }
        Ok(())
    }

    fn send_tiles(&mut self, batch: &[Chunk<'_>]) -> Result<usize, Error> {
        let image = self.tiles_image.values();
        let (mut row, mut tiles) = (0, 0);
        for chunk in batch {
            for first in (0..chunk.tokens.len()).step_by(TILE) {
                let count = TILE.min(chunk.tokens.len() - first) as u32;
                let (row, position) = ((row + first) as u32, (chunk.start + first) as u32);
                image[tiles] = QueryTile { row, count, position, padding: 0 };
                tiles += 1;
            }
            row += chunk.tokens.len();
        }
        self.tiles_image.send(0..tiles, &self.tiles, 0)?;
        Ok(tiles)
    }

    /// `x += output(mixer(norm(x)))`.
    fn mix(
        &self,
        net: &Net,
        i: usize,
        (kind, rows, sequences): (StepKind, usize, usize),
        tiles: usize,
    ) -> Result<(), Error> {
        let layer = &net.weights.layers[i];
        self.norm(net, &layer.norm, rows)?;
        match &layer.mixer {
            Mixer::Attention(attention) => self.attend(net, attention, (kind, rows), tiles)?,
            Mixer::Delta(delta) => self.update(net, layer, delta, (kind, rows, sequences))?,
        }
        let (parts, bias) = ([&layer.output], layer.output_bias.as_ref());
        self.product(net, (kind, rows), self.half.all(), &parts, bias, GemmPackedThen::Add(self.x.all()))
    }

    fn attend(&self, net: &Net, layer: &Attention, (kind, rows): (StepKind, usize), tiles: usize) -> Result<(), Error> {
        let (kernels, input, parts) = (&net.kernels, self.half.all(), [&layer.q, &layer.k, &layer.v]);
        self.product(net, (kind, rows), input, &parts, layer.bias.as_ref(), GemmPackedThen::Store(self.heads.all()))?;
        let heads = net.heads(layer, self.heads.all(), &self.inputs);
        kernels.store_heads(&StoreCall { heads, rows, queries: Some(self.queries.all()) })?;
        let (queries, tiles) = (self.queries.all(), self.tiles.part(0..tiles));
        kernels.flash(&FlashCall { heads, queries, tiles, output: self.half.all() }, rows)
    }

    fn update(
        &self,
        net: &Net,
        layer: &Layer,
        delta: &Delta,
        (kind, rows, sequences): (StepKind, usize, usize),
    ) -> Result<(), Error> {
        let both = net.states.as_ref().zip(self.state_rows.as_ref());
        let (states, own) = both.ok_or_else(|| Error::Unsupported("recurrent states".to_owned()))?;
        let (input, parts) = (self.half.all(), [&delta.qkv, &delta.gate]);
        self.product(net, (kind, rows), input, &parts, None, GemmPackedThen::Store(own.mixed.all()))?;
        net.kernels.gemm(&GemmCall {
            input,
            weights: own.matrices[delta.index].all(),
            shape: (rows, 2 * states.shape.value_heads, net.config.embedding),
            bias: None,
            output: GemmOutput::Store(own.rates.all()),
            cuts: 1,
        })?;
        net.kernels.delta(&DeltaCall {
            shape: states.shape,
            states: states.view(),
            layer: delta.index,
            weights: delta_weights(delta),
            rows,
            sequences,
            x: self.x.all(),
            norm: (&layer.norm, net.config.epsilon),
            mixed: own.mixed.all(),
            stride: states.shape.rates(),
            rates: Some(own.rates.all()),
            ready: own.ready.all(),
            factors: own.factors.all(),
            o: own.o.all(),
            output: DeltaOutput::Halves(self.half.all()),
            positions: self.inputs.positions(),
            row_sequences: self.inputs.sequences(),
            runs: self.inputs.runs(),
        })
    }

    /// `x += feed_forward(norm(x))`.
    fn feed_forward(&self, net: &Net, i: usize, (kind, rows): (StepKind, usize)) -> Result<(), Error> {
        let (layer, width) = (&net.weights.layers[i], net.config.embedding);
        self.norm(net, &layer.feed_forward_norm, rows)?;
        if let Some(visits) = &self.visits {
            visits.feed_forward(net, i, self.half.all(), self.x.part(0..rows * width))?;
            return self.shared_expert(net, layer, (kind, rows));
        }
        let then = GemmPackedThen::Gate(&layer.up, self.gated.all());
        self.product(net, (kind, rows), self.half.all(), &[&layer.gate], None, then)?;
        self.product(net, (kind, rows), self.gated.all(), &[&layer.down], None, GemmPackedThen::Add(self.x.all()))
    }

    /// The expert that all rows visit, by its share.
    fn shared_expert(&self, net: &Net, layer: &Layer, (kind, rows): (StepKind, usize)) -> Result<(), Error> {
        let (Some([gate, up, down]), Some(router)) = (&layer.shared, &layer.router) else { return Ok(()) };
        let (input, x, width) = (self.half.all(), self.gated.all(), down.columns);
        self.product(net, (kind, rows), input, &[gate], None, GemmPackedThen::Gate(up, x))?;
        let gate = router.part(router.len() - net.config.embedding..router.len());
        net.kernels.scale_rows(&ScaleRowsCall { input, gate, x, rows, width })?;
        self.product(net, (kind, rows), x, &[down], None, GemmPackedThen::Add(self.x.all()))
    }

    /// Rows times matrices, whose outputs stand side by side.
    fn product(
        &self,
        net: &Net,
        (kind, rows): (StepKind, usize),
        input: Slice<'_, u16>,
        matrices: &[&Matrix],
        bias: Option<&Buffer<f32>>,
        then: GemmPackedThen<'_>,
    ) -> Result<(), Error> {
        let (outputs, columns) = (matrices.iter().map(|matrix| matrix.rows).sum(), matrices[0].columns);
        let from_packed = kind == StepKind::PrefillShort || net.kernels.has_gemm_packed_256();
        if from_packed && !matrices.iter().any(|matrix| pack::is_float(matrix.format)) {
            return self.packed(net, (kind, rows), input, matrices, bias, then);
        }
        let mut at = 0;
        for matrix in matrices {
            self.expand(net, matrix, at, if matches!(then, GemmPackedThen::Gate(..)) { 2 } else { 1 }, 0)?;
            at += matrix.rows * columns;
        }
        let (n, output) = match then {
            GemmPackedThen::Store(output) => (outputs, GemmOutput::Store(output)),
            GemmPackedThen::Add(output) => (outputs, GemmOutput::Add(output)),
            GemmPackedThen::Gate(up, output) => {
                self.expand(net, up, 0, 2, 1)?;
                (2 * outputs, GemmOutput::Gate(output))
            }
        };
        net.kernels.gemm(&GemmCall {
            input,
            weights: self.expanded.all(),
            shape: (rows, n, columns),
            bias,
            output,
            cuts: 1,
        })
    }

    /// The same from packed weights. In medium steps rows are cut into parts first where outputs are few, so that all of the card has
    /// something to do.
    fn packed(
        &self,
        net: &Net,
        (kind, rows): (StepKind, usize),
        input: Slice<'_, u16>,
        matrices: &[&Matrix],
        bias: Option<&Buffer<f32>>,
        then: GemmPackedThen<'_>,
    ) -> Result<(), Error> {
        let mut parts: Vec<Part<'_>> = Vec::new();
        for matrix in matrices {
            let output = parts.last().map_or(0, |part| part.output + part.matrix.rows);
            let bias = bias.map(|bias| bias.part(output..output + matrix.rows));
            parts.push(Part { matrix, bias, output });
        }
        let (parts, stride, visits) = (&parts[..], parts.iter().map(|part| part.matrix.rows).sum(), None);
        let (x, anew) = match then {
            GemmPackedThen::Store(heads) if kind == StepKind::PrefillShort => (heads, true),
            GemmPackedThen::Add(x) if kind == StepKind::PrefillShort => (x, false),
            _ => return net.kernels.gemm_packed(&GemmPackedCall { parts, input, rows, then, stride, visits, cuts: 1 }),
        };
        let cuts = (pack::supers(matrices[0].columns) / CUT_SUPERS).clamp(1, CUTS_MAX);
        let then = GemmPackedThen::Store(self.parts.all());
        net.kernels.gemm_packed(&GemmPackedCall { parts, input, rows, then, stride, visits, cuts })?;
        let (parts, x) = (self.parts.all(), x.first(rows * stride));
        net.kernels.add_parts(&AddPartsCall { parts, rows, each: cuts, shares: None, x, anew })
    }

    fn norm(&self, net: &Net, weight: &Buffer<f32>, rows: usize) -> Result<(), Error> {
        let (input, output) = (self.x.part(0..rows * weight.len()), self.half.all());
        net.kernels.norm_half(&NormCall { input, weight, epsilon: net.config.epsilon, output })
    }

    fn expand(&self, net: &Net, matrix: &Matrix, at: usize, step: usize, offset: usize) -> Result<(), Error> {
        let output = self.expanded.part(at..self.expanded.len());
        net.kernels.expand(&ExpandCall { matrix, step, offset, output })
    }
}
