//! One table of cases per operation: it drives the tests against the reference and the benchmark alike.
//!
//! Shapes are those of real models plus ragged edges. Each case makes its own data from a seed, runs on any entry of the
//! kernel table, and knows its bytes and operations, so a benchmark line can state what share of the machine it reached.

use crate::activations::Activations;
use crate::format::{Format, Precision};
use crate::kv::{BLOCK, KvLayout, KvStore, KvType};
use crate::memory::Region;
use crate::pack::{Matrix, Shape};
use crate::runtime::{Heads, Output, Queries, RowMap, Runtime, output_stride};
use half::f16;
use std::sync::Arc;

/// A prepared case: runs once per call and gives its output.
pub type Runner = Box<dyn FnMut(&mut Runtime) -> Vec<f32>>;

/// A case of one operation.
#[derive(Clone, Copy, Debug)]
pub enum Case {
    /// A matrix product: `batch` activation rows.
    Matmul {
        /// Weights.
        shape: Shape,
        /// Activation rows.
        batch: usize,
    },
    /// Attention of `queries` rows at `depth`.
    Attention {
        /// Element type of the cache.
        kind: KvType,
        /// Query heads.
        heads: usize,
        /// KV heads.
        kv_heads: usize,
        /// Elements per head.
        head: usize,
        /// Positions already cached.
        depth: usize,
        /// New rows.
        queries: usize,
    },
    /// Root-mean-square normalisation of rows of this length.
    RmsNorm(usize),
    /// Gated activation on rows of this length.
    Silu(usize),
    /// Quantisation of rows of this length.
    Quantize(usize, Precision),
}

impl Case {
    /// All cases.
    pub fn all() -> Vec<Case> {
        let mut all = Vec::new();
        for format in Format::ALL {
            // 40 rows leave the last tile ragged; 256 and 768 columns are one and three super-blocks.
            for (rows, columns, batches) in
                [(40, 256, &[1, 2, 3][..]), (48, 768, &[4, 5, 6, 7, 8, 9]), (96, 1536, &[1, 17])]
            {
                let shape = Shape { format, rows, columns };
                all.extend(batches.iter().map(|&batch| Case::Matmul { shape, batch }));
            }
        }
        // Row lengths of the small models: no multiple of 256, and an odd number of small blocks.
        for format in [Format::Q4_0, Format::Q4_1, Format::Q5_0, Format::Q5_1, Format::Q8_0] {
            for columns in [576, 896, 96] {
                all.push(Case::Matmul { shape: Shape { format, rows: 48, columns }, batch: 3 });
            }
        }
        for kind in [KvType::F16, KvType::Q8] {
            for (heads, kv_heads, head) in [(12, 2, 128), (14, 2, 64), (9, 3, 64), (4, 4, 80), (32, 2, 128)] {
                for (depth, queries) in [(0, 1), (31, 2), (100, 1), (511, 1), (700, 9), (1500, 1), (600, 40)] {
                    all.push(Case::Attention { kind, heads, kv_heads, head, depth, queries });
                }
            }
        }
        all.extend([64, 576, 896, 1536].map(Case::RmsNorm));
        all.extend([64, 1536, 8960].map(Case::Silu));
        all.extend([256, 1536, 8960].map(|n| Case::Quantize(n, Precision::Super)));
        all.extend([96, 576, 896].map(|n| Case::Quantize(n, Precision::Small)));
        all
    }

    /// Normalised error, `|a - b| / |b|`, below which two implementations agree.
    ///
    /// Products are integer sums inside blocks, so only the order of a few float additions differs: 1e-5 is ten times
    /// what was seen. The `_1` formats round the activation sums to half precision (as llama.cpp does) and the
    /// reference does not, which is 2^-11 of the minimums' share. Attention and the gate use an exponential of 2e-7.
    pub fn bound(&self) -> f32 {
        match self {
            Case::Matmul { shape: Shape { format: Format::Q4_1 | Format::Q5_1, .. }, .. } => 1e-3,
            _ => 1e-5,
        }
    }

    /// Bytes that have to be read at least.
    pub fn bytes(&self) -> usize {
        match *self {
            Case::Matmul { shape, .. } => shape.rows * shape.format.row_bytes(shape.columns),
            Case::Attention { kind, kv_heads, head, depth, queries, .. } => {
                (depth + queries) * kv_heads * head * 2 * if kind == KvType::F16 { 2 } else { 1 }
            }
            Case::RmsNorm(n) | Case::Quantize(n, _) => n * 4,
            Case::Silu(n) => n * 8,
        }
    }

    /// Multiply-adds, or elements for row operations.
    pub fn operations(&self) -> usize {
        match *self {
            Case::Matmul { shape, batch } => shape.rows * shape.columns * batch,
            Case::Attention { heads, head, depth, queries, .. } => 2 * heads * head * (depth + queries) * queries,
            Case::RmsNorm(n) | Case::Silu(n) | Case::Quantize(n, _) => n,
        }
    }

    /// Prepares the case's data for a runtime; the returned closure runs it once and gives its output.
    pub fn prepare(self, runtime: &Runtime) -> Runner {
        match self {
            Case::Matmul { shape, batch } => matmul(shape, batch, runtime),
            Case::Attention { kind, heads, kv_heads, head, depth, queries } => {
                let layout = KvLayout { kind, layers: 2, heads: kv_heads, head };
                attention(layout, heads, depth, queries)
            }
            Case::RmsNorm(n) => Box::new(move |runtime| {
                let (x, weight, mut out) = (floats(1, 3 * n), floats(2, n), vec![0.0; 3 * n]);
                runtime.rms_norm(&x, &weight, 1e-6, &mut out);
                out
            }),
            Case::Silu(n) => Box::new(move |runtime| {
                let (gate, up, mut out) = (floats(1, n), floats(2, n), vec![0.0; n]);
                runtime.silu_multiply(&gate, &up, n, n, &mut out);
                out
            }),
            Case::Quantize(n, precision) => Box::new(move |runtime| {
                let mut x = Activations::new(2, n);
                x.values.copy_from_slice(&floats(1, 2 * n));
                runtime.quantize(&mut x, 2, precision);
                [x.dequantized(0, precision), x.dequantized(1, precision)].concat()
            }),
        }
    }
}

