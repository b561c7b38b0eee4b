//! Permission: whether a command may run, must be asked about, or may not.
//!
//! The sandbox is what protects; asking is for what it does not hold. So within the sandbox a command runs without a
//! question, except under `untrusted`, and outside of it a person is asked, except where they said "always" to one that
//! begins alike. [`Rules`] only decides; running and asking belong to the caller.

mod folders;
mod git;
mod known;
mod options;
mod programs;
mod repository;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use sandbox::Mode;

/// Answers of "always" that are remembered; the oldest go first.
const REMEMBERED_MAX: usize = 256;

/// When a person is asked. The order is from strict to loose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Before every command that is not known to read only.
    Untrusted,
    /// When a command is to leave the sandbox or there is none.
    #[default]
    OnRequest,
    /// Only when a command failed in the sandbox and might succeed outside, or when there is no sandbox.
    OnFailure,
    /// Never: what the sandbox refuses stays refused.
    Never,
}

impl Policy {
    /// The policy with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Untrusted, Self::OnRequest, Self::OnFailure, Self::Never]
            .into_iter()
            .find(|policy| policy.to_string() == name)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Untrusted => "untrusted",
            Self::OnRequest => "on-request",
            Self::OnFailure => "on-failure",
            Self::Never => "never",
        })
    }
}

/// What is to happen with a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Allow,
    /// A person decides.
    Ask {
        /// Why, for the person.
        why: String,
        /// What "always" would remember.
        prefix: String,
    },
    /// It does not run.
    Deny {
        /// Why, for the model and the person.
        why: String,
    },
}

/// The rules of one session.
#[derive(Clone, Debug)]
pub struct Rules {
    policy: Policy,
    mode: Mode,
    remembered: Vec<Prefix>,
}

/// What "always" was said to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Prefix {
    Words(Vec<String>),
    /// A line that cannot be taken apart, to the letter.
    Line(String),
}

impl Rules {
    /// Rules with nothing remembered.
    pub fn new(policy: Policy, mode: Mode) -> Self {
        Self { policy, mode, remembered: Vec::new() }
    }

    /// The policy in force.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Changes the policy; what is remembered stays.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Whether a command may run in the workspace `root`. `sandboxed` says that the kernel will hold it, see
    /// `Sandbox::holds`.
    pub fn decide(&self, command: &str, root: &Path, sandboxed: bool) -> Verdict {
        // What the sandbox holds needs no look.
        if sandboxed && self.policy != Policy::Untrusted {
            return Verdict::Allow;
        }
        let doubt = match self.trusts(command, root) {
            Ok(()) => return Verdict::Allow,
            Err(doubt) => doubt,
        };
        match self.policy {
            Policy::Untrusted => self.ask(command, &format!("approval_policy is untrusted; asked because: {doubt}")),
            Policy::Never if self.mode == Mode::DangerFullAccess => Verdict::Allow,
            Policy::Never => Verdict::Deny {
                why: "there is no sandbox to hold this command, and approval_policy is never; set approval_policy to \
                      on-request to be asked, or sandbox_mode to danger-full-access"
                    .to_owned(),
            },
            Policy::OnRequest | Policy::OnFailure => {
                self.ask(command, &format!("it would run without a sandbox; asked because: {doubt}"))
            }
        }
    }

    /// Whether a command may run outside the sandbox, because it failed inside or the model asks for that.
    pub fn decide_outside(&self, command: &str, why: &str) -> Verdict {
        match self.policy {
            Policy::Never => {
                Verdict::Deny { why: "commands do not leave the sandbox: approval_policy is never".to_owned() }
            }
            _ if self.is_remembered(command) => Verdict::Allow,
            _ => self.ask(command, why),
        }
    }

    /// Remembers what "always" was said to: what [`Verdict::Ask`] named for this command.
    pub fn remember(&mut self, command: &str) {
        let prefix = prefix_of(command);
        if !self.remembered.contains(&prefix) {
            if self.remembered.len() == REMEMBERED_MAX {
                self.remembered.remove(0);
            }
            self.remembered.push(prefix);
        }
    }

    fn ask(&self, command: &str, why: &str) -> Verdict {
        let prefix = match prefix_of(command) {
            Prefix::Words(words) => words.join(" "),
            Prefix::Line(line) => line,
        };
        Verdict::Ask { why: why.to_owned(), prefix }
    }

    /// Whether every part of the line only reads or was always allowed. The error says which does not.
    fn trusts(&self, command: &str, root: &Path) -> Result<(), String> {
        if self.has_line(command) {
            return Ok(());
        }
        each(&words::simple_commands(command)?, root, |words| self.matches(words))
    }

    /// Outside the sandbox reading is no reason to trust: what must not be read may be outside.
    fn is_remembered(&self, command: &str) -> bool {
        let simple = words::simple_commands(command);
        simple.is_ok_and(|all| all.iter().all(|words| self.matches(words))) || self.has_line(command)
    }

    fn matches(&self, words: &[String]) -> bool {
        self.remembered.iter().any(|prefix| matches!(prefix, Prefix::Words(known) if words.starts_with(known)))
    }

    fn has_line(&self, command: &str) -> bool {
        self.remembered.iter().any(|prefix| matches!(prefix, Prefix::Line(line) if line == command))
    }
}

/// One simple command is remembered by its first words, anything else to the letter.
fn prefix_of(command: &str) -> Prefix {
    match words::simple_commands(command).as_deref() {
        Ok([words]) if !known::changes_the_rest(&words[0]) => {
            Prefix::Words(words[..known::prefix_length(words)].to_vec())
        }
        _ => Prefix::Line(command.to_owned()),
    }
}

/// Whether a line of any bytes does nothing but read in the workspace `root`, with the reason if it may do more. Never
/// panics, whatever the bytes; fuzzing begins here.
pub fn only_reads(line: &[u8], root: &Path) -> Result<(), String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not text".to_owned())?;
    each(&words::simple_commands(line)?, root, |_| false)
}

/// Follows a line from command to command: each must only read, where it then is, or be remembered.
fn each(commands: &[words::Words], root: &Path, remembered: impl Fn(&[String]) -> bool) -> Result<(), String> {
    let mut folders = folders::WorkingFolders::new(root).ok_or_else(|| format!("{} is not there", root.display()))?;
    for words in commands {
        // What was allowed here may be another thing in another folder.
        if !folders.has_moved() && remembered(words) {
            continue;
        }
        let Some((program, arguments)) = words.split_first() else { return Err("a command is empty".to_owned()) };
        let name = folders.program(program)?;
        match (name, arguments) {
            ("cd", [folder]) => folders.enter(folder)?,
            ("git", [version]) if version == "--version" => {}
            ("git", arguments) => git::only_reads(arguments, &folders)?,
            (name, arguments) if programs::is_known(name) || arguments == ["--version"] => {
                programs::only_reads(name, arguments, &folders)?;
            }
            (name, _) => return Err(format!("`{name}` {}", known::known_for(name))),
        }
    }
    Ok(())
}
