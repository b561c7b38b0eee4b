//! A step of many rows: prompts, in half precision on tensor cores.
//!
//! Every matrix is written out in half precision just before it is used, into one scratch buffer that stays in the
//! card's cache; from a few hundred rows on that costs little, and the product is a plain one.

use super::inputs::Inputs;
use super::visits::Visits;
use super::{Net, ROWS_MAX, SEQUENCES_MAX};
use crate::backend::Chunk;
use ::cuda::{
    Buffer, EmbedCall, Error, ExpandCall, FlashCall, GemmCall, GemmOutput, Matrix, NormCall, Pinned, QueryTile,
    StoreCall,
};

/// Query rows of one tile of attention.
const TILE: usize = 64;
/// Tiles of a step: each is full or the last of its sequence.
const TILES_MAX: usize = ROWS_MAX / TILE + SEQUENCES_MAX;

/// Buffers of such a step.
pub(super) struct Many {
    inputs: Inputs,
    tiles: Buffer<QueryTile>,
    tiles_image: Pinned<QueryTile>,
    x: Buffer<f32>,
    heads: Buffer<f32>,
    /// Input of a product: the normalised stream, or what attention gave.
    half: Buffer<u16>,
    queries: Buffer<u16>,
    gated: Buffer<u16>,
    expanded: Buffer<u16>,
    /// Where there are experts.
    visits: Option<Visits>,
}

impl Many {
    pub fn new(net: &Net) -> Result<Many, Error> {
        let (config, device) = (&net.config, &net.device);
        let (width, q, ff) = (config.embedding, config.heads * config.head, config.feed_forward);
        // Experts have what they need for themselves.
        let ff = if config.experts.is_some() { 0 } else { ff };
        let largest = width * net.heads_width().max(2 * ff).max(q);
        Ok(Many {
            inputs: Inputs::new(device, ROWS_MAX, SEQUENCES_MAX, net.table_stride)?,
            tiles: Buffer::zeroed(device, TILES_MAX)?,
            tiles_image: Pinned::zeroed(device, TILES_MAX)?,
            x: Buffer::zeroed(device, ROWS_MAX * width)?,
            heads: Buffer::zeroed(device, ROWS_MAX * net.heads_width())?,
            half: Buffer::zeroed(device, ROWS_MAX * width.max(q))?,
            queries: Buffer::zeroed(device, ROWS_MAX * q)?,
            gated: Buffer::zeroed(device, ROWS_MAX * ff)?,
            expanded: Buffer::zeroed(device, largest)?,
            visits: config.experts.map(|experts| Visits::new(net, experts)).transpose()?,
        })
    }

    /// The residual stream after a step.
    pub fn residual(&self) -> &Buffer<f32> {
        &self.x
    }

    /// Starts a step.
    pub fn run(&mut self, net: &Net, batch: &[Chunk<'_>]) -> Result<(), Error> {
        // The images may still be on their way to the card for the step before.
        net.device.synchronize()?;
        self.inputs.send(batch)?;
        let tiles = self.send_tiles(batch)?;
        let rows = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        let tokens = self.inputs.first_tokens(rows);
        net.kernels.embed(&EmbedCall { table: &net.weights.embeddings, tokens, output: self.x.all() })?;
        for i in 0..net.weights.layers.len() {
            self.attention(net, i, rows, tiles)?;
            self.feed_forward(net, i, rows)?;
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

    /// `x += output(attention(norm(x)))`.
    fn attention(&self, net: &Net, i: usize, rows: usize, tiles: usize) -> Result<(), Error> {
        let (config, layer, kernels) = (&net.config, &net.weights.layers[i], &net.kernels);
        let (width, q) = (config.embedding, config.heads * config.head);
        self.norm(net, &layer.attention_norm, rows)?;
        let mut at = 0;
        for matrix in [&layer.q, &layer.k, &layer.v] {
            self.expand(net, matrix, at, 1, 0)?;
            at += matrix.rows * width;
        }
        kernels.gemm(&GemmCall {
            input: self.half.all(),
            weights: self.expanded.all(),
            shape: (rows, net.heads_width(), width),
            bias: layer.bias.as_ref(),
            output: GemmOutput::Store(self.heads.all()),
        })?;
        let heads = net.heads(i, self.heads.all(), &self.inputs);
        kernels.store_heads(&StoreCall { heads, rows, queries: Some(self.queries.all()) })?;
        let (queries, tiles) = (self.queries.all(), self.tiles.part(0..tiles));
        kernels.flash(&FlashCall { heads, queries, tiles, output: self.half.all() }, rows)?;
        self.expand(net, &layer.attention_output, 0, 1, 0)?;
        kernels.gemm(&GemmCall {
            input: self.half.all(),
            weights: self.expanded.all(),
            shape: (rows, width, q),
            bias: layer.attention_output_bias.as_ref(),
            output: GemmOutput::Add(self.x.all()),
        })
    }

    /// `x += feed_forward(norm(x))`.
    fn feed_forward(&self, net: &Net, i: usize, rows: usize) -> Result<(), Error> {
        let (config, layer, kernels) = (&net.config, &net.weights.layers[i], &net.kernels);
        let (width, ff) = (config.embedding, config.feed_forward);
        self.norm(net, &layer.feed_forward_norm, rows)?;
        if let Some(visits) = &self.visits {
            return visits.feed_forward(net, i, self.half.all(), self.x.part(0..rows * width));
        }
        self.expand(net, &layer.gate, 0, 2, 0)?;
        self.expand(net, &layer.up, 0, 2, 1)?;
        kernels.gemm(&GemmCall {
            input: self.half.all(),
            weights: self.expanded.all(),
            shape: (rows, 2 * ff, width),
            bias: None,
            output: GemmOutput::Gate(self.gated.all()),
        })?;
        self.expand(net, &layer.down, 0, 1, 0)?;
        kernels.gemm(&GemmCall {
            input: self.gated.all(),
            weights: self.expanded.all(),
            shape: (rows, width, ff),
            bias: None,
            output: GemmOutput::Add(self.x.all()),
        })
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
