//! Gated DeltaNet against a plain computation in 64 bits, and against itself: cut anywhere, and with a step of which only some rows are
//! kept, a state must have the same bits.

use super::{Outcome, Test};
use crate::arguments::*;
use crate::error::Error;
use crate::memory::Buffer;
use kernels::cases::{floats, normalised_error};

/// Rows, and columns of the residual.
const ROWS: usize = 37;
const COLUMNS: usize = 768;
const EPSILON: f32 = 1e-6;
/// Layers of a slot, the one that is tested, slots, and rows of the log.
const LAYERS: usize = 2;
const LAYER: usize = 1;
const SLOTS: usize = 3;
const LOG_ROWS: usize = 19;
const LOG_FIRST: usize = 3;

/// Everything but the rows.
struct Layer {
    shape: DeltaShape,
    taps: Vec<f32>,
    dt: Vec<f32>,
    a: Vec<f32>,
    norm: Vec<f32>,
    rates: Vec<f32>,
    x: Vec<f32>,
    x_norm: Vec<f32>,
    mixed: Vec<f32>,
}

impl Layer {
    fn new(shape: DeltaShape) -> Layer {
        let heads = shape.value_heads;
        Layer {
            shape,
            taps: floats(1, shape.channels() * DELTA_TAPS),
            dt: floats(2, heads),
            a: floats(3, heads).iter().map(|x| -0.1 - x.abs()).collect(),
            norm: floats(4, DELTA_HEAD).iter().map(|x| 1.0 + 0.2 * x).collect(),
            rates: floats(5, 2 * heads * COLUMNS).iter().map(|x| 0.1 * x).collect(),
            x: floats(6, ROWS * COLUMNS),
            x_norm: floats(7, COLUMNS).iter().map(|x| 1.0 + 0.2 * x).collect(),
            mixed: floats(8, ROWS * shape.width()),
        }
    }

    /// The recurrence as papers write it.
    fn expected(&self) -> Vec<f32> {
        let DeltaShape { key_heads, value_heads, grouped } = self.shape;
        let (channels, width, head) = (self.shape.channels(), self.shape.width(), DELTA_HEAD);
        let wide = |x: f32| f64::from(x);
        let silu = |x: f64| x / (1.0 + (-x).exp());
        let mut states = vec![vec![0.0f64; head * head]; value_heads];
        let mut all = Vec::new();
        for row in 0..ROWS {
            let x = &self.x[row * COLUMNS..][..COLUMNS];
            let square = x.iter().map(|&x| wide(x) * wide(x)).sum::<f64>() / COLUMNS as f64;
            let scale = 1.0 / (square + wide(EPSILON)).sqrt();
            let rate = |which: usize| -> f64 {
                let weights = &self.rates[which * COLUMNS..][..COLUMNS];
                let terms = x.iter().zip(weights).zip(&self.x_norm);
                scale * terms.map(|((&x, &w), &n)| wide(x) * wide(n) * wide(w)).sum::<f64>()
            };
            let convolved = |channel: usize| {
                let taps = (0..DELTA_TAPS).filter(|tap| row + tap + 1 >= DELTA_TAPS);
                silu(
                    taps.map(|tap| {
                        let from = row + tap + 1 - DELTA_TAPS;
                        wide(self.taps[channel * DELTA_TAPS + tap]) * wide(self.mixed[from * width + channel])
                    })
                    .sum(),
                )
            };
            let unit = |first: usize| -> Vec<f64> {
                let values: Vec<f64> = (0..head).map(|e| convolved(first + e)).collect();
                let length = values.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-6);
                values.into_iter().map(|x| x / length).collect()
            };
            for (j, state) in states.iter_mut().enumerate() {
                let key = if grouped { j / (value_heads / key_heads) } else { j % key_heads };
                let (q, k) = (unit(key * head), unit((key_heads + key) * head));
                let alpha = rate(j) + wide(self.dt[j]);
                let decay = (wide(self.a[j]) * alpha.exp().ln_1p()).exp();
                let beta = 1.0 / (1.0 + (-rate(value_heads + j)).exp());
                let mut result = Vec::new();
                for column in 0..head {
                    let v = convolved((2 * key_heads + j) * head + column);
                    let s = &mut state[column * head..][..head];
                    s.iter_mut().for_each(|s| *s *= decay);
                    let seen: f64 = s.iter().zip(&k).map(|(s, k)| s * k).sum();
                    let d = beta * (v - seen);
                    s.iter_mut().zip(&k).for_each(|(s, k)| *s += k * d);
                    result.push(s.iter().zip(&q).map(|(s, q)| s * q).sum::<f64>() / (head as f64).sqrt());
                }
                let square = result.iter().map(|o| o * o).sum::<f64>() / head as f64;
                let scale = 1.0 / (square + wide(EPSILON)).sqrt();
                for (e, o) in result.into_iter().enumerate() {
                    let z = wide(self.mixed[row * width + channels + j * head + e]);
                    all.push((o * scale * wide(self.norm[e]) * silu(z)) as f32);
                }
            }
        }
        all
    }
}

/// What is done with the rows of a piece.
#[derive(Clone, Copy)]
enum Piece {
    Rows(usize),
    /// So many rows are logged, and so many of them kept.
    Logged(usize, usize),
    /// The same with some that are certain before.
    Half(usize, usize, usize),
    /// Rows are logged; what is kept goes to the next slot.
    Moved(usize, usize),
    /// The state goes to other slots too, of which one goes on.
    Saved(usize),
}

