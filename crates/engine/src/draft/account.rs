//! What a drafter may lose: the guard against chances that are estimated too high.
//!
//! Each drafter of a sequence has an account, in steps. What a draft costs if none of it is right must be in it. It begins
//! with a little and each step adds a little; what drafting gains goes in, what it loses goes out. Whatever the chances
//! say, a drafter can slow an answer of n tokens down by no more than `CREDIT_FIRST + CREDIT_PER_STEP * n` steps.

/// What may be lost before anything was gained: a draft of a few tokens.
const CREDIT_FIRST: f64 = 1.0;
/// What may be lost more with every step.
const CREDIT_PER_STEP: f64 = 0.01;
/// What is kept of gains for later losses: a few long drafts.
const CREDIT_MAX: f64 = 16.0;

/// The account of one drafter of one sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Account {
    credit: f64,
    most: f64,
}

impl Account {
    pub fn new() -> Self {
        Self { credit: CREDIT_FIRST, most: CREDIT_MAX }
    }

    /// One that may lose anything.
    pub const UNBOUND: Self = Self { credit: f64::INFINITY, most: f64::INFINITY };

    /// What may be lost now.
    pub fn credit(&self) -> f64 {
        self.credit
    }

    /// One more step is done.
    pub fn save(&mut self) {
        self.settle(CREDIT_PER_STEP, 0.0);
    }

    /// A draft was verified.
    pub fn settle(&mut self, gained: f64, cost: f64) {
        self.credit = self.most.min(self.credit + gained - cost);
    }
}
