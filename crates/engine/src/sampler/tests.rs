//! The sampler against a slow and obvious one that sorts everything in f64, and against the laws of large numbers.

use proptest::prelude::*;

use model::shortlist::Shortlist;

use super::*;

fn noise(seed: u64, count: usize, spread: f64) -> Vec<f32> {
    // Sum of uniforms: a bell like that of real logits, with a few that stand out.
    let unit = |i: usize, k: u64| hash::uniform(seed.wrapping_mul(31).wrapping_add(k), i) - 0.5;
    (0..count).map(|i| ((0..4).map(|k| unit(i, k)).sum::<f64>() * spread) as f32).collect()
}

fn sample(settings: &Sampling, row: &[f32], position: usize) -> u32 {
    let mut scratch = Scratch::default();
    let mut copy = row.to_vec();
    let token = Sampler::new(settings.clone(), 0, &[]).sample(&mut copy, None, position, &mut scratch).unwrap();
    assert_eq!(copy, row, "the row is left as it was");
    token.id
}

/// The distribution by the definition, most likely first (or in order of id where nothing is cut), and whether some
/// decision was too close to call in f32.
fn reference(settings: &Sampling, row: &[f32]) -> (Vec<(u32, f64)>, bool) {
    let mut close = false;
    let max = row.iter().copied().fold(f32::MIN, f32::max);
    let weigh = |&logit: &f32| f64::from((logit - max) / settings.temperature).exp();
    let mut all: Vec<(u32, f64)> = row.iter().map(weigh).enumerate().map(|(id, w)| (id as u32, w)).collect();
    let cuts = settings.top_k > 0 && settings.top_k < row.len() || settings.top_p < 1.0;
    if cuts {
        let logit = |id: u32| row[id as usize];
        all.sort_by(|a, b| logit(b.0).total_cmp(&logit(a.0)).then(a.0.cmp(&b.0)));
    }
    if settings.top_k > 0 {
        all.truncate(settings.top_k);
    }
    let min_p = f64::from(settings.min_p);
    close |= all.iter().any(|(_, w)| min_p > 0.0 && (w / min_p - 1.0).abs() < 1e-4);
    all.retain(|&(_, w)| w >= min_p);
    let total: f64 = all.iter().map(|(_, w)| w).sum();
    if settings.top_p < 1.0 {
        let mut sum = 0.0;
        let wanted = f64::from(settings.top_p) * total;
        let mut keep = 0;
        while keep < all.len() && (keep == 0 || sum < wanted) {
            sum += all[keep].1;
            close |= (sum / wanted - 1.0).abs() < 1e-4;
            keep += 1;
        }
        all.truncate(keep);
    }
    let total: f64 = all.iter().map(|(_, w)| w).sum();
    all.iter_mut().for_each(|(_, w)| *w /= total);
    (all, close)
}

/// What the definition draws at `random`, unless that is too close to call.
fn reference_draw(all: &[(u32, f64)], random: f64) -> Option<u32> {
    let mut sum = 0.0;
    for &(id, p) in all {
        sum += p;
        if (random - sum).abs() < 1e-4 {
            return None;
        }
        if random < sum {
            return Some(id);
        }
    }
    None
}

#[test]
fn greedy_takes_the_first_of_the_largest() {
    let check = |row: &[f32], want: u32| assert_eq!(sample(&Sampling::default(), row, 0), want);
    check(&[0.0, 3.0, 3.0, 1.0], 1);
    check(&[f32::NEG_INFINITY, -3.0], 1);
    check(&[-0.0, 0.0], 0);
    let mut row = noise(1, 1000, 4.0);
    row[777] = 50.0;
    check(&row, 777);
}

#[test]
fn broken_rows_are_errors() {
    for broken in [vec![0.0, f32::NAN], vec![f32::NEG_INFINITY; 3], vec![1.0, f32::INFINITY]] {
        for temperature in [0.0, 1.0] {
            let settings = Sampling { temperature, ..Sampling::default() };
            let sampler = Sampler::new(settings, 0, &[]);
            let result = sampler.sample(&mut broken.clone(), None, 0, &mut Scratch::default());
            assert_eq!(result, Err(SampleError::NotANumber), "{broken:?}");
        }
    }
}

