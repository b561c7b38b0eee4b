//! Shortlists against the plain code that defines them, bit for bit, on rows as long as a real vocabulary.

use super::{Outcome, Test};
use crate::arguments::ShortlistCall;
use crate::error::Error;
use crate::launch::{Kernels, SHORTLIST_HEAD};
use crate::memory::Buffer;
use kernels::cases::floats;
use kernels::shortlist::{Ask, LIST_MAX, RUN, Shortlist};

impl Test<'_> {
    /// Rows of every kind together: sharp and flat, cold and hot, with a floor, with masks of many and of few tokens.
    pub(super) fn shortlists(&self, outcomes: &mut Vec<Outcome>) -> Result<(), Error> {
        for vocab in [328_usize, 512, 49_152, 151_936] {
            let kinds = [
                (12.0, 0.8, 0.0, 0),
                (3.0, 1.3, 0.05, 0),
                (30.0, 0.1, 0.0, 2),
                (12.0, 1.0, 0.0, 5000),
                (0.0, 1.0, 0.0, 0),
            ];
            let words = vocab.div_ceil(32);
            let (mut logits, mut masks, mut asks) = (Vec::new(), Vec::new(), Vec::new());
            for (row, &(spread, temperature, floor, every)) in kinds.iter().enumerate() {
                logits.extend(floats(row as u64, vocab).iter().map(|x| x * spread));
                let allowed = |id: usize| every != 0 && id % every == 1;
                masks.extend(
                    (0..words)
                        .map(|word| (0..32).fold(0u32, |bits, bit| bits | u32::from(allowed(word * 32 + bit)) << bit)),
                );
                asks.extend([1.0 / temperature, floor, if every > 0 { 1.0 } else { 0.0 }, 0.0]);
            }
            let rows = kinds.len();
            let stride =
                Kernels::shortlist_words(vocab).ok_or_else(|| Error::Unsupported(format!("{vocab} tokens")))?;
            let device = self.device;
            let output = Buffer::new(device, &vec![u32::MAX; rows * stride])?;
            self.kernels.shortlist(&ShortlistCall {
                logits: Buffer::new(device, &logits)?.all(),
                rows,
                vocab,
                masks: Buffer::new(device, &masks)?.all(),
                asks: Buffer::new(device, &asks)?.all(),
                maxima: Buffer::zeroed(device, rows * vocab.div_ceil(RUN))?.all(),
                output: output.all(),
            })?;
            let mut found = vec![0; rows * stride];
            output.read(0, &mut found)?;
            for (row, &(_, temperature, floor, every)) in kinds.iter().enumerate() {
                let mask = (every > 0).then(|| &masks[row * words..(row + 1) * words]);
                let mut expected = Shortlist::default();
                expected.fill(&logits[row * vocab..(row + 1) * vocab], mask, Ask { temperature, floor });
                let wrong = differences(&found[row * stride..(row + 1) * stride], vocab, &expected);
                let name = format!("shortlist of {vocab} tokens, row {row}");
                outcomes.push(Outcome { name, error: wrong as f32, bound: 0.0 });
            }
        }
        Ok(())
    }
}

/// How many of the facts, tokens and sums are not what they should be.
fn differences(found: &[u32], vocab: usize, expected: &Shortlist) -> usize {
    let (count, sums) = (found[0] as usize, &found[SHORTLIST_HEAD + 2 * LIST_MAX..][..vocab.div_ceil(RUN)]);
    let wrong_sums = sums.iter().zip(&expected.run_sums).filter(|(a, b)| **a != b.to_bits()).count();
    let listed = if count > LIST_MAX { 0 } else { count };
    let (pairs, _) = found[SHORTLIST_HEAD..SHORTLIST_HEAD + 2 * listed].as_chunks::<2>();
    let mut tokens: Vec<(u32, u32)> = pairs.iter().map(|&[id, logit]| (id, logit)).collect();
    let mut wanted: Vec<(u32, u32)> = expected.tokens.iter().map(|&(id, logit)| (id, logit.to_bits())).collect();
    tokens.sort_unstable();
    wanted.sort_unstable();
    let complete = found[1] != 0 && count <= LIST_MAX;
    let facts = usize::from(complete != expected.complete) + usize::from(f32::from_bits(found[2]) != expected.largest);
    wrong_sums + facts + usize::from(tokens != wanted) + expected.run_sums.len().abs_diff(sums.len())
}
