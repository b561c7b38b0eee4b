//! Who runs, who waits, and who gives way when KV blocks run out.
//!
//! Admission is first come, first served within a priority class, interactive before background. A sequence is admitted only when
//! blocks for all its present tokens can be had, so sequences reading prompts do not fight each other for room. When
//! room runs out all the same, the youngest background sequence gives up its blocks to the cache and goes back to its
//! queue; only when no background sequence is left does the youngest interactive one. The oldest therefore always
//! advances.

use std::collections::VecDeque;

use model::{BLOCK, Backend, StateInfo};

use crate::block_pool::{BlockPool, Prefix, blocks_for};
use crate::draft::{Gate, StepSoFar};
use crate::event::Started;
use crate::plan::{Planner, RowLimits, Wish};
use crate::request::Priority;
use crate::sequence::{End, Limits, Sequence};
use crate::snapshot::Snapshots;

mod snapshots;
mod states;

use snapshots::Restoring;

pub(crate) struct Scheduler {
    pub pool: BlockPool,
    pub running: Vec<Sequence>,
    pub preemptions: u64,
    /// Decides what is drafted.
    pub gate: Gate,
    /// By priority class, in order of submission.
    waiting: [VecDeque<Sequence>; 2],
    /// Left their queue to wait for saved blocks; see the module `snapshots`.
    restoring: Vec<Restoring>,
    snapshots: Option<Snapshots>,
    planner: Planner,
    limits: RowLimits,
    running_max: usize,
    draft_max: usize,
}

impl Scheduler {
    pub fn new(
        blocks: usize,
        states: Option<StateInfo>,
        limits: RowLimits,
        running_max: usize,
        draft_max: usize,
    ) -> Self {
        let mut pool = BlockPool::new(blocks);
        let (mut running_max, mut draft_max) = (running_max, draft_max);
        if let Some(states) = states {
            pool.use_states(states.slots);
            running_max = running_max.min(states.slots);
            draft_max = draft_max.min(states.drafted_max);
        }
        Self {
            pool,
            running: Vec::new(),
            preemptions: 0,
            gate: Gate::default(),
            waiting: Default::default(),
            restoring: Vec::new(),
            snapshots: None,
            planner: Planner::default(),
            limits,
            // Every running sequence can have a row in every step.
            running_max: running_max.clamp(1, limits.rows_max.max(1)),
            draft_max,
        }
    }

