//! How phases are cut up for blocks: nothing is left out and nothing done twice.

use super::*;

/// Gate and up of the 1.5B in 132 blocks, or its queries, keys and values.
fn phase(slices: u32, segments: &[(Format, u32, u32, u64)]) -> Phase {
    let mut product = ProductBlock { columns: 1536, supers: 6, slices, rows: 1, ..ProductBlock::default() };
    product.segments = [SegmentBlock { first_block: u32::MAX, ..SegmentBlock::default() }; 3];
    let (mut first_block, mut output) = (0, 0);
    for (segment, &(format, rows, blocks, second)) in product.segments.iter_mut().zip(segments) {
        let (weights, tiles) = (4096, rows.div_ceil(4));
        let format = format.file_id();
        *segment = SegmentBlock { weights, second, format, rows, tiles, first_block, blocks, output, ..*segment };
        (first_block, output) = (first_block + blocks, output + rows);
    }
    Phase {
        kind: STORE,
        input: Mark::default(),
        output: Mark::default(),
        work: Work::Product(product),
        attending: 2,
        ring: Ring::new(false),
        params: Vec::new(),
        dots: None,
    }
}

#[test]
fn every_row_and_every_byte_is_one_blocks() {
    let attention = [(Format::Q4_K, 1536, 99, 0), (Format::Q4_K, 254, 15, 0), (Format::Q6_K, 256, 18, 0)];
    for (slices, segments) in [(6, &attention[..]), (6, &[(Format::Q4_K, 8960, 132, 1 << 30)]), (1, &attention[..1])] {
        let phase = phase(slices, segments);
        let parts: Vec<_> = (0..140).map(|block| phase.on_block(block)).collect();
        let mut rows = Vec::new();
        let mut bytes = vec![0; segments.len()];
        for (job, stretch) in parts.iter().filter(|(job, _)| job.tiles > 0) {
            rows.extend(job.first_row..job.first_row + job.rows);
            let which = segments.iter().position(|s| s.0.file_id() == job.format).unwrap();
            bytes[which] += u32::from(stretch.tiles) * u32::from(stretch.supers) * u32::from(stretch.chunk);
            assert!(slices == 1 || usize::from(stretch.width * stretch.chunk) <= Ring::new(false).slot_bytes);
            let parts = stretch.rounds * 16 + stretch.rest;
            assert!(if slices == 1 { parts == 0 } else { parts * stretch.width >= stretch.supers });
        }
        rows.sort_unstable();
        assert_eq!(rows, (0..segments.iter().map(|s| s.1).sum()).collect::<Vec<u32>>());
        for format in [Format::Q4_K, Format::Q6_K] {
            let of = |s: &&(Format, u32, u32, u64)| s.0 == format;
            let all: u32 = segments.iter().filter(of).map(|s| s.1.div_ceil(4) * if s.3 == 0 { 1 } else { 2 }).sum();
            let found: u32 = segments.iter().zip(&bytes).filter(|(s, _)| of(s)).map(|(_, bytes)| bytes).sum();
            assert_eq!(found as usize, all as usize * pack::tile_bytes(format, 1536), "{format:?}");
        }
    }
}
