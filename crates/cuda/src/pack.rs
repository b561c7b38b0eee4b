//! The layout weights have on the card: chunks of 4 rows by 256 columns, one warp's work and one contiguous copy.
//!
//! Every part of a chunk begins at a multiple of 16 bytes, and no format grows by more than a hundredth (Q6_K: 848 bytes
//! where a file has 840), except where rows are no multiple of 256 columns: those are filled up with zeros.
//! `kernels/formats.cuh` draws the layout; the two belong together, and the tests below read it back the way a lane does.
//! Halves and brain floats stand as they do in a file.

use kernels::blocks::SuperParts;
use kernels::{Format, Shape};

/// Rows in a chunk, and in a tile: a tile is a row of chunks.
pub const TILE_ROWS: usize = 4;
/// Columns in a chunk.
pub const CHUNK_COLUMNS: usize = 256;

/// Whether the kernels read this format.
pub fn is_supported(format: Format) -> bool {
    use Format::*;
    is_float(format) || matches!(format, Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q4_K | Q5_K | Q6_K)
}

/// Whether it is one of the two that `kernels/floats.cu` multiplies; all others are quantised.
pub fn is_float(format: Format) -> bool {
    matches!(format, Format::F16 | Format::BF16)
}

/// Where the parts of a chunk stand.
#[derive(Clone, Copy)]
struct Parts {
    header: usize,
    low: usize,
    high: usize,
}

fn parts(format: Format) -> Parts {
    let header = match format {
        Format::Q6_K => 80,
        Format::Q4_1 | Format::Q5_1 => 128,
        _ => 64,
    };
    let low = if format == Format::Q8_0 { 1024 } else { 512 };
    let high = match format {
        Format::Q6_K => 256,
        Format::Q5_0 | Format::Q5_1 | Format::Q5_K => 128,
        _ => 0,
    };
    Parts { header, low, high }
}

/// Bytes of one chunk of a quantised format.
pub fn chunk_bytes(format: Format) -> usize {
    let Parts { header, low, high } = parts(format);
    header + low + high
}

/// Super-blocks of a row, the last one possibly filled up.
pub fn supers(columns: usize) -> usize {
    columns.div_ceil(CHUNK_COLUMNS)
}

/// Bytes of a tile: four whole rows.
pub fn tile_bytes(format: Format, columns: usize) -> usize {
    if is_float(format) { TILE_ROWS * format.row_bytes(columns) } else { supers(columns) * chunk_bytes(format) }
}

/// Bytes of a whole matrix.
pub fn packed_bytes(shape: Shape) -> usize {
    shape.rows.div_ceil(TILE_ROWS) * tile_bytes(shape.format, shape.columns)
}

/// Packs whole rows, as they stand in a file and beginning at a multiple of four, into `out`, which must be zero.
///
/// Panics when the lengths do not fit each other.
pub fn pack(format: Format, columns: usize, rows: &[u8], out: &mut [u8]) {
    if is_float(format) {
        return out[..rows.len()].copy_from_slice(rows);
    }
    let row_bytes = format.row_bytes(columns);
    let tiles = rows.chunks(TILE_ROWS * row_bytes).zip(out.chunks_exact_mut(tile_bytes(format, columns)));
    for (rows, tile) in tiles {
        for (r, row) in rows.chunks_exact(row_bytes).enumerate() {
            pack_row(format, r, row, tile);
        }
    }
}

fn pack_row(format: Format, r: usize, row: &[u8], tile: &mut [u8]) {
    let blocks = row.chunks_exact(format.block_bytes());
    if format.block_elements() == CHUNK_COLUMNS {
        for (block, chunk) in blocks.zip(tile.chunks_exact_mut(chunk_bytes(format))) {
            pack_super(format, r, block, chunk);
        }
    } else {
        for (b, block) in blocks.enumerate() {
            let chunk = &mut tile[b / 8 * chunk_bytes(format)..][..chunk_bytes(format)];
            pack_small(format, r, b % 8, block, chunk);
        }
    }
}

