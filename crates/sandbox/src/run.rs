//! A running command: its output as it comes, bounded, its end, and the means to end it with all its children.
//!
//! Nothing is queued: the next piece is read when it is asked for, so a reader that waits makes the command wait.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdout};

use crate::keeper::Report;
use crate::policy::Rules;
use crate::{Enforcement, KEEPER, SandboxError};

/// Bytes of one piece of output.
const PIECE_BYTES: usize = 16 << 10;
/// What the helpers may say in all.
const REPORT_BYTES_MAX: usize = 64 << 10;
/// How long the keeper may take to end a command before it is killed itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long each try of `Sandbox::detect` may take.
const PROBE_PATIENCE: [Duration; 3] = [Duration::from_secs(5), Duration::from_secs(20), Duration::from_secs(60)];

/// What to run.
#[derive(Clone, Debug)]
pub enum Program {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments.
    Arguments(Vec<String>),
}

/// A command to run.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// What to run.
    pub program: Program,
    /// Where.
    pub cwd: PathBuf,
    /// Variables added to our own environment. Of that, a sandboxed command gets what is on a list.
    pub env: Vec<(String, String)>,
    /// How long it may take; then it is ended.
    pub timeout: Option<Duration>,
    /// Bytes of output that are given out; what comes after is read and counted.
    pub output_bytes_max: usize,
}

impl CommandSpec {
    /// A line for the shell, with the usual limits: 2 minutes and 1 MiB of output.
    pub fn shell(line: impl Into<String>, cwd: impl Into<PathBuf>) -> Self {
        Self::new(Program::Shell(line.into()), cwd.into())
    }

    /// A program and its arguments, with the same limits.
    pub fn arguments(arguments: Vec<String>, cwd: impl Into<PathBuf>) -> Self {
        Self::new(Program::Arguments(arguments), cwd.into())
    }

    fn new(program: Program, cwd: PathBuf) -> Self {
        let timeout = Some(Duration::from_secs(120));
        Self { program, cwd, env: Vec::new(), timeout, output_bytes_max: 1 << 20 }
    }

    fn words(&self) -> Vec<String> {
        match &self.program {
            Program::Arguments(words) => words.clone(),
            Program::Shell(line) => {
                let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
                vec![shell.to_owned(), "-c".to_owned(), line.clone()]
            }
        }
    }
}

/// Something the command printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// On its standard output.
    Stdout(Vec<u8>),
    /// On its standard error.
    Stderr(Vec<u8>),
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It took too long and was ended.
    pub timed_out: bool,
    /// It was ended by [`Running::kill`].
    pub killed: bool,
    /// Bytes it printed beyond the limit.
    pub bytes_left_out: usize,
    /// Things it made at protected names, and where they are now.
    pub moved: Vec<(PathBuf, PathBuf)>,
    /// Things it made at protected names that could not be moved, and why.
    pub stuck: Vec<(PathBuf, String)>,
    /// What it took too much of, for which it was ended.
    pub limit: Option<String>,
    /// How long it took, with the sandbox.
    pub took: Duration,
}

impl Ended {
    /// Whether it ended well.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// The exit code as a shell has it.
    pub fn shell_code(&self) -> i32 {
        self.code.unwrap_or_else(|| 128 + self.signal.unwrap_or(9))
    }
}

/// A command that runs. Dropping it ends the command and all its children.
pub struct Running {
    keeper: Child,
    control: Option<UnixStream>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    reports: Vec<u8>,
    started: Instant,
    deadline: Option<tokio::time::Instant>,
    bytes_left: usize,
    ended: Ended,
}

impl Running {
    pub(crate) fn start(
        helper: &Path,
        command: &CommandSpec,
        rules: &Rules,
        also: &[String],
    ) -> Result<Self, SandboxError> {
        let failed = |source| SandboxError::Helper { source };
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let mut keeper = tokio::process::Command::from(helper_command(helper, command, rules, also)?);
        keeper.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut keeper = keeper.spawn().map_err(failed)?;
        Ok(Self {
            control: Some(UnixStream::from_std(ours).map_err(failed)?),
            stdout: keeper.stdout.take(),
            stderr: keeper.stderr.take(),
            keeper,
            reports: Vec::new(),
            started,
            deadline: command.timeout.map(|timeout| tokio::time::Instant::now() + timeout),
            bytes_left: command.output_bytes_max,
            ended: Ended::default(),
        })
    }

