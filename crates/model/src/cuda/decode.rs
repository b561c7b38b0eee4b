//! A step of few rows, recorded when the same number of rows comes again.
//!
//! A single row, the usual case, is worked through by one kernel that stays on the card (`PersistentStep`) where the card can do
//! that; several rows are a graph of kernels, with other products (`decode_batch.rs`). All do the same sums in the same order.
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

use super::decode_batch::DecodeBatch;
use super::inputs::Inputs;
use super::recorded::{LENGTHS, Recorded, Shape, is_persistent};
use super::states::States;
use super::weights::{Attention, Delta, Layer, Mixer};
use super::{DECODE_ROWS_MAX, Net};
use crate::backend::Chunk;
use crate::config::Experts;
use ::cuda::{
    AttentionCall, Buffer, DeltaCall, DeltaOutput, DeltaShape, DeltaWeights, Device, EmbedCall, Error, Graph, Mailbox,
    MixtureCall, PICK_RING, PICK_ROWS_MAX, Part, Partial, PersistentStep, PickCall, ProductCall, RowStep, SPLITS,
    Slice, StoreCall, Then, pack,
};
use std::collections::HashMap;
use std::ops::Range;

/// Buffers and recorded steps.
pub(super) struct Decode {
    pub inputs: Inputs,
    mailbox: Mailbox,
    /// Picks asked for so far, per row: the ticket of the last.
    pub tickets_given: [u32; DECODE_ROWS_MAX],
    x: Buffer<f32>,
    heads: Buffer<f32>,
    state_rows: Option<StateRows>,
    attended: Buffer<f32>,
    gated: Buffer<f32>,
    logits: Buffer<f32>,
    candidates: Buffer<u64>,
    partial: Buffer<f32>,
    arrived: Buffer<u32>,
    tickets: Buffer<u32>,
    /// Where rows are so wide that they do not fit a multiprocessor several rows are done one by one.
    decode_batch: Option<DecodeBatch>,
    /// Per number of rows at most six for each power of two of positions.
    pub(super) recorded: HashMap<Shape, Recorded>,
}

/// What layers with recurrent states need.
struct StateRows {
    mixed: Buffer<f32>,
    ready: Buffer<f32>,
    factors: Buffer<f32>,
    o: Buffer<f32>,
    output: Buffer<f32>,
}

impl StateRows {
    fn new(device: &Device, shape: DeltaShape) -> Result<StateRows, Error> {
        let rows = |floats: usize| Buffer::zeroed(device, DECODE_ROWS_MAX * floats);
        Ok(StateRows {
            mixed: rows(shape.width())?,
            ready: rows(shape.channels())?,
            factors: rows(4 * shape.value_heads)?,
            o: rows(shape.values())?,
            output: rows(shape.values())?,
        })
    }
}

impl Decode {
    pub fn new(net: &Net) -> Result<Decode, Error> {
        let (config, device) = (&net.config, &net.device);
        let (q, mixed) = (config.heads * config.head, net.mixer_widths().1);
        const { assert!(DECODE_ROWS_MAX <= PICK_ROWS_MAX, "rows fit a pick") };
        const { assert!(LENGTHS.0 * SPLITS < LENGTHS.1, "parts are as short as they get only below the longest") };
        let together = net.kernels.has_product_batch(config.embedding, config.feed_forward.max(mixed));
        if let Some(Experts { count, used, .. }) = config.experts
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
        let visits = config.experts.map_or(1, |experts| experts.used + usize::from(experts.shared));
        Ok(Decode {
            inputs: Inputs::new(device, DECODE_ROWS_MAX, DECODE_ROWS_MAX, net.table_stride)?,
            mailbox: Mailbox::new(device, PICK_RING * PICK_ROWS_MAX)?,
            tickets_given: [0; DECODE_ROWS_MAX],
            x: Buffer::zeroed(device, DECODE_ROWS_MAX * config.embedding)?,
            heads: Buffer::zeroed(device, DECODE_ROWS_MAX * net.heads_width())?,
            state_rows: net.states.as_ref().map(|states| StateRows::new(device, states.shape)).transpose()?,
            attended: Buffer::zeroed(device, DECODE_ROWS_MAX * q)?,
            gated: Buffer::zeroed(device, DECODE_ROWS_MAX * visits * config.feed_forward)?,
            logits: Buffer::zeroed(device, DECODE_ROWS_MAX * config.vocab)?,
            candidates: Buffer::zeroed(device, DECODE_ROWS_MAX * net.kernels.candidates(config.vocab))?,
            partial: Buffer::zeroed(device, DECODE_ROWS_MAX * config.heads * SPLITS * (config.head + 2))?,
            arrived: Buffer::zeroed(device, DECODE_ROWS_MAX * config.heads)?,
            tickets: Buffer::zeroed(device, DECODE_ROWS_MAX)?,
            decode_batch: together.then(|| DecodeBatch::new(net, DECODE_ROWS_MAX)).transpose()?,
            recorded: HashMap::new(),
        })
    }

