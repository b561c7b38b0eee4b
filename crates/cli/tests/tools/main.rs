//! The tools, the tool loop and candidates with the real sandbox, whose helper is the real binary.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // The tests' own files and words.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings fail should fail")]

mod attempt;
mod candidates;
mod departures;
mod intent;
mod repairs;
mod socket;
mod tool_loop;

use std::path::Path;

use agent::tools::Commands;
use sandbox::{Enforcement, Mode, Sandbox, WorkspaceWrite};

/// Commands in the sandbox of this machine; without one, as a person would run them.
fn commands() -> Commands {
    let sandbox = Sandbox::detect_with(Path::new(env!("CARGO_BIN_EXE_flint")));
    let mode = match sandbox.enforcement() {
        Enforcement::None { why } => {
            eprintln!("no sandbox here, so commands run without: {why}");
            Mode::DangerFullAccess
        }
        _ => Mode::WorkspaceWrite,
    };
    Commands::new(mode, WorkspaceWrite::default(), Vec::new()).with_sandbox(sandbox)
}
