//! The store as the server sees it, a model of it under random operations, and kill -9 in the middle of writing.
#![allow(clippy::disallowed_methods, reason = "a test starts itself again")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use proptest::prelude::*;

use super::{CHAIN_MAX, Counts, Notice, Record, Store, StoreError, StoreOptions};

fn record(id: &str, parent: Option<&str>, created: u64) -> Record {
    Record {
        id: id.to_owned(),
        parent: parent.map(str::to_owned),
        model: "toy".to_owned(),
        fingerprint: u64::MAX - 7,
        created,
        input: format!("[{{\"text\":\"to {id}\"}}]"),
        response: format!("{{\"id\":\"{id}\"}}"),
        tokens: vec![1, 2, u32::MAX],
        owner: 7,
    }
}

fn memory() -> Store {
    Store::open(StoreOptions::default()).unwrap()
}

fn file(path: &Path) -> Store {
    Store::open(StoreOptions { path: Some(path.to_owned()), ..StoreOptions::default() }).unwrap()
}

fn ids(chain: Option<Vec<Record>>) -> Option<Vec<String>> {
    chain.map(|chain| chain.into_iter().map(|record| record.id).collect())
}

#[test]
fn what_was_put_comes_back_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/responses.db");
    let (first, second) = (record("a", None, 5), record("b", Some("a"), 6));
    {
        let store = file(&path);
        store.put(&first).unwrap();
        store.put(&second).unwrap();
        store.update_response("b", "{\"status\":\"done\"}", &[9]).unwrap();
    }
    let store = file(&path);
    assert_eq!(store.notice(), None);
    assert_eq!(store.get(7, "a").unwrap(), Some(first.clone()));
    let second = Record { response: "{\"status\":\"done\"}".to_owned(), tokens: vec![9], ..second };
    assert_eq!(store.chain(7, "b").unwrap(), Some(vec![first, second]));
    assert_eq!(store.get(7, "c").unwrap(), None);
    assert_eq!(store.chain(7, "c").unwrap(), None);
}

#[cfg(unix)]
#[test]
fn only_the_owner_can_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/responses.db");
    let store = file(&path);
    store.put(&record("a", None, 5)).unwrap();
    for entry in std::fs::read_dir(folder.path().join("new")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.path());
    }
}

#[test]
fn refusals() {
    let store = memory();
    store.put(&record("a", None, 5)).unwrap();
    assert!(matches!(store.put(&record("a", None, 5)), Err(StoreError::Exists(_))));
    assert!(matches!(store.put(&record("b", Some("x"), 5)), Err(StoreError::NoParent { .. })));
    assert!(matches!(store.update_response("x", "{}", &[]), Err(StoreError::Missing(_))));
    assert!(!store.delete(7, "x").unwrap());
    assert_eq!(store.counts().unwrap().records, 1);
}

#[test]
fn a_deleted_parent_stays_for_its_children_and_goes_with_the_last() {
    let store = memory();
    store.put(&record("a", None, 5)).unwrap();
    store.put(&record("b", Some("a"), 6)).unwrap();
    store.put(&record("c", Some("b"), 7)).unwrap();
    store.put(&record("d", Some("a"), 8)).unwrap();
    assert!(store.delete(7, "b").unwrap());
    assert!(!store.delete(7, "b").unwrap());
    assert!(store.delete(7, "a").unwrap());
    assert_eq!(store.get(7, "a").unwrap(), None);
    assert_eq!(store.chain(7, "b").unwrap(), None);
    assert_eq!(ids(store.chain(7, "c").unwrap()).unwrap(), ["a", "b", "c"]);
    assert_eq!(ids(store.chain(7, "d").unwrap()).unwrap(), ["a", "d"]);
    assert!(store.delete(7, "c").unwrap());
    assert_eq!((store.counts().unwrap().records, store.counts().unwrap().tombstones), (1, 1));
    assert_eq!(ids(store.chain(7, "d").unwrap()).unwrap(), ["a", "d"]);
    assert!(store.delete(7, "d").unwrap());
    assert_eq!(store.counts().unwrap(), Counts::default());
}

#[test]
fn what_is_anothers_is_not_there() {
    let store = Store::open(StoreOptions::default()).unwrap();
    store.put(&record("a", None, 1)).unwrap();
    store.put(&record("b", Some("a"), 2)).unwrap();
    for owner in [0, 6, 8, u64::MAX] {
        assert_eq!(store.get(owner, "a").unwrap(), None);
        assert_eq!(store.chain(owner, "b").unwrap(), None);
        assert!(!store.delete(owner, "b").unwrap());
    }
    assert_eq!(ids(store.chain(7, "b").unwrap()).unwrap(), ["a", "b"]);
}

