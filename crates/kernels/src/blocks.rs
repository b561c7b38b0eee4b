//! What each block format means, in plain scalar code.
//!
//! `dequantize_row` is the definition every faster path is tested against. Layouts follow GGUF; the formulas are the
//! same ones the authors of those formats publish, written to be read rather than to be fast.

use crate::format::{Format, IQ4_VALUES, MXFP4_OFFSET, MXFP4_VALUES, TABLE_OFFSET};
use half::{bf16, f16};

/// Expands one row of `row.len() / block_bytes` blocks into `out`.
///
/// Panics when the lengths do not match: both come from checked tensor shapes.
pub fn dequantize_row(format: Format, row: &[u8], out: &mut [f32]) {
    assert_eq!(row.len(), format.row_bytes(out.len()), "row bytes match its elements");
    let blocks = row.chunks_exact(format.block_bytes()).zip(out.chunks_exact_mut(format.block_elements()));
    for (block, out) in blocks {
        match format {
            Format::F32 => out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]),
            Format::F16 => out[0] = half_at(block, 0),
            Format::BF16 => out[0] = bf16::from_le_bytes([block[0], block[1]]).to_f32(),
            Format::Q4_0 => nibbles(&block[2..], None, out, half_at(block, 0), -8.0 * half_at(block, 0)),
            Format::Q4_1 => nibbles(&block[4..], None, out, half_at(block, 0), half_at(block, 2)),
            Format::Q5_0 => nibbles(&block[6..], Some(&block[2..6]), out, half_at(block, 0), -16.0 * half_at(block, 0)),
            Format::Q5_1 => nibbles(&block[8..], Some(&block[4..8]), out, half_at(block, 0), half_at(block, 2)),
            Format::Q8_0 => {
                let d = half_at(block, 0);
                for (o, &q) in out.iter_mut().zip(&block[2..]) {
                    *o = d * f32::from(q as i8);
                }
            }
            Format::IQ4_NL => values(&block[2..], &IQ4_VALUES, TABLE_OFFSET, half_at(block, 0), out),
            Format::MXFP4 => values(&block[1..], &MXFP4_VALUES, MXFP4_OFFSET, power_of_two(block[0]), out),
            Format::Q2_K | Format::Q3_K | Format::Q4_K | Format::Q5_K | Format::Q6_K => super_block(format, block, out),
            Format::IQ4_XS => super_block(format, block, out),
        }
    }
}

/// The half-precision number at byte `at`.
pub fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// 32 elements whose low four bits are nibbles and whose optional fifth bit comes from `high`.
fn nibbles(low: &[u8], high: Option<&[u8]>, out: &mut [f32], scale: f32, shift: f32) {
    let high = high.map_or(0, |h| u32::from_le_bytes([h[0], h[1], h[2], h[3]]));
    for i in 0..32 {
        let nibble = if i < 16 { low[i] & 15 } else { low[i - 16] >> 4 };
        let q = u32::from(nibble) | (high >> i & 1) << 4;
        out[i] = q as f32 * scale + shift;
    }
}

/// 32 elements whose nibbles name values.
fn values(nibbles: &[u8], table: &[u8; 16], offset: u8, scale: f32, out: &mut [f32]) {
    for i in 0..32 {
        let nibble = if i < 16 { nibbles[i] & 15 } else { nibbles[i - 16] >> 4 };
        out[i] = scale * (f32::from(table[usize::from(nibble)]) - f32::from(offset));
    }
}

/// The scale of an MXFP4 block, `2^(exponent - 127)`, halved because its values are stored doubled.
pub fn power_of_two(exponent: u8) -> f32 {
    match exponent {
        // Below the least normal number.
        0 | 1 => f32::from_bits(0x0020_0000 << exponent),
        _ => f32::from_bits((u32::from(exponent) - 1) << 23),
    }
}

fn super_block(format: Format, block: &[u8], out: &mut [f32]) {
    let parts = SuperParts::of(format, block);
    for (i, o) in out.iter_mut().enumerate() {
        let j = i / parts.group;
        let q = super_quant(format, block, i);
        *o = parts.d * f32::from(parts.scales[j]) * f32::from(q) - parts.dmin * f32::from(parts.mins[j]);
    }
}

