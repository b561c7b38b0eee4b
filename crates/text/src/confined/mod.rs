//! A process of its own for programs of strangers: chat templates, and the trial of a grammar.
//!
//! A template comes with a model file and is run by an interpreter that knows no limit on memory or on the depth of what
//! it reads; a grammar comes with a request and is compiled by a library that cannot be interrupted. Nothing inside a
//! process can bound either for certain. So this program starts itself again ([`enter`]), with limits that the system
//! enforces on memory and processor time, and talks to it over pipes. Whatever goes wrong there ends that process and
//! becomes an error here.
//!
//! Libraries without such a program, as in unit tests, do the same work in their own process.

mod inside;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::grammar::GrammarSource;

/// The first argument that makes this program a confined one. The second says for what.
const ARGUMENT: &str = "--flint-confined";

/// Largest message in either direction, in bytes. A request's body is smaller, and no prompt is longer.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Who may wait for one confined process. It works for one at a time; more would hold threads that others need.
const WAITING_MAX: usize = 16;
/// How often a waiting caller looks whether its client is still there.
const LOOK: Duration = Duration::from_millis(20);
/// Wall-clock limit on one answer. Processor time ends what computes long before; this is for a machine that has none
/// to give.
const WALL_SECONDS: u64 = 60;

/// The priority of work that yields to all other.
const BACK_NICE: i32 = 15;

/// This program, where it can be started again.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// To be called first in `main`, with its arguments. Where the program was started as a confined one it does that work
/// and gives the exit code; otherwise it remembers how to start it.
pub fn enter(arguments: impl Iterator<Item = OsString>) -> Option<u8> {
    let mut arguments = arguments.skip(1);
    if arguments.next().is_some_and(|first| first == ARGUMENT) {
        let purpose = arguments.next().and_then(|word| Purpose::named(word.to_str()?))?;
        return Some(inside::run(purpose));
    }
    // The link leads to this very program even after an update has replaced the file.
    let link = PathBuf::from("/proc/self/exe");
    let program = if link.exists() { Some(link) } else { std::env::current_exe().ok() };
    if let Some(program) = program {
        let _ = PROGRAM.set(program);
    }
    None
}

/// What a confined process is for, which decides its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Renders with one template.
    Template,
    /// Tries to compile grammars.
    Grammar,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Purpose::Template => "template",
            Purpose::Grammar => "grammar",
        }
    }

    fn named(name: &str) -> Option<Purpose> {
        [Purpose::Template, Purpose::Grammar].into_iter().find(|purpose| purpose.name() == name)
    }

    /// Address space of the process, in bytes: everything it can ever hold, with about 100 MB for the program itself and
    /// its stacks.
    fn address_bytes(self) -> u64 {
        match self {
            Purpose::Template => 768 << 20,
            Purpose::Grammar => 512 << 20,
        }
    }

    /// Processor time for one job, in seconds. The system counts whole seconds, so it may be one more.
    fn cpu_seconds(self) -> u64 {
        match self {
            Purpose::Template => 4,
            Purpose::Grammar => 1,
        }
    }
}

/// What a confined process is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Job {
    /// Compile this template, for the renderings that follow.
    Template { text: String, bos: String, eos: String },
    /// Render a conversation.
    Render(Conversation),
    /// Compile a grammar and forget it.
    Grammar(GrammarSource),
}

/// A conversation as templates see it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Conversation {
    pub messages: Value,
    pub tools: Value,
    pub add_generation_prompt: bool,
    pub unix_seconds: Option<u64>,
    pub variables: Value,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The template compiled.
    Ready,
    /// The rendered text.
    Text(String),
    /// The grammar compiled, in this much memory and processor time.
    Compiled { bytes: usize, cpu_ms: u64 },
    /// The template does not parse.
    Syntax(String),
    /// The template fails on this conversation.
    Fails(String),
    /// The template refuses this conversation in its own words.
    Refused(String),
    /// The grammar does not compile.
    Grammar(crate::grammar::GrammarError),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfinedError {
    /// It used up its processor time.
    #[error("took more than {0} s")]
    Time(u64),
    /// It used up its memory or stack, or the interpreter broke down.
    #[error("needed more memory or nesting than there may be")]
    Memory,
    /// The answer, or the question, is too long.
    #[error("has more than {MESSAGE_BYTES_MAX} bytes")]
    Size,
    /// Too many wait for the same process.
    #[error("is busy with {WAITING_MAX} other requests; try again in a moment")]
    Busy,
    /// Nobody waits for the answer any more.
    #[error("was given up: its client left")]
    Left,
    /// The process could not be started or talked to.
    #[error("could not be given a process of its own: {0}")]
    Start(String),
}

/// Whether somebody still waits for a piece of work. Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Wanted(Arc<AtomicBool>);