/// A mask that allows `tokens` out of `vocab`.
fn mask(vocab: usize, tokens: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut words = vec![0; vocab.div_ceil(32)];
    tokens.into_iter().for_each(|token| words[token as usize / 32] |= 1 << (token % 32));
    words
}

#[test]
fn a_mask_that_cannot_be_met_is_an_error() {
    let sampler = Sampler::new(Sampling::default(), 0, &[]);
    let sample = |row: &[f32], mask: &[u32]| {
        sampler.sample(&mut row.to_vec(), Some(mask), 0, &mut Scratch::default()).map(|token| token.id)
    };
    assert_eq!(sample(&[0.0; 40], &[0, 0]), Err(SampleError::NothingAllowed));
    // Bits beyond the vocabulary allow nothing.
    assert_eq!(sample(&[0.0; 40], &[0, 1 << 8]), Err(SampleError::NothingAllowed));
    assert_eq!(sample(&[0.0; 40], &[0, 1 << 7]), Ok(39));
    assert_eq!(sample(&[0.0; 40], &[1]), Err(SampleError::ShortMask { bits: 32, vocab: 40 }));
    assert_eq!(sample(&[f32::NAN; 40], &[1, 0]), Err(SampleError::NotANumber));
}

#[test]
fn penalties_and_bias_do_what_they_say() {
    /// The sampler's adjusted row after `prompt` and `output`.
    fn adjusted(settings: Sampling, prompt: &[u32], output: &[u32]) -> Vec<f32> {
        let mut sampler = Sampler::new(settings, 0, prompt);
        let mut tokens = prompt.to_vec();
        for &token in output {
            tokens.push(token);
            sampler.accept(&tokens);
        }
        let mut row = vec![2.0, -2.0, 1.0, 4.0];
        sampler.adjust(&mut row, &mut Vec::new());
        row
    }
    let base = Sampling::default();
    let bias = Sampling { logit_bias: vec![(1, 5.0), (3, -1.0)], ..base.clone() };
    assert_eq!(adjusted(bias, &[], &[]), [2.0, 3.0, 1.0, 3.0]);
    let repetition = Sampling { repetition_penalty: 2.0, ..base.clone() };
    assert_eq!(adjusted(repetition.clone(), &[0, 1], &[0]), [1.0, -4.0, 1.0, 4.0]);
    let window = Sampling { repetition_window: 2, ..repetition };
    assert_eq!(adjusted(window.clone(), &[0, 1, 2], &[]), [2.0, -4.0, 0.5, 4.0]);
    assert_eq!(adjusted(window, &[0, 1, 2], &[3, 3]), [2.0, -2.0, 1.0, 2.0]);
    let presence = Sampling { presence_penalty: 0.5, ..base.clone() };
    assert_eq!(adjusted(presence, &[3], &[0, 0, 2]), [1.5, -2.0, 0.5, 4.0]);
    let frequency = Sampling { frequency_penalty: 0.5, ..base };
    assert_eq!(adjusted(frequency, &[3], &[0, 0, 2]), [1.0, -2.0, 0.5, 4.0]);
}

#[test]
fn logprobs_describe_the_models_own_distribution() {
    let settings = Sampling { logprobs: Some(2), logit_bias: vec![(0, 100.0)], ..Sampling::default() };
    let mut row = vec![0.0, 2.0, 1.0];
    let token = Sampler::new(settings, 0, &[]).sample(&mut row, None, 0, &mut Scratch::default()).unwrap();
    let log_sum = (1.0f32 + 2f32.exp() + 1f32.exp()).ln();
    assert_eq!(token.id, 0);
    assert!((token.logprob.unwrap() + log_sum).abs() < 1e-5);
    let want = [(1, 2.0 - log_sum), (2, 1.0 - log_sum)];
    for ((id, logprob), (want_id, want)) in token.top.iter().zip(want) {
        assert!(*id == want_id && (logprob - want).abs() < 1e-5);
    }
    assert_eq!(token.top.len(), 2);
}