/// The scales of one super-block, unpacked: element = d * scale * quant - dmin * min, quant unsigned.
pub struct SuperParts {
    /// Elements that share a scale: 16 or 32.
    pub group: usize,
    /// Scale of the scales.
    pub d: f32,
    /// Scale of the minimums; equals `d` where the format subtracts a constant instead.
    pub dmin: f32,
    /// One scale per group.
    pub scales: [i16; 16],
    /// One minimum per group; for formats with a constant offset, offset times scale.
    pub mins: [i16; 16],
}

impl SuperParts {
    /// Reads the scales of a block of one of the K formats.
    pub fn of(format: Format, block: &[u8]) -> SuperParts {
        let (mut scales, mut mins) = ([0i16; 16], [0i16; 16]);
        let (group, d, dmin) = match format {
            Format::Q2_K => {
                for j in 0..16 {
                    scales[j] = i16::from(block[j] & 15);
                    mins[j] = i16::from(block[j] >> 4);
                }
                (16, half_at(block, 80), half_at(block, 82))
            }
            Format::Q3_K => {
                let packed = &block[96..108];
                for j in 0..16 {
                    let low = if j < 8 { packed[j] & 15 } else { packed[j - 8] >> 4 };
                    let high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
                    scales[j] = i16::from(low | high << 4) - 32;
                    mins[j] = 4 * scales[j];
                }
                (16, half_at(block, 108), half_at(block, 108))
            }
            Format::Q4_K | Format::Q5_K => {
                let packed = &block[4..16];
                for j in 0..8 {
                    let (scale, min) = if j < 4 {
                        (packed[j] & 63, packed[j + 4] & 63)
                    } else {
                        (packed[j + 4] & 15 | packed[j - 4] >> 6 << 4, packed[j + 4] >> 4 | packed[j] >> 6 << 4)
                    };
                    scales[j] = i16::from(scale);
                    mins[j] = i16::from(min);
                }
                (32, half_at(block, 0), half_at(block, 2))
            }
            Format::Q6_K => {
                for j in 0..16 {
                    scales[j] = i16::from(block[192 + j] as i8);
                    mins[j] = 32 * scales[j];
                }
                (16, half_at(block, 208), half_at(block, 208))
            }
            Format::IQ4_XS => {
                let high = u16::from_le_bytes([block[2], block[3]]);
                for j in 0..8 {
                    let low = block[4 + j / 2] >> (4 * (j % 2)) & 15;
                    scales[j] = (i16::from(low) | ((high >> (2 * j) & 3) as i16) << 4) - 32;
                    mins[j] = i16::from(TABLE_OFFSET) * scales[j];
                }
                (32, half_at(block, 0), half_at(block, 0))
            }
            other => unreachable!("{} has no super-blocks", other.name()),
        };
        SuperParts { group, d, dmin, scales, mins }
    }
}

/// The unsigned quant of element `i` of a super-block.
fn super_quant(format: Format, block: &[u8], i: usize) -> u8 {
    let (half, run, lane) = (i / 128, i / 32 % 4, i % 32);
    match format {
        Format::Q2_K => block[16 + half * 32 + lane] >> (2 * run) & 3,
        Format::Q3_K => {
            let low = block[32 + half * 32 + lane] >> (2 * run) & 3;
            low | (block[lane] >> (i / 32) & 1) << 2
        }
        Format::Q4_K => block[16 + i / 64 * 32 + lane] >> (4 * (i / 32 % 2)) & 15,
        Format::Q5_K => {
            let low = block[48 + i / 64 * 32 + lane] >> (4 * (i / 32 % 2)) & 15;
            low | (block[16 + lane] >> (i / 32) & 1) << 4
        }
        Format::Q6_K => {
            let low = block[half * 64 + run % 2 * 32 + lane] >> (4 * (run / 2)) & 15;
            low | (block[128 + half * 32 + lane] >> (2 * run) & 3) << 4
        }
        Format::IQ4_XS => {
            let nibble = block[8 + i / 32 * 16 + lane % 16] >> (4 * (lane / 16)) & 15;
            IQ4_VALUES[usize::from(nibble)]
        }
        other => unreachable!("{} has no super-blocks", other.name()),
    }
}
