//! The engine thread: drain commands, schedule, draft, step, sample, publish.
//!
//! No lock is held during a forward pass and nothing here waits for a reader. In steady decoding the one allocation per
//! step is the list of chunks, which borrows from the sequences. Order matters at the end of a step: blocks are
//! released and statistics written before `Finished` is published, so a reader that has seen the end sees its effects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use model::shortlist::Shortlist;
use model::{Backend, Chunk, StateInfo, Want};

use crate::block_pool::StateCounts;
use crate::draft::DraftModel;
use crate::event::{ErrorKind, FinishReason, TokenOut};
use crate::handle::Shared;
use crate::plan::RowLimits;
use crate::request::Priority;
use crate::sampler::Scratch;
use crate::scheduler::Scheduler;
use crate::sequence::{End, Intake, Limits, Rows, Sequence};
use crate::snapshot::Snapshots;
use crate::stats::Stats;
use crate::{EngineOptions, TokenBytes};

/// Blocks saved between two looks at the inbox: a request that arrives then waits for a few copies of memory.
const SAVES_PER_TURN: usize = 4;
/// Longest time the end of an engine may take for saving.
const SAVE_AT_END: Duration = Duration::from_secs(10);
/// Pause between looks at cancelled requests while only saved blocks are waited for. A block that was read ends it.
const RESTORE_PAUSE: Duration = Duration::from_millis(20);

mod narrow;

use narrow::Remaining;

pub(crate) struct Runner {
    backend: Box<dyn Backend>,
    shared: Arc<Shared>,
    scheduler: Scheduler,
    stats: Stats,
    /// When there was last a sequence.
    resting_since: Instant,
    limits: Limits,
    token_bytes: Arc<TokenBytes>,
    /// Whether the last step left picks of the backend instead of logits.
    picked: bool,
    // Buffers that live as long as the thread.
    logits: Vec<f32>,
    picks: Vec<u32>,
    lists: Vec<Shortlist>,
    scratch: Scratch,
    out: Vec<TokenOut>,
    arrived: Vec<Sequence>,
    ended: Vec<(Sequence, End)>,
}

