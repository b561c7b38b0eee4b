//! Blocks on disk: what comes back is what went there, and never anything else.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use engine::{
    BeforeRead, EngineHandle, EngineOptions, FinishReason, Miss, Rejection, Request, SnapshotNotice, SnapshotOptions,
};
use proptest::prelude::*;
use tempfile::TempDir;
use testkit::toy::{ToyBackend, ToyOptions};

use crate::support::*;

/// Size of a saved block of the toy: header and payload.
const FILE: u64 = 208 + 32 * 12;

fn options(directory: &Path, bytes_max: u64, idle: Duration) -> EngineOptions {
    let snapshots = SnapshotOptions { directory: directory.to_owned(), bytes_max, idle, before_read: None };
    EngineOptions { snapshots: Some(snapshots), ..EngineOptions::default() }
}

/// An engine that saves what it evicts, and the rest when it ends.
fn open(directory: &TempDir, toy: ToyOptions) -> EngineHandle {
    start(toy, options(directory.path(), u64::MAX, Duration::from_secs(3600)))
}

/// The saved blocks of the toy by depth. Only for directories that hold one chain.
fn files(directory: &TempDir) -> Vec<PathBuf> {
    let folder = directory.path().join(format!("{:016x}", ToyOptions::default().fingerprint));
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let depth = |path: &PathBuf| -> usize {
        let name = path.file_stem().unwrap().to_str().unwrap();
        name.rsplit('-').next().unwrap().parse().unwrap()
    };
    files.sort_by_key(depth);
    files
}

/// Bytes of all files under a directory.
fn bytes(path: &Path) -> u64 {
    let size = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => bytes(&entry.path()),
        metadata => metadata.len(),
    };
    fs::read_dir(path).unwrap().map(|entry| size(entry.unwrap())).sum()
}

/// Fills a fresh directory with the nine blocks of one conversation.
fn saved() -> TempDir {
    let directory = TempDir::new().unwrap();
    let engine = open(&directory, ToyOptions::default());
    assert_eq!(ask(&engine, Request::new(prompt(1, 300), 0)).cached(), 0);
    engine.shutdown();
    let counts = engine.stats().snapshots;
    assert_eq!((counts.written, counts.blocks, counts.bytes, counts.lost), (9, 9, 9 * FILE, 0));
    directory
}

/// Asks for the conversation of `saved` and checks the answer; returns cached and restored tokens.
fn revisit(engine: &EngineHandle) -> (usize, usize) {
    let answer = ask(engine, Request::new(prompt(1, 340), 30));
    assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(1, 340), 30));
    let started = answer.started.unwrap();
    (started.cached_tokens, started.restored_tokens)
}

#[test]
fn a_restarted_engine_goes_on_where_the_last_one_was() {
    let directory = saved();
    let engine = open(&directory, ToyOptions::default());
    let answer = ask(&engine, Request::new(prompt(1, 340), 30));
    assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(1, 340), 30));
    let started = answer.started.unwrap();
    assert_eq!((started.cached_tokens, started.restored_tokens), (288, 288));
    assert_eq!(started.miss, Some(Miss::Uncached { position: 288 }));
    let stats = engine.stats();
    assert_eq!((stats.prompt_tokens, stats.cached_tokens, stats.snapshots.restored), (52, 288, 9));
    // The second time it is in memory.
    assert_eq!(revisit(&engine), (339, 0));
    // 369 positions have KV: two blocks are new, and the nine are not written again.
    engine.shutdown();
    let counts = engine.stats().snapshots;
    assert_eq!((counts.written, counts.restored, counts.blocks, counts.rejected), (2, 9, 11, 0));
    assert_eq!(revisit(&open(&directory, ToyOptions::default())), (320, 320));
}

#[test]
fn what_memory_holds_is_not_read_from_disk() {
    let directory = saved();
    let engine = open(&directory, ToyOptions::default());
    // The first two blocks are computed here: too few are saved for a prompt that ends in the second.
    assert_eq!(ask(&engine, Request::new(prompt(1, 60), 4)).started.unwrap().restored_tokens, 0);
    assert_eq!(revisit(&engine), (288, 288 - 32));
}

#[test]
fn candidates_restore_their_prompt_once() {
    let directory = saved();
    let engine = open(&directory, ToyOptions::default());
    let candidate = |seed| Request { sampling: sampled(1.0, seed), ..Request::new(prompt(1, 300), 8) };
    let streams: Vec<_> = (0..5).map(|seed| engine.submit(candidate(seed)).unwrap()).collect();
    let answers: Vec<_> = streams.into_iter().map(collect).collect();
    assert!(answers.iter().all(|answer| answer.cached() >= 288));
    let restored = answers.iter().map(|answer| answer.started.as_ref().unwrap().restored_tokens).sum::<usize>();
    assert_eq!((restored, engine.stats().snapshots.restored), (288, 9));
}

