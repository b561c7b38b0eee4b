//! The hashes of this crate: keyed randomness for sampling, keys of blocks in the prefix cache, checksums of files.
//!
//! All are built on the finaliser of splitmix64 (Steele, Lea, Flood 2014). Keys name blocks on disk and checksums
//! guard them, so neither may change between runs or machines, which rules out the standard library's hasher.

/// Scrambles 64 bits so that each input bit flips each output bit with probability one half.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Names a run of tokens together with everything before it: two chains with different beginnings, 128 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64, pub u64);

impl Key {
    /// The empty prefix.
    pub const ROOT: Self = Self(0, 0x243f_6a88_85a3_08d3);

    /// The empty prefix of an owner; 0 is nobody in particular.
    pub fn root(owner: u64) -> Self {
        match owner {
            0 => Self::ROOT,
            _ => Self(mix(owner), mix(owner ^ Self::ROOT.1)),
        }
    }

    /// What follows this prefix with `run`.
    pub fn child(self, run: &[u32]) -> Self {
        Self(tokens(self.0, run), tokens(self.1, run))
    }
}

/// Hash of `tokens` that follow whatever `parent` stands for.
fn tokens(parent: u64, tokens: &[u32]) -> u64 {
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

/// Checksum of `data` after whatever `seed` stands for: 32 bytes a turn in four independent lanes, so that it runs at
/// the speed of memory. Every turn is a bijection of its lane, so a change of any one word is always seen.
pub fn checksum(seed: u64, data: &[u8]) -> u64 {
    let mut lanes: [u64; 4] = std::array::from_fn(|lane| mix(seed.wrapping_add(GOLDEN.wrapping_mul(lane as u64 + 1))));
    let mut turn = |bytes: &[u8; 32]| {
        for (lane, word) in lanes.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        }
    };
    let (runs, rest) = data.as_chunks::<32>();
    runs.iter().for_each(&mut turn);
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    turn(&last);
    lanes.iter().fold(mix(data.len() as u64 ^ seed), |sum, &lane| mix(sum.wrapping_mul(3) ^ lane))
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
    fn keys_depend_on_parent_order_and_length() {
        let parent = Key::ROOT.child(&[1]);
        let base = parent.child(&[5, 6]);
        let others = [Key::ROOT.child(&[5, 6]), parent.child(&[6, 5]), parent.child(&[5, 6, 0]), parent.child(&[5])];
        for other in others {
            assert!(base.0 != other.0 && base.1 != other.1 && base.0 != base.1);
        }
    }

    #[test]
    fn checksums_see_every_bit_and_the_length() {
        for length in [0, 1, 31, 32, 33, 200] {
            let mut data: Vec<u8> = (0..length as u8).collect();
            let whole = checksum(7, &data);
            assert_ne!(whole, checksum(8, &data));
            for bit in 0..length * 8 {
                data[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(checksum(7, &data), whole, "bit {bit} of {length} bytes");
                data[bit / 8] ^= 1 << (bit % 8);
            }
            data.push(0);
            assert_ne!(checksum(7, &data), whole, "{length} bytes and a zero");
        }
    }
}
