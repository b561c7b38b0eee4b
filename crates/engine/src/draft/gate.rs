//! Whether drafting pays, by whom and how far: asked before every step, for every sequence that decodes.
//!
//! A step of R rows that is worth T tokens (one for each sequence) goes at T / cost(R). With d drafted rows of one
//! sequence it goes at (T + e) / (cost(R + d) + what drafting them costs), where e is how many of them are expected to be
//! right: the sum over the products of the chances that the drafter gives. The drafter and the d with the highest
//! throughput win; no drafting is one of the candidates. Nothing here knows what the backend is: costs are measured.
//!
//! Chances are estimates, and estimates are wrong at times: so what a draft may cost is bounded (`account.rs`).

use super::account::Account;
use super::costs::StepCosts;
use super::model::DraftModel;
use super::ngram::NgramDrafter;
use super::prediction::PredictionDrafter;
use super::{DRAFT_MAX, DraftKind, Drafter, Drafting};
use crate::guard::guard;

/// The least gain worth a draft: below it the estimate is not better than its errors.
const GAIN_MIN: f64 = 1.08;
/// A drafted step takes no longer than this, or than twice a plain one: a reader who interrupts waits for its end.
const STEP_SECONDS_MAX: f64 = 0.15;

/// What the next step holds before a sequence adds to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSoFar {
    /// Rows, drafted ones included.
    pub rows: usize,
    /// Tokens it is expected to give.
    pub tokens: f64,
    /// Sequences that decode.
    pub decoding: usize,
}

/// What all sequences of an engine share for drafting.
#[derive(Default)]
pub(crate) struct Gate {
    pub costs: StepCosts,
    pub model: Option<DraftModel>,
}

/// How far to go with a drafter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Choice {
    count: usize,
    /// Tokens expected to be right.
    expected: f64,
    /// Rate of the step relative to the step without it.
    gain: f64,
    /// What it costs if nothing is right, in steps without it.
    stake: f64,
}

impl Gate {
    /// The best number of tokens to draft with these chances, as long as what it costs is within `credit`.
    fn weigh(&self, chances: &[f32], seconds_per_token: f64, step: &StepSoFar, credit: f64) -> Choice {
        if !self.costs.known() {
            return Choice::default();
        }
        let plain = self.costs.seconds(step.rows);
        let limit = STEP_SECONDS_MAX.max(2.0 * plain);
        let (mut reached, mut expected, mut best) = (1.0, 0.0, Choice::default());
        for (index, &chance) in chances.iter().enumerate() {
            let count = index + 1;
            let verified = self.costs.seconds(step.rows + count);
            let seconds = verified + seconds_per_token * count as f64;
            let stake = seconds / plain - 1.0;
            if verified > limit || stake > credit {
                break;
            }
            reached *= f64::from(chance);
            expected += reached;
            let gain = (step.tokens + expected) / step.tokens * plain / seconds;
            if gain > best.gain {
                best = Choice { count, expected, gain, stake };
            }
        }
        best
    }
}

/// The drafters of one sequence.
pub(crate) struct Drafters {
    own: Option<Box<dyn Drafter>>,
    prediction: Option<PredictionDrafter>,
    ngram: Option<NgramDrafter>,
    model: bool,
    always: bool,
    chances: Vec<f32>,
    /// By kind.
    accounts: [Account; DraftKind::ALL.len()],
    /// What the proposal being verified costs, and what each right token of it is worth, in steps.
    stake: Option<(f64, f64)>,
}

impl Drafters {
    pub fn new(drafting: Drafting, own: Option<Box<dyn Drafter>>) -> Self {
        Self {
            own,
            prediction: drafting.prediction.map(PredictionDrafter::new),
            ngram: drafting.ngram.then(NgramDrafter::new),
            model: drafting.model,
            always: drafting.always,
            chances: Vec::new(),
            accounts: DraftKind::ALL.map(|kind| match kind {
                DraftKind::Prediction | DraftKind::Ngram => Account::new(),
                // Somebody asked for these, or they are always right.
                DraftKind::Model | DraftKind::Grammar | DraftKind::Own => Account::UNBOUND,
            }),
            stake: None,
        }
    }

