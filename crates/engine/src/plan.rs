//! How the rows of one step are shared out: a pure function of who wants what.
//!
//! Rules, in order: interactive work first; every decoding sequence gets its row; drafts and prompts share what the
//! step has left, half each when both ask; prompts share their part equally, so a short one is not stuck behind a long
//! one. While something decodes a step is kept small, because every decoding reader waits for the whole of it.

use crate::request::Priority;

/// Rows that prompts get in every step even when decoding alone fills the budget, so that they never starve.
const PROMPT_ROWS_MIN: usize = 8;

/// What one running sequence could use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub priority: Priority,
    /// Tokens not in the KV blocks: 1 is decoding, more is reading a prompt.
    pub pending: usize,
    /// Tokens proposed for it.
    pub drafts: usize,
}

/// What it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    pub rows: usize,
    /// Most drafted tokens on top.
    pub draft_max: usize,
}

/// Limits of one step; see `EngineOptions`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLimits {
    pub rows_max: usize,
    pub idle: usize,
    pub busy: usize,
    pub background: usize,
}

/// Plans steps; owns the buffers that takes.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    pub wishes: Vec<Wish>,
    pub grants: Vec<Grant>,
    prompts: Vec<usize>,
}

impl Planner {
    /// Fills `grants` for `wishes`, one each.
    pub fn plan(&mut self, limits: &RowLimits) {
        self.grants.clear();
        self.grants.resize(self.wishes.len(), Grant::default());
        let interactive = self.wishes.iter().any(|wish| wish.priority == Priority::Interactive);
        let used = self.plan_priority(Priority::Interactive, limits.rows_max, limits);
        let left = limits.rows_max - used;
        let background = if interactive { limits.background.min(left) } else { left };
        self.plan_priority(Priority::Background, background, limits);
    }

    /// Shares up to `cap` rows among one priority class; returns how many may be used.
    fn plan_priority(&mut self, priority: Priority, cap: usize, limits: &RowLimits) -> usize {
        let Self { wishes, grants, prompts } = self;
        let mut decoding = 0;
        let mut drafting = 0;
        prompts.clear();
        for (index, wish) in wishes.iter().enumerate().filter(|(_, wish)| wish.priority == priority) {
            if wish.pending > 1 {
                prompts.push(index);
            } else if decoding < cap {
                grants[index].rows = 1;
                decoding += 1;
                drafting += wish.drafts;
            }
        }
        let budget = if decoding > 0 { limits.busy } else { limits.idle };
        let least = if prompts.is_empty() { 0 } else { PROMPT_ROWS_MIN };
        let mut spare = budget.saturating_sub(decoding).max(least).min(cap - decoding);
        let mut used = decoding;
        let draft_rows = if prompts.is_empty() { spare } else { spare / 2 };
        for (grant, wish) in grants.iter_mut().zip(wishes.iter()) {
            if wish.priority == priority && wish.pending == 1 && grant.rows == 1 {
                // All of it when there is room for all, otherwise in proportion.
                let share = (wish.drafts * draft_rows).checked_div(drafting).unwrap_or(0);
                grant.draft_max = wish.drafts.min(share);
                spare -= grant.draft_max;
                used += grant.draft_max;
            }
        }
        // Shortest first, each at most an equal share of what is left: what a short one does not need flows on.
        prompts.sort_unstable_by_key(|&index| (wishes[index].pending, index));
        for (done, &index) in prompts.iter().enumerate() {
            let share = spare.div_ceil(prompts.len() - done);
            let rows = wishes[index].pending.min(share);
            grants[index].rows = rows;
            spare -= rows;
            used += rows;
        }
        used
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: RowLimits = RowLimits { rows_max: 512, idle: 512, busy: 64, background: 0 };

    /// `i`/`b` is the priority class, the number the pending tokens, `+` tokens drafted: `"i1+16 b40"`.
    fn wishes(text: &str) -> Vec<Wish> {
        let wish = |word: &str| Wish {
            priority: if word.starts_with('i') { Priority::Interactive } else { Priority::Background },
            pending: word[1..].split('+').next().unwrap().parse().unwrap(),
            drafts: word.split('+').nth(1).map_or(0, |count| count.parse().unwrap()),
        };
        text.split_whitespace().map(wish).collect()
    }

    #[test]
    fn table() {
        let check = |text: &str, limits: RowLimits, want: &[(usize, usize)]| {
            let mut planner = Planner { wishes: wishes(text), ..Planner::default() };
            planner.plan(&limits);
            let got: Vec<(usize, usize)> = planner.grants.iter().map(|g| (g.rows, g.draft_max)).collect();
            assert_eq!(got, want, "{text}");
        };
        check("i4000", LIMITS, &[(512, 0)]);
        check("i4000 i1", LIMITS, &[(63, 0), (1, 0)]);
        check("i4000 i10", LIMITS, &[(502, 0), (10, 0)]);
        check("i300 i300", RowLimits { rows_max: 100, ..LIMITS }, &[(50, 0), (50, 0)]);
        check("i1+16", LIMITS, &[(1, 16)]);
        check("i1+80", LIMITS, &[(1, 63)]);
        check("i1+16 i1 i4000", LIMITS, &[(1, 16), (1, 0), (46, 0)]);
        check("i1+60 i1+20 i4000", LIMITS, &[(1, 23), (1, 7), (32, 0)]);
        check("b1 i1 b4000", LIMITS, &[(0, 0), (1, 0), (0, 0)]);
        check("b1 i1 b4000", RowLimits { background: 4, ..LIMITS }, &[(1, 0), (1, 0), (3, 0)]);
        check("b1+16 b4000", LIMITS, &[(1, 16), (47, 0)]);
        check("i1 i1 i1 i9", RowLimits { busy: 2, ..LIMITS }, &[(1, 0), (1, 0), (1, 0), (8, 0)]);
        check("i1 i1 i1", RowLimits { rows_max: 2, ..LIMITS }, &[(1, 0), (1, 0), (0, 0)]);
    }

    proptest! {
        #[test]
        fn never_more_than_the_backend_takes_and_never_nothing(
            parts in prop::collection::vec((any::<bool>(), 1usize..700, 0usize..80), 1..40),
            rows_max in 1usize..600, busy in 1usize..100, background in 0usize..20,
        ) {
            let limits = RowLimits { rows_max, idle: 512, busy, background };
            let wish = |(interactive, pending, drafts)| {
                let priority = if interactive { Priority::Interactive } else { Priority::Background };
                Wish { priority, pending, drafts }
            };
            let mut planner = Planner { wishes: parts.into_iter().map(wish).collect(), ..Planner::default() };
            planner.plan(&limits);
            let total: usize = planner.grants.iter().map(|g| g.rows + g.draft_max).sum();
            prop_assert!(total <= rows_max && total > 0);
            for (grant, wish) in planner.grants.iter().zip(&planner.wishes) {
                prop_assert!(grant.rows <= wish.pending);
                prop_assert!(grant.draft_max == 0 || (grant.rows == 1 && grant.draft_max <= wish.drafts));
            }
        }
    }
}
