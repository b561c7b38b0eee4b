//! The sandbox: what a command may touch, enforced by the kernel and not by its good will.
//!
//! A command runs two processes below us, both this very program started again, which needs no unsafe code and costs about
//! 2 ms each. The *keeper* ([`keeper`]) makes namespaces and lives exactly as long as the command and its owner want; the
//! *cell* ([`cell`]) is the first process of the namespaces, gives up every privilege, and starts the command. When the
//! cell ends, the kernel ends whatever is left in it, so no child outlives its command.
//!
//! Three layers stand behind each other, because each has holes the others close:
//! - namespaces: every file system is read-only except the writable roots, with protected names ([`names`]) and the
//!   configuration read-only again inside those; a /tmp and a /dev of its own; no other processes; no network but an empty
//!   loopback;
//! - Landlock: the same rule for writing again, by paths, and no tracing of processes outside;
//! - seccomp: no Unix sockets, tracing, mounting, new namespaces and kernel doors that no build needs.
//!
//! Protected names are held before the command runs where they exist, at any depth, and where they do not exist in a
//! workspace's top folder and beside nested projects. In other folders a command can make one while it runs; when it has
//! ended the *guard* ([`guard`]) gives it a name that nobody obeys.
//!
//! Where namespaces are not allowed Landlock and seccomp stand alone; [`Enforcement`] says what that costs. Where neither
//! works [`Sandbox::spawn`] refuses, and the caller asks a person.
#![warn(unreachable_pub)]
#![cfg_attr(test, allow(clippy::disallowed_macros))]
#![cfg_attr(not(test), deny(clippy::disallowed_macros))]
#![allow(clippy::disallowed_methods, reason = "it starts this program again, and what it was given to hold")]

mod cell;
mod error;
mod filter;
mod guard;
mod keeper;
mod landlock;
mod limits;
mod mounts;
mod names;
mod policy;
mod run;
mod survey;
mod temporary;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

pub use error::SandboxError;
pub use policy::{Mode, Policy, WorkspaceWrite};
use run::Probe;
pub use run::{CommandSpec, Ended, Output, Program, Running};
use temporary::Temporary;

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
    /// Nothing, or it is not known yet.
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
    /// Whether the machine was too busy to find out; then it is found out again.
    undecided: bool,
    /// The folder for temporary files, made for the first command and kept for those after it.
    temporary: Arc<OnceLock<Option<Temporary>>>,
}

impl Sandbox {
    /// Finds out what this kernel lets us enforce, by doing it once around `true`. Takes about 10 ms.
    pub fn detect() -> Self {
        match std::env::current_exe() {
            Ok(helper) => Self::detect_with(&helper),
            Err(error) => {
                let why = format!("this program's own file is not known: {error}");
                Self::with_enforcement(Path::new(""), Enforcement::None { why })
            }
        }
    }

    /// The same with another file of this program, such as the one a test has built.
    pub fn detect_with(helper: &Path) -> Self {
        let mut reasons = Vec::new();
        for enforcement in [Enforcement::Namespaces, Enforcement::Landlock] {
            match run::probe(helper, &enforcement) {
                Probe::Holds => return Self::with_enforcement(helper, enforcement),
                Probe::Fails(why) => reasons.push(why),
                // Not even less is taken for granted then.
                Probe::TooSlow => {
                    let why = "this machine is too busy to try the sandbox; it is tried again".to_owned();
                    return Self { undecided: true, ..Self::with_enforcement(helper, Enforcement::None { why }) };
                }
            }
        }
        Self::with_enforcement(helper, Enforcement::None { why: reasons.join("; ") })
    }

    /// With this enforcement and no other, or why it does not work here.
    pub fn only(helper: &Path, enforcement: Enforcement) -> Result<Self, String> {
        match run::probe(helper, &enforcement) {
            Probe::Holds => Ok(Self::with_enforcement(helper, enforcement)),
            Probe::Fails(why) => Err(why),
            Probe::TooSlow => Err("the machine is too busy".to_owned()),
        }
    }

    /// As if this were what can be enforced.
    pub fn with_enforcement(helper: &Path, enforcement: Enforcement) -> Self {
        Self { helper: helper.to_owned(), enforcement, undecided: false, temporary: Arc::default() }
    }

    /// Whether the machine was too busy to find out what can be enforced. Such an answer is not to be kept.
    pub fn is_undecided(&self) -> bool {
        self.undecided
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
            mode => {
                let narrowed = policy.narrowed.iter().map(|why| format!("; {why}")).collect::<String>();
                format!("{mode} ({}){narrowed}", self.enforcement)
            }
        }
    }

    /// Starts a command. Refuses where the policy cannot be enforced: ask, then use [`Policy::unconfined`].
    pub fn spawn(&self, command: &CommandSpec, policy: &Policy) -> Result<Running, SandboxError> {
        if let (Enforcement::None { why }, false) = (&self.enforcement, policy.mode == Mode::DangerFullAccess) {
            return Err(SandboxError::NotEnforced { why: why.clone() });
        }
        let temporary = policy.temporary.then(|| self.temporary.get_or_init(Temporary::new).as_ref()).flatten();
        let rules = policy.rules(&self.enforcement, temporary.map(Temporary::path));
        Running::start(&self.helper, command, &rules, &policy.environment)
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
    close_descriptors();
    Some(if first == KEEPER { keeper::run(rest) } else { cell::run(rest) })
}

/// Closes what whoever started Flint left open, so that no command gets it.
fn close_descriptors() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|number| *number > 2).collect::<Vec<_>>() {
        // The list itself was one of them and is closed already.
        let _ = nix::unistd::close(number);
    }
}