/// `|a - b| / |b|`.
pub fn normalised_error(a: &[f32], b: &[f32]) -> f32 {
    let (mut difference, mut norm) = (0.0f64, 0.0f64);
    for (a, b) in a.iter().zip(b) {
        difference += f64::from(a - b).powi(2);
        norm += f64::from(*b).powi(2);
    }
    if a.len() != b.len() || difference.is_nan() {
        return f32::INFINITY;
    }
    (difference / norm.max(1e-30)).sqrt() as f32
}

/// A small generator of repeatable numbers.
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits (splitmix64).
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A float in -1..1.
    pub fn float(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Repeatable floats around zero with a few large ones, as activations have.
pub fn floats(seed: u64, count: usize) -> Vec<f32> {
    let mut random = Random(seed);
    (0..count).map(|i| random.float() * if i % 97 == 0 { 8.0 } else { 1.0 }).collect()
}

/// Rows of random weights in file layout, with scales of a sensible size.
pub fn random_weights(shape: Shape, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    let mut bytes: Vec<u8> =
        (0..shape.rows * shape.format.row_bytes(shape.columns)).map(|_| random.next_u64() as u8).collect();
    for block in bytes.chunks_exact_mut(shape.format.block_bytes()) {
        // Weights of all formats come out at about the same size: scales are smaller where quants are larger.
        let quant = match shape.format {
            Format::F32 | Format::F16 | Format::BF16 => 1.0,
            Format::Q4_0 | Format::Q4_1 => 8.0,
            Format::Q5_0 | Format::Q5_1 => 16.0,
            Format::Q8_0 => 128.0,
            Format::Q2_K => 24.0,
            Format::Q3_K => 64.0,
            Format::Q4_K => 512.0,
            Format::Q5_K => 1024.0,
            Format::Q6_K => 2048.0,
            Format::IQ4_NL => 128.0,
            Format::IQ4_XS => 4096.0,
            Format::MXFP4 => 12.0,
        };
        let scale = random.float() * 0.1 / quant;
        let halves: &[usize] = match shape.format {
            Format::F32 => {
                block.copy_from_slice(&scale.to_le_bytes());
                &[]
            }
            Format::BF16 => {
                block.copy_from_slice(&half::bf16::from_f32(scale).to_le_bytes());
                &[]
            }
            Format::MXFP4 => {
                // Powers of two about as large as the other formats' scales.
                block[0] = 118 + (random.next_u64() % 4) as u8;
                &[]
            }
            Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
            Format::Q2_K => &[80, 82],
            Format::Q3_K => &[108],
            Format::Q6_K => &[208],
            _ => &[0],
        };
        for &at in halves {
            block[at..at + 2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        }
    }
    bytes
}

/// A matrix of random weights, packed for a runtime.
pub fn random_matrix(shape: Shape, seed: u64, runtime: &Runtime) -> Matrix {
    let mut region = Region::new(shape.packed_bytes(runtime.layout()));
    shape.pack(runtime.layout(), &random_weights(shape, seed), region.as_mut_slice());
    Matrix::new(Arc::new(region), 0, shape, runtime.layout())
}

fn matmul(shape: Shape, batch: usize, runtime: &Runtime) -> Runner {
    let matrix = random_matrix(shape, 3, runtime);
    let mut x = Activations::new(batch, shape.columns);
    x.values.copy_from_slice(&floats(4, batch * shape.columns));
    let rows: Vec<u32> = (0..batch as u32).collect();
    let mut out = vec![f32::NAN; batch * output_stride(shape.rows)];
    Box::new(move |runtime| {
        runtime.quantize(&mut x, batch, shape.format.precision());
        let rows = RowMap { input: &rows, output: &rows };
        runtime.matmul(&x, &mut [Output { matrix: &matrix, rows, out: &mut out }]);
        out.chunks_exact(output_stride(shape.rows)).flat_map(|row| row[..shape.rows].to_vec()).collect()
    })
}

fn attention(layout: KvLayout, heads: usize, depth: usize, queries: usize) -> Runner {
    let total = depth + queries;
    let mut blocks: Vec<u32> = (0..total.div_ceil(BLOCK) as u32).collect();
    blocks.reverse();
    let mut store = KvStore::new(layout, blocks.len());
    for b in 0..blocks.len() {
        // Whatever was in a block before must not matter: not-a-number everywhere.
        store.block_mut(b).fill(0xff);
    }
    let width = layout.heads * layout.head;
    for position in 0..total {
        let (key, value) = (floats(position as u64, width), floats(1 << 32 | position as u64, width));
        store.write(1, blocks[position / BLOCK] as usize, position % BLOCK, &key, &value);
    }
    let q: Vec<f32> = floats(7, queries * heads * layout.head).iter().map(|x| x * 0.3).collect();
    let mut out = vec![f32::NAN; q.len()];
    Box::new(move |runtime| {
        let sequence = Queries { blocks: &blocks, start: depth, row: 0, count: queries };
        runtime.attention(&store, Heads { layer: 1, count: heads }, &[sequence], &q, &mut out);
        out.clone()
    })
}
