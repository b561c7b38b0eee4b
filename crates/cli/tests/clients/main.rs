//! Other people's programs against the real server: installed from their registries, pinned, and run as their users do.
//!
//! They need the network, `python3`, `npm` and minutes, so they run when `FLINT_TEST_CLIENTS=1` is set. Two of them judge the
//! server by files that are not ours to carry: `FLINT_OPENRESPONSES` is a checkout of the Open Responses repository,
//! `FLINT_OPENAI_SPEC` the OpenAPI description of OpenAI's API (YAML, plain or gzipped). Without one, its test says so and
//! passes. What the clients do is in the programs beside this file; the Rust side installs, starts and judges.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // The tests' own files and words.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

mod install;
mod server;

mod agents;
mod aider;
mod codex;
mod families;
mod more_clients;
mod open_responses;
mod openai_sdk;
mod schemas;
mod schemathesis;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The model for tests where the answer matters.
const DEFAULT_MODEL: &str = "qwen2.5-coder-1.5b";
/// The model for tests of the protocol alone.
const SMALL_MODEL: &str = "smollm2-135m";
/// What one client may take. Far above what any needs: it is there so that a stream without an end becomes a failure.
const CLIENT_SECONDS_MAX: u32 = 600;

/// Permission to run, one test at a time: two models on two cores would make each other's clients time out. `None`, with
/// the reason printed, unless these tests were asked for.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if std::env::var_os("FLINT_TEST_CLIENTS").is_none_or(|value| value.is_empty()) {
        testkit::skip::skipped("set FLINT_TEST_CLIENTS=1 to install real clients from their registries and run them");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The file or directory that a variable names; `None`, with the reason printed, when it is not set.
fn given_path(variable: &str, what: &str) -> Option<PathBuf> {
    let path = std::env::var_os(variable).filter(|value| !value.is_empty());
    if path.is_none() {
        println!("skipped: set {variable} to {what}");
    }
    path.map(PathBuf::from)
}

/// A file beside this one.
fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

/// An empty directory for one test, under the target directory: some clients distrust the system's temporary one.
fn scratch(name: &str) -> tempfile::TempDir {
    tempfile::Builder::new().prefix(name).tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a scratch directory")
}

/// A client's command: nothing to read, a time limit, and no settings but ours.
fn client(program: impl AsRef<std::ffi::OsStr>, home: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg(CLIENT_SECONDS_MAX.to_string()).arg(program).stdin(Stdio::null());
    command.env_clear().env("HOME", home).env("NO_PROXY", "127.0.0.1").env("OPENAI_API_KEY", server::KEY);
    command.env("PATH", std::env::var_os("PATH").expect("PATH is set")).env("LANG", "C.UTF-8");
    command
}

/// Runs a client to its end, shows what it printed, and fails if it did.
fn success(command: &mut Command) -> Output {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}: {}", output.status);
    output
}

/// Runs a client to its end and shows what it printed.
fn finish(command: &mut Command) -> Output {
    let start = Instant::now();
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    print!("{}{}", text(&output.stdout), text(&output.stderr));
    println!("{:?}: {}, {:.1} s", command.get_args().nth(1).unwrap(), output.status, start.elapsed().as_secs_f64());
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