#[test]
fn a_damaged_file_is_removed_and_what_follows_it_is_computed() {
    type Damage = fn(&Path);
    let flip: Damage = |path| {
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 16;
        fs::write(path, bytes).unwrap();
    };
    let cut: Damage = |path| fs::write(path, &fs::read(path).unwrap()[..300]).unwrap();
    let empty: Damage = |path| fs::write(path, "").unwrap();
    let long: Damage = |path| fs::write(path, [fs::read(path).unwrap(), vec![0]].concat()).unwrap();
    let foreign: Damage = |path| fs::write(path, vec![b'x'; FILE as usize]).unwrap();
    let other: Damage = |path| assert_eq!(fs::copy(&files_beside(path)[0], path).unwrap(), FILE);
    let gone: Damage = |path| fs::remove_file(path).unwrap();
    let cases =
        [("flip", flip), ("cut", cut), ("empty", empty), ("long", long), ("foreign", foreign), ("other", other)];
    for (name, damage) in cases.into_iter().chain([("gone", gone)]) {
        for running in [false, true] {
            let directory = saved();
            let victim = files(&directory)[4].clone();
            if !running {
                damage(&victim);
            }
            let engine = open(&directory, ToyOptions::default());
            if running {
                damage(&victim);
            }
            assert_eq!(revisit(&engine), (128, 128), "{name}");
            assert!(!victim.exists());
            let rejected = u64::from(name != "gone");
            assert_eq!(engine.stats().snapshots.rejected, rejected, "{name}");
            let notices = engine.take_snapshot_notices();
            assert_eq!(notices.len() as u64, rejected, "{name}: {notices:?}");
            for notice in notices {
                assert!(matches!(&notice, SnapshotNotice::Rejected { path, .. } if *path == victim), "{notice}");
            }
            // What was computed instead is saved, and the chain is whole again.
            engine.shutdown();
            assert_eq!(revisit(&open(&directory, ToyOptions::default())), (320, 320), "{name}");
        }
    }
}

fn files_beside(path: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|other| other != path);
    files
}

#[test]
fn stray_files_are_removed_or_left_alone() {
    let directory = saved();
    let folder = files(&directory)[0].parent().unwrap().to_owned();
    let stray = ["half.tmp", "nonsense.kv", "notes.txt"].map(|name| folder.join(name));
    stray.iter().for_each(|path| fs::write(path, "stray").unwrap());
    fs::create_dir(directory.path().join("not a model")).unwrap();
    let engine = open(&directory, ToyOptions::default());
    assert_eq!(stray.each_ref().map(|path| path.exists()), [false, false, true]);
    let notices = engine.take_snapshot_notices();
    assert_eq!(notices, [SnapshotNotice::Rejected { path: stray[1].clone(), reason: Rejection::Name }]);
    assert_eq!(revisit(&engine), (288, 288));
}

#[test]
fn another_model_has_its_own_blocks_and_shares_the_limit() {
    let directory = saved();
    let other = || ToyOptions { fingerprint: 0xbeef, ..ToyOptions::default() };
    let engine = open(&directory, other());
    assert_eq!(revisit(&engine), (0, 0));
    engine.shutdown();
    assert_eq!(engine.stats().snapshots.blocks, 9 + 11);
    // Both models' blocks fit into less only if some go.
    let engine = start(other(), options(directory.path(), 6 * FILE, Duration::from_secs(3600)));
    assert_eq!(engine.stats().snapshots.blocks, 6);
    assert_eq!(bytes(directory.path()), 6 * FILE);
}

#[test]
fn the_limit_holds_and_keeps_beginnings() {
    let directory = TempDir::new().unwrap();
    let limited = || start(ToyOptions::default(), options(directory.path(), 12 * FILE + 5, Duration::from_secs(3600)));
    let engine = limited();
    for seed in 0..4 {
        ask(&engine, Request::new(prompt(seed, 200), 5));
    }
    engine.shutdown();
    let counts = engine.stats().snapshots;
    assert_eq!((counts.blocks, counts.bytes), (12, 12 * FILE));
    assert_eq!(bytes(directory.path()), 12 * FILE);
    assert!(counts.lost > 0 || counts.written > 12);
    // What is left are beginnings, so that it can be restored; a single block, which can be left of a prompt, is not.
    let engine = limited();
    let restored = (0..4).map(|seed| ask(&engine, Request::new(prompt(seed, 200), 5)).cached()).sum::<usize>();
    assert!((10 * 32..=12 * 32).contains(&restored), "{restored}");
}

