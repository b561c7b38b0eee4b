//! The `shell` tool: permission first, then a checkpoint, then the command in the sandbox.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sandbox::{CommandSpec, Mode, Policy};
use tokio::sync::watch;

use super::command::{self, Commands, Ran};
use super::{Interrupt, ToolResult, Tools};
use crate::approval::{self, Verdict};
use crate::{ApprovalAsk, Decision, Intent};

/// Seconds a command may take, unless the model says otherwise and at most.
const TIMEOUT_S: u64 = 120;
const TIMEOUT_S_MAX: u64 = 1800;

/// Which commands may run, and how.
pub struct ShellRules {
    commands: Commands,
    rules: Mutex<approval::Rules>,
    /// What the message that is worked on asks for.
    intent: Mutex<Intent>,
}

/// Said to a model that wants to change files for a message that asks for none.
const NOT_ASKED_FOR: &str = "the user's message does not ask for a change";

/// Whether files may be changed.
pub(super) enum EditRule {
    /// They may.
    Free,
    /// A person decides.
    Ask(String),
    /// They may not.
    Never(String),
}

impl ShellRules {
    /// Commands run by `commands` when `policy` allows it.
    pub fn new(commands: Commands, policy: approval::Policy) -> Self {
        let rules = approval::Rules::new(policy, commands.mode());
        Self { commands, rules: Mutex::new(rules), intent: Mutex::new(Intent::Change) }
    }

    /// What the message that is worked on asks for. Unless it is a change a person decides about every edit, and unless it is
    /// a change or a command, commands may not write the workspace.
    pub fn set_intent(&self, intent: Intent) {
        *self.intent.lock().unwrap_or_else(PoisonError::into_inner) = intent;
    }

    fn intent(&self) -> Intent {
        *self.intent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another policy from now on.
    pub fn set_policy(&self, policy: approval::Policy) {
        self.with(|rules| rules.set_policy(policy));
    }

    /// How commands are run.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// A workspace that may only be read is only changed by a person's word.
    pub(super) fn edits(&self) -> EditRule {
        let why = "sandbox_mode is read-only, so no file may be written".to_owned();
        match (self.commands.mode(), self.with(|rules| rules.policy())) {
            (Mode::ReadOnly, approval::Policy::Never) => EditRule::Never(why),
            (Mode::ReadOnly, _) => EditRule::Ask(why),
            (_, approval::Policy::Never) if self.intent() != Intent::Change => {
                EditRule::Never(NOT_ASKED_FOR.to_owned())
            }
            _ if self.intent() != Intent::Change => EditRule::Ask(NOT_ASKED_FOR.to_owned()),
            _ => EditRule::Free,
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut approval::Rules) -> T) -> T {
        work(&mut self.rules.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tools {
    pub(super) async fn shell(
        self: &Arc<Self>,
        number: u64,
        line: String,
        timeout_s: Option<u64>,
        interrupt: watch::Receiver<Interrupt>,
    ) -> ToolResult {
        let rules = &self.options.shell;
        let sandbox = rules.commands.sandbox().await;
        let answers = !matches!(rules.intent(), Intent::Change | Intent::Command);
        let mut policy = match answers {
            true => rules.commands.read_only(&self.options.root),
            false => rules.commands.policy(&self.options.root),
        };
        let held = sandbox.holds(&policy);
        let verdict = rules.with(|rules| rules.decide(&line, &self.options.root, held));
        let verdict = match verdict {
            Verdict::Allow if answers && !held => Verdict::Ask { why: NOT_ASKED_FOR.to_owned(), prefix: line.clone() },
            verdict => verdict,
        };
        if let Err(refused) = self.permitted(&line, verdict).await {
            return refused;
        }
        if !held {
            policy = Policy::unconfined();
        }
        let journal = Arc::clone(&self.options.journal);
        let before = match tokio::task::spawn_blocking(move || journal.command_begins()).await {
            Ok(Ok(before)) => before,
            Ok(Err(why)) => return ToolResult::of(Err(why)),
            Err(error) => return ToolResult::of(Err(format!("the tool failed: {error}; try another way"))),
        };
        let mut command = CommandSpec::shell(&line, &self.options.root);
        command.timeout = Some(Duration::from_secs(timeout_s.unwrap_or(TIMEOUT_S).clamp(1, TIMEOUT_S_MAX)));
        let shown = Some((&self.options.events, number));
        let mut ran = command::run(&sandbox, &command, &policy, interrupt.clone(), shown).await;
        if held && ran.as_ref().is_ok_and(looks_refused) {
            let why = "it failed in the sandbox; it may need to write elsewhere or to reach the network";
            let on_failure = rules.with(|rules| rules.policy()) == approval::Policy::OnFailure;
            let verdict = rules.with(|rules| rules.decide_outside(&line, why));
            if on_failure && self.permitted(&line, verdict).await.is_ok() {
                ran = command::run(&sandbox, &command, &Policy::unconfined(), interrupt, shown).await;
            }
        }
        let journal = Arc::clone(&self.options.journal);
        // Should this break, the command counts as one that was cut off, and undo asks.
        let _ = tokio::task::spawn_blocking(move || journal.command_ended(&before)).await;
        match ran {
            Ok(ran) => result(ran, command.timeout.unwrap_or_default()),
            Err(why) => ToolResult::of(Err(why)),
        }
    }

    /// Asks where a person must be asked. The error is the result of a command that may not run.
    async fn permitted(&self, line: &str, verdict: Verdict) -> Result<(), ToolResult> {
        let (why, prefix) = match verdict {
            Verdict::Allow => return Ok(()),
            Verdict::Deny { why } => return Err(ToolResult::of(Err(why))),
            Verdict::Ask { why, prefix } => (why, prefix),
        };
        let ask = ApprovalAsk::Command { command: line.to_owned(), prefix };
        match self.options.asks.ask(&self.options.events, ask, why).await {
            Decision::Yes => Ok(()),
            Decision::Always => {
                self.options.shell.with(|rules| rules.remember(line));
                Ok(())
            }
            decision @ (Decision::No | Decision::Stop) => {
                let refused = ToolResult::of(Err("the user did not allow this command; do it another way".to_owned()));
                Err(ToolResult { ends_turn: decision == Decision::Stop, ..refused })
            }
        }
    }
}

/// Whether a failure looks like the sandbox's doing.
fn looks_refused(ran: &Ran) -> bool {
    let signs =
        ["ermission denied", "ead-only file system", "peration not permitted", "etwork is unreachable", "resolve host"];
    ran.exit_code.is_some_and(|code| code != 0) && signs.iter().any(|sign| ran.output.contains(sign))
}

pub(crate) fn result(ran: Ran, timeout: Duration) -> ToolResult {
    let mut output = ran.output;
    if !output.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    for remark in &ran.remarks {
        output.push_str(&format!("[{remark}]\n"));
    }
    if ran.ended_early {
        output.push_str("[ended early: the user has something to say]\n");
    } else if ran.timed_out {
        output.push_str(&format!("[ended after {} s, which was its limit]\n", timeout.as_secs()));
    } else if let Some(code @ 1..) = ran.exit_code {
        output.push_str(&format!("[exit code {code}]\n"));
    } else if output.is_empty() {
        output.push_str("[done; nothing was printed]\n");
    }
    ToolResult { output, ok: ran.exit_code == Some(0), exit_code: ran.exit_code, ends_turn: false }
}