/// Block `j` of eight of row `r`: scale, perhaps minimum, nibbles as in the file, perhaps fifth bits.
fn pack_small(format: Format, r: usize, j: usize, block: &[u8], chunk: &mut [u8]) {
    let Parts { header, .. } = parts(format);
    let lane = r * 8 + j;
    chunk[r * 16 + j * 2..][..2].copy_from_slice(&block[..2]);
    let mut at = 2;
    if header == 128 {
        chunk[64 + r * 16 + j * 2..][..2].copy_from_slice(&block[2..4]);
        at = 4;
    }
    if format == Format::Q8_0 {
        chunk[header + lane * 16..][..16].copy_from_slice(&block[2..18]);
        chunk[header + 512 + lane * 16..][..16].copy_from_slice(&block[18..34]);
        return;
    }
    if matches!(format, Format::Q5_0 | Format::Q5_1) {
        let bits = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
        let quants: [u8; 32] = std::array::from_fn(|i| (bits >> i & 1) as u8);
        chunk[header + 512 + lane * 4..][..4].copy_from_slice(&fifth_bits(&quants));
        at += 4;
    }
    chunk[header + lane * 16..][..16].copy_from_slice(&block[at..at + 16]);
}

/// A super-block of row `r`: eight lanes' worth.
fn pack_super(format: Format, r: usize, block: &[u8], chunk: &mut [u8]) {
    let Parts { header, .. } = parts(format);
    let parts = SuperParts::of(format, block);
    if format == Format::Q6_K {
        chunk[r * 16..][..16].copy_from_slice(&block[192..208]);
        chunk[64 + r * 2..][..2].copy_from_slice(&block[208..210]);
    } else {
        let head = &mut chunk[r * 16..][..16];
        head[..4].copy_from_slice(&block[..4]);
        for j in 0..8 {
            let (scale, min) = (parts.scales[j] as u8, parts.mins[j] as u8);
            head[4 + j] = scale | (min & 3) << 6;
            head[12 + j % 4] |= (min >> 2) << (4 * (j / 4));
        }
    }
    for j in 0..8 {
        let lane = r * 8 + j;
        let quants: [u8; 32] = std::array::from_fn(|i| super_quant(format, block, j * 32 + i));
        for i in 0..16 {
            chunk[header + lane * 16 + i] = quants[i] & 15 | (quants[i + 16] & 15) << 4;
        }
        match format {
            Format::Q5_K => {
                let bits = quants.map(|q| q >> 4);
                chunk[header + 512 + lane * 4..][..4].copy_from_slice(&fifth_bits(&bits));
            }
            Format::Q6_K => {
                for (i, q) in quants.iter().enumerate() {
                    chunk[header + 512 + lane * 8 + i / 16 * 4 + i % 4] |= (q >> 4) << (i % 16 / 4 * 2);
                }
            }
            _ => {}
        }
    }
}

/// Bit `g` of byte `b` belongs to element `4 g + b`.
fn fifth_bits(bits: &[u8; 32]) -> [u8; 4] {
    std::array::from_fn(|b| (0..8).fold(0, |byte, g| byte | bits[4 * g + b] << g))
}

/// The unsigned quant of element `i` of a super-block, as the file has it.
fn super_quant(format: Format, block: &[u8], i: usize) -> u8 {
    let (half, run, lane) = (i / 128, i / 32 % 4, i % 32);
    match format {
        Format::Q4_K => block[16 + i / 64 * 32 + lane] >> (4 * (i / 32 % 2)) & 15,
        Format::Q5_K => {
            block[48 + i / 64 * 32 + lane] >> (4 * (i / 32 % 2)) & 15 | (block[16 + lane] >> (i / 32) & 1) << 4
        }
        Format::Q6_K => {
            let low = block[half * 64 + run % 2 * 32 + lane] >> (4 * (run / 2)) & 15;
            low | (block[128 + half * 32 + lane] >> (2 * run) & 3) << 4
        }
        other => unreachable!("{} is not packed by super-blocks", other.name()),
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
