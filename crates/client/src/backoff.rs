//! How long to wait before trying again: doubling, with jitter, so that clients of one server do not return together.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// The wait before the `tried`-th retry, from 0: `first` doubled each time, times 0.75 to 1.25.
pub(crate) fn wait(first: Duration, tried: u32) -> Duration {
    spread(first.saturating_mul(1 << tried.min(10)), chance())
}

fn spread(wait: Duration, chance: f64) -> Duration {
    wait.mul_f64(0.75 + chance / 2.0)
}

/// Between 0 and 1. Each `RandomState` is keyed differently, which is random enough to keep clients apart.
fn chance() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

/// The wait for an upgrade that was refused before. Some proxies never answer one.
const AGAIN_PATIENCE: Duration = Duration::from_secs(1);

/// When a refused WebSocket may be tried again. It always may, some time.
#[derive(Debug, Default)]
pub(crate) struct Fallback {
    refusals: usize,
    again_at: Option<Instant>,
}

impl Fallback {
    /// Whether the WebSocket should be tried now.
    pub fn may_try(&self, now: Instant) -> bool {
        self.again_at.is_none_or(|at| now >= at)
    }

    /// How long to wait for the upgrade: a caller who has an alternative that works should not wait long for a better one.
    pub fn patience(&self, usual: Duration) -> Duration {
        if self.refusals == 0 { usual } else { usual.min(AGAIN_PATIENCE) }
    }

    /// It was refused: leave it alone for a while.
    pub fn refused(&mut self, now: Instant, waits: &[Duration; 3]) {
        self.again_at = Some(now + waits[self.refusals.min(waits.len() - 1)]);
        self.refusals += 1;
    }

    /// It works.
    pub fn worked(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_stay_near() {
        let first = Duration::from_millis(200);
        for tried in 0..5 {
            let exact = first * (1 << tried);
            let got = wait(first, tried);
            assert!(got >= exact.mul_f64(0.74) && got <= exact.mul_f64(1.26), "{tried}: {got:?}");
        }
        assert!(spread(first, 0.0) < spread(first, 1.0));
    }

    #[test]
    fn a_refused_websocket_is_always_tried_again() {
        let waits = [5, 30, 120].map(Duration::from_secs);
        let mut fallback = Fallback::default();
        let mut now = Instant::now();
        for expected in [5, 30, 120, 120, 120] {
            assert!(fallback.may_try(now));
            fallback.refused(now, &waits);
            assert!(!fallback.may_try(now + Duration::from_secs(expected - 1)));
            now += Duration::from_secs(expected);
        }
        assert_eq!(fallback.patience(waits[2]), AGAIN_PATIENCE);
        fallback.worked();
        assert_eq!(fallback.patience(waits[2]), waits[2]);
        fallback.refused(now, &waits);
        assert!(fallback.may_try(now + Duration::from_secs(5)), "a success forgets earlier refusals");
    }
}
