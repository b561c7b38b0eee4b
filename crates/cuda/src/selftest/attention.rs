//! Attention against the CPU's: of single rows, of rows that share blocks, and of many rows.

use super::{Cases, Outcome, Test, different};
use crate::arguments::*;
use crate::error::Error;
use crate::launch::{KernelsOptions, SPLITS};
use crate::memory::Buffer;
use half::f16;
use kernels::cases::{Case, floats, normalised_error};
use kernels::kv::BLOCK;
use kernels::{KvType, Runtime};

/// Depths and rows of attention. Some rows are on both sides of the end of a part, where they have different numbers of parts.
const ATTENDED: [(usize, usize); 12] = [
    (0, 1),
    (31, 2),
    (100, 1),
    (511, 1),
    (700, 9),
    (1500, 1),
    (600, 40),
    (5000, 1),
    (250, 21),
    (500, 32),
    (766, 2),
    (2400, 21),
];

/// Those that are small, and yet have several parts and rows that share them.
const SMALL: [(usize, usize); 3] = [(31, 2), (511, 1), (250, 21)];

pub(super) fn depths(cases: Cases) -> &'static [(usize, usize)] {
    if cases == Cases::All { &ATTENDED } else { &SMALL }
}

impl Test<'_> {
    /// Both kinds of attention over the same cache, filled by the card.
    pub(super) fn attention(
        &self,
        depth: usize,
        queries: usize,
        oracle: &mut Runtime,
        outcomes: &mut Vec<Outcome>,
    ) -> Result<(), Error> {
        let KernelsOptions { head, heads, kv_heads, .. } = self.options;
        let kind = if self.options.kv8 { KvType::Q8 } else { KvType::F16 };
        let case = Case::Attention { kind, heads, kv_heads, head, depth, queries };
        let expected = case.prepare(oracle)(oracle);
        let (total, width) = (depth + queries, (heads + 2 * kv_heads) * head);
        // The oracle's queries are scaled already; the kernels scale what they are given.
        let scale = 0.3 * (head as f32).sqrt();
        let asked: Vec<f32> = floats(7, queries * heads * head).iter().map(|x| x * scale).collect();
        let mut rows = vec![0.0; total * width];
        for (position, row) in rows.chunks_exact_mut(width).enumerate() {
            let (q, kv) = row.split_at_mut(heads * head);
            let (k, v) = kv.split_at_mut(kv_heads * head);
            k.copy_from_slice(&floats(position as u64, kv_heads * head));
            v.copy_from_slice(&floats(1 << 32 | position as u64, kv_heads * head));
            if position >= depth {
                q.copy_from_slice(&asked[(position - depth) * heads * head..][..heads * head]);
            }
        }
        let blocks = total.div_ceil(BLOCK);
        let block_bytes = 2 * self.options.layer_bytes();
        // Whatever was in a block before must not matter: not-a-number everywhere.
        let cache = Buffer::new(self.device, &vec![0xffu8; blocks * block_bytes])?;
        let table: Vec<u32> = (0..blocks as u32).rev().collect();
        let (rows, tables) = (Buffer::new(self.device, &rows)?, Buffer::new(self.device, &table)?);
        let positions = Buffer::new(self.device, &(0..total as u32).collect::<Vec<_>>())?;
        let sequences = Buffer::zeroed(self.device, total)?;
        let angles = Buffer::zeroed(self.device, 1)?;
        let call = |from: usize| HeadsCall {
            rows: rows.part(from * width..total * width),
            positions: positions.part(from..total),
            sequences: sequences.part(from..total),
            tables: tables.all(),
            table_stride: blocks,
            cache: cache.all(),
            block_bytes,
            layer: 1,
            q_norm: None,
            k_norm: None,
            epsilon: 0.0,
            angles: &angles,
            dimensions: 0,
            neighbours: false,
        };
        self.kernels.store_heads(&StoreCall { heads: call(0), rows: total, queries: None })?;
        let output = Buffer::new(self.device, &vec![f32::NAN; queries * heads * head])?;
        let partial = Buffer::new(self.device, &vec![f32::NAN; queries * heads * SPLITS * (head + 2)])?;
        let arrived = Buffer::zeroed(self.device, queries * heads)?;
        let attend = |together, output: &Buffer<f32>| {
            // Twice: the counters must be as they were.
            (0..2).try_for_each(|_| {
                self.kernels.attention(&AttentionCall {
                    heads: call(depth),
                    rows: queries,
                    length_max: total,
                    store: queries == 1,
                    together,
                    output: output.all(),
                    partial: partial.all(),
                    arrived: arrived.all(),
                })
            })
        };
        attend(1, &output)?;
        self.compare(format!("decode {case:?}"), &output, &expected, 2e-5, outcomes)?;
        let most = self.kernels.together_max(total);
        for together in [4, 8, most].into_iter().filter(|&together| queries > 1 && (2..=most).contains(&together)) {
            let shared = Buffer::new(self.device, &vec![f32::NAN; output.len()])?;
            attend(together, &shared)?;
            let error = different(&output, &shared)? as f32;
            outcomes.push(Outcome { name: format!("{together} rows a block {case:?}"), error, bound: 0.0 });
        }
        let half_queries = Buffer::zeroed(self.device, queries * heads * head)?;
        let halves = Buffer::new(self.device, &vec![0xffffu16; queries * heads * head])?;
        let store = StoreCall { heads: call(depth), rows: queries, queries: Some(half_queries.all()) };
        self.kernels.store_heads(&store)?;
        let tile = QueryTile { row: 0, count: queries as u32, position: depth as u32, padding: 0 };
        let tiles = Buffer::new(self.device, &[tile])?;
        let flash =
            FlashCall { heads: call(depth), queries: half_queries.all(), tiles: tiles.all(), output: halves.all() };
        self.kernels.flash(&flash, queries)?;
        let mut bits = vec![0; halves.len()];
        halves.read(0, &mut bits)?;
        let found: Vec<f32> = bits.iter().map(|&bits| f16::from_bits(bits).to_f32()).collect();
        let (name, error) = (format!("prefill {case:?}"), normalised_error(&found, &expected));
        outcomes.push(Outcome { name, error, bound: 3e-3 });
        Ok(())
    }
}
