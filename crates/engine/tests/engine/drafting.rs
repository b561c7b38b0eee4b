//! Drafting saves steps where text is known, and changes nothing that is generated.

use std::sync::Arc;

use engine::{DraftKind, Drafting, Engine, EngineOptions, FinishReason, Prediction, Request, Sampling};
use testkit::toy::{ToyBackend, ToyOptions};

use crate::support::*;

/// Says the file that follows token 1 in the prompt, with some tokens changed, then goes on anyhow.
fn copyist(history: &[u32]) -> u32 {
    let start = history.iter().position(|&token| token == 1).map_or(0, |at| at + 1);
    let file = history[start..].split(|&token| token == 2).next().unwrap_or_default();
    let said = history.len() - start - file.len() - 1;
    let word = file.get(said).copied().unwrap_or(3);
    // Every 60th word is another one.
    if said % 60 == 59 { word % 90 + 10 } else { word }
}

/// A prompt with a file of `lines` lines between the tokens 1 and 2.
fn file_prompt(lines: u32) -> (Vec<u32>, Vec<u32>) {
    let mut dice = Dice(u64::from(lines));
    let line = |_| -> Vec<u32> { [4].into_iter().chain((0..9).map(|_| 10 + dice.roll(90) as u32)).collect() };
    let file: Vec<u32> = (0..lines).flat_map(line).collect();
    ([&[1], file.as_slice(), &[2]].concat(), file)
}

fn toy() -> ToyOptions {
    ToyOptions { speaker: Some(copyist), ..ToyOptions::default() }
}

#[test]
fn a_prediction_and_the_past_both_draft_an_edit() {
    let (tokens, file) = file_prompt(40);
    let plain = start(toy(), EngineOptions::default());
    let request = |drafting| Request { drafting, ..Request::new(tokens.clone(), 400) };
    let want = ask(&plain, request(Drafting::OFF));
    let prediction = Some(Arc::new(Prediction::new(file)));
    let kinds = [
        (DraftKind::Prediction, Drafting { prediction, always: true, ..Drafting::OFF }),
        (DraftKind::Ngram, Drafting { ngram: true, always: true, ..Drafting::OFF }),
    ];
    for (kind, drafting) in kinds {
        let engine = start(toy(), EngineOptions::default());
        let got = ask(&engine, request(drafting));
        assert_eq!(got.ids(), want.ids(), "{kind:?}");
        let count = got.finished().usage.drafts.of(kind);
        assert!(count.accepted > 350, "{kind:?}: {count:?}");
        assert!(engine.stats().steps * 8 < plain.stats().steps, "{kind:?}: {} steps", engine.stats().steps);
        assert_eq!(engine.stats().drafts.of(kind), count);
    }
}

#[test]
fn every_drafter_equals_plain_with_penalties_filters_and_company() {
    let (tokens, file) = file_prompt(30);
    let engine = start(toy(), EngineOptions::default());
    let samplings = [
        Sampling::default(),
        sampled(0.8, 11),
        Sampling { top_k: 5, top_p: 0.8, ..sampled(1.2, 12) },
        Sampling { presence_penalty: 0.7, frequency_penalty: 0.5, repetition_penalty: 1.2, ..sampled(0.7, 13) },
    ];
    let prediction = Arc::new(Prediction::new(file));
    let request = |sampling: &Sampling, drafting| Request {
        sampling: sampling.clone(),
        drafting,
        ..Request::new(tokens.clone(), 200)
    };
    let want: Vec<_> = samplings.iter().map(|sampling| ask(&engine, request(sampling, Drafting::OFF)).ids()).collect();
    let drafting = |always, ngram, predicted: bool| Drafting {
        prediction: predicted.then(|| Arc::clone(&prediction)),
        ngram,
        always,
        ..Drafting::OFF
    };
    let ways = [drafting(true, false, true), drafting(true, true, false), drafting(false, true, true)];
    // All of them at the same time, so that their drafts share steps.
    let all = ways.iter().flat_map(|way| samplings.iter().map(|sampling| request(sampling, way.clone())));
    let streams: Vec<_> = all.map(|request| engine.submit(request).unwrap()).collect();
    for (index, stream) in streams.into_iter().enumerate() {
        assert_eq!(collect(stream).ids(), want[index % samplings.len()], "way {}", index / samplings.len());
    }
    assert!(engine.stats().drafts.of(DraftKind::Prediction).accepted > 100);
    assert!(engine.stats().drafts.of(DraftKind::Ngram).accepted > 100);
}

#[test]
fn predictions_of_no_use_change_nothing() {
    let (tokens, file) = file_prompt(20);
    let engine = start(toy(), EngineOptions::default());
    let want = ask(&engine, Request { drafting: Drafting::OFF, ..Request::new(tokens.clone(), 150) }).ids();
    let wrong: Vec<u32> = file.iter().map(|token| (token + 1) % 128).collect();
    let unknown = vec![u32::MAX; 50];
    let huge: Vec<u32> = (0..300_000).map(|i| i * 7 % 128).collect();
    for prediction in [wrong, unknown, huge, vec![], vec![10]] {
        for always in [true, false] {
            let prediction = Some(Arc::new(Prediction::new(prediction.clone())));
            let drafting = Drafting { prediction, always, ..Drafting::OFF };
            let got = ask(&engine, Request { drafting, ..Request::new(tokens.clone(), 150) });
            assert_eq!((got.ids(), got.reason()), (want.clone(), &FinishReason::Length));
        }
    }
}

