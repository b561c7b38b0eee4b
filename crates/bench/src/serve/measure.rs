//! Percentiles, CPU time by kind of thread, and how results are printed.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A sorted set of times.
pub struct Times(Vec<Duration>);

impl Times {
    /// Sorts.
    pub fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The time that this share of all does not exceed, in milliseconds.
    pub fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let index = (last as f64 * share).round() as usize;
        self.0.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    /// Median, 99th percentile and maximum, in milliseconds.
    pub fn json(&self) -> Value {
        json!({"p50_ms": round(self.at(0.5)), "p99_ms": round(self.at(0.99)), "max_ms": round(self.at(1.0)), "n": self.0.len()})
    }
}

/// Three digits after the point.
pub fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Prints one result with where it came from.
pub fn print(args: &super::ServeBenchArgs, figure: &str, values: Value) {
    print_as(args.json, figure, values);
}

/// Prints one result for people, or as a JSON line with where it came from.
pub fn print_as(as_json: bool, figure: &str, values: Value) {
    if as_json {
        let command: Vec<String> = std::env::args().skip(1).collect();
        let cpu = load::machine::cpu_name();
        let cores = load::cores();
        let provenance = json!({"command": format!("flint {}", command.join(" ")), "cpu": cpu, "cores": cores});
        outln!("{}", json!({"figure": figure, "values": values, "provenance": provenance}));
        return;
    }
    outln!("{figure}");
    if let Some(fields) = values.as_object() {
        for (name, value) in fields {
            outln!("    {name:<34} {value}");
        }
    }
}

/// CPU time used so far by this process's threads of a name, to the nanosecond.
pub fn thread_cpu(name: &str) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").context("CPU times are read from /proc")? {
        let task = task?.path();
        // A thread may end while we look.
        let Ok(comm) = std::fs::read_to_string(task.join("comm")) else { continue };
        let Ok(stat) = std::fs::read_to_string(task.join("schedstat")) else { continue };
        if comm.trim_end().starts_with(name) {
            let ran: u64 = stat.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0);
            sum += Duration::from_nanos(ran);
        }
    }
    Ok(sum)
}