#[test]
fn draws_follow_the_distribution() {
    let row = noise(3, 40, 6.0);
    let base = Sampling { temperature: 0.9, seed: Some(11), ..Sampling::default() };
    for settings in [
        base.clone(),
        Sampling { top_k: 7, ..base.clone() },
        Sampling { top_p: 0.8, ..base.clone() },
        Sampling { min_p: 0.1, ..base.clone() },
        Sampling { temperature: 2.0, top_k: 20, top_p: 0.9, min_p: 0.02, ..base.clone() },
    ] {
        let draws = 50_000;
        let mut counts = vec![0u32; row.len()];
        for position in 0..draws {
            counts[sample(&settings, &row, position) as usize] += 1;
        }
        let (distribution, _) = reference(&settings, &row);
        let mut expected = vec![0.0; row.len()];
        distribution.iter().for_each(|&(id, p)| expected[id as usize] = p * draws as f64);
        // Chi-square over the cells that can be hit; its mean is their number, its deviation sqrt(2 * number).
        let mut chi = 0.0;
        for (&count, &want) in counts.iter().zip(&expected) {
            assert!(want > 0.0 || count == 0, "{settings:?}");
            chi += if want > 0.0 { (f64::from(count) - want).powi(2) / want } else { 0.0 };
        }
        let cells = distribution.len() as f64;
        assert!(chi < cells + 4.0 * (2.0 * cells).sqrt() + 4.0, "chi-square {chi} over {cells} cells");
    }
}

#[test]
fn a_real_vocabulary_is_drawn_to_its_ends() {
    let row = vec![0.0; 151_936];
    let settings = Sampling { temperature: 1.0, ..Sampling::default() };
    let draws: Vec<u32> = (0..2000).map(|position| sample(&settings, &row, position)).collect();
    let mean = draws.iter().map(|&id| f64::from(id)).sum::<f64>() / 2000.0;
    assert!((mean / 75_968.0 - 1.0).abs() < 0.06, "{mean}");
    assert!(draws.iter().any(|&id| id > 151_000) && draws.iter().any(|&id| id < 1000));
}

proptest! {
    #[test]
    fn equals_the_reference(
        seed in any::<u64>(), size in 1usize..3000, spread in 0.1f64..30.0, temperature in 0.05f32..3.0,
        top_k in prop_oneof![Just(0usize), 1usize..60, 60usize..4000],
        top_p in prop_oneof![Just(1.0f32), 0.01f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0001f32..1.0],
    ) {
        let row = noise(seed, size, spread);
        let settings = Sampling { temperature, top_k, top_p, min_p, seed: Some(seed), ..Sampling::default() };
        let (distribution, close) = reference(&settings, &row);
        for position in 0..8 {
            let want = reference_draw(&distribution, hash::uniform(seed, position));
            if let (Some(want), false) = (want, close) {
                prop_assert_eq!(sample(&settings, &row, position), want);
            }
        }
    }

    #[test]
    fn a_mask_is_a_row_without_what_it_forbids(
        seed in any::<u64>(), size in 1usize..300, keep in prop::collection::vec(any::<u32>(), 1..20),
        temperature in prop_oneof![Just(0.0f32), 0.1f32..3.0], top_k in 0usize..9, top_p in 0.1f32..=1.0,
    ) {
        let allowed: Vec<u32> = keep.iter().map(|token| token % size as u32).collect();
        let mut row = noise(seed, size, 6.0);
        let mut forbidden = row.clone();
        for (token, logit) in forbidden.iter_mut().enumerate() {
            *logit = if allowed.contains(&(token as u32)) { *logit } else { f32::NEG_INFINITY };
        }
        let bias = vec![(0, 3.0)];
        let settings = Sampling { temperature, top_k, top_p, logit_bias: bias, logprobs: Some(2), ..Sampling::default() };
        let sampler = Sampler::new(settings, seed, &[]);
        let (before, mask, mut scratch) = (row.clone(), mask(size, allowed.iter().copied()), Scratch::default());
        for position in 0..8 {
            let want = sampler.sample(&mut forbidden, None, position, &mut scratch).unwrap().id;
            let got = sampler.sample(&mut row, Some(&mask), position, &mut scratch).unwrap();
            prop_assert!(got.id == want && allowed.contains(&got.id));
            // The model's own opinion, which knows of no mask.
            prop_assert_eq!(got.logprob.unwrap(), row[want as usize] - math::log_sum_exp(&row).unwrap());
        }
        prop_assert_eq!(row, before);
    }

    #[test]
    fn top_k_equals_a_sort(values in prop::collection::vec(-3i8..3, 1..200), k in 0usize..40) {
        let row: Vec<f32> = values.iter().map(|&v| f32::from(v)).collect();
        let mut sorted: Vec<(u32, f32)> = row.iter().enumerate().map(|(id, &v)| (id as u32, v)).collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        sorted.truncate(k);
        let mut got = Vec::new();
        select::top_k(&row, k, &mut got);
        prop_assert_eq!(got, sorted);
    }
}

