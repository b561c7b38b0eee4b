//! What a constraint forbids, taken out of a row: one pass over the vocabulary, a word of 32 tokens at a time.

use super::SampleError;

/// Fills `out` with the row, minus infinity where `mask` has no bit. See `Constraint::allowed` for the bits.
pub(super) fn apply(row: &[f32], mask: &[u32], out: &mut Vec<f32>) -> Result<(), SampleError> {
    let (bits, vocab) = (mask.len() * 32, row.len());
    if bits < vocab {
        return Err(SampleError::ShortMask { bits, vocab });
    }
    out.clear();
    out.extend_from_slice(row);
    let mut allowed = 0;
    for (run, &word) in out.chunks_mut(32).zip(mask) {
        // Only bits that stand for tokens count: the last run may be short.
        allowed |= word & (u32::MAX >> (32 - run.len()));
        match word {
            u32::MAX => {}
            0 => run.fill(f32::NEG_INFINITY),
            _ => {
                for (bit, logit) in run.iter_mut().enumerate() {
                    *logit = if word >> bit & 1 == 1 { *logit } else { f32::NEG_INFINITY };
                }
            }
        }
    }
    if allowed == 0 { Err(SampleError::NothingAllowed) } else { Ok(()) }
}
