//! The layout weights have in memory: sixteen rows side by side.
//!
//! A tile holds sixteen consecutive rows of a matrix. Inside a tile the quants stand as 4-byte words, one word of each
//! row after another, so that one 64-byte load brings the same four columns of sixteen rows and one dot-product
//! instruction advances sixteen results, with the activation broadcast. No sum across lanes is ever needed.
//!
//! The order of words inside a block is that of the file, so packing is a transposition of words and a rearrangement of
//! the scales; it runs at the speed of memory.
//!
//! ```text
//! K formats, per super-block of 256 columns        older formats, per group of two blocks of 32 columns
//!   d     f16 x 16 rows                               d   f16 x 16 rows x 2 blocks
//!   dmin  f16 x 16 rows (or padding)                  min f16 x 16 rows x 2 blocks (only _1 formats)
//!   scale i8  x 16 rows x groups                      per block: low words (4 or 8 of them), then the high word
//!   min   u8 x 2 x 16 rows x groups / 2 (if any)    float formats
//!   words of quants, in the order of first use         per column: 16 values
//! ```

use crate::blocks::{SuperParts, power_of_two};
use crate::format::{Format, Precision, SMALL, SUPER};
use crate::memory::Region;
use std::sync::Arc;

/// Rows in a tile: the lanes of a 512-bit register of 32-bit sums.
pub const TILE: usize = 16;

/// How the bytes of a [`Matrix`] are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As in the file, row after row: what the reference reads.
    Rows,
    /// Tiles of sixteen interleaved rows: what the SIMD kernels read.
    Tiles,
}

/// A weight matrix, ready for a matrix product. Cheap to clone: the bytes are shared.
#[derive(Clone)]
pub struct Matrix {
    region: Arc<Region>,
    offset: usize,
    /// Storage format of the elements.
    pub format: Format,
    /// Arrangement of the bytes.
    pub layout: Layout,
    /// Number of outputs.
    pub rows: usize,
    /// Number of inputs.
    pub columns: usize,
    /// What its results are multiplied with, one for most.
    pub scale: f32,
}

impl Matrix {
    /// A matrix whose packed bytes stand at `offset` of `region`.
    ///
    /// Panics when the region is too short.
    pub fn new(region: Arc<Region>, offset: usize, shape: Shape, layout: Layout) -> Matrix {
        let Shape { format, rows, columns } = shape;
        assert!(region.as_slice().len() >= offset + shape.packed_bytes(layout), "region holds the matrix");
        Matrix { region, offset, format, layout, rows, columns, scale: 1.0 }
    }

    /// The same weights with another scale.
    pub fn scaled(self, scale: f32) -> Matrix {
        Matrix { scale, ..self }
    }

    /// Shape and format.
    pub fn shape(&self) -> Shape {
        Shape { format: self.format, rows: self.rows, columns: self.columns }
    }

    /// Number of tiles, the last one possibly padded with zero rows.
    pub fn tiles(&self) -> usize {
        self.rows.div_ceil(TILE)
    }

    /// All packed bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.region.as_slice()[self.offset..][..self.shape().packed_bytes(self.layout)]
    }
}

/// Format and size of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Storage format.
    pub format: Format,
    /// Number of outputs.
    pub rows: usize,
    /// Number of inputs, contiguous in a file.
    pub columns: usize,
}

impl Shape {
    /// Bytes in memory, a multiple of 64.
    pub fn packed_bytes(&self, layout: Layout) -> usize {
        match layout {
            Layout::Rows => (self.rows * self.format.row_bytes(self.columns)).next_multiple_of(64),
            Layout::Tiles => self.rows.div_ceil(TILE) * self.tile_bytes(),
        }
    }

    /// Bytes of one packed tile, a multiple of 64.
    pub fn tile_bytes(&self) -> usize {
        match self.format.precision() {
            Precision::Float => self.columns * TILE * self.format.block_bytes(),
            Precision::Small => self.columns.div_ceil(2 * SMALL) * SmallLayout::of(self.format).group_bytes(),
            Precision::Super => self.columns / SUPER * SuperLayout::of(self.format).chunk_bytes(),
        }
    }