#[test]
fn what_is_evicted_comes_back() {
    let directory = TempDir::new().unwrap();
    let engine = open(&directory, ToyOptions { blocks: 16, ..ToyOptions::default() });
    for seed in 0..12 {
        ask(&engine, Request::new(prompt(seed, 150), 10));
    }
    // The blocks of the first were evicted first; they are on disk as soon as the writer is done with them.
    while engine.stats().snapshots.written < 4 {
        std::thread::yield_now();
    }
    let answer = ask(&engine, Request::new(prompt(0, 150), 10));
    assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(0, 150), 10));
    let started = answer.started.unwrap();
    assert_eq!((started.cached_tokens, started.restored_tokens), (128, 128));
    assert_eq!(engine.stats().blocks.used, 0);
}

/// A disk that is slow with one block: whoever reads it waits until it is let go.
struct Slow {
    held: Mutex<bool>,
    changed: Condvar,
}

impl Slow {
    fn let_go(&self) {
        *self.held.lock().unwrap() = false;
        self.changed.notify_all();
    }
}

/// As many sequences at a time as anybody asks for here.
const RUNNING_MAX: usize = 64;

/// An engine whose disk is slow with the block at this depth.
fn open_slow(directory: &TempDir, depth: usize, toy: ToyOptions, running_max: usize) -> (EngineHandle, Arc<Slow>) {
    let slow = Arc::new(Slow { held: Mutex::new(true), changed: Condvar::new() });
    let (block, holds) = (files(directory)[depth].clone(), Arc::clone(&slow));
    let before_read = BeforeRead(Arc::new(move |path| {
        if path == block {
            drop(holds.changed.wait_while(holds.held.lock().unwrap(), |held| *held).unwrap());
        }
    }));
    let mut options = EngineOptions { running_max, ..options(directory.path(), u64::MAX, Duration::from_secs(3600)) };
    options.snapshots = options.snapshots.map(|with| SnapshotOptions { before_read: Some(before_read), ..with });
    (start(toy, options), slow)
}

#[test]
fn others_pass_a_sequence_that_waits_for_the_disk() {
    let directory = saved();
    let (engine, slow) = open_slow(&directory, 3, ToyOptions::default(), RUNNING_MAX);
    let waiting = engine.submit(Request::new(prompt(1, 340), 30)).unwrap();
    for seed in 5..8 {
        let answer = ask(&engine, Request::new(prompt(seed, 100), 20));
        assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(seed, 100), 20));
    }
    assert_eq!(waiting.try_recv(), Err(engine::TryRecvError::Empty));
    assert_eq!((engine.place(waiting.id()), engine.stats().queued), (Some(0), [1, 0]));
    slow.let_go();
    let answer = collect(waiting);
    assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(1, 340), 30));
    assert_eq!(answer.started.unwrap().restored_tokens, 288);
}

#[test]
fn a_running_sequence_takes_the_room_of_one_that_waits_for_the_disk() {
    let directory = saved();
    let toy = ToyOptions { blocks: 16, ..ToyOptions::default() };
    let (engine, slow) = open_slow(&directory, 8, toy, RUNNING_MAX);
    let waiting = engine.submit(Request::new(prompt(1, 340), 30)).unwrap();
    while engine.stats().snapshots.restored < 8 {
        std::thread::yield_now();
    }
    // It holds 8 of 16 blocks; 440 tokens need 14.
    let running = ask(&engine, Request::new(prompt(5, 40), 400));
    assert_eq!(running.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(5, 40), 400));
    assert_eq!(engine.stats().preemptions, 0);
    // The other no longer waits for the disk, and computes what it lacks.
    assert_eq!(collect(waiting).ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(1, 340), 30));
    assert_eq!(engine.stats().blocks.used, 0);
    slow.let_go();
}

#[test]
fn interactive_work_does_not_wait_for_a_background_restore() {
    let directory = saved();
    let (engine, disk) = open_slow(&directory, 3, ToyOptions::default(), 1);
    let slow = Request { priority: engine::Priority::Background, ..Request::new(prompt(1, 340), 30) };
    let slow = engine.submit(slow).unwrap();
    while engine.stats().snapshots.restored < 3 {
        std::thread::yield_now();
    }
    let urgent = ask(&engine, Request::new(prompt(5, 40), 20));
    assert_eq!(urgent.ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(5, 40), 20));
    assert_eq!(collect(slow).ids(), ToyBackend::greedy(&ToyOptions::default(), &prompt(1, 340), 30));
    disk.let_go();
}