/// Prints what a pick costs: `cargo test --release -p engine --lib cost_of_a_pick -- --nocapture`.
#[test]
fn cost_of_a_pick() {
    let mut row = noise(5, 151_936, 12.0);
    let base = Sampling { temperature: 0.8, ..Sampling::default() };
    for (name, settings) in [
        ("greedy", Sampling::default()),
        ("greedy, 5 logprobs", Sampling { logprobs: Some(5), ..Sampling::default() }),
        ("temperature", base.clone()),
        ("top-k 40, top-p 0.95", Sampling { top_k: 40, top_p: 0.95, ..base.clone() }),
        ("top-p 0.95", Sampling { top_p: 0.95, ..base.clone() }),
        ("min-p 0.05", Sampling { min_p: 0.05, ..base.clone() }),
    ] {
        let sampler = Sampler::new(settings, 0, &[]);
        let mut scratch = Scratch::default();
        let mut cost = |position| {
            let begun = std::time::Instant::now();
            sampler.sample(&mut row, None, position, &mut scratch).unwrap();
            begun.elapsed().as_secs_f64() * 1e6
        };
        let best = (0..20).map(&mut cost).fold(f64::MAX, f64::min);
        println!("{name}: {best:.0} us");
    }
}

proptest! {
    #[test]
    fn a_shortlist_gives_what_the_row_gives(
        seed in any::<u64>(), size in prop_oneof![1usize..600, 30_000usize..60_000], spread in 0.5f64..40.0,
        temperature in prop_oneof![Just(0.0f32), 0.1f32..2.0], top_k in prop_oneof![Just(0usize), 1usize..200],
        top_p in prop_oneof![Just(1.0f32), 0.05f32..1.0], min_p in prop_oneof![Just(0.0f32), 0.0001f32..0.5],
        keep in prop::collection::vec(any::<u32>(), 0..40),
    ) {
        let mut row = noise(seed, size, spread);
        let settings = Sampling { temperature, top_k, top_p, min_p, ..Sampling::default() };
        let sampler = Sampler::new(settings, seed, &[]);
        let mask = (!keep.is_empty()).then(|| mask(size, keep.iter().map(|token| token % size as u32)));
        let (mut list, mut scratch) = (Shortlist::default(), Scratch::default());
        list.fill(&row, mask.as_deref(), sampler.ask());
        let allowed = |id: usize| mask.as_ref().is_none_or(|mask| mask[id / 32] >> (id % 32) & 1 == 1);
        let masked: Vec<f32> =
            row.iter().enumerate().map(|(id, &x)| if allowed(id) { x } else { f32::NEG_INFINITY }).collect();
        for position in 0..6 {
            let want = sampler.sample(&mut row, mask.as_deref(), position, &mut scratch).unwrap().id;
            let mut part = |range: std::ops::Range<usize>| Some(masked[range].to_vec());
            let got = sampler.choose(&list, size, position, &mut scratch, &mut part);
            // Nothing is left open where a few tokens are allowed, or the usual filters are on.
            prop_assert!(got == Some(want) || got.is_none() && mask.is_none(), "{:?} instead of {}", got, want);
            let usual = (1..=40).contains(&top_k) || top_k == 0 && top_p == 1.0;
            prop_assert!(got.is_some() || !usual || list.tokens.is_empty());
        }
    }
}