    /// True when there is no sequence.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.restoring.is_empty() && self.waiting.iter().all(VecDeque::is_empty)
    }

    /// True when nothing can be done until a saved block has been read: whoever waits then, waits for that.
    pub fn only_restores(&self) -> bool {
        self.running.is_empty() && !self.restoring.is_empty()
    }

    /// Sequences of a priority class that started and do not run.
    pub fn preempted(&self, priority: Priority) -> usize {
        let restoring = self.restoring.iter().map(|restoring| &restoring.sequence);
        let all = self.waiting(priority).iter().chain(restoring.filter(|sequence| sequence.priority == priority));
        all.filter(|sequence| sequence.is_started()).count()
    }

    /// Puts a sequence into its queue, by age: one that was preempted comes before those that never ran.
    pub fn enqueue(&mut self, sequence: Sequence) {
        let queue = &mut self.waiting[sequence.priority.index()];
        let place = queue.partition_point(|other| other.id < sequence.id);
        queue.insert(place, sequence);
    }

    /// Takes out every sequence whose reader no longer wants it or can no longer be reached.
    pub fn take_interrupted(&mut self, out: &mut Vec<(Sequence, End)>) {
        let running = self.running.extract_if(.., |sequence| sequence.interruption().is_some());
        let restoring = self.restoring.extract_if(.., |restoring| restoring.sequence.interruption().is_some());
        let waiting = self.waiting.iter_mut().flat_map(|queue| {
            std::iter::from_fn(|| {
                let index = queue.iter().position(|sequence| sequence.interruption().is_some())?;
                queue.remove(index)
            })
        });
        for sequence in running.chain(restoring.map(Restoring::stop)).chain(waiting) {
            if let Some(end) = sequence.interruption() {
                out.push((sequence, end));
            }
        }
    }

    /// Takes out every sequence: the engine is closing.
    pub fn take_all(&mut self) -> Vec<Sequence> {
        let mut all = std::mem::take(&mut self.running);
        all.extend(self.restoring.drain(..).map(Restoring::stop));
        all.extend(self.waiting.iter_mut().flat_map(|queue| queue.drain(..)));
        all
    }

    /// Starts waiting sequences while there is room for them. `started` hears of each that starts for the first time,
    /// before its reader does.
    pub fn admit(&mut self, backend: &mut dyn Backend, mut started: impl FnMut(&Sequence)) {
        self.take_loaded(backend);
        while let Some(priority) = self.next_lane() {
            if self.running.len() + self.restoring.len() >= self.running_max {
                if self.yield_background(priority) {
                    continue;
                }
                return;
            }
            let Some(head) = self.waiting[priority.index()].front() else {
                return;
            };
            let prefix = self.pool.lookup_of(head.owner, &head.tokens);
            let needed = blocks_for(head.tokens.len() + 1) - prefix.blocks;
            if self.will_be_cached(priority, prefix.tokens()) {
                return;
            }
            let room = needed + prefix.idle_blocks + self.promised() <= self.pool.available();
            if !room || !self.pool.has_state_for_one() {
                if self.yield_background(priority) {
                    continue;
                }
                return;
            }
            let Some(head) = self.waiting[priority.index()].pop_front() else {
                return;
            };
            let Some(mut sequence) = self.begin_restore(head, &prefix) else {
                continue;
            };
            if let Some(news) = self.start(&mut sequence, prefix, backend) {
                started(&sequence);
                sequence.announce(news);
            }
            self.running.push(sequence);
        }
    }

    /// Decides how many rows each running sequence gets in the next step, and makes room for them.
    pub fn schedule(&mut self, limits: &Limits) {
        self.propose(limits);
        let wish = |s: &Sequence| Wish { priority: s.priority, pending: s.pending(), drafts: s.proposed() };
        self.planner.wishes.clear();
        self.planner.wishes.extend(self.running.iter().map(wish));
        self.planner.plan(&self.limits);
        for (sequence, grant) in self.running.iter_mut().zip(&self.planner.grants) {
            sequence.rows = grant.rows;
        }
        for priority in Priority::ALL {
            for index in 0..self.running.len() {
                if self.running[index].priority == priority {
                    self.make_room(index);
                }
            }
        }
        for index in 0..self.running.len() {
            self.draft(index, self.planner.grants[index].draft_max);
            self.plan_saves(index);
        }
        self.requeue_preempted();
    }

    fn waiting(&self, priority: Priority) -> &VecDeque<Sequence> {
        &self.waiting[priority.index()]
    }

    fn next_lane(&self) -> Option<Priority> {
        let interactive_runs = self.running.iter().any(|s| s.priority == Priority::Interactive);
        let background_waits = interactive_runs && self.limits.background == 0;
        Priority::ALL
            .into_iter()
            .filter(|&priority| priority == Priority::Interactive || !background_waits)
            .find(|&priority| !self.waiting(priority).is_empty())
    }

    /// True while another sequence is computing or restoring blocks this one would find cached a little later: several
    /// candidates for one prompt then read it once.
    fn will_be_cached(&mut self, priority: Priority, cached: usize) -> bool {
        let Some(head) = self.waiting[priority.index()].front() else { return false };
        let shared = |other: &Sequence| {
            if other.owner != head.owner {
                return 0;
            }
            let common = other.tokens.iter().zip(&head.tokens).take_while(|(a, b)| a == b).count();
            common.min(head.tokens.len() - 1) / BLOCK * BLOCK
        };
        let computed = |other: &Sequence| {
            other.priority <= head.priority && other.pending() > 1 && shared(other) > cached.max(other.kv_len)
        };
        let restored = |other: &Restoring| {
            let sequence = &other.sequence;
            sequence.priority <= head.priority && shared(sequence).min(other.target) > cached
        };
        if let Some(other) = self.running.iter_mut().find(|other| computed(other)) {
            // What is waited for includes the state.
            other.keep_state_at(shared(other));
            return true;
        }
        self.restoring.iter().any(restored)
    }

    /// Blocks that sequences which run, or soon will, still need for the tokens they have.
    fn promised(&self) -> usize {
        let missing = |s: &Sequence| blocks_for(s.tokens.len() + 1).saturating_sub(s.table.blocks().len());
        let restoring = self.restoring.iter().map(|restoring| &restoring.sequence);
        self.running.iter().chain(restoring).map(missing).sum()
    }

    fn start(&mut self, sequence: &mut Sequence, prefix: Prefix, backend: &mut dyn Backend) -> Option<Started> {
        let parted = prefix.parted;
        let prefix = self.claim_state(sequence, prefix, backend);
        let position = prefix.tokens();
        let (table, mut prefix, copy) = self.pool.acquire_prefix(prefix, sequence.private);
        sequence.table = table;
        self.touch_saved(sequence);
        self.save_evicted(backend);
        if let Some(copy) = copy
            && backend.copy_block(copy.from, copy.to).is_err()
        {
            // Not lost, only computed again; a broken device will say so in the next step.
            prefix.partial = None;
        }
        if prefix.state.is_some() && prefix.tokens() < position {
            // The state is of no use without all keys and values before it.
            prefix = self.begin_anew(sequence);
        }
        let news = sequence.start(prefix.tokens(), prefix.miss);
        self.plan_kept_states(sequence, parted);
        news
    }

    /// Finds blocks for a sequence's rows. When there are none someone gives way, perhaps the sequence itself.
    fn make_room(&mut self, index: usize) {
        while self.running[index].rows > 0 {
            let sequence = &mut self.running[index];
            if self.pool.reserve(&mut sequence.table, sequence.kv_len + sequence.rows) {
                return;
            }
            let priority = sequence.priority;
            if self.give_up_restore(Priority::Interactive) {
                continue;
            }
            let victim = self.youngest(Priority::Background).or_else(|| self.youngest(priority));
            self.vacate(victim.expect("the sequence itself is running"));
        }
    }

    /// Takes room from a background sequence for the benefit of `priority`; false when there is none.
    fn yield_background(&mut self, priority: Priority) -> bool {
        let victim = if priority == Priority::Interactive { self.youngest(Priority::Background) } else { None };
        let Some(victim) = victim else {
            return priority == Priority::Interactive && self.give_up_restore(Priority::Background);
        };
        self.vacate(victim);
        self.requeue_preempted();
        true
    }

    fn youngest(&self, priority: Priority) -> Option<usize> {
        let candidates = self.running.iter().enumerate().filter(|(_, s)| s.priority == priority && !s.preempted);
        candidates.max_by_key(|(_, s)| s.id).map(|(index, _)| index)
    }

    fn vacate(&mut self, index: usize) {
        let sequence = &mut self.running[index];
        let state = sequence.state.take();
        self.pool.release_with_state(&mut sequence.table, &sequence.tokens[..sequence.kv_len], state);
        (sequence.kv_len, sequence.rows, sequence.preempted) = (0, 0, true);
        sequence.restore_tried = false;
        self.preemptions += 1;
    }

    fn requeue_preempted(&mut self) {
        while let Some(index) = self.running.iter().position(|s| s.preempted) {
            let mut sequence = self.running.remove(index);
            sequence.preempted = false;
            self.enqueue(sequence);
        }
    }

    /// Lets every sequence that decodes propose what it would add to the step.
    fn propose(&mut self, limits: &Limits) {
        let decoding = self.running.iter().filter(|sequence| sequence.pending() == 1).count();
        let mut step = StepSoFar { rows: decoding, tokens: decoding as f64, decoding };
        for sequence in &mut self.running {
            sequence.propose(self.draft_max, limits, &mut step, &mut self.gate);
        }
    }

    /// Adds drafted rows, as many as blocks can be found for without taking any from another sequence.
    fn draft(&mut self, index: usize, granted: usize) {
        let sequence = &mut self.running[index];
        if granted == 0 || sequence.rows == 0 {
            return sequence.add_draft(0);
        }
        let base = sequence.kv_len + sequence.rows;
        self.pool.reserve(&mut sequence.table, base + granted);
        let room = sequence.table.blocks().len() * BLOCK - base;
        sequence.add_draft(granted.min(room));
    }
}
