//! A step of few rows, recorded when the same number of rows comes again.
//!
//! A single row, the usual case, is worked through by one kernel that stays on the card (`Program`) where the card can do
//! that; several rows are a graph of kernels, with other products (`several.rs`). All do the same sums in the same order.
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
use super::recorded::{LENGTHS, Recorded, Shape, is_program};
use super::several::Several;
use super::weights::Layer;
use super::{FEW, Net};
use crate::backend::Chunk;
use crate::config::Experts;
use ::cuda::{
    AttentionCall, Buffer, EmbedCall, Error, Graph, Mailbox, PICK_RING, PICK_ROWS_MAX, Part, Partial, PickCall,
    ProductCall, Program, SPLITS, Slice, StoreCall, Then, pack,
};
use std::collections::HashMap;
use std::ops::Range;

/// Buffers and recorded steps.
pub(super) struct Few {
    pub inputs: Inputs,
    mailbox: Mailbox,
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
    /// Where rows are so wide that they do not fit a multiprocessor several rows are done one by one.
    several: Option<Several>,
    /// Per number of rows at most six for each power of two of positions.
    pub(super) recorded: HashMap<Shape, Recorded>,
}

impl Few {
    pub fn new(net: &Net) -> Result<Few, Error> {
        let (config, device) = (&net.config, &net.device);
        let q = config.heads * config.head;
        const { assert!(FEW <= PICK_ROWS_MAX, "rows fit a pick") };
        const { assert!(LENGTHS.0 * SPLITS < LENGTHS.1, "parts are as short as they get only below the longest") };
        let together = net.kernels.has_several(config.embedding, config.feed_forward.max(q));
        if let Some(Experts { count, used }) = config.experts
            && !(together && net.kernels.has_experts(count, used))
        {
            return Err(Error::Unsupported(format!("a mixture of {count} experts")));
        }
        let of_experts = net.weights.layers.iter().filter(|layer| layer.router.is_some());
        if let Some(matrix) = of_experts
            .flat_map(|layer| [&layer.gate, &layer.up, &layer.down])
            .find(|matrix| pack::is_float(matrix.format))
        {
            return Err(Error::Unsupported(format!("experts in {}", matrix.format.name())));
        }
        if net.kernels.has_floats() && !together {
            return Err(Error::Unsupported("matrices of floats this wide".to_owned()));
        }
        let visits = config.experts.map_or(1, |experts| experts.used);
        Ok(Few {
            inputs: Inputs::new(device, FEW, FEW, net.table_stride)?,
            mailbox: Mailbox::new(device, PICK_RING * PICK_ROWS_MAX)?,
            tickets_given: [0; FEW],
            x: Buffer::zeroed(device, FEW * config.embedding)?,
            heads: Buffer::zeroed(device, FEW * net.heads_width())?,
            attended: Buffer::zeroed(device, FEW * q)?,
            gated: Buffer::zeroed(device, FEW * visits * config.feed_forward)?,
            logits: Buffer::zeroed(device, FEW * config.vocab)?,
            candidates: Buffer::zeroed(device, FEW * net.kernels.candidates(config.vocab))?,
            partial: Buffer::zeroed(device, FEW * config.heads * SPLITS * (config.head + 2))?,
            arrived: Buffer::zeroed(device, FEW * config.heads)?,
            tickets: Buffer::zeroed(device, FEW)?,
            several: together.then(|| Several::new(net, FEW)).transpose()?,
            recorded: HashMap::new(),
        })
    }

    /// The products of this many rows, when they are done together; with experts also those of one that is no program, and
    /// with matrices of floats always.
    fn several(&self, net: &Net, rows: usize) -> Option<&Several> {
        let alone = || net.config.experts.is_some() && !is_program(net, rows) || net.kernels.has_floats();
        self.several.as_ref().filter(|_| rows > 1 || alone())
    }

    /// The residual stream after a step.
    pub fn residual(&self) -> &Buffer<f32> {
        &self.x
    }

