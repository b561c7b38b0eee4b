//! A step of few rows: five dependent kernels per layer, recorded once per number of rows.
//!
//! A single row, the usual case, is worked through by one kernel that stays on the card (`Program`) where the card can do
//! that; several rows are a graph of kernels. Both do the same sums in the same order.
//!
//! ```text
//! embed                                          tokens -> x
//! per layer:
//!   product   norm, quantise, q k v, bias        x -> heads
//!   (store)   only where a sequence has several rows: keys and values of all rows first
//!   attention rotate, write key and value, attend, merge
//!   product   quantise, output projection        x += ...
//!   product   norm, quantise, gate and up, silu  x -> gated
//!   product   quantise, down                     x += ...
//! product     norm, quantise, logits, best of each block
//! pick        best of all, into the mailbox and into the next step's inputs
//! ```

use super::inputs::Inputs;
use super::{FEW, Net};
use crate::backend::Chunk;
use ::cuda::{
    AttentionCall, Buffer, EmbedCall, Error, Graph, Mailbox, PICK_RING, PICK_ROWS_MAX, Part, PickCall, ProductCall,
    Program, SPLITS, Slice, StoreCall, Then,
};
use std::collections::HashMap;

/// Buffers and recorded steps.
pub(super) struct Few {
    pub inputs: Inputs,
    pub mailbox: Mailbox,
    /// Picks asked for so far, per row: the ticket of the last.
    pub tickets_given: [u32; FEW],
    x: Buffer<f32>,
    heads: Buffer<f32>,
    attended: Buffer<f32>,
    gated: Buffer<f32>,
    logits: Buffer<f32>,
    candidates: Buffer<u64>,
    partial: Buffer<f32>,
    arrived: Buffer<u32>,
    tickets: Buffer<u32>,
    /// At most four per number of rows: every row its own sequence or not, with logits or without.
    recorded: HashMap<Shape, Recorded>,
}

enum Recorded {
    Graph(Graph),
    Program(Box<Program>),
}

/// What a recorded step depends on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    rows: usize,
    /// Every row has its own sequence.
    apart: bool,
    with_logits: bool,
}

impl Few {
    pub fn new(net: &Net) -> Result<Few, Error> {
        let (config, device) = (&net.config, &net.device);
        let q = config.heads * config.head;
        const { assert!(FEW <= PICK_ROWS_MAX, "rows fit a pick") };
        Ok(Few {
            inputs: Inputs::new(device, FEW, FEW, net.table_stride)?,
            mailbox: Mailbox::new(device, PICK_RING * PICK_ROWS_MAX)?,
            tickets_given: [0; FEW],
            x: Buffer::zeroed(device, FEW * config.embedding)?,
            heads: Buffer::zeroed(device, FEW * net.heads_width())?,
            attended: Buffer::zeroed(device, FEW * q)?,
            gated: Buffer::zeroed(device, FEW * config.feed_forward)?,
            logits: Buffer::zeroed(device, FEW * config.vocab)?,
            candidates: Buffer::zeroed(device, FEW * net.kernels.candidates(config.vocab))?,
            partial: Buffer::zeroed(device, FEW * config.heads * SPLITS * (config.head + 2))?,
            arrived: Buffer::zeroed(device, FEW * config.heads)?,
            tickets: Buffer::zeroed(device, FEW)?,
            recorded: HashMap::new(),
        })
    }

    /// The residual stream after a step.
    pub fn residual(&self) -> &Buffer<f32> {
        &self.x
    }