    /// The products of this many rows, when they are done together; with experts also those of one that is not persistent, and
    /// with matrices of floats always.
    fn decode_batch(&self, net: &Net, rows: usize) -> Option<&DecodeBatch> {
        let alone = || net.config.experts.is_some() && !is_persistent(net, rows) || net.kernels.has_floats();
        self.decode_batch.as_ref().filter(|_| rows > 1 || alone())
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
        match self.recorded.get(&Shape::of_persistent(true)) {
            Some(Recorded::Persistent(persistent)) => persistent.times(),
            _ => Ok(Vec::new()),
        }
    }

    /// Sends a batch and starts its step; with logits and picks for every row, or with none.
    pub fn run(&mut self, net: &Net, batch: &[Chunk<'_>], with_logits: bool) -> Result<(), Error> {
        let rows: usize = batch.iter().map(|chunk| chunk.tokens.len()).sum();
        self.inputs.send(batch, &net.begin_states(batch)?)?;
        self.start(net, self.shape(net, batch, rows == batch.len(), with_logits, rows))?;
        match (&net.states, batch) {
            (Some(states), [chunk]) if is_persistent(net, rows) => states.save_after(&net.kernels, chunk),
            _ => Ok(()),
        }
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
            if is_persistent(net, rows) { LENGTHS.1 } else { longest.next_power_of_two().clamp(LENGTHS.0, LENGTHS.1) };
        let sequences = batch.len();
        Shape { rows, sequences, apart, following: !apart && batch.len() == 1, with_logits, length_max }
    }

    fn start(&mut self, net: &Net, shape: Shape) -> Result<(), Error> {
        match self.recorded.get(&shape) {
            Some(Recorded::Graph(graph)) => graph.launch()?,
            Some(Recorded::Persistent(persistent)) => persistent.launch()?,
            None if is_persistent(net, shape.rows) => self.record_persistent(net, shape)?.launch()?,
            None => {
                self.step(net, shape)?;
                self.recorded.insert(shape, Recorded::Once);
            }
            Some(Recorded::Once) => match Graph::record(&net.device, || self.step(net, shape)) {
                Ok(graph) => {
                    graph.launch()?;
                    self.recorded.insert(shape, Recorded::Graph(graph));
                }
                // Recorded steps take memory, and somebody else may have taken what was left.
                Err(_) => self.step(net, shape)?,
            },
        }
        if shape.with_logits {
            self.count_tickets(shape.rows);
        }
        Ok(())
    }

    pub(super) fn record_persistent(&mut self, net: &Net, shape: Shape) -> Result<&PersistentStep, Error> {
        let mut recorder = net.kernels.recorder();
        self.rows(net, shape, &mut recorder)?;
        let persistent = Box::new(recorder.finish()?);
        match self.recorded.entry(shape).insert_entry(Recorded::Persistent(persistent)).into_mut() {
            Recorded::Persistent(persistent) => Ok(persistent),
            Recorded::Once | Recorded::Graph(_) => unreachable!("it was just put there"),
        }
    }

    /// Logits of rows of a residual stream, without a pick.
    pub fn head(&self, net: &Net, x: Slice<'_, f32>, rows: usize) -> Result<(), Error> {
        match self.decode_batch(net, rows) {
            Some(batch) => self.output_of_batch(net, batch, (x, None), rows),
            None => self.output(net, x, rows, &mut &net.kernels),
        }
    }

    /// The likeliest token of each row that [`Decode::head`] was asked for, which is waited for and added.
    pub fn pick_head(&mut self, net: &Net, rows: usize, picks: &mut Vec<u32>) -> Result<(), Error> {
        net.kernels.pick(&self.pick_call(net, rows, None))?;
        self.count_tickets(rows);
        self.collect(&self.tickets_given[..rows], picks)
    }

    fn pick_call<'a>(&'a self, net: &Net, rows: usize, next: Option<(Slice<'a, u32>, Slice<'a, u32>)>) -> PickCall<'a> {
        PickCall {
            candidates: self.candidates.all(),
            rows,
            vocab: net.config.vocab,
            next,
            tickets: self.tickets.all(),
            mailbox: &self.mailbox,
        }
    }

    fn count_tickets(&mut self, rows: usize) {
        self.tickets_given[..rows].iter_mut().for_each(|ticket| *ticket = ticket.wrapping_add(1));
    }

    /// Logits of rows, one row after the other.
    fn output(&self, net: &Net, x: Slice<'_, f32>, rows: usize, kernels: &mut impl RowStep) -> Result<(), Error> {
        let norm = Some((&net.weights.output_norm, net.config.epsilon));
        let (parts, output, then) = self.output_parts(net);
        kernels.product(&ProductCall { parts: &parts, rows, input: x, norm, output, stride: net.config.vocab, then })
    }

    /// Logits of rows that are done together, after what the last layer left to add.
    fn output_of_batch(
        &self,
        net: &Net,
        batch: &DecodeBatch,
        (x, left): (Slice<'_, f32>, Option<Partial<'_>>),
        rows: usize,
    ) -> Result<(), Error> {
        let (parts, output, then) = self.output_parts(net);
        batch.normed(net, rows, (x, left), &net.weights.output_norm, &parts, (output, net.config.vocab), then)
    }

    fn output_parts<'a>(&'a self, net: &'a Net) -> ([Part<'a>; 1], Slice<'a, f32>, Then<'a>) {
        let parts = [Part { matrix: &net.weights.output, bias: None, output: 0 }];
        (parts, self.logits.all(), Then::Logits(self.candidates.all()))
    }

    fn step(&self, net: &Net, shape: Shape) -> Result<(), Error> {
        match self.decode_batch(net, shape.rows) {
            Some(batch) => self.batch(net, shape, batch),
            None => self.rows(net, shape, &mut &net.kernels),
        }
    }

    /// A step of rows that are done one by one; of a single one it may be recorded.
    fn rows(&self, net: &Net, shape: Shape, kernels: &mut impl RowStep) -> Result<(), Error> {
        kernels.embed(&self.embed_call(net, shape))?;
        for layer in 0..net.weights.layers.len() {
            self.layer(net, shape, layer, kernels)?;
        }
        if !shape.with_logits {
            return Ok(());
        }
        self.output(net, self.x.all(), shape.rows, kernels)?;
        kernels.pick(&self.pick_call(net, shape.rows, Some((self.inputs.tokens(), self.inputs.positions()))))
    }

    /// A step of rows that are done together.
    fn batch(&self, net: &Net, shape: Shape, batch: &DecodeBatch) -> Result<(), Error> {
        net.kernels.embed(&self.embed_call(net, shape))?;
        let mut left = None;
        for layer in 0..net.weights.layers.len() {
            left = Some(self.layer_of_batch(net, shape, layer, batch, left)?);
        }
        if !shape.with_logits {
            return left.map_or(Ok(()), |left| batch.finish(net, shape.rows, self.x.all(), left));
        }
        self.output_of_batch(net, batch, (self.x.all(), left), shape.rows)?;
        net.kernels.pick(&self.pick_call(net, shape.rows, Some((self.inputs.tokens(), self.inputs.positions()))))
    }

    fn embed_call<'a>(&'a self, net: &'a Net, shape: Shape) -> EmbedCall<'a> {
        let tokens = self.inputs.first_tokens(shape.rows);
        EmbedCall { table: &net.weights.embeddings, tokens, output: self.x.all() }
    }

    /// The matrices that a layer's mixer begins with; where their results go, and how wide a row of them is.
    fn mixer_parts<'a>(
        &'a self,
        net: &'a Net,
        layer: &'a Layer,
    ) -> Result<(Vec<Part<'a>>, Slice<'a, f32>, usize), Error> {
        match &layer.mixer {
            Mixer::Attention(attention) => {
                let (heads, stride) = (self.heads.all(), net.heads_width());
                Ok((attention_parts(attention).to_vec(), heads, stride))
            }
            Mixer::Delta(delta) => {
                let (states, rows) = self.states(net)?;
                Ok((delta_parts(delta).to_vec(), rows.mixed.all(), states.shape.width()))
            }
        }
    }

    fn states<'a>(&'a self, net: &'a Net) -> Result<(&'a States, &'a StateRows), Error> {
        let both = net.states.as_ref().zip(self.state_rows.as_ref());
        both.ok_or_else(|| Error::Unsupported("recurrent states".to_owned()))
    }

    /// What is between the products of a layer's mixer, and where its result is.
    fn mix<'a>(
        &'a self,
        net: &'a Net,
        shape: Shape,
        layer: &Layer,
        kernels: &mut impl RowStep,
    ) -> Result<Slice<'a, f32>, Error> {
        match &layer.mixer {
            Mixer::Attention(attention) => {
                self.attend(net, shape, attention, kernels)?;
                Ok(self.attended.all())
            }
            Mixer::Delta(delta) => {
                self.update(net, shape, layer, delta, kernels)?;
                Ok(self.states(net)?.1.output.all())
            }
        }
    }

    fn update(
        &self,
        net: &Net,
        shape: Shape,
        layer: &Layer,
        delta: &Delta,
        kernels: &mut impl RowStep,
    ) -> Result<(), Error> {
        let (states, rows) = self.states(net)?;
        kernels.delta(&DeltaCall {
            shape: states.shape,
            states: states.view(),
            layer: delta.index,
            weights: delta_weights(delta),
            rows: shape.rows,
            sequences: shape.sequences,
            x: self.x.all(),
            norm: (&layer.norm, net.config.epsilon),
            mixed: rows.mixed.all(),
            stride: states.shape.width(),
            rates: None,
            ready: rows.ready.all(),
            factors: rows.factors.all(),
            o: rows.o.all(),
            output: DeltaOutput::Floats(rows.output.all()),
            positions: self.inputs.positions(),
            row_sequences: self.inputs.sequences(),
            runs: self.inputs.runs(),
        })
    }

    fn attend(&self, net: &Net, shape: Shape, layer: &Attention, kernels: &mut impl RowStep) -> Result<(), Error> {
        let heads = net.heads(layer, self.heads.all(), &self.inputs);
        if !shape.apart {
            kernels.store_heads(&StoreCall { heads, rows: shape.rows, queries: None })?;
        }
        let together = if shape.following { net.kernels.rows_together(shape.rows, shape.length_max) } else { 1 };
        kernels.attention(&AttentionCall {
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

    fn layer_of_batch<'a>(
        &'a self,
        net: &'a Net,
        shape: Shape,
        i: usize,
        decode_batch: &'a DecodeBatch,
        left: Option<Partial<'a>>,
    ) -> Result<Partial<'a>, Error> {
        let (config, layer, rows) = (&net.config, &net.weights.layers[i], shape.rows);
        let (parts, output, stride) = self.mixer_parts(net, layer)?;
        decode_batch.normed(net, rows, (self.x.all(), left), &layer.norm, &parts, (output, stride), Then::Store)?;
        let mixed = self.mix(net, shape, layer, &mut &net.kernels)?;
        let bias = layer.output_bias.as_ref().map(Buffer::all);
        let left = decode_batch.left(net, rows, mixed, &layer.output, bias)?;
        if let Some(router) = &layer.router {
            return decode_batch.experts(net, rows, (self.x.all(), left), layer, router, self.gated.all());
        }
        let (norm, output) = (&layer.feed_forward_norm, (self.gated.all(), config.feed_forward));
        let parts = [Part { matrix: &layer.gate, bias: None, output: 0 }];
        decode_batch.normed(net, rows, (self.x.all(), Some(left)), norm, &parts, output, Then::Gate(&layer.up))?;
        decode_batch.left(net, rows, self.gated.all(), &layer.down, None)
    }

    fn layer(&self, net: &Net, shape: Shape, i: usize, kernels: &mut impl RowStep) -> Result<(), Error> {
        let (config, layer, rows) = (&net.config, &net.weights.layers[i], shape.rows);
        let residual = (self.x.all(), config.embedding);
        let norm = |norm| Some((norm, config.epsilon));
        let (parts, output, stride) = self.mixer_parts(net, layer)?;
        let (parts, input, norm_of, then) = (&parts, self.x.all(), norm(&layer.norm), Then::Store);
        kernels.product(&ProductCall { parts, rows, input, norm: norm_of, output, stride, then })?;
        let mixed = self.mix(net, shape, layer, kernels)?;
        let bias = layer.output_bias.as_ref().map(Buffer::all);
        let parts = &[Part { matrix: &layer.output, bias, output: 0 }];
        let ((output, stride), input, then) = (residual, mixed, Then::Add);
        kernels.product(&ProductCall { parts, rows, input, norm: None, output, stride, then })?;
        if let (Some(router), Some(experts)) = (&layer.router, config.experts) {
            return kernels.mixture(&self.mixture_call(net, layer, router, experts));
        }
        let (parts, input) = (&[Part { matrix: &layer.gate, bias: None, output: 0 }], self.x.all());
        let (output, stride) = (self.gated.all(), config.feed_forward);
        let (norm_of, then) = (norm(&layer.feed_forward_norm), Then::Gate(&layer.up));
        kernels.product(&ProductCall { parts, rows, input, norm: norm_of, output, stride, then })?;
        let parts = &[Part { matrix: &layer.down, bias: None, output: 0 }];
        let ((output, stride), input, then) = (residual, self.gated.all(), Then::Add);
        kernels.product(&ProductCall { parts, rows, input, norm: None, output, stride, then })
    }

    fn mixture_call<'a>(
        &'a self,
        net: &Net,
        layer: &'a Layer,
        router: &'a Buffer<f32>,
        experts: Experts,
    ) -> MixtureCall<'a> {
        let (Layer { gate, up, down, .. }, Experts { count, used, .. }) = (layer, experts);
        let norm = (&layer.feed_forward_norm, net.config.epsilon);
        let shared = layer.shared.as_ref().map(|[gate, up, down]| [gate, up, down]);
        MixtureCall { x: self.x.all(), norm, router, count, used, shared, gate, up, down, gated: self.gated.all() }
    }
}

/// The matrices of queries, keys and values.
pub(super) fn attention_parts(layer: &Attention) -> [Part<'_>; 3] {
    let mut output = 0;
    [&layer.q, &layer.k, &layer.v].map(|matrix| {
        let own = output..output + matrix.rows;
        output = own.end;
        let bias = layer.bias.as_ref().map(|bias| bias.part(own.clone()));
        Part { matrix, bias, output: own.start }
    })
}

/// Those of a layer with a state: queries, keys and values, then the result's gate.
fn delta_parts(layer: &Delta) -> [Part<'_>; 2] {
    let part = |matrix, output| Part { matrix, bias: None, output };
    [part(&layer.qkv, 0), part(&layer.gate, layer.qkv.rows)]
}

pub(super) fn delta_weights(layer: &Delta) -> DeltaWeights<'_> {
    let Delta { taps, dt, a, norm, rates, .. } = layer;
    DeltaWeights { taps, dt, a, norm, rates }
}