    /// Some of the logits, which stand row after row.
    pub fn logits(&self, range: Range<usize>) -> Slice<'_, f32> {
        self.logits.part(range)
    }

    /// Clock readings of the last step of one row with logits.
    pub fn times(&self) -> Result<Vec<u64>, Error> {
        match self.recorded.get(&Shape::of_program(true)) {
            Some(Recorded::Program(program)) => program.times(),
            _ => Ok(Vec::new()),
        }
    }

    /// Sends a batch and starts its step; with logits and picks for every row, or with none.
    pub fn run(&mut self, net: &Net, batch: &[Chunk<'_>], with_logits: bool) -> Result<(), Error> {
        self.inputs.send(batch)?;
        let rows = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        self.start(net, self.shape(net, batch, rows == batch.len(), with_logits, rows))
    }

    /// Starts the step that follows the last one, on the tokens it picked.
    pub fn run_on(&mut self, net: &Net, batch: &[Chunk<'_>]) -> Result<(), Error> {
        self.start(net, self.shape(net, batch, true, true, batch.len()))
    }

    /// Runs a step and waits for the picks of all its rows, which are added.
    pub fn pick(&mut self, net: &Net, batch: &[Chunk<'_>], picks: &mut Vec<u32>) -> Result<(), Error> {
        self.run(net, batch, true)?;
        let rows = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        self.collect(&self.tickets_given[..rows], picks)
    }

    /// Waits for the picks that these tickets stand for, one for each row.
    pub fn collect(&self, tickets: &[u32], picks: &mut Vec<u32>) -> Result<(), Error> {
        for (row, &ticket) in tickets.iter().enumerate() {
            let at = ticket as usize % PICK_RING * PICK_ROWS_MAX + row;
            let word = self.mailbox.wait(at, |word| (word >> 32) as u32 == ticket)?;
            picks.push(word as u32);
        }
        Ok(())
    }

    fn shape(&self, net: &Net, batch: &[Chunk<'_>], apart: bool, with_logits: bool, rows: usize) -> Shape {
        // One more than there are now, for the step that follows.
        let longest = batch.iter().map(|chunk| chunk.start + chunk.tokens.len() + 1).max().unwrap_or(1);
        let length_max =
            if is_program(net, rows) { LENGTHS.1 } else { longest.next_power_of_two().clamp(LENGTHS.0, LENGTHS.1) };
        Shape { rows, apart, following: !apart && batch.len() == 1, with_logits, length_max }
    }

    fn start(&mut self, net: &Net, shape: Shape) -> Result<(), Error> {
        match self.recorded.get(&shape) {
            Some(Recorded::Graph(graph)) => graph.launch()?,
            Some(Recorded::Program(program)) => program.launch()?,
            None if is_program(net, shape.rows) => self.write_program(net, shape)?.launch()?,
            None => {
                self.record(net, shape)?;
                self.recorded.insert(shape, Recorded::Once);
            }
            Some(Recorded::Once) => match Graph::record(&net.device, || self.record(net, shape)) {
                Ok(graph) => {
                    graph.launch()?;
                    self.recorded.insert(shape, Recorded::Graph(graph));
                }
                // Recorded steps take memory, and somebody else may have taken what was left.
                Err(_) => self.record(net, shape)?,
            },
        }
        if shape.with_logits {
            self.count_tickets(shape.rows);
        }
        Ok(())
    }

    pub(super) fn write_program(&mut self, net: &Net, shape: Shape) -> Result<&Program, Error> {
        let program = Box::new(net.kernels.program(|| self.record(net, shape))?);
        match self.recorded.entry(shape).insert_entry(Recorded::Program(program)).into_mut() {
            Recorded::Program(program) => Ok(program),
            Recorded::Once | Recorded::Graph(_) => unreachable!("it was just put there"),
        }
    }

    /// Logits of rows of a residual stream, without a pick.
    pub fn head(&self, net: &Net, x: Slice<'_, f32>, rows: usize) -> Result<(), Error> {
        self.head_after(net, x, rows, None)
    }

    /// The likeliest token of each row that [`Few::head`] was asked for, which is waited for and added.
    pub fn pick_head(&mut self, net: &Net, rows: usize, picks: &mut Vec<u32>) -> Result<(), Error> {
        self.pick_of(net, rows, None)?;
        self.count_tickets(rows);
        self.collect(&self.tickets_given[..rows], picks)
    }

    fn pick_of(&self, net: &Net, rows: usize, next: Option<(Slice<'_, u32>, Slice<'_, u32>)>) -> Result<(), Error> {
        net.kernels.pick(&PickCall {
            candidates: self.candidates.all(),
            rows,
            vocab: net.config.vocab,
            next,
            tickets: self.tickets.all(),
            mailbox: &self.mailbox,
        })
    }

    fn count_tickets(&mut self, rows: usize) {
        self.tickets_given[..rows].iter_mut().for_each(|ticket| *ticket = ticket.wrapping_add(1));
    }

    fn head_after(&self, net: &Net, x: Slice<'_, f32>, rows: usize, left: Option<Partial<'_>>) -> Result<(), Error> {
        let (weights, stride) = (&net.weights, net.config.vocab);
        let parts = &[Part { matrix: &weights.output, bias: None, output: 0 }];
        let (output, then) = (self.logits.all(), Then::Logits(self.candidates.all()));
        if let Some(several) = self.several(net, rows) {
            return several.normed(net, rows, (x, left), &weights.output_norm, parts, (output, stride), then);
        }
        let norm = Some((&weights.output_norm, net.config.epsilon));
        net.kernels.product(&ProductCall { parts, rows, input: x, norm, output, stride, then })
    }

    fn record(&self, net: &Net, shape: Shape) -> Result<(), Error> {
        let tokens = self.inputs.first_tokens(shape.rows);
        net.kernels.embed(&EmbedCall { table: &net.weights.embeddings, tokens, output: self.x.all() })?;
        let mut left = None;
        for i in 0..net.weights.layers.len() {
            match self.several(net, shape.rows) {
                Some(several) => left = Some(self.layer_of_several(net, shape, i, several, left)?),
                None => self.layer(net, shape, i)?,
            }
        }
        if !shape.with_logits {
            let several = self.several(net, shape.rows).zip(left);
            return several.map_or(Ok(()), |(several, left)| several.finish(net, shape.rows, self.x.all(), left));
        }
        self.head_after(net, self.x.all(), shape.rows, left)?;
        self.pick_of(net, shape.rows, Some((self.inputs.tokens(), self.inputs.positions())))
    }

    /// The matrices of queries, keys and values.
    fn attention_parts<'a>(&self, net: &Net, layer: &'a Layer) -> [Part<'a>; 3] {
        let (q, kv) = (net.config.heads * net.config.head, net.config.kv_heads * net.config.head);
        let bias = |from: usize, len: usize| layer.bias.as_ref().map(|bias| bias.part(from..from + len));
        [
            Part { matrix: &layer.q, bias: bias(0, q), output: 0 },
            Part { matrix: &layer.k, bias: bias(q, kv), output: q },
            Part { matrix: &layer.v, bias: bias(q + kv, kv), output: q + kv },
        ]
    }

    fn attend(&self, net: &Net, shape: Shape, i: usize) -> Result<(), Error> {
        let heads = net.heads(i, self.heads.all(), &self.inputs);
        if !shape.apart {
            net.kernels.store_heads(&StoreCall { heads, rows: shape.rows, queries: None })?;
        }
        let together = if shape.following { net.kernels.rows_together(shape.rows, shape.length_max) } else { 1 };
        net.kernels.attention(&AttentionCall {
            heads,
            rows: shape.rows,
            length_max: shape.length_max,
            store: shape.apart,
            together,
            output: self.attended.all(),
            partial: self.partial.all(),
            arrived: self.arrived.all(),
        })
    }

    fn layer_of_several<'a>(
        &'a self,
        net: &'a Net,
        shape: Shape,
        i: usize,
        several: &'a Several,
        left: Option<Partial<'a>>,
    ) -> Result<Partial<'a>, Error> {
        let (config, layer, rows) = (&net.config, &net.weights.layers[i], shape.rows);
        let (norm, output) = (&layer.attention_norm, (self.heads.all(), net.heads_width()));
        let parts = self.attention_parts(net, layer);
        several.normed(net, rows, (self.x.all(), left), norm, &parts, output, Then::Store)?;
        self.attend(net, shape, i)?;
        let bias = layer.attention_output_bias.as_ref().map(Buffer::all);
        let left = several.left(net, rows, self.attended.all(), &layer.attention_output, bias)?;
        if let Some(router) = &layer.router {
            return several.experts(net, rows, (self.x.all(), left), layer, router, self.gated.all());
        }
        let (norm, output) = (&layer.feed_forward_norm, (self.gated.all(), config.feed_forward));
        let parts = [Part { matrix: &layer.gate, bias: None, output: 0 }];
        several.normed(net, rows, (self.x.all(), Some(left)), norm, &parts, output, Then::Gate(&layer.up))?;
        several.left(net, rows, self.gated.all(), &layer.down, None)
    }

    fn layer(&self, net: &Net, shape: Shape, i: usize) -> Result<(), Error> {
        let (config, layer, kernels) = (&net.config, &net.weights.layers[i], &net.kernels);
        let width = config.embedding;
        let product = |parts: &[Part<'_>], norm, input: &Buffer<f32>, output: &Buffer<f32>, stride, then| {
            let (rows, norm) = (shape.rows, Option::map(norm, |norm| (norm, config.epsilon)));
            kernels.product(&ProductCall { parts, rows, input: input.all(), norm, output: output.all(), stride, then })
        };
        let parts = self.attention_parts(net, layer);
        let norm = Some(&layer.attention_norm);
        product(&parts, norm, &self.x, &self.heads, net.heads_width(), Then::Store)?;
        self.attend(net, shape, i)?;
        let output_bias = layer.attention_output_bias.as_ref().map(Buffer::all);
        let parts = [Part { matrix: &layer.attention_output, bias: output_bias, output: 0 }];
        product(&parts, None, &self.attended, &self.x, width, Then::Add)?;
        if let Some((several, router)) = self.several.as_ref().zip(layer.router.as_ref()) {
            return several.mix(net, self.x.all(), layer, router, self.gated.all());
        }
        let parts = [Part { matrix: &layer.gate, bias: None, output: 0 }];
        let norm = Some(&layer.feed_forward_norm);
        product(&parts, norm, &self.x, &self.gated, config.feed_forward, Then::Gate(&layer.up))?;
        let parts = [Part { matrix: &layer.down, bias: None, output: 0 }];
        product(&parts, None, &self.gated, &self.x, width, Then::Add)
    }
}