    /// Packs consecutive rows, as they stand in a file, into `out`.
    ///
    /// `source` holds whole rows starting at a multiple of sixteen; fewer than sixteen in the last tile are completed
    /// with zeros. Panics when the lengths do not fit each other.
    pub fn pack(&self, layout: Layout, source: &[u8], out: &mut [u8]) {
        if layout == Layout::Rows {
            return out[..source.len()].copy_from_slice(source);
        }
        let tile_source = TILE * self.format.row_bytes(self.columns);
        for (rows, tile) in source.chunks(tile_source).zip(out.chunks_exact_mut(self.tile_bytes())) {
            match self.format.precision() {
                Precision::Float => pack_float(self, rows, tile),
                Precision::Small => pack_small(self, rows, tile),
                Precision::Super => pack_super(self, rows, tile),
            }
        }
    }
}

/// Where the parts of a packed super-block chunk stand.
#[derive(Clone, Copy)]
pub(crate) struct SuperLayout {
    /// Scale groups in a super-block: 8 or 16.
    groups: usize,
    explicit_mins: bool,
    /// Words of low and of high quants per row, and where they start in a file block.
    low: (usize, usize),
    high: (usize, usize),
}

impl SuperLayout {
    pub(crate) const fn of(format: Format) -> SuperLayout {
        let (groups, explicit_mins, low, high) = match format {
            Format::Q2_K => (16, true, (16, 16), (0, 0)),
            Format::Q3_K => (16, false, (16, 32), (8, 0)),
            Format::Q4_K => (8, true, (32, 16), (0, 0)),
            Format::Q5_K => (8, true, (32, 48), (8, 16)),
            Format::Q6_K => (16, false, (32, 0), (16, 128)),
            Format::IQ4_XS => (8, false, (32, 8), (0, 0)),
            _ => panic!("no super-blocks in this format"),
        };
        SuperLayout { groups, explicit_mins, low, high }
    }

    pub(crate) const fn scales(&self) -> usize {
        64
    }
    pub(crate) const fn mins(&self) -> usize {
        self.scales() + self.groups * TILE
    }
    const fn quants(&self) -> usize {
        self.mins() + if self.explicit_mins { self.groups * TILE } else { 0 }
    }
    /// Offset of word `w` of the low quants.
    ///
    /// Words stand in the order in which a pass first touches them, because only a plain forward stream is fetched ahead
    /// by the hardware: with all low words before all high words, Q6_K ran at 8 GB/s instead of 27 on one core.
    pub(crate) const fn low(&self, w: usize) -> usize {
        let place = match (self.low.0, self.high.0) {
            // Q6_K, per half of 128 columns: eight low words, eight high words, eight low words.
            (32, 16) => w / 16 * 24 + w % 16 + if w % 16 < 8 { 0 } else { 8 },
            _ => self.high.0 + w,
        };
        self.quants() + place * 4 * TILE
    }
    /// Offset of word `w` of the high quants.
    pub(crate) const fn high(&self, w: usize) -> usize {
        let place = match (self.low.0, self.high.0) {
            (32, 16) => w / 8 * 24 + 8 + w % 8,
            _ => w,
        };
        self.quants() + place * 4 * TILE
    }
    pub(crate) const fn chunk_bytes(&self) -> usize {
        self.quants() + (self.low.0 + self.high.0) * 4 * TILE
    }
}

/// Where the parts of a packed group of two small blocks stand.
#[derive(Clone, Copy)]
pub(crate) struct SmallLayout {
    explicit_mins: bool,
    low_words: usize,
    fifth_bit: bool,
}

impl SmallLayout {
    pub(crate) const fn of(format: Format) -> SmallLayout {
        let (explicit_mins, low_words, fifth_bit) = match format {
            Format::Q4_0 => (false, 4, false),
            Format::Q4_1 => (true, 4, false),
            Format::Q5_0 => (false, 4, true),
            Format::Q5_1 => (true, 4, true),
            Format::Q8_0 => (false, 8, false),
            Format::IQ4_NL | Format::MXFP4 => (false, 4, false),
            _ => panic!("no small blocks in this format"),
        };
        SmallLayout { explicit_mins, low_words, fifth_bit }
    }

    pub(crate) const fn mins(&self) -> usize {
        64
    }
    pub(crate) const fn quants(&self) -> usize {
        self.mins() + if self.explicit_mins { 64 } else { 0 }
    }
    /// Bytes of quants of one block: low words, then the word of fifth bits.
    pub(crate) const fn block_bytes(&self) -> usize {
        (self.low_words + if self.fifth_bit { 1 } else { 0 }) * 4 * TILE
    }
    pub(crate) const fn high(&self) -> usize {
        self.low_words * 4 * TILE
    }
    pub(crate) const fn has_fifth_bit(&self) -> bool {
        self.fifth_bit
    }
    pub(crate) const fn group_bytes(&self) -> usize {
        self.quants() + 2 * self.block_bytes()
    }
}

