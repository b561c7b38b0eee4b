//! How fast this machine reads memory: the speed that decoding is measured against.
//!
//! Every decoded token reads all weights once, so tokens/s times bytes per token cannot exceed what is measured here.
//! The memory is what weights live in (a [`Region`], huge pages where the system gives them) and is cut among threads
//! the way products are, so the figure is the one that the kernels could reach.

use std::hint::black_box;
use std::time::Instant;

use kernels::Region;
use kernels::pool::Pool;

/// Far more than any cache that is not shared by a whole server.
const BYTES: usize = 512 << 20;
/// One huge page: long enough for the prefetcher, short enough to share out evenly.
const CHUNK_BYTES: usize = 2 << 20;
/// Neighbours on the same machine only ever slow a pass down, so the best of a few is the machine's own.
const PASSES: usize = 5;

/// Words of one accumulator: a cache line, which the compiler turns into whatever vectors there are.
const WORDS: usize = 8;
/// Independent accumulators, so that no addition waits for the one before.
const LINES: usize = 4;
const STEP: usize = WORDS * LINES * size_of::<u64>();

/// Reads 512 MiB with this many threads and gives the best of five passes, in GB/s (10^9 bytes).
pub fn read_bandwidth(threads: usize) -> f64 {
    let mut region = Region::new(BYTES);
    // Untouched pages are all one page of zeros; writing makes each its own. One byte in 64 keeps the data honest.
    region.as_mut_slice().iter_mut().step_by(64).for_each(|byte| *byte = 1);
    let bytes = region.as_slice();
    let mut pool = Pool::new(threads);
    let mut seconds_min = f64::INFINITY;
    for _ in 0..PASSES {
        let start = Instant::now();
        pool.run(BYTES / CHUNK_BYTES, &|chunk| {
            black_box(sum(&bytes[chunk * CHUNK_BYTES..][..CHUNK_BYTES]));
        });
        seconds_min = seconds_min.min(start.elapsed().as_secs_f64());
    }
    BYTES as f64 / seconds_min / 1e9
}

/// Adds up all words, so that none can be skipped.
fn sum(bytes: &[u8]) -> u64 {
    let mut sums = [[0u64; WORDS]; LINES];
    for step in bytes.as_chunks::<STEP>().0 {
        let words = step.as_chunks::<{ size_of::<u64>() }>().0;
        for (line, words) in sums.iter_mut().zip(words.as_chunks::<WORDS>().0) {
            for (sum, word) in line.iter_mut().zip(words) {
                *sum = sum.wrapping_add(u64::from_le_bytes(*word));
            }
        }
    }
    sums.as_flattened().iter().fold(0, |total, sum| total.wrapping_add(*sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_counted_once() {
        let bytes: Vec<u8> = (0..4 * STEP).map(|index| (index % 251) as u8).collect();
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        assert_eq!(sum(&bytes), words.fold(0, u64::wrapping_add));
    }
}