    /// Proposes up to `max` tokens after `tokens`, as many as pay, and says who did and how many are expected to be
    /// right. The request's own drafter is not weighed.
    pub fn propose(
        &mut self,
        tokens: &[u32],
        max: usize,
        step: &StepSoFar,
        gate: &mut Gate,
        out: &mut Vec<u32>,
    ) -> Result<Option<(DraftKind, f64)>, String> {
        let max = max.min(DRAFT_MAX);
        if let Some(own) = &mut self.own {
            self.chances.clear();
            guard("drafter", || own.chances(tokens, max, &mut self.chances))?;
            guard("drafter", || own.propose(tokens, self.chances.len().min(max), out))?;
            return Ok((!out.is_empty()).then_some((DraftKind::Own, out.len() as f64)));
        }
        self.accounts.iter_mut().for_each(Account::save);
        self.stake = None;
        let Some((kind, choice)) = self.choose(tokens, max, step, gate) else {
            return Ok(None);
        };
        if let Some(drafter) = self.drafter(kind, gate) {
            drafter.propose(tokens, choice.count, out);
        }
        self.stake = Some((choice.stake, 1.0 / step.tokens));
        Ok((!out.is_empty()).then_some((kind, choice.expected)))
    }

    /// Tells a drafter how its proposal fared.
    pub fn observe(
        &mut self,
        kind: DraftKind,
        proposed: usize,
        accepted: usize,
        gate: &mut Gate,
    ) -> Result<(), String> {
        if let Some((stake, worth)) = self.stake.take() {
            self.accounts[kind as usize].settle(accepted as f64 * worth, stake);
        }
        match (&mut self.own, kind) {
            (Some(own), DraftKind::Own) => guard("drafter", || own.observe(proposed, accepted)),
            _ => {
                if let Some(drafter) = self.drafter(kind, gate) {
                    drafter.observe(proposed, accepted);
                }
                Ok(())
            }
        }
    }

    fn drafter<'a>(&'a mut self, kind: DraftKind, gate: &'a mut Gate) -> Option<&'a mut dyn Drafter> {
        match kind {
            DraftKind::Prediction => self.prediction.as_mut().map(|drafter| drafter as &mut dyn Drafter),
            DraftKind::Ngram => self.ngram.as_mut().map(|drafter| drafter as &mut dyn Drafter),
            DraftKind::Model if self.model => gate.model.as_mut().map(|drafter| drafter as &mut dyn Drafter),
            _ => None,
        }
    }

