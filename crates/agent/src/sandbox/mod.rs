//! The sandbox: what a command may touch, enforced by the kernel and not by its good will.
//!
//! A command runs two processes below us, both this very program started again, which needs no unsafe code and costs about
//! 2 ms each. The *keeper* ([`keeper`]) makes namespaces and lives exactly as long as the command and its owner want; the
//! *cell* ([`cell`]) is the first process of the namespaces, gives up every privilege, and starts the command. When the
//! cell ends, the kernel ends whatever is left in it, so no child outlives its command.
//!
//! Three layers stand behind each other, because each has holes the others close:
//! - namespaces: every file system is read-only except the writable roots, with `.git`, `.flint` and the configuration
//!   read-only again inside those; no other processes; no network but an empty loopback;
//! - Landlock: the same rule for writing again, by paths, and no tracing of processes outside;
//! - seccomp: no Unix sockets, tracing, mounting, new namespaces and kernel doors that no build needs.
//!
//! Where namespaces are not allowed Landlock and seccomp stand alone; [`Enforcement`] says what that costs. Where neither
//! works [`Sandbox::spawn`] refuses, and the caller asks a person.

mod cell;
mod error;
mod filter;
mod keeper;
mod landlock;
mod mounts;
mod policy;
mod run;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use error::SandboxError;
pub use policy::{Mode, Policy, WorkspaceWrite};
pub use run::{CommandSpec, Ended, Output, Program, Running};

/// The hidden first argument by which this program becomes a keeper.
pub const KEEPER: &str = "__sandbox-keeper";
/// The hidden first argument by which this program becomes a cell.
pub const CELL: &str = "__sandbox-cell";

/// What this kernel lets us enforce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Enforcement {
    /// All three layers.
    Namespaces,
    /// Landlock and seccomp. Nothing new can be made at the top of a writable root that holds something protected, and
    /// the owner and mode of files outside can be changed; no sockets at all, also not to oneself.
    Landlock,
    /// Nothing.
    None {
        /// Why.
        why: String,
    },
}

impl std::fmt::Display for Enforcement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Namespaces => f.write_str("namespaces, Landlock and seccomp"),
            Self::Landlock => f.write_str("Landlock and seccomp; namespaces are not allowed here"),
            Self::None { why } => write!(f, "not enforced: {why}"),
        }
    }
}

/// Runs commands within a policy.
#[derive(Clone, Debug)]
pub struct Sandbox {
    helper: PathBuf,
    enforcement: Enforcement,
}

impl Sandbox {
    /// Finds out what this kernel lets us enforce, by doing it once around `true`. Takes about 10 ms.
    pub fn detect() -> Self {
        match std::env::current_exe() {
            Ok(helper) => Self::detect_with(&helper),
            Err(error) => Self {
                helper: PathBuf::new(),
                enforcement: Enforcement::None { why: format!("this program's own file is not known: {error}") },
            },
        }
    }

    /// The same with another file of this program, such as the one a test has built.
    pub fn detect_with(helper: &Path) -> Self {
        let mut reasons = Vec::new();
        for enforcement in [Enforcement::Namespaces, Enforcement::Landlock] {
            match run::probe(helper, &enforcement) {
                Ok(()) => return Self { helper: helper.to_owned(), enforcement },
                Err(why) => reasons.push(why),
            }
        }
        Self { helper: helper.to_owned(), enforcement: Enforcement::None { why: reasons.join("; ") } }
    }

    /// With this enforcement and no other, or why it does not work here.
    pub fn only(helper: &Path, enforcement: Enforcement) -> Result<Self, String> {
        run::probe(helper, &enforcement)?;
        Ok(Self::with_enforcement(helper, enforcement))
    }

    /// As if this were what can be enforced.
    pub fn with_enforcement(helper: &Path, enforcement: Enforcement) -> Self {
        Self { helper: helper.to_owned(), enforcement }
    }

    /// What is enforced.
    pub fn enforcement(&self) -> &Enforcement {
        &self.enforcement
    }

    /// Whether commands under this policy are held by the kernel.
    pub fn holds(&self, policy: &Policy) -> bool {
        policy.mode != Mode::DangerFullAccess && !matches!(self.enforcement, Enforcement::None { .. })
    }

    /// Mode and enforcement in one line, for people.
    pub fn describe(&self, policy: &Policy) -> String {
        match policy.mode {
            Mode::DangerFullAccess => "danger-full-access (no sandbox)".to_owned(),
            mode => format!("{mode} ({})", self.enforcement),
        }
    }

    /// Starts a command. Refuses where the policy cannot be enforced: ask, then use [`Policy::unconfined`].
    pub fn spawn(&self, command: &CommandSpec, policy: &Policy) -> Result<Running, SandboxError> {
        if let (Enforcement::None { why }, false) = (&self.enforcement, policy.mode == Mode::DangerFullAccess) {
            return Err(SandboxError::NotEnforced { why: why.clone() });
        }
        Running::start(&self.helper, command, &policy.rules(&self.enforcement))
    }
}

/// Becomes a keeper or a cell when the arguments say so. To be called first in `main`, before anything is opened or read;
/// returns the exit code of the process.
pub fn enter(arguments: impl Iterator<Item = std::ffi::OsString>) -> Option<u8> {
    let mut arguments = arguments.skip(1);
    let first = arguments.next()?;
    let rest: Vec<std::ffi::OsString> = match first.to_str() {
        Some(KEEPER | CELL) => arguments.collect(),
        _ => return None,
    };
    Some(if first == KEEPER { keeper::run(rest) } else { cell::run(rest) })
}
