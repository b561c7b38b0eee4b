//! Running commands in the sandbox, for the shell tool and for checks: one place that knows how.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sandbox::{CommandSpec, Mode, Output, Policy, Sandbox, WorkspaceWrite};
use tokio::sync::{mpsc, watch};

use super::Interrupt;
use crate::Event;

/// Bytes of output that are kept; a command may print more, which is counted.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Bytes of output shown while a command runs; the end of the result has the rest.
const SHOWN_BYTES_MAX: usize = 256 << 10;

/// How commands are run. Cheap to clone.
#[derive(Clone)]
pub struct Commands {
    mode: Mode,
    detail: WorkspaceWrite,
    /// Paths that must not be written wherever they are, such as the configuration.
    protect: Vec<PathBuf>,
    /// Found out when the first command runs, because it takes two processes to find out.
    sandbox: Arc<OnceLock<Sandbox>>,
}

/// What came of a command.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// Its exit code; none when it was killed.
    pub exit_code: Option<i32>,
    /// What it printed, both streams in the order they came.
    pub output: String,
    /// It took too long.
    pub timed_out: bool,
    /// The person wanted it to end.
    pub ended_early: bool,
    /// Remarks of the sandbox, such as a file that was moved out of a protected place.
    pub remarks: Vec<String>,
}

impl Commands {
    /// Commands under `mode`; what `protect` names is never written.
    pub fn new(mode: Mode, detail: WorkspaceWrite, protect: Vec<PathBuf>) -> Self {
        Self { mode, detail, protect, sandbox: Arc::default() }
    }

    /// With a sandbox that is known already.
    pub fn with_sandbox(self, sandbox: Sandbox) -> Self {
        Self { sandbox: Arc::new(OnceLock::from(sandbox)), ..self }
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The sandbox of this machine.
    pub async fn sandbox(&self) -> Sandbox {
        if let Some(sandbox) = self.sandbox.get() {
            return sandbox.clone();
        }
        let detected = tokio::task::spawn_blocking(Sandbox::detect).await;
        // Detecting cannot panic; should it anyhow, doing it here says so.
        let detected = detected.unwrap_or_else(|_| Sandbox::detect());
        // A machine that was too busy to say is asked again by the next command.
        if detected.is_undecided() {
            return detected;
        }
        self.sandbox.get_or_init(|| detected).clone()
    }

    /// What a command in `workspace` may touch.
    pub fn policy(&self, workspace: &Path) -> Policy {
        Policy::new(self.mode, &self.detail, workspace, &self.protect)
    }

    /// The same for a command that may write nothing of it.
    pub fn read_only(&self, workspace: &Path) -> Policy {
        let detail = WorkspaceWrite { writable_roots: Vec::new(), ..self.detail.clone() };
        Policy::new(Mode::ReadOnly, &detail, workspace, &self.protect)
    }

    /// Runs a line to its end in `folder`, with `writable` as the only folders it may write, whatever the mode says about
    /// the workspace. For checks, whose code a model wrote and nobody has read.
    pub async fn run_in(
        &self,
        writable: &[&Path],
        folder: &Path,
        line: &str,
        variables: &[(&str, &str)],
        timeout: Duration,
    ) -> Result<Ran, String> {
        let sandbox = self.sandbox().await;
        let policy = match self.mode {
            Mode::DangerFullAccess => Policy::unconfined(),
            _ => {
                let roots = writable.iter().map(|path| path.to_path_buf()).collect();
                let detail = WorkspaceWrite { writable_roots: roots, network_access: false, ..self.detail.clone() };
                Policy::new(Mode::WorkspaceWrite, &detail, folder, &self.protect)
            }
        };
        let mut command = CommandSpec::shell(line, folder);
        command.env = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        command.timeout = Some(timeout);
        let (_never, interrupt) = watch::channel(Interrupt::None);
        run(&sandbox, &command, &policy, interrupt, None).await
    }
}

/// Where output is shown as it comes: the events, and the number of the call.
pub type Shown<'a> = Option<(&'a mpsc::Sender<Event>, u64)>;

/// Runs a command to its end, or until the person wants it to end.
pub async fn run(
    sandbox: &Sandbox,
    command: &CommandSpec,
    policy: &Policy,
    mut interrupt: watch::Receiver<Interrupt>,
    shown: Shown<'_>,
) -> Result<Ran, String> {
    let mut command = command.clone();
    command.output_bytes_max = OUTPUT_BYTES_MAX;
    let mut running = sandbox.spawn(&command, policy).map_err(|error| error.to_string())?;
    let held = sandbox.holds(policy);
    let (mut ran, mut text) = (Ran::default(), Text::default());
    loop {
        tokio::select! {
            biased;
            () = ends(&mut interrupt, held), if !ran.ended_early => {
                ran.ended_early = true;
                running.kill();
            }
            piece = running.next() => match piece {
                Some(Output::Stdout(bytes) | Output::Stderr(bytes)) => {
                    let delta = text.push(&bytes);
                    ran.output.push_str(&delta);
                    if let Some((events, call)) = shown.filter(|_| ran.output.len() < SHOWN_BYTES_MAX) {
                        let _ = events.send(Event::ToolOutput { call, delta }).await;
                    }
                }
                None => break,
            },
        }
    }
    ran.output.push_str(&text.rest());
    let ended = running.end().await.map_err(|error| error.to_string())?;
    ran.exit_code = (!ended.timed_out && !ran.ended_early).then(|| ended.shell_code());
    ran.timed_out = ended.timed_out;
    if ended.bytes_left_out > 0 {
        ran.remarks.push(format!("{} more bytes were printed and left out", ended.bytes_left_out));
    }
    for (from, to) in ended.moved {
        ran.remarks.push(format!("{} is protected; what was made there is now {}", from.display(), to.display()));
    }
    for (path, why) in ended.stuck {
        let path = path.display();
        ran.remarks
            .push(format!("WARNING: {path} was made by the command and cannot be moved ({why}); remove it by hand"));
    }
    if let Some(what) = ended.limit {
        ran.remarks.push(format!("ended: {what}"));
    }
    Ok(ran)
}

/// Waits until the command should end. A steer ends only what the sandbox holds: there a checkpoint was taken and history
/// is protected, so half a command does no harm that cannot be undone. A stop ends everything.
async fn ends(interrupt: &mut watch::Receiver<Interrupt>, held: bool) {
    let wanted = |now: &Interrupt| *now == Interrupt::Stopped || (held && *now == Interrupt::Steered);
    if interrupt.wait_for(wanted).await.is_err() {
        // Nobody is left who could want it.
        std::future::pending::<()>().await;
    }
}

/// Bytes that become text, whatever a piece cuts in half.
#[derive(Default)]
struct Text {
    held: Vec<u8>,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.held) {
            Ok(_) => self.held.len(),
            // An unfinished character at the end waits for its rest; what is wrong stays wrong.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.held.len(),
        };
        let rest = self.held.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.held, rest)).into_owned()
    }

    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_however_it_is_cut() {
        let bytes = "aé\u{1f980}z".as_bytes();
        for cut in 0..=bytes.len() {
            let mut text = Text::default();
            let joined = text.push(&bytes[..cut]) + &text.push(&bytes[cut..]) + &text.rest();
            assert_eq!(joined, "aé\u{1f980}z", "cut at {cut}");
        }
        let mut text = Text::default();
        assert_eq!(text.push(b"a\xff\xc3"), "a\u{fffd}\u{fffd}");
        assert_eq!(text.rest(), "");
    }
}