    /// The first `count` logits.
    pub fn logits(&self, count: usize) -> Slice<'_, f32> {
        self.logits.part(0..count)
    }

    /// Clock readings of the last step of one row with logits.
    pub fn times(&self) -> Result<Vec<u64>, Error> {
        match self.recorded.get(&Shape { rows: 1, apart: true, with_logits: true }) {
            Some(Recorded::Program(program)) => program.times(),
            _ => Ok(Vec::new()),
        }
    }

    /// Sends a batch and starts its step; with logits and picks for every row, or with none.
    pub fn run(&mut self, net: &Net, batch: &[Chunk<'_>], with_logits: bool) -> Result<(), Error> {
        self.inputs.send(batch)?;
        let rows = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        self.start(net, Shape { rows, apart: rows == batch.len(), with_logits })
    }

    /// Starts the step that follows the last one, on the tokens it picked.
    pub fn run_on(&mut self, net: &Net, rows: usize) -> Result<(), Error> {
        self.start(net, Shape { rows, apart: true, with_logits: true })
    }

    fn start(&mut self, net: &Net, shape: Shape) -> Result<(), Error> {
        if !self.recorded.contains_key(&shape) {
            let recorded = if shape.rows == 1 && net.kernels.has_programs(net.config.embedding, net.config.layers) {
                Recorded::Program(Box::new(net.kernels.program(|| self.record(net, shape))?))
            } else {
                Recorded::Graph(Graph::record(&net.device, || self.record(net, shape))?)
            };
            self.recorded.insert(shape, recorded);
        }
        match &self.recorded[&shape] {
            Recorded::Graph(graph) => graph.launch()?,
            Recorded::Program(program) => program.launch()?,
        }
        if shape.with_logits {
            self.tickets_given[..shape.rows].iter_mut().for_each(|ticket| *ticket = ticket.wrapping_add(1));
        }
        Ok(())
    }

    /// Logits of rows of a residual stream, without a pick.
    pub fn head(&self, net: &Net, x: Slice<'_, f32>, rows: usize) -> Result<(), Error> {
        let weights = &net.weights;
        net.kernels.product(&ProductCall {
            parts: &[Part { matrix: &weights.output, bias: None, output: 0 }],
            rows,
            input: x,
            norm: Some((&weights.output_norm, net.config.epsilon)),
            output: self.logits.all(),
            stride: net.config.vocab,
            then: Then::Logits(self.candidates.all()),
        })
    }

    fn record(&self, net: &Net, shape: Shape) -> Result<(), Error> {
        let tokens = self.inputs.first_tokens(shape.rows);
        net.kernels.embed(&EmbedCall { table: &net.weights.embeddings, tokens, output: self.x.all() })?;
        for i in 0..net.weights.layers.len() {
            self.layer(net, shape, i)?;
        }
        if !shape.with_logits {
            return Ok(());
        }
        self.head(net, self.x.all(), shape.rows)?;
        net.kernels.pick(&PickCall {
            candidates: self.candidates.all(),
            rows: shape.rows,
            vocab: net.config.vocab,
            next: Some((self.inputs.tokens(), self.inputs.positions())),
            tickets: self.tickets.all(),
            mailbox: &self.mailbox,
        })
    }

    fn layer(&self, net: &Net, shape: Shape, i: usize) -> Result<(), Error> {
        let (config, layer, kernels) = (&net.config, &net.weights.layers[i], &net.kernels);
        let (width, q, kv) = (config.embedding, config.heads * config.head, config.kv_heads * config.head);
        let bias = |from: usize, len: usize| layer.bias.as_ref().map(|bias| bias.part(from..from + len));
        let product = |parts: &[Part<'_>], norm, input: &Buffer<f32>, output: &Buffer<f32>, stride, then| {
            let (rows, norm) = (shape.rows, Option::map(norm, |norm| (norm, config.epsilon)));
            kernels.product(&ProductCall { parts, rows, input: input.all(), norm, output: output.all(), stride, then })
        };
        let parts = [
            Part { matrix: &layer.q, bias: bias(0, q), output: 0 },
            Part { matrix: &layer.k, bias: bias(q, kv), output: q },
            Part { matrix: &layer.v, bias: bias(q + kv, kv), output: q + kv },
        ];
        let norm = Some(&layer.attention_norm);
        product(&parts, norm, &self.x, &self.heads, net.heads_width(), Then::Store)?;
        let heads = net.heads(i, self.heads.all(), &self.inputs);
        if !shape.apart {
            kernels.store_heads(&StoreCall { heads, rows: shape.rows, queries: None })?;
        }
        kernels.attention(&AttentionCall {
            heads,
            rows: shape.rows,
            store: shape.apart,
            output: self.attended.all(),
            partial: self.partial.all(),
            arrived: self.arrived.all(),
        })?;
        let output_bias = layer.attention_output_bias.as_ref().map(Buffer::all);
        let parts = [Part { matrix: &layer.attention_output, bias: output_bias, output: 0 }];
        product(&parts, None, &self.attended, &self.x, width, Then::Add)?;
        let parts = [Part { matrix: &layer.gate, bias: None, output: 0 }];
        let norm = Some(&layer.feed_forward_norm);
        product(&parts, norm, &self.x, &self.gated, config.feed_forward, Then::Gate(&layer.up))?;
        let parts = [Part { matrix: &layer.down, bias: None, output: 0 }];
        product(&parts, None, &self.gated, &self.x, width, Then::Add)
    }
}