    /// The next piece of output; none when there is no more. May be dropped, as in a `select!`, without losing any.
    pub async fn next(&mut self) -> Option<Output> {
        loop {
            if self.stdout.is_none() && self.stderr.is_none() {
                return None;
            }
            let (mut out, mut err) = (Vec::with_capacity(PIECE_BYTES), Vec::with_capacity(PIECE_BYTES));
            let piece = tokio::select! {
                biased;
                () = at(self.deadline) => {
                    self.ended.timed_out = true;
                    self.let_go();
                    None
                }
                read = read(&mut self.stdout, &mut out) => read.then_some(Output::Stdout(out)),
                read = read(&mut self.stderr, &mut err) => read.then_some(Output::Stderr(err)),
            };
            if let Some(piece) = piece.and_then(|piece| self.within_limit(piece)) {
                return Some(piece);
            }
        }
    }

    fn within_limit(&mut self, mut piece: Output) -> Option<Output> {
        let (Output::Stdout(bytes) | Output::Stderr(bytes)) = &mut piece;
        let kept = bytes.len().min(self.bytes_left);
        self.ended.bytes_left_out += bytes.len() - kept;
        self.bytes_left -= kept;
        bytes.truncate(kept);
        (kept > 0).then_some(piece)
    }

    /// Ends the command and all its children. Its output so far can still be read.
    pub fn kill(&mut self) {
        self.ended.killed = true;
        self.let_go();
    }

    /// Closing our end of the socket makes the keeper end everything.
    fn let_go(&mut self) {
        self.deadline = None;
        if let Some(control) = self.control.take() {
            let mut waiting = [0; 4096];
            while let Ok(count @ 1..) = control.try_read(&mut waiting) {
                self.reports.extend_from_slice(&waiting[..count]);
            }
        }
    }

    /// Waits for the end, throwing unread output away.
    pub async fn wait(mut self) -> Result<Ended, SandboxError> {
        while self.next().await.is_some() {}
        self.end().await
    }

    /// Waits for the end and collects the output: standard output and error in the order they were read.
    pub async fn collect(mut self) -> Result<(Vec<u8>, Ended), SandboxError> {
        let mut all = Vec::new();
        while let Some(Output::Stdout(bytes) | Output::Stderr(bytes)) = self.next().await {
            all.extend(bytes);
        }
        Ok((all, self.end().await?))
    }

    /// How it ended, once [`Running::next`] has returned none.
    pub async fn end(mut self) -> Result<Ended, SandboxError> {
        if let Some(control) = &mut self.control {
            let mut limited = control.take(REPORT_BYTES_MAX as u64);
            let mut reports = std::mem::take(&mut self.reports);
            let read = limited.read_to_end(&mut reports);
            match self.deadline {
                Some(deadline) => self.ended.timed_out |= tokio::time::timeout_at(deadline, read).await.is_err(),
                None => drop(read.await),
            }
            self.reports = reports;
        }
        self.let_go();
        if tokio::time::timeout(PATIENCE, self.keeper.wait()).await.is_err() {
            let _ = self.keeper.kill().await;
        }
        let mut ended = std::mem::take(&mut self.ended);
        ended.took = self.started.elapsed();
        let mut heard = ended.killed || ended.timed_out;
        for report in read_reports(&self.reports) {
            match report {
                Report::Failed { why } if !heard => return Err(SandboxError::Setup { why }),
                Report::Failed { .. } => {}
                Report::Ended { code, signal } => {
                    (ended.code, ended.signal) = (code, signal);
                    heard = true;
                }
                Report::Moved { from, to } => ended.moved.push((from, to)),
                Report::Stuck { path, why } => ended.stuck.push((path, why)),
                Report::Limit { what } => {
                    ended.limit = Some(what);
                    heard = true;
                }
            }
        }
        if heard { Ok(ended) } else { Err(SandboxError::Setup { why: "the helper process ended early".to_owned() }) }
    }
}

