//! The command that must succeed after the edits, run before them and after them.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use agent::Failing;
use agent::failing::talkative_python;
use agent::sandbox::{CommandSpec, Ended, Mode, Output, Policy, Sandbox};
use anyhow::bail;

/// How long a check may take; a build and its tests take less.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// How long it may take before the edits, when it only has to say what is wrong.
const BEFORE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of what it says that are kept for the model, which is shown far less.
const SAID_BYTES_MAX: usize = 1 << 20;

/// The command.
pub struct Check {
    pub command: String,
    /// It was typed, not configured.
    typed: bool,
    root: PathBuf,
    policy: Policy,
    /// Where the partner keeps its own.
    state: PathBuf,
}

/// How it went after the edits.
pub enum After {
    Passed,
    /// With what it said, where it said anything.
    Failed(Option<Failing>),
    Interrupted,
}

impl Check {
    /// The one that was typed, or the configuration's.
    pub fn new(typed: Option<&str>, options: &agent::PartnerOptions) -> Option<Self> {
        let command = typed.map(str::to_owned).or_else(|| options.config.config.check.clone())?;
        let root = options.root.clone();
        let mut policy = options.config.sandbox_policy(&root);
        if typed.is_none() && policy.mode == Mode::DangerFullAccess && options.config.is_projects("check") {
            // Full access is for what its user says. What a project says stays in the sandbox.
            let detail = &options.config.config.sandbox_workspace_write;
            policy = Policy::new(Mode::WorkspaceWrite, detail, &root, &options.config.protected);
        }
        Some(Self { command, typed: typed.is_some(), root, policy, state: options.state.clone() })
    }

    /// What it says before the edits, for the model; none when it succeeds or takes too long.
    pub async fn failing(&self) -> anyhow::Result<Option<Failing>> {
        let mut said = Vec::new();
        let python = talkative_python(&self.state.join("tries").join("python"))?;
        let ended = self.run(BEFORE_TIMEOUT, Some(python), |bytes| {
            keep(&mut said, bytes);
            Ok(())
        });
        let ended = ended.await?;
        Ok(self.said(&said).filter(|_| !ended.ok() && !ended.timed_out))
    }

    /// Whether it succeeds now. The person sees what it says, and can end it.
    pub async fn after(&self) -> anyhow::Result<After> {
        let mut said = Vec::new();
        let mut stderr = boundary::print::stderr();
        let ran = self.run(TIMEOUT, None, |bytes| {
            keep(&mut said, bytes);
            stderr.write_all(bytes)
        });
        let ended = tokio::select! {
            ended = ran => ended?,
            Ok(()) = tokio::signal::ctrl_c() => return Ok(After::Interrupted),
        };
        if ended.ok() {
            return Ok(After::Passed);
        }
        Ok(After::Failed(self.said(&said)))
    }

    fn said(&self, said: &[u8]) -> Option<Failing> {
        let said = String::from_utf8_lossy(said);
        (!said.trim().is_empty()).then(|| Failing::new(&self.command, &said, &self.root))
    }

    /// Runs it in the sandbox. Where there is none, only a command that was typed is run without.
    async fn run(
        &self,
        timeout: Duration,
        variable: Option<(String, String)>,
        mut heard: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<Ended> {
        let sandbox = Sandbox::detect();
        let unconfined = Policy::unconfined();
        let command = &self.command;
        let policy = match sandbox.holds(&self.policy) || self.policy.mode == Mode::DangerFullAccess {
            true => &self.policy,
            false if self.typed => &unconfined,
            false => bail!("`{command}` comes from the configuration and no sandbox holds it here; give it by --check"),
        };
        let mut spec = CommandSpec::shell(command, &self.root);
        spec.timeout = Some(timeout);
        // Python takes a file for unchanged that has the same size and was written in the same second, which an answer and
        // its repair can be.
        spec.env.push(("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()));
        spec.env.extend(variable);
        let mut running = sandbox.spawn(&spec, policy)?;
        while let Some(output) = running.next().await {
            let (Output::Stdout(bytes) | Output::Stderr(bytes)) = output;
            heard(&bytes)?;
        }
        Ok(running.end().await?)
    }
}

fn keep(said: &mut Vec<u8>, bytes: &[u8]) {
    said.extend_from_slice(&bytes[..bytes.len().min(SAID_BYTES_MAX.saturating_sub(said.len()))]);
}