impl Test<'_> {
    pub(super) fn delta(&self, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        for (key_heads, value_heads, grouped) in [(2, 4, false), (2, 6, true), (1, 1, false)] {
            let layer = Layer::new(DeltaShape { key_heads, value_heads, grouped });
            let whole = self.delta_in(&layer, &[Piece::Rows(ROWS)])?;
            let name = format!("delta {key_heads} {value_heads} {grouped}");
            let error = normalised_error(&whole, &layer.expected());
            outcomes.push(Outcome { name: name.clone(), error, bound: 2e-5 });
            let cuts = [
                &[Piece::Rows(1); ROWS][..],
                &[Piece::Rows(2), Piece::Rows(1), Piece::Rows(17), Piece::Rows(17)],
                &[Piece::Rows(5), Piece::Logged(9, 4), Piece::Logged(3, 0), Piece::Half(18, 2, 16), Piece::Rows(12)],
                &[
                    Piece::Half(8, 1, 2),
                    Piece::Saved(3),
                    Piece::Moved(16, 7),
                    Piece::Rows(1),
                    Piece::Moved(5, 2),
                    Piece::Rows(22),
                ],
            ];
            for (i, pieces) in cuts.into_iter().enumerate() {
                let got = self.delta_in(&layer, pieces)?;
                let error = got.iter().zip(&whole).filter(|(a, b)| a.to_bits() != b.to_bits()).count() as f32;
                outcomes.push(Outcome { name: format!("{name} cut {i}"), error, bound: 0.0 });
            }
        }
        Ok(())
    }

    /// The results of all rows, in pieces; rows that were not kept are computed again.
    fn delta_in(&self, layer: &Layer, pieces: &[Piece]) -> Result<Vec<f32>, Error> {
        let (device, shape) = (self.device, layer.shape);
        let new = |values: &[f32]| Buffer::new(device, values);
        let [taps, dt, a, norm, rates] = [&layer.taps, &layer.dt, &layer.a, &layer.norm, &layer.rates];
        let [taps, dt, a, norm, rates] = [new(taps)?, new(dt)?, new(a)?, new(norm)?, new(rates)?];
        let (x, x_norm, mixed) = (new(&layer.x)?, new(&layer.x_norm)?, new(&layer.mixed)?);
        // What was in a slot before must not matter.
        let states = Buffer::new(device, &vec![0xffu8; SLOTS * LAYERS * shape.layer_bytes()])?;
        let log = Buffer::new(device, &vec![0xffu8; LAYERS * LOG_ROWS * shape.log_bytes()])?;
        let states = DeltaStates { states: states.all(), layers: LAYERS, log: log.all(), log_rows: LOG_ROWS };
        let weights = DeltaWeights { taps: &taps, dt: &dt, a: &a, norm: &norm, rates: &rates };
        let ready = Buffer::zeroed(device, ROWS * shape.channels())?;
        let factors = Buffer::zeroed(device, ROWS * shape.value_heads * 4)?;
        let o = Buffer::zeroed(device, ROWS * shape.values())?;
        let output = new(&vec![f32::NAN; ROWS * shape.values()])?;
        let positions = Buffer::new(device, &(0..ROWS as u32).collect::<Vec<_>>())?;
        let row_sequences = Buffer::zeroed(device, ROWS)?;
        let (mut start, mut slot) = (0, 0);
        for &piece in pieces {
            let next = (slot + 1) % SLOTS as u32;
            let (rows, certain, kept, to) = match piece {
                Piece::Rows(rows) => (rows, rows, rows, slot),
                Piece::Logged(rows, kept) => (rows, 0, kept, slot),
                Piece::Half(rows, certain, kept) => (rows, certain, kept, slot),
                Piece::Moved(rows, kept) => (rows, 0, kept, next),
                Piece::Saved(rows) => (rows, rows, rows, next),
            };
            let mut run = DeltaRun { count: rows, certain, read: slot, log: LOG_FIRST, ..DeltaRun::default() };
            if certain > 0 {
                run.writes[0] = matches!(piece, Piece::Saved(_)).then_some((certain / 2 + 1, 2 - next.min(1)));
                run.writes[1] = matches!(piece, Piece::Saved(_)).then_some((certain, next));
                run.writes[2] = Some((certain, slot));
            }
            let range = |each: usize| start * each..(start + rows) * each;
            let runs = Buffer::new(device, &run.words())?;
            self.kernels.delta(&DeltaCall {
                shape,
                states,
                layer: LAYER,
                weights,
                rows,
                sequences: 1,
                x: x.part(range(COLUMNS)),
                norm: (&x_norm, EPSILON),
                mixed: mixed.part(range(shape.width())),
                stride: shape.width(),
                rates: None,
                ready: ready.all(),
                factors: factors.all(),
                o: o.all(),
                output: DeltaOutput::Floats(output.part(range(shape.values()))),
                positions: positions.part(range(1)),
                row_sequences: row_sequences.part(range(1)),
                runs: runs.all(),
            })?;
            if certain < rows {
                let (first, kept, start) = (LOG_FIRST, kept - certain, start + certain);
                self.kernels.delta_settle(&DeltaSettleCall { shape, states, from: slot, to, first, kept, start })?;
            }
            (start, slot) = (start + kept, to);
        }
        assert_eq!(start, ROWS, "pieces are all rows");
        let mut values = vec![0.0; output.len()];
        output.read(0, &mut values)?;
        Ok(values)
    }
}
