//! `flint bench edit --paired`: plain against drafted decoding where the difference is a percent or two.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use engine::{EngineHandle, EngineOptions};
use load::{Loaded, Parts};
use serde_json::{Map, Value, json};
use text::ChatTemplate;

use super::cases::Case;
use super::measure::{Bench, Method, Outcome, collect, drafts, round};
use super::statistics::{Estimate, costs, counted, estimate, host_seconds, of_medians, of_totals};
use super::turns::{Record, Slice, Turns};
use super::{EditBenchArgs, Part};
use crate::report::median;

/// A model with two engines that take turns.
struct Paired {
    /// Its engine decodes plainly.
    bench: Bench,
    drafted: EngineHandle,
    turns: Arc<Turns>,
    slice: usize,
}

/// What came of one case in one way, all rounds together.
struct Measured {
    way: Method,
    /// One for each round.
    records: Vec<Record>,
    /// From the text of the prediction to a request, which happens before the first turn; one for each round.
    prepare_seconds: Vec<f64>,
    /// What was drafted in the last round.
    drafted: Outcome,
}

/// Runs the cases in turns of `slice` tokens.
pub fn run(args: &EditBenchArgs, slice: usize) -> Result<()> {
    let Parts { backend, draft_model, tokenizer, facts } = load::load_parts(&args.model)?;
    let drafts_with_model = draft_model.is_some();
    let (turns, [plain, drafted]) = Turns::new(backend);
    let engine = load::start_engine(plain, None, &tokenizer, EngineOptions::default())?;
    let drafted = load::start_engine(drafted, draft_model, &tokenizer, EngineOptions::default())?;
    let template = ChatTemplate::new(tokenizer.vocabulary());
    let bench = Bench { loaded: Loaded { engine, tokenizer, template, facts }, drafts_with_model };
    let paired = Paired { bench, drafted, turns, slice };
    for &part in &args.cases {
        let mut all = Vec::new();
        for case in part.cases(args)? {
            // Plain against plain shows what the measure itself is worth.
            let control = (part == Part::Prose).then_some(Method::Plain);
            let ways = part.ways(&case, args).into_iter().map(|way| match way {
                Method::Bad(name) => Method::BadAlone(name),
                way => way,
            });
            for way in control.into_iter().chain(ways) {
                let measured = paired.measure(&case, way, args.rounds).with_context(|| case.name.clone())?;
                let name = format!("{}, {}, paired", case.name, way.name());
                paired.bench.print(&name, figures(&[&measured]), args.json);
                all.push(measured);
            }
        }
        paired.print_together(part, &all, args.json);
    }
    Ok(())
}

impl Paired {
    /// Has both engines answer, in turns, once for each round.
    fn measure(&self, case: &Case, way: Method, rounds: usize) -> Result<Measured> {
        let prompt = self.bench.prompt(&case.prompt)?;
        let (mut records, mut prepare_seconds, mut last) = (Vec::new(), Vec::new(), None);
        for _ in 0..rounds {
            let begun = Instant::now();
            let request = self.bench.request(&prompt, case.tokens, way, way.prediction(case));
            prepare_seconds.push(begun.elapsed().as_secs_f64());
            let plain = self.bench.request(&prompt, case.tokens, Method::Plain, None);
            self.turns.begin(prompt.len(), self.slice);
            let streams = (self.bench.loaded.engine.submit(plain)?, self.drafted.submit(request)?);
            let read = |stream| {
                let outcome = collect(stream, begun);
                self.turns.end();
                outcome
            };
            let (plain, drafted) = std::thread::scope(|scope| {
                let plain = scope.spawn(|| read(streams.0));
                let drafted = read(streams.1);
                (plain.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), drafted)
            });
            let (plain, drafted) = (plain?, drafted?);
            ensure!(plain.tokens == drafted.tokens, "the answer with {} is not the plain one", way.name());
            records.push(self.turns.take());
            last = Some(drafted);
        }
        let drafted = last.context("there must be at least one round")?;
        Ok(Measured { way, records, prepare_seconds, drafted })
    }

    /// Prints what the cases of a part come to together: all of them, and each way where there are several.
    fn print_together(&self, part: Part, all: &[Measured], json: bool) {
        let mut ways: Vec<Method> = all.iter().map(|measured| measured.way).collect();
        ways.sort_by_key(|way| way.name());
        ways.dedup();
        for way in &ways {
            let of_way: Vec<&Measured> = all.iter().filter(|measured| measured.way == *way).collect();
            let name = format!("{part:?}, {}, all cases, paired", way.name());
            self.bench.print(&name, figures(&of_way), json);
        }
        if part == Part::Bad {
            let name = format!("{part:?}, all cases and ways, paired");
            self.bench.print(&name, figures(&all.iter().collect::<Vec<_>>()), json);
        }
    }
}

/// The figures of one or several measurements, as if they were one.
fn figures(measured: &[&Measured]) -> Map<String, Value> {
    let records: Vec<&Record> = measured.iter().flat_map(|measured| &measured.records).collect();
    let pairs: Vec<[Slice; 2]> = records.iter().flat_map(|record| record.pairs.iter().copied()).collect();
    let mut values = Map::new();
    let mut put = |name: &str, value: Value| drop(values.insert(name.to_owned(), value));
    put("pairs", json!(pairs.len()));
    if pairs.is_empty() {
        return values;
    }
    put("times_plain_of_totals", shown(&estimate(&pairs, of_totals)));
    put("times_plain_median_of_pairs", shown(&estimate(&pairs, of_medians)));
    let steps = |side: usize| records.iter().map(|record| record.steps[side].as_slice()).collect::<Vec<_>>();
    let (plain, drafted) = (steps(0), steps(1));
    let single = median(&plain.iter().copied().flatten().map(|step| step.seconds).collect::<Vec<_>>());
    let costs = costs(&drafted, single);
    let by_counting = counted(&plain, &costs, single) / counted(&drafted, &costs, single);
    put("times_plain_by_counting", json!(round(by_counting)));
    put("rows_cost_times", costs.iter().map(|&(rows, cost, times)| json!([rows, round(cost), times])).collect());
    put("plain_ms_per_step", json!(round(1e3 * single)));
    put("plain_host_us_per_step", json!(round(1e6 * host_seconds(&plain))));
    put("drafted_host_us_per_step", json!(round(1e6 * host_seconds(&drafted))));
    let prepare: Vec<f64> = measured.iter().flat_map(|measured| measured.prepare_seconds.iter().copied()).collect();
    put("prepare_ms", json!(round(1e3 * median(&prepare))));
    if let [one] = measured {
        put("answer_tokens", json!(one.drafted.tokens.len()));
        put("drafts", drafts(&one.drafted.drafts));
    }
    values
}

fn shown(estimate: &Estimate) -> Value {
    json!({"value": round(estimate.value), "interval_95": [round(estimate.low), round(estimate.high)]})
}