impl Wanted {
    /// Nobody waits any more: what is under way ends soon.
    pub fn leave(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody does.
    pub fn still(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// A confined process that is started when needed, kept, and started anew after it broke down.
#[derive(Debug)]
pub(crate) struct Confined {
    purpose: Purpose,
    /// What every new process is told first.
    opening: Option<Vec<u8>>,
    process: Mutex<Option<Process>>,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
}

impl Confined {
    /// None where this program cannot be started again.
    pub fn new(purpose: Purpose, opening: Option<&Job>) -> Option<Confined> {
        PROGRAM.get()?;
        let opening = opening.map(serde_json::to_vec).transpose().ok()?;
        Some(Confined { purpose, opening, process: Mutex::default(), waiting: AtomicUsize::new(0) })
    }

    /// Gives the process its opening, so that what is wrong with it shows at once.
    pub fn open(&self) -> Result<Reply, ConfinedError> {
        self.attempt(None, &Wanted::default())
    }

    /// Asks for one piece of work.
    pub fn ask(&self, job: &Job, wanted: &Wanted) -> Result<Reply, ConfinedError> {
        let job = serde_json::to_vec(job).map_err(|error| ConfinedError::Start(error.to_string()))?;
        self.attempt(Some(&job), wanted)
    }

    fn attempt(&self, job: Option<&[u8]>, wanted: &Wanted) -> Result<Reply, ConfinedError> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(ConfinedError::Busy);
        }
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.with(&mut process, job, wanted);
        if done.is_err() {
            process.take();
        }
        drop(process);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        done
    }

    fn with(&self, process: &mut Option<Process>, job: Option<&[u8]>, wanted: &Wanted) -> Result<Reply, ConfinedError> {
        if !wanted.still() {
            return Err(ConfinedError::Left);
        }
        // One that ended while nobody asked, by the system's hand, is replaced without a word.
        if process.as_mut().is_some_and(|process| !matches!(process.child.try_wait(), Ok(None))) {
            process.take();
        }
        let mut opened = None;
        if process.is_none() {
            let mut new = Process::start(self.purpose)?;
            if let Some(opening) = &self.opening {
                opened = Some(new.exchange(opening, self.purpose, wanted)?);
            }
            *process = Some(new);
        }
        match (process, opened, job) {
            // A template that does not compile renders nothing.
            (_, Some(wrong), _) if !matches!(wrong, Reply::Ready) => Ok(wrong),
            (Some(process), _, Some(job)) => process.exchange(job, self.purpose, wanted),
            _ => Ok(Reply::Ready),
        }
    }
}

impl Process {
    fn start(purpose: Purpose) -> Result<Process, ConfinedError> {
        let failed = |error: io::Error| ConfinedError::Start(error.to_string());
        let program = PROGRAM.get().ok_or_else(|| ConfinedError::Start("this program is not known".to_string()))?;
        #[allow(clippy::disallowed_methods, reason = "this very program, with nothing in its environment")]
        let mut command = Command::new(program);
        command.args([ARGUMENT, purpose.name()]).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(stdin), Some(stdout)) => Ok(Process { child, stdin, stdout }),
            _ => Err(ConfinedError::Start("it has no pipes".to_string())),
        }
    }

    fn exchange(&mut self, job: &[u8], purpose: Purpose, wanted: &Wanted) -> Result<Reply, ConfinedError> {
        if job.len() > MESSAGE_BYTES_MAX {
            return Err(ConfinedError::Size);
        }
        // The process reads all of a job before it begins with it, so writing never waits for its work.
        if write(&mut self.stdin, job).is_err() {
            return Err(self.ended(purpose));
        }
        let until = Instant::now() + Duration::from_secs(WALL_SECONDS);
        while !self.readable() {
            if !wanted.still() {
                return Err(ConfinedError::Left);
            }
            if Instant::now() > until {
                return Err(ConfinedError::Time(WALL_SECONDS));
            }
        }
        match read(&mut self.stdout) {
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|error| ConfinedError::Start(error.to_string())),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(ConfinedError::Size),
            Ok(None) | Err(_) => Err(self.ended(purpose)),
        }
    }

    /// Whether there is something to read, or the end, within a moment.
    fn readable(&self) -> bool {
        let mut look = [PollFd::new(&self.stdout, PollFlags::IN)];
        let moment = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
        !matches!(poll(&mut look, Some(&moment)), Ok(0) | Err(rustix::io::Errno::INTR))
    }

    /// Why the process is gone.
    fn ended(&mut self, purpose: Purpose) -> ConfinedError {
        let _ = self.child.kill();
        let cpu = rustix::process::Signal::XCPU.as_raw();
        match self.child.wait().ok().as_ref().and_then(ExitStatus::signal) {
            Some(signal) if signal == cpu => ConfinedError::Time(purpose.cpu_seconds()),
            _ => ConfinedError::Memory,
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes a thread yield to all other work.
pub(crate) fn step_back(thread: Pid) {
    // On Linux a thread has a priority of its own.
    let _ = kernels::background::step_back(thread.as_raw_nonzero().get(), BACK_NICE);
}

/// Writes a message: its length in four bytes, then its bytes.
fn write(to: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(bytes)?;
    to.flush()
}

/// Reads a message; `None` at the end.
fn read(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::new();
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length { Ok(None) } else { Ok(Some(bytes)) }
}
