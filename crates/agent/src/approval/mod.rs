//! Permission: whether a command may run, must be asked about, or may not.
//!
//! The sandbox is what protects; asking is for what it does not hold. So within the sandbox a command runs without a
//! question, except under `untrusted`, and outside of it a person is asked, except where they said "always" to one that
//! begins alike. [`Rules`] only decides; running and asking belong to the caller.

mod known;
mod words;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sandbox::Mode;

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

    /// Whether a command may run. `sandboxed` says that the kernel will hold it, see `Sandbox::holds`.
    pub fn decide(&self, command: &str, sandboxed: bool) -> Verdict {
        let trusted = self.is_trusted(command);
        match self.policy {
            _ if trusted => Verdict::Allow,
            Policy::Untrusted => self.ask(command, "approval_policy is untrusted, and this may do more than read"),
            _ if sandboxed => Verdict::Allow,
            Policy::Never if self.mode == Mode::DangerFullAccess => Verdict::Allow,
            Policy::Never => Verdict::Deny {
                why: "there is no sandbox to hold this command, and approval_policy is never; set approval_policy to \
                      on-request to be asked, or sandbox_mode to danger-full-access"
                    .to_owned(),
            },
            Policy::OnRequest | Policy::OnFailure => self.ask(command, "it would run without a sandbox"),
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

    /// Whether every part of the line only reads or was always allowed.
    fn is_trusted(&self, command: &str) -> bool {
        match words::simple_commands(command) {
            Some(all) => {
                all.iter().all(|words| known::only_reads(words) || self.matches(words)) || self.has_line(command)
            }
            None => self.has_line(command),
        }
    }

    /// Outside the sandbox reading is no reason to trust: what must not be read may be outside.
    fn is_remembered(&self, command: &str) -> bool {
        let simple = words::simple_commands(command);
        simple.is_some_and(|all| all.iter().all(|words| self.matches(words))) || self.has_line(command)
    }

    fn matches(&self, words: &[String]) -> bool {
        self.remembered.iter().any(|prefix| matches!(prefix, Prefix::Words(known) if words.starts_with(known)))
    }

    fn has_line(&self, command: &str) -> bool {
        self.remembered.iter().any(|prefix| matches!(prefix, Prefix::Line(line) if line == command.trim()))
    }
}

/// One simple command is remembered by its first words, anything else to the letter.
fn prefix_of(command: &str) -> Prefix {
    match words::simple_commands(command).as_deref() {
        Some([words]) => Prefix::Words(words[..known::prefix_length(words)].to_vec()),
        _ => Prefix::Line(command.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(verdict: &Verdict) -> Option<&str> {
        match verdict {
            Verdict::Ask { prefix, .. } => Some(prefix),
            _ => None,
        }
    }

    #[test]
    fn policies_decide_as_they_say() {
        let cases = [
            (Policy::Untrusted, "cargo test", true, "ask"),
            (Policy::Untrusted, "git log | head -3", true, "allow"),
            (Policy::OnRequest, "rm -rf target", true, "allow"),
            (Policy::OnRequest, "rm -rf target", false, "ask"),
            (Policy::OnRequest, "cat Cargo.toml", false, "allow"),
            (Policy::OnFailure, "make", true, "allow"),
            (Policy::OnFailure, "make", false, "ask"),
            (Policy::Never, "make", true, "allow"),
            (Policy::Never, "make", false, "deny"),
            (Policy::Never, "ls", false, "allow"),
        ];
        for (policy, command, sandboxed, expected) in cases {
            let verdict = Rules::new(policy, Mode::WorkspaceWrite).decide(command, sandboxed);
            let got = match verdict {
                Verdict::Allow => "allow",
                Verdict::Ask { .. } => "ask",
                Verdict::Deny { .. } => "deny",
            };
            assert_eq!(got, expected, "{policy} {command} {sandboxed}");
            assert_eq!(Policy::from_name(&policy.to_string()), Some(policy));
        }
        let full = Rules::new(Policy::Never, Mode::DangerFullAccess);
        assert_eq!(full.decide("make", false), Verdict::Allow);
        assert!(matches!(full.decide_outside("make", ""), Verdict::Deny { .. }));
    }

    #[test]
    fn always_means_what_begins_alike_and_no_more() {
        let mut rules = Rules::new(Policy::Untrusted, Mode::WorkspaceWrite);
        for (command, prefix) in [
            ("cargo test -p agent", "cargo test"),
            ("./check.sh fast", "./check.sh"),
            ("bash -c 'make all'", "bash -c make all"),
            ("rm -r target", "rm -r target"),
            ("make 2>&1 | tail -3", "make 2>&1 | tail -3"),
            ("/usr/bin/python3 x.py", "/usr/bin/python3 x.py"),
        ] {
            assert_eq!(asks(&rules.decide(command, true)), Some(prefix), "{command}");
            rules.remember(command);
            assert_eq!(rules.decide(command, true), Verdict::Allow, "{command}");
        }
        for allowed in ["cargo test --release", "cargo test && ls", "./check.sh", "cargo test -q | tail -5"] {
            assert_eq!(rules.decide(allowed, true), Verdict::Allow, "{allowed}");
        }
        for asked in [
            "cargo run",
            "cargo testify",
            "cargo test > /etc/passwd",
            "cargo test; rm -rf /",
            "cargo test $(rm x)",
            "bash -c 'rm x'",
            "rm -r src",
            "make 2>&1 | tail -4",
        ] {
            assert!(asks(&rules.decide(asked, true)).is_some(), "{asked}");
        }
    }

    #[test]
    fn readers_that_can_write_are_told_apart() {
        let rules = Rules::new(Policy::Untrusted, Mode::WorkspaceWrite);
        for allowed in ["find . -name x", "git diff HEAD", "sed -n 1,20p a.rs", "rg -n foo src", "sort a", "uniq -c a"]
        {
            assert_eq!(rules.decide(allowed, true), Verdict::Allow, "{allowed}");
        }
        for asked in [
            "find . -delete",
            "find . -exec rm x +",
            "git diff --output=x",
            "git -c core.pager=x log",
            "git commit -m x",
            "sed -n w/x a",
            "sed -i s/a/b/ x",
            "rg --pre sh x",
            "sort -o x a",
            "sort -ox a",
            "uniq a b",
            "lsx",
            "sudo ls",
        ] {
            assert!(asks(&rules.decide(asked, true)).is_some(), "{asked}");
        }
        assert!(asks(&rules.decide_outside("cat x", "it failed")).is_some());
    }
}
