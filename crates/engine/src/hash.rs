//! The two hashes of this crate: keyed randomness for sampling and chain hashes for the prefix cache.
//!
//! Both are built on the finaliser of splitmix64 (Steele, Lea, Flood 2014). Chain hashes will name blocks on disk, so
//! they must not change between runs or machines, which rules out the standard library's hasher.

/// Scrambles 64 bits so that each input bit flips each output bit with probability one half.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hash of `tokens` that follow whatever `parent` stands for.
pub fn tokens(parent: u64, tokens: &[u32]) -> u64 {
    tokens.iter().fold(mix(parent ^ GOLDEN), |hash, &token| mix(hash.wrapping_add(GOLDEN) ^ u64::from(token)))
}

/// The random number in `[0, 1)` that belongs to one position of one sequence.
///
/// It depends on nothing else, so a position draws the same number whether its row was computed alone or together with
/// drafted ones: this is what makes drafting exact under sampling too.
pub fn uniform(seed: u64, position: usize) -> f64 {
    let bits = mix(mix(seed.wrapping_add(GOLDEN)).wrapping_add((position as u64).wrapping_mul(GOLDEN)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_is_uniform_over_positions_and_seeds() {
        for vary_seed in [false, true] {
            let mut buckets = [0u32; 16];
            for i in 0..160_000usize {
                let u = if vary_seed { uniform(i as u64, 7) } else { uniform(42, i) };
                buckets[(u * 16.0) as usize] += 1;
            }
            let worst = buckets.iter().map(|&n| (n as i32 - 10_000).abs()).max().unwrap();
            assert!(worst < 500, "{buckets:?}");
        }
    }

    #[test]
    fn token_hash_depends_on_parent_order_and_length() {
        let base = tokens(1, &[5, 6]);
        for other in [tokens(2, &[5, 6]), tokens(1, &[6, 5]), tokens(1, &[5, 6, 0]), tokens(1, &[5])] {
            assert_ne!(base, other);
        }
    }
}