#[test]
fn a_draft_model_saves_steps_and_changes_nothing() {
    let (tokens, _) = file_prompt(30);
    // It never changes a word, so it is wrong about every 60th.
    fn honest(history: &[u32]) -> u32 {
        let word = copyist(history);
        let start = history.iter().position(|&token| token == 1).map_or(0, |at| at + 1);
        let end = history.iter().position(|&token| token == 2).unwrap_or(history.len());
        history[start..end].get(history.len() - end - 1).copied().unwrap_or(word)
    }
    let want = ask(&start(toy(), EngineOptions::default()), Request::new(tokens.clone(), 250));
    let small = ToyBackend::new(ToyOptions { speaker: Some(honest), blocks: 64, ..ToyOptions::default() });
    let large = || Box::new(ToyBackend::new(toy()));
    let options = EngineOptions { draft_max: 8, ..EngineOptions::default() };
    let engine = Engine::start_with_draft_model(large(), Some(Box::new(small)), options).unwrap();
    let drafting = Drafting { model: true, always: true, ..Drafting::OFF };
    for turn in 0..2 {
        let got = ask(&engine, Request { drafting: drafting.clone(), ..Request::new(tokens.clone(), 250) });
        assert_eq!(got.ids(), want.ids(), "turn {turn}");
        let count = got.finished().usage.drafts.of(DraftKind::Model);
        assert!(count.accepted > 200 && count.accepted < count.tokens, "{count:?}");
    }
    let other = ToyBackend::new(ToyOptions { vocab: 64, ..ToyOptions::default() });
    let error = Engine::start_with_draft_model(large(), Some(Box::new(other)), EngineOptions::default());
    assert!(error.err().unwrap().to_string().contains("64 tokens and the model 128"));
}

/// Draws of the last of three tokens, each from its own seed, with drafts that are sometimes right.
fn draws(drafting: &Drafting, count: u64, settings: &Sampling) -> (Vec<u64>, u64) {
    let engine = start(small(), EngineOptions { queue_max: 20_000, running_max: 8, ..EngineOptions::default() });
    let request = |seed| Request {
        sampling: Sampling { seed: Some(seed), ..settings.clone() },
        drafting: drafting.clone(),
        ..Request::new(vec![1, 2], 3)
    };
    let streams: Vec<_> = (0..count).map(|seed| engine.submit(request(seed)).unwrap()).collect();
    let mut counts = vec![0; small().vocab];
    for stream in streams {
        counts[collect(stream).ids()[2] as usize] += 1;
    }
    (counts, engine.stats().drafts.total().accepted)
}

fn small() -> ToyOptions {
    ToyOptions { vocab: 12, memory: 1, ..ToyOptions::default() }
}

/// The exact distribution of that token: a sum over all ways to get there.
fn exact(temperature: f32) -> Vec<f64> {
    let step = |last: u32| -> Vec<f64> {
        let mut row = Vec::new();
        ToyBackend::logits(&small(), &[last], &mut row);
        let weights: Vec<f64> = row.iter().map(|&logit| f64::from(logit / temperature).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    };
    let follow = |before: Vec<f64>| -> Vec<f64> {
        let steps: Vec<Vec<f64>> = (0..12).map(step).collect();
        (0..12).map(|id| (0..12).map(|last| before[last] * steps[last][id]).sum()).collect()
    };
    follow(follow(step(2)))
}

fn chi_square(counts: &[u64], expected: &[f64]) -> f64 {
    let total = counts.iter().sum::<u64>() as f64;
    let part = |(&count, &share): (&u64, &f64)| (count as f64 - share * total).powi(2) / (share * total);
    counts.iter().zip(expected).map(part).sum()
}

#[test]
fn twenty_thousand_sampled_draws_have_the_exact_distribution() {
    // 11 degrees of freedom: a fair sample exceeds this once in 1,000 times, and seeds are fixed.
    const LIMIT: f64 = 31.26;
    let settings = Sampling { temperature: 2.0, ..Sampling::default() };
    let expected = exact(2.0);
    let likely = |last: u32| ToyBackend::greedy(&small(), &[last], 1)[0];
    let first = likely(2);
    let second = likely(first);
    // Every token is followed by its likeliest one somewhere, so that each draw meets a draft for its last token.
    let mut tokens = vec![first, second, likely(second)];
    tokens.extend((0..12).flat_map(|token| [token, likely(token)]));
    let prediction = Some(Arc::new(Prediction::new(tokens)));
    let drafting = Drafting { prediction, always: true, ..Drafting::OFF };
    let (plain, _) = draws(&Drafting::OFF, 20_000, &settings);
    let (drafted, accepted) = draws(&drafting, 20_000, &settings);
    assert!(accepted > 2_000, "only {accepted} drafted tokens were accepted: nothing was tested");
    assert!(chi_square(&plain, &expected) < LIMIT, "{}", chi_square(&plain, &expected));
    assert!(chi_square(&drafted, &expected) < LIMIT, "{}", chi_square(&drafted, &expected));
    assert_eq!(drafted, plain, "the same seeds give the same draws");
    // The test can fail: accepting every tenth draft that should be rejected would look like this.
    let mut biased = drafted.clone();
    let moved = biased[first as usize] / 10;
    biased[first as usize] -= moved;
    biased[likely(first) as usize] += moved;
    assert!(chi_square(&biased, &expected) > LIMIT);
}