fn pack_float(shape: &Shape, rows: &[u8], tile: &mut [u8]) {
    let size = shape.format.block_bytes();
    for (r, row) in rows.chunks_exact(shape.format.row_bytes(shape.columns)).enumerate() {
        for (c, value) in row.chunks_exact(size).enumerate() {
            tile[(c * TILE + r) * size..][..size].copy_from_slice(value);
        }
    }
}

fn pack_small(shape: &Shape, rows: &[u8], tile: &mut [u8]) {
    let (format, layout) = (shape.format, SmallLayout::of(shape.format));
    let head = format.block_bytes() - layout.low_words * 4;
    for (r, row) in rows.chunks_exact(format.row_bytes(shape.columns)).enumerate() {
        for (b, block) in row.chunks_exact(format.block_bytes()).enumerate() {
            let group = &mut tile[b / 2 * layout.group_bytes()..][..layout.group_bytes()];
            let at = (b % 2 * TILE + r) * 2;
            match format {
                // A brain float holds every power of two that it can be.
                Format::MXFP4 => {
                    group[at..at + 2].copy_from_slice(&half::bf16::from_f32(power_of_two(block[0])).to_le_bytes());
                }
                _ => group[at..at + 2].copy_from_slice(&block[..2]),
            }
            if layout.explicit_mins {
                group[layout.mins() + at..][..2].copy_from_slice(&block[2..4]);
            }
            let quants = &mut group[layout.quants() + b % 2 * layout.block_bytes()..][..layout.block_bytes()];
            for w in 0..layout.low_words {
                word(&block[head + 4 * w..], r, &mut quants[w * 4 * TILE..]);
            }
            if layout.fifth_bit {
                let bits = fifth_bits([block[head - 4], block[head - 3], block[head - 2], block[head - 1]]);
                word(&bits, r, &mut quants[layout.high()..]);
            }
            if format == Format::Q8_0 {
                // Signed quants become unsigned, as the dot-product instruction wants its first operand.
                for w in 0..8 {
                    quants[(w * TILE + r) * 4..][..4].iter_mut().for_each(|q| *q ^= 0x80);
                }
            }
        }
    }
}

fn pack_super(shape: &Shape, rows: &[u8], tile: &mut [u8]) {
    let (format, layout) = (shape.format, SuperLayout::of(shape.format));
    for (r, row) in rows.chunks_exact(format.row_bytes(shape.columns)).enumerate() {
        let chunks = tile.chunks_exact_mut(layout.chunk_bytes());
        for (block, chunk) in row.chunks_exact(format.block_bytes()).zip(chunks) {
            let parts = SuperParts::of(format, block);
            chunk[r * 2..][..2].copy_from_slice(&half::f16::from_f32(parts.d).to_le_bytes());
            chunk[(TILE + r) * 2..][..2].copy_from_slice(&half::f16::from_f32(parts.dmin).to_le_bytes());
            for j in 0..layout.groups {
                chunk[layout.scales() + j * TILE + r] = parts.scales[j] as u8;
                if layout.explicit_mins {
                    chunk[layout.mins() + (j / 2 * TILE + r) * 2 + j % 2] = parts.mins[j] as u8;
                }
            }
            for w in 0..layout.low.0 {
                word(&block[layout.low.1 + 4 * w..], r, &mut chunk[layout.low(w)..]);
            }
            for w in 0..layout.high.0 {
                word(&block[layout.high.1 + 4 * w..], r, &mut chunk[layout.high(w)..]);
            }
        }
    }
}

/// Puts a word of row `r` in its place among the words of all rows.
#[inline(always)]
fn word(source: &[u8], r: usize, out: &mut [u8]) {
    out[4 * r..4 * r + 4].copy_from_slice(&source[..4]);
}

/// Element `4 g + b` has its fifth bit at bit `4 g + b`; the kernel wants it at bit `g` of byte `b`.
fn fifth_bits(bits: [u8; 4]) -> [u8; 4] {
    let bits = u32::from_le_bytes(bits);
    std::array::from_fn(|b| (0..8).fold(0, |byte, g| byte | ((bits >> (4 * g + b) & 1) as u8) << g))
}
