//! The confined process itself: limits first, then one job after the other until nobody asks any more.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::{Job, Purpose, Reply, read, step_back, write};
use crate::chat::Program;
use crate::grammar;

/// Stack of the thread that works. What needs more ends the process.
const STACK_BYTES: usize = 64 << 20;
/// What takes more processor time than this is not an ordinary job, and yields to everything else on the machine. By the
/// clock on the wall an honest job would yield on a machine that is busy.
const ORDINARY_MS: u64 = 5;
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Works until the pipe ends. The exit code is of no interest to anyone.
pub(super) fn run(purpose: Purpose) -> u8 {
    limit(Resource::Core, 0);
    limit(Resource::As, purpose.address_bytes());
    // Where memory runs out all the same, this process is the one to go.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let mut program = None;
    while let Ok(Some(bytes)) = read(&mut from) {
        // The limit counts all that the process has used so far.
        limit(Resource::Cpu, cpu_ms() / 1000 + 1 + purpose.cpu_seconds());
        let Ok(job) = serde_json::from_slice(&bytes) else { return 1 };
        drop(bytes);
        let Some(reply) = work(job, &mut program) else { return 1 };
        let Ok(reply) = serde_json::to_vec(&reply) else { return 1 };
        if write(&mut to, &reply).is_err() {
            break;
        }
    }
    0
}

/// Lowers a limit of this process; the hard one stays, so that processor time can be granted anew.
fn limit(resource: Resource, most: u64) {
    let maximum = getrlimit(resource).maximum;
    let current = Some(maximum.map_or(most, |maximum| maximum.min(most)));
    let _ = setrlimit(resource, Rlimit { current, maximum });
}

/// Does a job on a thread with a stack of known size; none where the thread broke down. Each has a thread of its own,
/// because the priority that a slow one loses cannot be had back.
fn work(job: Job, program: &mut Option<Program>) -> Option<Reply> {
    thread::scope(|scope| {
        let (done, finished) = mpsc::sync_channel(1);
        let (begin, begun) = mpsc::sync_channel(1);
        let before = cpu_ms();
        let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, move || {
            let _ = begin.send(rustix::thread::gettid());
            let reply = answer(job, program);
            let _ = done.send(());
            reply
        });
        let worker = worker.ok()?;
        while let Err(mpsc::RecvTimeoutError::Timeout) = finished.recv_timeout(LOOK) {
            if cpu_ms() - before > ORDINARY_MS
                && let Ok(thread) = begun.try_recv()
            {
                step_back(thread);
                break;
            }
        }
        worker.join().ok()
    })
}

fn answer(job: Job, program: &mut Option<Program>) -> Reply {
    match job {
        Job::Template { text, bos, eos } => match Program::new(&text, bos, eos) {
            Ok(compiled) => {
                *program = Some(compiled);
                Reply::Ready
            }
            Err(error) => error.into(),
        },
        Job::Render(conversation) => match program {
            Some(program) => program.render(&conversation).map_or_else(Reply::from, Reply::Text),
            None => Reply::Syntax("there is no template".to_string()),
        },
        Job::Grammar(source) => {
            let (before, begun) = (resident_bytes(), cpu_ms());
            match grammar::tried(&source) {
                // The grammar is still there while its size is taken.
                Ok(compiled) => {
                    let bytes = resident_bytes().saturating_sub(before);
                    drop(compiled);
                    Reply::Compiled { bytes, cpu_ms: cpu_ms() - begun }
                }
                Err(error) => Reply::Grammar(error),
            }
        }
    }
}

/// Processor time of this process so far.
fn cpu_ms() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Memory that this process has, in bytes; 0 where the system does not say.
fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size()
}
