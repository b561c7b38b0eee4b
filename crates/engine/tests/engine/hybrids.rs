//! The engine over tiny models with recurrent layers, on the CPU: whatever shares a step, is drafted, evicted, preempted or read
//! from disk, each request says what it says alone.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::{Engine, EngineHandle, EngineOptions, Priority, Request, SnapshotOptions, Stats};
use kernels::{Kernels, KvType};
use model::{ConfigOptions, CpuModel, CpuOptions};
use tempfile::TempDir;
use testkit::models::{Tiny, VOCAB};

use crate::support::*;

fn write(folder: &TempDir, architecture: &'static str) -> PathBuf {
    let path = folder.path().join("tiny.gguf");
    let tiny = Tiny { architecture, format: kernels::Format::Q4_K, ..Tiny::default() };
    tiny.writer().write(&path).unwrap();
    path
}

fn open(path: &Path, kv_tokens: usize, options: EngineOptions) -> EngineHandle {
    let (config, kernels) = (ConfigOptions::default(), Kernels::best().unwrap());
    let cpu = CpuOptions { threads: 2, kv_tokens, kv_type: KvType::F16, config, kernels };
    Engine::start(Box::new(CpuModel::load(path, cpu).unwrap()), options).unwrap()
}

fn requests() -> Vec<Request> {
    let mut dice = Dice(5);
    (0..10u32)
        .map(|i| {
            let mut tokens: Vec<u32> = prompt(i % 2, 70).into_iter().map(|id| id * 2 % VOCAB as u32).collect();
            tokens.extend(prompt(i, 5 + dice.roll(60)));
            let mut request = Request::new(tokens, 12 + dice.roll(20));
            request.sampling = if i % 3 == 0 { sampled(0.8, i.into()) } else { Default::default() };
            request.priority = Priority::ALL[usize::from(i % 4 == 3)];
            request
        })
        .collect()
}

/// Everything at once, with drafts of which many are wrong; twice, so that the second finds states and blocks.
fn crowd(engine: &EngineHandle, expected: &[Vec<u32>]) -> Stats {
    for round in 0..2 {
        let submit = |(mut request, want): (Request, &Vec<u32>)| {
            let (truth, prompt) = (want.clone(), request.prompt.len());
            request.drafter = Some(Box::new(Oracle { truth, prompt, dice: Dice(want.len() as u64 + round) }));
            engine.submit(request).unwrap()
        };
        let streams: Vec<_> = requests().into_iter().zip(expected).map(submit).collect();
        for (i, (stream, want)) in streams.into_iter().zip(expected).enumerate() {
            assert_eq!(&collect(stream).ids(), want, "request {i} of round {round}");
        }
    }
    engine.stats()
}

#[test]
fn company_drafts_room_and_disk_change_no_token() {
    for architecture in ["qwen35", "qwen35moe", "qwen3next"] {
        let (folder, saved) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let path = write(&folder, architecture);
        let alone = |request| ask(&open(&path, 1024, EngineOptions::default()), request).ids();
        let expected: Vec<_> = requests().into_iter().map(alone).collect();
        let snapshots = || {
            let (directory, idle) = (saved.path().to_owned(), Duration::from_secs(3600));
            Some(SnapshotOptions { directory, bytes_max: u64::MAX, idle, before_read: None })
        };
        let options = || EngineOptions { background_rows: 4, snapshots: snapshots(), ..EngineOptions::default() };
        // Room for all, then for two or three at a time, then again after a restart.
        for (kv_tokens, limit) in [(4096, 64), (448, 64), (4096, 3)] {
            let engine = open(&path, kv_tokens, EngineOptions { running_max: limit, ..options() });
            let stats = crowd(&engine, &expected);
            assert!(stats.cached_tokens > 0 && stats.drafts.total().accepted > 50, "{architecture}: {stats:?}");
            assert!(kv_tokens > 448 || stats.preemptions > 0, "{architecture}: {stats:?}");
            engine.shutdown();
        }
        let restarted = open(&path, 4096, options());
        let stats = crowd(&restarted, &expected);
        assert!(stats.snapshots.restored > 0 && stats.snapshots.rejected == 0, "{architecture}: {stats:?}");
    }
}
