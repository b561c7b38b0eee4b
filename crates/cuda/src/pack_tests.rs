//! Reads packed chunks back the way a lane of a kernel does, and compares with the definition of each format.
#![allow(clippy::unwrap_used)]

use super::*;
use kernels::blocks::{dequantize_row, half_at};
use kernels::cases::random_weights;

/// The words and scales a lane reads, as in `read_block` of `formats.cuh`, and element `i` of what they mean.
fn element(format: Format, chunk: &[u8], lane: usize, i: usize) -> f32 {
    let word = |at: usize| u32::from_le_bytes(chunk[at..at + 4].try_into().unwrap());
    let Parts { header, .. } = parts(format);
    let (row, j) = (lane / 8, lane % 8);
    let (d, scale, m) = match format {
        Format::Q4_K | Format::Q5_K => {
            let (y, z, w) = (word(row * 16 + 4), word(row * 16 + 8), word(row * 16 + 12));
            let low = (if j < 4 { y } else { z }) >> (8 * (j & 3)) & 0xff;
            let (scale, min) = (low & 63, low >> 6 | (w >> (8 * (j % 4) + j / 4 * 4) & 15) << 2);
            (half_at(chunk, row * 16), scale as f32, -half_at(chunk, row * 16 + 2) * min as f32)
        }
        Format::Q6_K => (half_at(chunk, 64 + row * 2), f32::from(chunk[row * 16 + j * 2 + i / 16] as i8), 0.0),
        Format::Q4_1 | Format::Q5_1 => (half_at(chunk, row * 16 + j * 2), 1.0, half_at(chunk, 64 + row * 16 + j * 2)),
        _ => (half_at(chunk, row * 16 + j * 2), 1.0, 0.0),
    };
    if format == Format::Q8_0 {
        return d * f32::from(chunk[header + i / 16 * 512 + lane * 16 + i % 16] as i8);
    }
    let word_i = word(header + lane * 16 + i % 16 / 4 * 4) >> (4 * (i / 16)) & 0x0f0f_0f0f;
    let mut q = word_i >> (8 * (i % 4)) & 0xff;
    if matches!(format, Format::Q5_0 | Format::Q5_1 | Format::Q5_K) {
        q |= (word(header + 512 + lane * 4) >> (i / 4) & 0x0101_0101) >> (8 * (i % 4)) << 4 & 0x10;
    }
    if format == Format::Q6_K {
        let bits = word(header + 512 + lane * 8 + i / 16 * 4) >> (2 * (i % 16 / 4)) & 0x0303_0303;
        q |= (bits >> (8 * (i % 4)) & 3) << 4;
    }
    let zero = match format {
        Format::Q4_0 => 8.0,
        Format::Q5_0 => 16.0,
        Format::Q6_K => 32.0,
        _ => 0.0,
    };
    d * scale * (q as f32 - zero) + m
}

fn quantised() -> impl Iterator<Item = Format> {
    Format::ALL.into_iter().filter(|&format| is_supported(format) && !is_float(format))
}

#[test]
fn floats_stand_as_in_the_file_and_ragged_tiles_are_filled_up() {
    let shape = Shape { format: Format::BF16, rows: 7, columns: 104 };
    let source = random_weights(shape, 5);
    let mut packed = vec![0; packed_bytes(shape)];
    pack(shape.format, shape.columns, &source, &mut packed);
    assert_eq!(packed.len(), 8 * 104 * 2);
    assert!(packed.starts_with(&source) && packed[source.len()..].iter().all(|&byte| byte == 0));
}

#[test]
fn packed_weights_mean_what_the_file_says() {
    for format in quantised() {
        // Seven rows leave the last tile ragged; 576 columns leave the last chunk ragged where the format allows it.
        let columns = if format.block_elements() == 32 { 576 } else { 768 };
        let shape = Shape { format, rows: 7, columns };
        let source = random_weights(shape, 5);
        let mut packed = vec![0; packed_bytes(shape)];
        pack(format, columns, &source, &mut packed);
        assert_eq!(packed.len(), 2 * 3 * chunk_bytes(format));
        let mut expected = vec![0.0; columns];
        for row in 0..7 {
            let bytes = format.row_bytes(columns);
            dequantize_row(format, &source[row * bytes..][..bytes], &mut expected);
            for (c, &expected) in expected.iter().enumerate() {
                let chunk = &packed[(row / 4 * 3 + c / 256) * chunk_bytes(format)..][..chunk_bytes(format)];
                let found = element(format, chunk, row % 4 * 8 + c / 32 % 8, c % 32);
                let near = (found - expected).abs() <= 1e-6 * (1.0 + expected.abs());
                assert!(near, "{} row {row} column {c}: {found} for {expected}", format.name());
            }
        }
    }
}

#[test]
fn every_part_of_a_chunk_is_aligned() {
    for format in quantised() {
        let Parts { header, low, high } = parts(format);
        assert!([header, low, high].iter().all(|bytes| bytes % 16 == 0), "{}", format.name());
    }
}
