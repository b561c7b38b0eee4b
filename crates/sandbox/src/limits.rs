//! What a command may take of the machine: processes, memory, disk.
//!
//! The kernel's own limits come first. Most of them count one process or do not hold for root, so the cell also looks
//! every so often at all that runs in it, and ends it. What is taken faster than that meets the kernel, which ends a
//! command before anything else when memory runs out.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, Rlimit};

use crate::Enforcement;
use crate::keeper::{Control, Report};
use crate::policy::Rules;

/// Processes and threads of one command.
const PROCESSES_MAX: u64 = 4096;
/// The same where the kernel counts all of a user's together.
const PROCESSES_OF_USER_MAX: u64 = 16_384;
/// Parts of a hundred of the machine's memory that a command may use.
const MEMORY_PERCENT_MAX: u64 = 80;
/// Bytes that must stay free on the disk of the workspace, unless there were fewer than twice that to begin with.
const DISK_FREE_BYTES_MIN: u64 = 1 << 30;
/// Bytes of one file.
const FILE_BYTES_MAX: u64 = 256 << 30;
/// How often the cell looks.
const EVERY: Duration = Duration::from_millis(200);
/// Bytes of a page of memory.
const PAGE_BYTES: u64 = 4096;

/// Sets the kernel's limits. To be called while there are still privileges.
pub(crate) fn set(rules: &Rules) -> Result<(), String> {
    let namespaces = rules.enforcement == Enforcement::Namespaces;
    let processes = if namespaces { PROCESSES_MAX } else { PROCESSES_OF_USER_MAX };
    for (resource, most) in [(Resource::Nproc, processes), (Resource::Fsize, FILE_BYTES_MAX), (Resource::Core, 0)] {
        let now = rustix::process::getrlimit(resource);
        let limit = Some(now.maximum.map_or(most, |maximum| maximum.min(most)));
        rustix::process::setrlimit(resource, Rlimit { current: limit, maximum: limit })
            .map_err(|error| format!("a limit cannot be set: {error}"))?;
    }
    // Of these both are refused somewhere: since Linux 6.14 every process namespace has its own number, which holds for
    // root too; and a container may keep its score.
    if namespaces {
        let _ = std::fs::write("/proc/sys/kernel/pid_max", PROCESSES_MAX.to_string());
    }
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

/// Looks at what a command takes.
pub(crate) struct Watch {
    /// Only a /proc of our own shows what is ours.
    counts_processes: bool,
    memory_bytes_max: u64,
    folder: Option<PathBuf>,
    disk_bytes_min: u64,
}

impl Watch {
    pub(crate) fn new(rules: &Rules) -> Self {
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let folder = rules.writable.first().cloned();
        let free = folder.as_deref().and_then(free_bytes).unwrap_or(0);
        Self {
            counts_processes: rules.enforcement == Enforcement::Namespaces
                && rustix::process::getpid().is_init()
                && is_own_proc(),
            memory_bytes_max: total.unwrap_or(u64::MAX >> 20).saturating_mul(1024) / 100 * MEMORY_PERCENT_MAX,
            folder,
            disk_bytes_min: DISK_FREE_BYTES_MIN.min(free / 2),
        }
    }

    /// Looks until something is too much; then says so and ends the cell, and with it everything in it.
    pub(crate) fn begin(self) {
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(EVERY);
                if let Some(what) = self.too_much() {
                    if let Ok(mut control) = Control::open() {
                        control.say(&Report::Limit { what });
                    }
                    std::process::exit(125);
                }
            }
        });
    }

    fn too_much(&self) -> Option<String> {
        if let Some(folder) = &self.folder
            && free_bytes(folder).is_some_and(|free| free < self.disk_bytes_min)
        {
            return Some(format!("the disk of {} is almost full", folder.display()));
        }
        if !self.counts_processes {
            return None;
        }
        let (processes, bytes) = used();
        if processes > PROCESSES_MAX {
            return Some(format!("it had more than {PROCESSES_MAX} processes"));
        }
        let megabytes = self.memory_bytes_max >> 20;
        (bytes > self.memory_bytes_max).then(|| format!("it used more than {megabytes} MiB of memory"))
    }
}

/// Processes there are, and the memory that is theirs alone.
fn used() -> (u64, u64) {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit));
    processes.fold((0, 0), |(count, bytes), process| {
        let text = std::fs::read_to_string(process.path().join("statm")).unwrap_or_default();
        let mut pages = text.split(' ').skip(1).map(|field| field.trim().parse::<u64>().unwrap_or(0));
        let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
        (count + 1, bytes + resident.saturating_sub(shared) * PAGE_BYTES)
    })
}

/// Whether /proc counts as we do: in it we are the first process.
fn is_own_proc() -> bool {
    std::fs::read_link("/proc/self").is_ok_and(|link| link == Path::new("1"))
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(folder).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}