#[test]
fn a_file_from_before_there_were_owners_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("responses.db");
    let store = file(&path);
    store.put(&Record { owner: 0, ..record("a", None, 1) }).unwrap();
    let old = "DROP INDEX responses_owner; ALTER TABLE responses DROP COLUMN owner; PRAGMA user_version = 1;";
    store.lock().execute_batch(old).unwrap();
    drop(store);
    let store = file(&path);
    assert!(store.get(0, "a").unwrap().is_some());
    assert_eq!(store.get(7, "a").unwrap(), None);
}

#[test]
fn old_records_go_but_not_from_under_young_ones() {
    let store = Store::open(StoreOptions { age_max: Duration::from_secs(10), ..StoreOptions::default() }).unwrap();
    store.put(&record("old", None, 100)).unwrap();
    store.put(&record("root", None, 101)).unwrap();
    store.put(&record("young", Some("root"), 120)).unwrap();
    assert_eq!(store.sweep(110).unwrap(), 0);
    assert_eq!(store.sweep(125).unwrap(), 2);
    assert_eq!(store.get(7, "root").unwrap(), None);
    assert_eq!(ids(store.chain(7, "young").unwrap()).unwrap(), ["root", "young"]);
    assert_eq!(store.sweep(131).unwrap(), 1);
    assert_eq!(store.counts().unwrap(), Counts::default());
}

#[test]
fn a_full_store_lets_the_longest_idle_conversation_go() {
    let store = Store::open(StoreOptions { records_max: 10, ..StoreOptions::default() }).unwrap();
    store.put(&record("idle0", None, 1)).unwrap();
    store.put(&record("idle1", Some("idle0"), 3)).unwrap();
    // Begun before the idle one, used after it.
    store.put(&record("used0", None, 0)).unwrap();
    store.put(&record("used1", Some("used0"), 4)).unwrap();
    for index in 0..6 {
        store.put(&record(&format!("other{index}"), None, 10 + index)).unwrap();
    }
    assert!(store.get(7, "idle1").unwrap().is_some());
    store.put(&record("last", None, 20)).unwrap();
    assert_eq!(store.get(7, "idle1").unwrap(), None);
    assert_eq!(store.get(7, "idle0").unwrap(), None);
    assert_eq!(ids(store.chain(7, "used1").unwrap()).unwrap(), ["used0", "used1"]);
    assert_eq!(store.counts().unwrap().records, 9);
}

#[test]
fn a_conversation_larger_than_the_store_is_refused_and_nothing_else_is_lost() {
    let store = Store::open(StoreOptions { bytes_max: 1000, ..StoreOptions::default() }).unwrap();
    store.put(&record("small", None, 1)).unwrap();
    let big = Record { input: "x".repeat(1000), ..record("big", None, 2) };
    assert!(matches!(store.put(&big), Err(StoreError::TooLarge { .. })));
    assert!(store.get(7, "small").unwrap().is_some());
    assert!(matches!(store.update_response("small", &"x".repeat(1000), &[]), Err(StoreError::TooLarge { .. })));
    assert_eq!(store.get(7, "small").unwrap(), Some(record("small", None, 1)));
}

#[test]
fn a_chain_has_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("responses.db");
    let store = file(&path);
    store.put(&record("r0", None, 0)).unwrap();
    store.lock().execute("UPDATE responses SET depth = ?1", [CHAIN_MAX as i64 - 2]).unwrap();
    store.put(&record("r1", Some("r0"), 1)).unwrap();
    assert!(matches!(store.put(&record("r2", Some("r1"), 2)), Err(StoreError::ChainTooLong(_))));
}

#[test]
fn a_damaged_file_is_moved_aside_with_a_notice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("responses.db");
    for round in 1..=2 {
        std::fs::write(&path, b"this is no database, but it is longer than one header".repeat(40)).unwrap();
        let store = file(&path);
        let Some(Notice::MovedAside { to, .. }) = store.notice() else { panic!("no notice") };
        assert_eq!(to, &folder.path().join(format!("responses.db.damaged-{round}")));
        assert!(to.exists());
        store.put(&record("a", None, 1)).unwrap();
        assert_eq!(store.counts().unwrap().records, 1);
    }
}

#[test]
fn a_page_overwritten_in_the_middle_is_found_when_opening() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("responses.db");
    {
        let store = file(&path);
        for index in 0..200 {
            store.put(&Record { input: "y".repeat(300), ..record(&format!("r{index}"), None, index) }).unwrap();
        }
    }
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0x5a);
    std::fs::write(&path, bytes).unwrap();
    let store = file(&path);
    assert!(store.notice().is_some());
    assert_eq!(store.counts().unwrap(), Counts::default());
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("responses.db");
    file(&path).lock().pragma_update(None, "user_version", 99).unwrap();
    let error = Store::open(StoreOptions { path: Some(path.clone()), ..StoreOptions::default() }).err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error}");
    assert!(path.exists());
}