    /// The drafter that makes the step fastest. On a tie the one named first.
    fn choose(&mut self, tokens: &[u32], max: usize, step: &StepSoFar, gate: &mut Gate) -> Option<(DraftKind, Choice)> {
        let mut best: Option<(DraftKind, Choice)> = None;
        let mut chances = std::mem::take(&mut self.chances);
        let always = self.always;
        for kind in [DraftKind::Prediction, DraftKind::Ngram, DraftKind::Model] {
            if kind == DraftKind::Model && step.decoding > 1 {
                continue;
            }
            chances.clear();
            let Some(drafter) = self.drafter(kind, gate) else { continue };
            drafter.chances(tokens, max, &mut chances);
            let seconds = drafter.seconds_per_token();
            let credit = self.accounts[kind as usize].credit();
            let mut choice = gate.weigh(&chances, seconds, step, credit);
            if always {
                let gain = f64::from(u8::from(!chances.is_empty()));
                choice = Choice { count: chances.len(), gain, ..Choice::default() };
            } else if choice.gain < GAIN_MIN {
                let trial = match (&mut gate.model, kind) {
                    (Some(model), DraftKind::Model) => model.trial().min(chances.len()),
                    _ => 0,
                };
                choice = Choice { count: trial, gain: f64::from(u8::from(trial > 0)), ..Choice::default() };
            }
            if choice.gain > best.map_or(0.0, |(_, best)| best.gain) {
                best = Some((kind, choice));
            }
        }
        self.chances = chances;
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 1.5B on two cores: 28 ms for one row, 38 for four, 55 for eight, 100 for sixteen, then 5.2 ms a row.
    fn gate() -> Gate {
        let mut gate = Gate::default();
        gate.costs.observe_prompt(256, 256.0 * 0.0052);
        gate.costs.observe(1, 0.028);
        for _ in 0..60 {
            for (rows, ms) in [(1, 28.0), (2, 36.0), (4, 38.0), (8, 55.0), (16, 100.0), (32, 170.0)] {
                gate.costs.observe(rows, ms / 1e3);
            }
        }
        gate
    }

    const ALONE: StepSoFar = StepSoFar { rows: 1, tokens: 1.0, decoding: 1 };

    #[test]
    fn sure_texts_get_long_drafts_and_doubtful_ones_none() {
        let gate = gate();
        let weigh = |chance: f32| gate.weigh(&[chance; 64], 0.0, &ALONE, f64::INFINITY);
        let sure = weigh(0.995);
        assert!((20..32).contains(&sure.count) && sure.gain > 4.0, "{sure:?}: a step ends within 150 ms");
        assert!((4..12).contains(&weigh(0.8).count) && weigh(0.8).gain > 1.5, "{:?}", weigh(0.8));
        assert!((1..5).contains(&weigh(0.5).count), "{:?}", weigh(0.5));
        assert!(weigh(0.15).gain < GAIN_MIN, "{:?}", weigh(0.15));
        assert_eq!(gate.weigh(&[], 0.0, &ALONE, f64::INFINITY).count, 0);
    }

    #[test]
    fn what_drafting_costs_and_who_shares_the_step_count() {
        let gate = gate();
        let weigh = |chance: f32, seconds: f64, step| gate.weigh(&[chance; 64], seconds, step, f64::INFINITY);
        assert!(weigh(0.7, 0.012, &ALONE).gain < 1.1, "a draft model at 12 ms a token hardly pays");
        let crowd = StepSoFar { rows: 16, tokens: 16.0, decoding: 16 };
        assert!(weigh(0.6, 0.0, &crowd).gain < GAIN_MIN, "a full step has no free rows");
        assert!(
            Gate::default().weigh(&[1.0; 8], 0.0, &ALONE, f64::INFINITY).count == 0,
            "nothing is drafted before anything is known"
        );
    }

    #[test]
    fn what_is_not_in_the_account_is_not_risked() {
        let gate = gate();
        let weigh = |credit: f64| gate.weigh(&[0.99; 64], 0.0, &ALONE, credit);
        assert!(weigh(0.1).count == 0 && weigh(0.5).count >= 3 && weigh(1.0).count > weigh(0.5).count);
        for credit in [0.1, 0.5, 1.0, 3.0, 16.0] {
            let choice = weigh(credit);
            let cost = gate.costs.seconds(1 + choice.count) / gate.costs.seconds(1) - 1.0;
            assert!(choice.stake <= credit && (choice.stake - cost).abs() < 1e-9, "{choice:?} costs {cost}");
        }
    }

    /// Repeats itself for a while, again and again, and then says something else: as misleading as text can be.
    fn trap(length: usize) -> Vec<u32> {
        let mut tokens: Vec<u32> = (0..40).collect();
        let mut new = 1000;
        while tokens.len() < length {
            let start = tokens.len() * 7 % 30;
            tokens.extend_from_within(start..start + 9);
            tokens.extend([new, new + 1]);
            new += 2;
        }
        tokens
    }

    #[test]
    fn the_most_misleading_text_costs_no_more_than_the_accounts_hold() {
        let (mut gate, text) = (gate(), trap(2000));
        let prediction = Some(std::sync::Arc::new(super::super::Prediction::new(text[..400].to_vec())));
        let mut drafters = Drafters::new(Drafting { prediction, ngram: true, ..Drafting::OFF }, None);
        let (mut at, mut steps, mut right, mut drafts) = (50, 0.0, 0, 0);
        while at < text.len() {
            let mut draft = Vec::new();
            // What is drafted is never right: the model says the opposite of what the text would make one expect.
            let who = drafters.propose(&text[..at], 40, &ALONE, &mut gate, &mut draft).unwrap();
            steps += gate.costs.seconds(1 + draft.len()) / gate.costs.seconds(1);
            if let Some((kind, _)) = who {
                drafters.observe(kind, draft.len(), 0, &mut gate).unwrap();
                drafts += 1;
            }
            right += usize::from(draft.first() == text.get(at));
            at += 1;
        }
        let tokens = (text.len() - 50) as f64;
        assert!(drafts > 20 && right > 10, "{drafts} drafts, {right} would have been right");
        assert!(steps - tokens <= 2.0 * (1.0 + 0.01 * tokens), "{} steps lost in {tokens}", steps - tokens);
    }
}
