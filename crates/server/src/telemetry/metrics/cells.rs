//! The three kinds of number: each is a handful of atomics, so that counting never waits.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down.
#[derive(Debug, Default)]
pub(super) struct Gauge(AtomicI64);

impl Gauge {
    pub(super) fn add(&self, change: i64) {
        self.0.fetch_add(change, Relaxed);
    }

    pub(super) fn value(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// How many durations fell under each bound, and their sum.
#[derive(Debug)]
pub(super) struct Histogram {
    /// Upper bounds in seconds, ascending.
    bounds: &'static [f64],
    /// One more than bounds: the last is for what is above all of them. Not cumulative.
    buckets: Box<[AtomicU64]>,
    /// 584 years of nanoseconds fit.
    sum_ns: AtomicU64,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum_ns: AtomicU64::new(0) }
    }

    pub(super) fn observe(&self, duration: Duration) {
        self.observe_many(duration, 1);
    }

    /// The same duration `count` times.
    pub(super) fn observe_many(&self, duration: Duration, count: u64) {
        let seconds = duration.as_secs_f64();
        let index = self.bounds.partition_point(|bound| *bound < seconds);
        self.buckets[index].fetch_add(count, Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(nanoseconds.saturating_mul(count), Relaxed);
    }

    /// Bounds with the number of values at most that large, the last being infinity and so the number of all; and the
    /// sum in seconds.
    pub(super) fn read(&self) -> (Vec<(f64, u64)>, f64) {
        let mut below = 0;
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let cumulative = bounds
            .zip(&self.buckets)
            .map(|(bound, bucket)| {
                below += bucket.load(Relaxed);
                (bound, below)
            })
            .collect();
        (cumulative, self.sum_ns.load(Relaxed) as f64 / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_below_it() {
        let histogram = Histogram::new(&[0.001, 0.01]);
        for (microseconds, count) in [(0, 1), (1000, 1), (1001, 2), (10_000, 1), (10_001, 3)] {
            histogram.observe_many(Duration::from_micros(microseconds), count);
        }
        let (buckets, sum) = histogram.read();
        assert_eq!(buckets, [(0.001, 2), (0.01, 5), (f64::INFINITY, 8)]);
        assert!((sum - 0.043_005).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let (counter, gauge, histogram) = (Counter::default(), Gauge::default(), Histogram::new(&[1.0]));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        counter.increment();
                        gauge.add(2);
                        gauge.add(-1);
                        histogram.observe(Duration::from_millis(1));
                    }
                });
            }
        });
        assert_eq!((counter.value(), gauge.value()), (4000, 4000));
        assert_eq!(histogram.read().0, [(1.0, 4000), (f64::INFINITY, 4000)]);
    }
}