fn read_reports(text: &[u8]) -> impl Iterator<Item = Report> {
    text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

async fn at(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Whether something was read. A stream that ended is closed and never ready again.
async fn read<R: tokio::io::AsyncRead + Unpin>(stream: &mut Option<R>, into: &mut Vec<u8>) -> bool {
    let Some(open) = stream else { return std::future::pending().await };
    let read = open.read_buf(into).await;
    if !matches!(read, Ok(1..)) {
        *stream = None;
    }
    matches!(read, Ok(1..))
}

fn helper_command(
    helper: &Path,
    command: &CommandSpec,
    rules: &Rules,
    also: &[String],
) -> Result<std::process::Command, SandboxError> {
    let json = serde_json::to_string(rules)
        .map_err(|error| SandboxError::Setup { why: format!("a path is not valid text: {error}") })?;
    let mut keeper = std::process::Command::new(helper);
    keeper.arg(KEEPER).arg(json).args(command.words()).current_dir(&command.cwd);
    // What a command prints goes to the model, wherever that is: keys should not be among it.
    if !matches!(rules.enforcement, Enforcement::None { .. }) {
        let also: Vec<&str> = also.iter().map(String::as_str).collect();
        keeper.env_clear().envs(boundary::program::environment(&also));
        keeper.envs(rules.temporary_seen().map(|folder| ("TMPDIR", folder)));
    }
    keeper.envs(command.env.iter().map(|(name, value)| (name, value)));
    Ok(keeper)
}

/// What came of a try of the sandbox.
#[derive(Debug)]
pub(crate) enum Probe {
    /// It holds.
    Holds,
    /// It does not, and never will here.
    Fails(String),
    /// It took too long to know.
    TooSlow,
}

/// Runs `true` under a policy that forbids everything. A machine that is busy is given more time twice before it counts as
/// too slow, and too slow is never taken for an answer.
pub(crate) fn probe(helper: &Path, enforcement: &Enforcement) -> Probe {
    for patience in PROBE_PATIENCE {
        match probe_once(helper, enforcement, patience) {
            Ok(Some(())) => return Probe::Holds,
            Ok(None) => {}
            Err(why) => return Probe::Fails(why),
        }
    }
    Probe::TooSlow
}

/// None when it took longer than `patience`.
fn probe_once(helper: &Path, enforcement: &Enforcement, patience: Duration) -> Result<Option<()>, String> {
    let rules = Rules {
        enforcement: enforcement.clone(),
        writable: Vec::new(),
        protected: Vec::new(),
        masked: Vec::new(),
        temporary: None,
        network: false,
    };
    let io = |error: std::io::Error| error.to_string();
    let command = CommandSpec::arguments(vec!["true".to_owned()], "/");
    let (mut ours, theirs) = StdUnixStream::pair().map_err(io)?;
    let mut keeper = helper_command(helper, &command, &rules, &[]).map_err(|error| error.to_string())?;
    keeper.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = keeper.spawn().map_err(io)?;
    drop(keeper);
    let deadline = Instant::now() + patience;
    let (mut reports, mut piece) = (Vec::new(), [0; 4096]);
    let in_time = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || reports.len() > REPORT_BYTES_MAX {
            break false;
        }
        ours.set_read_timeout(Some(left)).map_err(io)?;
        match ours.read(&mut piece) {
            Ok(0) => break true,
            Ok(count) => reports.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break false,
            Err(error) => return Err(io(error)),
        }
    };
    if !in_time {
        let _ = child.kill();
    }
    let _ = child.wait();
    match read_reports(&reports).next() {
        Some(Report::Ended { code: Some(0), .. }) => Ok(Some(())),
        Some(Report::Failed { why }) => Err(why),
        _ if !in_time => Ok(None),
        other => Err(format!("the helper process did not do its work ({other:?})")),
    }
}
