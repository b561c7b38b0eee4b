//! The real binary with a real, small model: what a person or a script sees.
//!
//! `smollm2-135m` is pulled first when it is not in the store yet, so that no test sees the lines of a pull.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // The tests' own files and words.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

mod bench;
mod config;
mod doctor;
mod documents;
mod locate;
mod run;
mod serve;
mod shell;

use std::process::{Command, Output, Stdio};
use std::sync::Once;

/// `flint` with these arguments and nothing to read.
fn flint(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
    command.args(arguments).stdin(Stdio::null()).env_remove("FLINT_MODEL").env_remove("FLINT_KERNELS");
    command
}

/// Fetches the small model unless it is here.
fn pull_small() {
    static PULLED: Once = Once::new();
    PULLED.call_once(|| drop(success(flint(&["models", "pull", "smollm2-135m"]))));
}

/// `flint run` on the small model.
fn flint_run(arguments: &[&str]) -> Command {
    pull_small();
    let mut command = flint(&["run", "-m", "smollm2-135m"]);
    command.args(arguments);
    command
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("stdout is UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must succeed.
fn success(mut command: Command) -> Output {
    let output = command.output().expect("flint starts");
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, stderr(&output));
    output
}

/// Runs a command that must fail with an error, and gives what it said.
fn failure(mut command: Command) -> String {
    let output = command.output().expect("flint starts");
    assert_eq!(output.status.code(), Some(1), "{command:?}: {}", stderr(&output));
    let text = stderr(&output);
    assert!(text.starts_with("error: "), "{text}");
    text
}