#[test]
fn a_sequence_that_waits_for_the_disk_can_be_cancelled_or_shut_down() {
    for shutdown in [false, true] {
        let directory = saved();
        let (engine, slow) = open_slow(&directory, 3, ToyOptions::default(), RUNNING_MAX);
        let waiting = engine.submit(Request::new(prompt(1, 340), 30)).unwrap();
        // Until a block was taken in, the reader may not have come as far as the slow one.
        while engine.stats().snapshots.restored < 3 {
            std::thread::yield_now();
        }
        match shutdown {
            true => engine.shutdown(),
            false => waiting.cancel(),
        }
        let answer = collect(waiting);
        let want = if shutdown { FinishReason::Shutdown } else { FinishReason::Cancelled };
        assert_eq!((answer.reason(), answer.started.is_none()), (&want, true));
        let stats = engine.stats();
        assert_eq!((stats.blocks.used, stats.queued), (0, [0, 0]));
        // The reader comes free, and says nothing to whoever asks next.
        slow.let_go();
        if !shutdown {
            assert_eq!(revisit(&engine), (288, 288 - 96));
        }
    }
}

#[test]
fn an_idle_engine_saves_without_being_asked() {
    let directory = TempDir::new().unwrap();
    let engine = start(ToyOptions::default(), options(directory.path(), u64::MAX, Duration::ZERO));
    ask(&engine, Request::new(prompt(1, 900), 0));
    while engine.stats().snapshots.written < 28 {
        std::thread::yield_now();
    }
    assert_eq!(files(&directory).len(), 28);
    // It still answers, and writes only what is new.
    ask(&engine, Request::new(prompt(1, 900), 70));
    engine.shutdown();
    assert_eq!(engine.stats().snapshots.written, 30);
}

#[test]
fn a_directory_that_cannot_be_used_is_said_at_the_start() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "").unwrap();
    let started = engine::Engine::start(
        Box::new(ToyBackend::new(ToyOptions::default())),
        options(&path, u64::MAX, Duration::ZERO),
    );
    let error = started.err().unwrap().to_string();
    assert!(error.contains("file cannot be used; choose another"), "{error}");
}

/// Many prompts over few blocks and little disk, some cancelled, over several restarts.
fn churn(seed: u64, blocks: usize, files: u64, idle: Duration) -> u64 {
    let directory = TempDir::new().unwrap();
    let mut dice = Dice(seed);
    let mut restored = 0;
    for _ in 0..3 {
        let toy = ToyOptions { blocks, ..ToyOptions::default() };
        let limits = EngineOptions { background_rows: 4, running_max: 5, ..EngineOptions::default() };
        let engine =
            start(toy, EngineOptions { snapshots: options(directory.path(), files * FILE, idle).snapshots, ..limits });
        let mut open = Vec::new();
        for _ in 0..40 {
            let tokens = prompt(dice.roll(4) as u32, 1 + dice.roll(blocks * 32 - 60));
            let priority = engine::Priority::ALL[dice.roll(2)];
            let stream =
                engine.submit(Request { priority, ..Request::new(tokens.clone(), 1 + dice.roll(50)) }).unwrap();
            match dice.roll(8) {
                0 => drop(stream),
                _ => open.push((tokens, stream)),
            }
            if open.len() > 6 {
                check_one(open.swap_remove(dice.roll(6)));
            }
        }
        open.into_iter().for_each(check_one);
        engine.shutdown();
        let stats = engine.stats();
        assert_eq!((stats.blocks.used, stats.queued, stats.running), (0, [0, 0], [0, 0]));
        assert_eq!(stats.snapshots.rejected, 0);
        assert!(stats.snapshots.bytes <= files * FILE && bytes(directory.path()) == stats.snapshots.bytes);
        restored += stats.snapshots.restored;
    }
    restored
}

fn check_one((tokens, stream): (Vec<u32>, engine::Stream)) {
    let answer = collect(stream);
    assert!(matches!(answer.reason(), FinishReason::Length | FinishReason::ContextFull), "{:?}", answer.reason());
    assert_eq!(answer.ids(), ToyBackend::greedy(&ToyOptions::default(), &tokens, answer.ids().len()));
}

#[test]
fn churn_restores_at_all() {
    assert!(churn(1, 14, 200, Duration::ZERO) > 50);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn answers_do_not_depend_on_the_disk(seed in any::<u64>(), blocks in 4usize..20, files in 0u64..60, idle in 0u64..2) {
        churn(seed, blocks, files, Duration::from_secs(idle));
    }
}