impl Runner {
    pub fn new(
        backend: Box<dyn Backend>,
        draft_model: Option<Box<dyn Backend>>,
        options: &EngineOptions,
        tokens_max: usize,
        shared: Arc<Shared>,
        snapshots: Option<Snapshots>,
    ) -> Self {
        let info = backend.info();
        let limits = RowLimits {
            rows_max: info.rows_max,
            idle: options.step_rows_idle,
            busy: options.step_rows_busy,
            background: options.background_rows,
        };
        let mut scheduler = Scheduler::new(info.blocks, info.states, limits, options.running_max, options.draft_max);
        scheduler.gate.model = draft_model.map(DraftModel::new);
        if let Some(snapshots) = snapshots {
            scheduler.use_snapshots(snapshots);
        }
        Self {
            scheduler,
            limits: Limits { vocab: info.vocab, tokens_max },
            token_bytes: Arc::clone(&options.token_bytes),
            backend,
            shared,
            stats: Stats::default(),
            resting_since: Instant::now(),
            picked: false,
            logits: Vec::new(),
            picks: Vec::new(),
            lists: Vec::new(),
            scratch: Scratch::default(),
            out: Vec::new(),
            arrived: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Runs until the engine is closed. Whatever is unfinished then is ended by `Drop`.
    pub fn run(mut self) {
        self.settle();
        while self.shared.receive(self.patience(), &mut self.arrived) {
            let begun = Instant::now();
            if self.scheduler.is_empty() && self.arrived.is_empty() {
                self.save_if_rested();
            } else {
                self.turn();
                self.resting_since = Instant::now();
            }
            self.stats.busy_seconds += begun.elapsed().as_secs_f64();
            self.settle();
        }
    }

    /// How long to wait for a request before the next turn.
    fn patience(&self) -> Duration {
        if self.scheduler.only_restores() {
            return RESTORE_PAUSE;
        }
        if !self.scheduler.is_empty() {
            return Duration::ZERO;
        }
        self.scheduler.rest_before_saving(self.resting_since.elapsed()).unwrap_or(Duration::MAX)
    }

    fn save_if_rested(&mut self) {
        if self.scheduler.rest_before_saving(self.resting_since.elapsed()) == Some(Duration::ZERO) {
            self.scheduler.save_some(self.backend.as_mut(), SAVES_PER_TURN);
        }
    }

    /// One round of the loop, without waiting.
    fn turn(&mut self) {
        for sequence in self.arrived.drain(..) {
            self.scheduler.enqueue(sequence);
        }
        self.scheduler.take_interrupted(&mut self.ended);
        if !self.ended.is_empty() {
            // Before the step, not after it: whoever steers waits for this.
            self.release_ended();
            self.settle();
        }
        let (stats, shared) = (&mut self.stats, &self.shared);
        self.scheduler.admit(self.backend.as_mut(), |sequence| {
            stats.cached_tokens += sequence.usage.cached as u64;
            shared.left_queue(sequence.id, sequence.priority);
        });
        self.scheduler.schedule(&self.limits);
        self.scheduler.save_evicted(self.backend.as_ref());
        if self.scheduler.running.iter().any(|sequence| sequence.rows > 0) {
            let begun = Instant::now();
            let shape = self.step_shape();
            match self.forward() {
                Ok(()) => {
                    self.absorb();
                    self.learn(shape, begun.elapsed().as_secs_f64());
                }
                Err(end) => self.fail_step(&end),
            }
        }
        self.release_ended();
    }

    /// Runs the step. Where every sequence takes the likeliest token and nothing else, the backend may pick it; where a
    /// shortlist of each row will do, it may give that. Else it gives logits.
    fn forward(&mut self) -> Result<(), End> {
        let mut stepped = self.scheduler.running.iter().filter(|sequence| sequence.rows > 0);
        let plain = stepped.clone().all(Sequence::takes_likeliest);
        let narrow = !plain && stepped.all(Sequence::takes_shortlist);
        let begun = Instant::now();
        let device = |error| End::error(ErrorKind::Device, error);
        let narrowed = if narrow { narrow::picks(self).map_err(device)? } else { Remaining::All };
        self.picked = narrowed == Remaining::Nothing;
        let chunks = self.scheduler.running.iter().filter(|sequence| sequence.rows > 0).map(|s| s.chunk());
        let batch: Vec<Chunk<'_>> = chunks.collect();
        if plain {
            self.picked = self.backend.pick(&batch, &mut self.picks).map_err(device)?;
        }
        if !self.picked && narrowed != Remaining::Picking {
            self.backend.forward(&batch, &mut self.logits).map_err(device)?;
        }
        self.stats.forward_seconds += begun.elapsed().as_secs_f64();
        self.stats.steps += 1;
        let wanted: usize = batch.iter().map(|chunk| chunk.wanted().len()).sum();
        let right = match self.picked {
            true => self.picks.len() == wanted,
            false => self.logits.len() == wanted * self.limits.vocab,
        };
        if !right {
            return Err(End::error(ErrorKind::Internal, "the backend returned the wrong number of rows"));
        }
        Ok(())
    }

    /// Rows of the step, and how many of them read prompts.
    fn step_shape(&self) -> (usize, usize) {
        let stepped = self.scheduler.running.iter().filter(|sequence| sequence.rows > 0);
        stepped.fold((0, 0), |(rows, reading), sequence| {
            let reads = if sequence.chunk().want == Want::All || sequence.rows == 1 { 0 } else { sequence.rows };
            (rows + sequence.rows, reading + reads)
        })
    }

    /// Learns what steps cost: sampling included, since drafted rows are sampled too.
    fn learn(&mut self, (rows, reading): (usize, usize), seconds: f64) {
        match reading {
            0 => self.scheduler.gate.costs.observe(rows, seconds),
            _ if 2 * reading > rows => self.scheduler.gate.costs.observe_prompt(rows, seconds),
            _ => {}
        }
    }

    /// Hands every sequence its rows of logits and publishes what it picks.
    fn absorb(&mut self) {
        let mut offset = 0;
        let mut index = 0;
        while let Some(sequence) = self.scheduler.running.get_mut(index) {
            if sequence.rows == 0 {
                index += 1;
                continue;
            }
            let chunk = sequence.chunk();
            let wanted = offset..offset + chunk.wanted().len();
            let reading = sequence.pending() > 1 || sequence.usage.generated == 0;
            if reading && chunk.want != Want::All {
                self.stats.prompt_tokens += chunk.tokens.len() as u64;
            }
            offset = wanted.end;
            let vocab = self.limits.vocab;
            let rows = match self.picked {
                true => Rows::Picks(&self.picks[wanted]),
                false => Rows::Logits(&mut self.logits[wanted.start * vocab..wanted.end * vocab]),
            };
            let before = sequence.usage.generated;
            let mut intake = Intake {
                limits: self.limits,
                gate: &mut self.scheduler.gate,
                drafts: &mut self.stats.drafts,
                token_bytes: &self.token_bytes,
                scratch: &mut self.scratch,
                out: &mut self.out,
            };
            let end = sequence.absorb(rows, &mut intake);
            self.stats.generated_tokens += (sequence.usage.generated - before) as u64;
            let mut end = sequence.failure().or(end);
            if end.is_none() && sequence.publish(&mut self.out).is_err() {
                self.out.clear();
                end = Some(FinishReason::SlowReader.into());
            }
            match end {
                Some(mut end) => {
                    end.tokens.append(&mut self.out);
                    self.ended.push((self.scheduler.running.remove(index), end));
                }
                None => {
                    self.scheduler.pool.commit(&mut sequence.table, &sequence.tokens[..sequence.kv_len]);
                    Scheduler::keep_saves(&mut self.scheduler.pool, sequence);
                    index += 1;
                }
            }
        }
    }

    /// Ends every sequence of a step that failed; the others go on.
    fn fail_step(&mut self, end: &End) {
        for mut sequence in self.scheduler.running.extract_if(.., |sequence| sequence.rows > 0) {
            sequence.abandon_step();
            self.ended.push((sequence, end.clone()));
        }
    }

    /// Gives back the blocks of sequences that ended.
    fn release_ended(&mut self) {
        for (sequence, end) in &mut self.ended {
            // After an error the KV of the last step is not to be trusted; what was shared before is.
            let failed = matches!(end.reason, FinishReason::Error { .. });
            let valid = if failed { sequence.table.committed_tokens() } else { sequence.kv_len };
            self.scheduler.release(sequence, valid, failed);
            self.shared.forget(sequence.id);
            if !sequence.is_started() {
                self.shared.left_queue(sequence.id, sequence.priority);
            }
        }
    }

    /// Writes the statistics, then tells the readers of ended sequences.
    fn settle(&mut self) {
        let scheduler = &self.scheduler;
        for priority in Priority::ALL {
            let running = scheduler.running.iter().filter(|sequence| sequence.priority == priority);
            self.stats.running[priority.index()] = running.count();
            self.stats.preempted[priority.index()] = scheduler.preempted(priority);
        }
        self.stats.blocks = scheduler.pool.counts();
        if let Some(StateInfo { slots, bytes, .. }) = self.backend.info().states {
            let (free, cached) = scheduler.pool.state_counts();
            self.stats.states = StateCounts { slots, cached, free, bytes };
        }
        self.stats.preemptions = scheduler.preemptions;
        self.shared.write_stats(&self.stats);
        for (mut sequence, end) in self.ended.drain(..) {
            sequence.finish(end);
        }
    }
}

impl Drop for Runner {
    /// Ends every stream, also when the backend panicked.
    fn drop(&mut self) {
        let end: End = match std::thread::panicking() {
            true => End::error(ErrorKind::Internal, "the engine thread panicked"),
            false => FinishReason::Shutdown.into(),
        };
        self.shared.close();
        self.shared.receive(Duration::ZERO, &mut self.arrived);
        self.arrived.drain(..).for_each(|sequence| self.scheduler.enqueue(sequence));
        let rest = self.scheduler.take_all();
        self.ended.extend(rest.into_iter().map(|sequence| (sequence, end.clone())));
        if std::thread::panicking() {
            // The pool may be half changed: leave it alone and only tell the readers.
            self.ended.drain(..).for_each(|(mut sequence, end)| sequence.finish(end));
        } else {
            self.release_ended();
            self.settle();
            self.scheduler.save_all(self.backend.as_mut(), SAVE_AT_END);
        }
    }
}