#[derive(Clone, Debug)]
enum Operation {
    Put { id: u8, parent: Option<u8> },
    Delete(u8),
    Sweep(u8),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0..30_u8, proptest::option::of(0..30_u8)).prop_map(|(id, parent)| Operation::Put { id, parent }),
        2 => (0..30_u8).prop_map(Operation::Delete),
        1 => (0..30_u8).prop_map(Operation::Sweep),
    ]
}

proptest! {
    /// Against the plainest model: remember everything for ever, and which of it is hidden.
    #[test]
    fn any_order_of_operations_keeps_the_chains_whole(operations in proptest::collection::vec(operation(), 1..80)) {
        let store = Store::open(StoreOptions { age_max: Duration::ZERO, ..StoreOptions::default() }).unwrap();
        let mut parents: BTreeMap<u8, Option<u8>> = BTreeMap::new();
        let mut visible: BTreeSet<u8> = BTreeSet::new();
        for operation in operations {
            match operation {
                Operation::Put { id, parent } => {
                    let parent = parent.filter(|parent| visible.contains(parent));
                    let name = parent.map(|parent| parent.to_string());
                    if store.put(&record(&id.to_string(), name.as_deref(), u64::from(id))).is_ok() {
                        parents.insert(id, parent);
                        visible.insert(id);
                    }
                }
                Operation::Delete(id) => {
                    prop_assert_eq!(store.delete(7, &id.to_string()).unwrap(), visible.remove(&id));
                }
                Operation::Sweep(now) => {
                    let before = visible.len();
                    visible.retain(|id| *id >= now);
                    prop_assert_eq!(store.sweep(u64::from(now)).unwrap(), before - visible.len());
                }
            }
            let mut needed = BTreeSet::new();
            for id in &visible {
                let mut expected = vec![id.to_string()];
                let mut at = *id;
                needed.insert(at);
                while let Some(parent) = parents[&at] {
                    expected.insert(0, parent.to_string());
                    needed.insert(parent);
                    at = parent;
                }
                prop_assert_eq!(ids(store.chain(7, &id.to_string()).unwrap()), Some(expected));
            }
            let counts = store.counts().unwrap();
            prop_assert_eq!(counts.records, visible.len() as u64);
            prop_assert_eq!(counts.tombstones, (needed.len() - visible.len()) as u64);
        }
    }
}

const CHILD: &str = "FLINT_TEST_STORE_CHILD";

/// What turn `index` of round `round` is, so that the parent can check it without having seen it.
fn turn(round: usize, index: usize) -> Record {
    let parent = (index > 0).then(|| format!("r{round}-{}", index - 1));
    Record {
        input: format!("[\"{}\"]", "input ".repeat(index * 37 % 900)),
        response: format!("{{\"text\":\"{}\"}}", "output ".repeat(index * 53 % 900)),
        tokens: (0..index as u32 * 7 % 500).collect(),
        owner: 7,
        ..record(&format!("r{round}-{index}"), parent.as_deref(), index as u64)
    }
}

/// Not a test by itself: what the next one runs in a process of its own, to be killed.
#[test]
fn child_that_writes_until_killed() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (round, path) = arguments.split_once(' ').unwrap();
    let (round, store) = (round.parse().unwrap(), file(Path::new(path)));
    let mut out = std::io::stdout();
    for index in 0..CHAIN_MAX {
        let whole = turn(round, index);
        store.put(&Record { response: "{}".to_owned(), tokens: Vec::new(), ..whole.clone() }).unwrap();
        store.update_response(&whole.id, &whole.response, &whole.tokens).unwrap();
        writeln!(out, "\nstored {index}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn kill_nine_while_writing_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("responses.db");
    let mut acknowledged = Vec::new();
    for round in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["sessions::store::tests::child_that_writes_until_killed", "--exact", "--nocapture"])
            .env(CHILD, format!("{round} {}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = None;
        let mut killed = false;
        // To the end of the pipe: what was said before the kill counts, however late it is read.
        while let Some(Ok(line)) = lines.next() {
            if let Some(index) = line.strip_prefix("stored ") {
                last = index.parse::<usize>().ok();
            }
            if !killed && last >= Some(20 + round * 31) {
                child.kill().unwrap();
                killed = true;
            }
        }
        child.wait().unwrap();
        acknowledged.push(last.unwrap());

        let store = file(&path);
        assert_eq!(store.notice(), None);
        for (round, last) in acknowledged.iter().enumerate() {
            let expected: Vec<Record> = (0..=*last).map(|index| turn(round, index)).collect();
            assert!(
                store.chain(7, &format!("r{round}-{last}")).unwrap() == Some(expected),
                "round {round}, {last} stored"
            );
        }
    }
}
