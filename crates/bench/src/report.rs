//! Tables for people, JSON lines for programs, and where the numbers come from.

use super::figures::{Bench, Figure, Sample};
use super::peer::Peer;
use anyhow::Result;
use load::machine;
use serde_json::json;
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// What must be known to repeat or to doubt a number.
pub struct Provenance {
    model: String,
    file_bytes: Option<u64>,
    bytes_per_token: usize,
    kernels: String,
    threads: usize,
    cpu: String,
    load_s: f64,
    unix_time: u64,
    command: String,
    commit: Option<String>,
}

impl Provenance {
    /// Collects the facts of this run.
    pub fn new(name: &str, path: Option<&Path>, bench: &Bench) -> Result<Provenance> {
        Ok(Provenance {
            model: name.to_string(),
            file_bytes: path.map(|path| std::fs::metadata(path).map(|meta| meta.len())).transpose()?,
            bytes_per_token: bench.model.info().bytes_per_token,
            kernels: bench.kernels.clone(),
            threads: bench.threads,
            cpu: machine::cpu_name().unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            load_s: bench.load.as_secs_f64(),
            unix_time: SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
            command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
            commit: commit(),
        })
    }

    /// The same, for a JSON line.
    pub fn json(&self) -> serde_json::Value {
        json!({"model": self.model, "file_bytes": self.file_bytes, "bytes_per_token": self.bytes_per_token,
            "kernels": self.kernels, "threads": self.threads, "cpu": self.cpu, "load_s": self.load_s,
            "unix_time": self.unix_time, "command": self.command, "commit": self.commit})
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gb = self.bytes_per_token as f64 / 1e9;
        writeln!(f, "{} on {}, {} threads, {} kernels", self.model, self.cpu, self.threads, self.kernels)?;
        write!(f, "{gb:.3} GB of weights per token, loaded in {:.2} s", self.load_s)
    }
}

/// All measurements of one figure.
pub struct Row {
    /// What was measured.
    pub figure: Figure,
    /// Read bandwidth of the machine's memory just before, GB/s; not asked for when the model is on a card.
    pub bandwidth: Vec<f64>,
    /// Ours.
    pub ours: Vec<Sample>,
    /// Each peer's tokens per second.
    pub peers: Vec<Vec<f64>>,
}

impl Row {
    /// An empty row.
    pub fn new(figure: Figure, peers: &[Peer]) -> Row {
        Row { figure, bandwidth: Vec::new(), ours: Vec::new(), peers: peers.iter().map(|_| Vec::new()).collect() }
    }
}

/// The version of the program that measures, which every line of a report names.
static VERSION: OnceLock<&str> = OnceLock::new();

/// Says which program measures. The first word counts.
pub fn set_version(version: &'static str) {
    let _ = VERSION.set(version);
}

/// The commit this program was built from, unless `FLINT_BUILD_COMMIT` says another.
pub fn commit() -> Option<String> {
    let built = || VERSION.get()?.split_once('(').and_then(|(_, commit)| commit.split(' ').next());
    std::env::var("FLINT_BUILD_COMMIT").ok().or_else(|| built().map(str::to_owned))
}

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn name(figure: Figure) -> String {
    match figure {
        Figure::Prompt { tokens } => format!("prompt {tokens}"),
        Figure::Decode { depth } => format!("decode at {depth}"),
        Figure::Step { rows } => format!("step of {rows}"),
    }
}

/// Prints the table, or one JSON line per figure.
pub fn print(rows: &[Row], peers: &[Peer], provenance: &Provenance, json: bool) {
    for row in rows {
        let rates: Vec<f64> = row.ours.iter().map(|sample| sample.tokens_per_s).collect();
        let (rate, bandwidth) = (median(&rates), median(&row.bandwidth));
        let shares: Vec<f64> = row.ours.iter().zip(&row.bandwidth).map(|(s, b)| s.gb_per_s / b).collect();
        let gb = median(&row.ours.iter().map(|sample| sample.gb_per_s).collect::<Vec<_>>());
        let hash = row.ours.first().map_or(0, |sample| sample.hash);
        assert!(row.ours.iter().all(|sample| sample.hash == hash), "the same work gave two different answers");
        if json {
            let peers: serde_json::Map<String, serde_json::Value> =
                peers.iter().zip(&row.peers).map(|(peer, rates)| (peer.name.clone(), json!(rates))).collect();
            let line = json!({"figure": name(row.figure), "tokens_per_s": rates, "median": rate, "gb_per_s": gb,
                "bandwidth_gb_per_s": row.bandwidth, "share": median(&shares), "hash": format!("{hash:016x}"),
                "peers": peers, "provenance": provenance.json()});
            outln!("{line}");
            continue;
        }
        let (low, high) = rates.iter().fold((f64::MAX, 0.0f64), |(l, h), &r| (l.min(r), h.max(r)));
        out!("{:15} {rate:7.1} tok/s ({low:.1} to {high:.1})", name(row.figure));
        out!("  {gb:5.1} GB/s");
        if !row.bandwidth.is_empty() {
            out!(", {:3.0} % of {bandwidth:.1}", 100.0 * median(&shares));
        }
        out!("  hash {hash:016x}");
        for (peer, rates) in peers.iter().zip(&row.peers).filter(|(_, rates)| !rates.is_empty()) {
            out!("  {} {:.1} (x{:.2})", peer.name, median(rates), rate / median(rates));
        }
        outln!();
    }
}
