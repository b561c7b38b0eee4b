//! What the kernels of Gated DeltaNet layers are given; `kernels/delta.cuh` says what they do.

use crate::memory::{Buffer, Slice};

/// Elements of a head.
pub const DELTA_HEAD: usize = 128;
/// Rows that the convolution sees.
pub const DELTA_TAPS: usize = 4;
/// Most places that a sequence's state goes to in a step.
pub const DELTA_WRITES_MAX: usize = 8;
/// Words that say what a sequence's rows in a step are: [`DeltaRun::words`].
pub const DELTA_RUN_WORDS: usize = 8 + 2 * DELTA_WRITES_MAX;

/// What a step does with a sequence's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeltaRun {
    /// Its first row in the step.
    pub first: usize,
    /// Its rows.
    pub count: usize,
    /// Those before which nothing is logged.
    pub certain: usize,
    /// Slot that has the state before the first row.
    pub read: u32,
    /// Row of the log for the first row that is not certain.
    pub log: usize,
    /// After how many rows, all certain, the state goes to which slot, in that order; the slot that is read comes last.
    pub writes: [Option<(usize, u32)>; DELTA_WRITES_MAX],
}

impl DeltaRun {
    /// As kernels read it.
    pub fn words(&self) -> [u32; DELTA_RUN_WORDS] {
        let mut words = [0; DELTA_RUN_WORDS];
        let writes = self.writes.iter().flatten();
        let head = [self.first, self.count, self.certain, self.read as usize, self.log, writes.clone().count()];
        words.iter_mut().zip(head).for_each(|(word, value)| *word = value as u32);
        for (i, &(after, slot)) in writes.enumerate() {
            (words[8 + i], words[8 + DELTA_WRITES_MAX + i]) = (after as u32, slot);
        }
        words
    }
}

/// The shape of a model's DeltaNet layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values, each with a state.
    pub value_heads: usize,
    /// Whether the value heads of a key head follow each other; otherwise value head `j` has key head `j mod key_heads`.
    pub grouped: bool,
}

impl DeltaShape {
    /// Floats of a row of queries, keys and values.
    pub fn channels(&self) -> usize {
        (2 * self.key_heads + self.value_heads) * DELTA_HEAD
    }

    /// Floats of a row of values.
    pub fn values(&self) -> usize {
        self.value_heads * DELTA_HEAD
    }

    /// Where alpha and beta stand in a row, if they do: behind queries, keys, values and gates.
    pub fn rates(&self) -> usize {
        self.channels() + self.values()
    }

    /// Floats of a row with everything that is made of the residual; rows begin at multiples of 16 bytes.
    pub fn width(&self) -> usize {
        (self.rates() + 2 * self.value_heads).next_multiple_of(4)
    }

    /// Bytes of one copy of a layer's state.
    pub fn copy_bytes(&self) -> usize {
        self.value_heads * DELTA_HEAD * DELTA_HEAD * 4
    }

    /// Bytes of the rows before the convolution that a layer remembers.
    pub fn rows_bytes(&self) -> usize {
        DELTA_TAPS * self.channels() * 4
    }

    /// Bytes of a layer in a slot: two copies of its state, then the rows.
    pub fn layer_bytes(&self) -> usize {
        2 * self.copy_bytes() + self.rows_bytes()
    }

    /// Bytes of a row of a layer's log.
    pub fn log_bytes(&self) -> usize {
        let floats = self.channels() + (self.key_heads + self.value_heads) * DELTA_HEAD + self.value_heads;
        (floats * 4).next_multiple_of(16)
    }
}

/// Where the states of all slots are.
#[derive(Clone, Copy)]
pub struct DeltaStates<'a> {
    /// Slot after slot, layer after layer.
    pub states: Slice<'a, u8>,
    /// Layers of a slot.
    pub layers: usize,
    /// `[layer][row]` of [`DeltaShape::log_bytes`].
    pub log: Slice<'a, u8>,
    /// Rows of the log of a layer.
    pub log_rows: usize,
}

/// A layer's weights but for the matrices.
#[derive(Clone, Copy)]
pub struct DeltaWeights<'a> {
    /// `[channel][DELTA_TAPS]`, oldest row first.
    pub taps: &'a Buffer<f32>,
    /// `[value head]`.
    pub dt: &'a Buffer<f32>,
    /// `[value head]`.
    pub a: &'a Buffer<f32>,
    /// `[DELTA_HEAD]`.
    pub norm: &'a Buffer<f32>,
    /// Alphas and then betas, `[2 value heads][columns]`.
    pub rates: &'a Buffer<f32>,
}

/// Where the result goes.
#[derive(Clone, Copy)]
pub enum DeltaOutput<'a> {
    /// As floats.
    Floats(Slice<'a, f32>),
    /// In half precision.
    Halves(Slice<'a, u16>),
}

/// A DeltaNet layer between its products.
#[derive(Clone, Copy)]
pub struct DeltaCall<'a> {
    /// See there.
    pub shape: DeltaShape,
    /// See there.
    pub states: DeltaStates<'a>,
    /// Which of the DeltaNet layers it is.
    pub layer: usize,
    /// See there.
    pub weights: DeltaWeights<'a>,
    /// Number of rows.
    pub rows: usize,
    /// Number of sequences.
    pub sequences: usize,
    /// The residual that the rows were made of.
    pub x: Slice<'a, f32>,
    /// Norm before those products, and its epsilon, which is that of the result's norm too.
    pub norm: (&'a Buffer<f32>, f32),
    /// `[row][stride]`: queries, keys, values and gates.
    pub mixed: Slice<'a, f32>,
    /// See `mixed`: a multiple of four.
    pub stride: usize,
    /// Alpha and beta, `[row][2 value heads]`, where they are known; otherwise they are made and put behind the gates.
    pub rates: Option<Slice<'a, f32>>,
    /// Scratch, `[row][channels]`.
    pub ready: Slice<'a, f32>,
    /// Scratch, `[row][value head][4]`.
    pub factors: Slice<'a, f32>,
    /// Scratch, `[row][values]`.
    pub o: Slice<'a, f32>,
    /// `[row][values]`.
    pub output: DeltaOutput<'a>,
    /// Position of each row.
    pub positions: Slice<'a, u32>,
    /// Sequence of each row.
    pub row_sequences: Slice<'a, u32>,
    /// `[sequence][DELTA_RUN_WORDS]`.
    pub runs: Slice<'a, u32>,
}

/// The first rows of a logged step, onto a state.
#[derive(Clone, Copy)]
pub struct DeltaSettleCall<'a> {
    /// See there.
    pub shape: DeltaShape,
    /// See there.
    pub states: DeltaStates<'a>,
    /// Slot that has the state before the step.
    pub from: u32,
    /// Slot that gets it; may be the same.
    pub to: u32,
    /// First row of the log.
    pub first: usize,
    /// Rows that were kept.
    pub kept: usize,
    /// Position of the first.
    pub start: usize,
}
