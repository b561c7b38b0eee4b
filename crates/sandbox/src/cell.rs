//! The cell: the first process of the namespaces. It gives up every privilege, then starts the command and waits for it.
//! When it ends, the kernel ends whatever is left in the namespaces.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sched::CloneFlags;
use rustix::mount::MountFlags;
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::keeper::{Control, Report, read_rules, told};
use crate::policy::Rules;
use crate::{Enforcement, filter, landlock, limits, mounts};

/// Runs the cell: the keeper's process number, the rules as JSON, then the command.
pub(crate) fn run(arguments: Vec<OsString>) -> u8 {
    let Ok(mut control) = Control::open() else { return 125 };
    match hold(&arguments) {
        Ok(ended) => {
            control.say(&ended);
            0
        }
        Err(why) => {
            control.say(&Report::Failed { why });
            125
        }
    }
}

fn hold(arguments: &[OsString]) -> Result<Report, String> {
    let (keeper, arguments) = arguments.split_first().ok_or("the keeper is not named")?;
    let mut rules = read_rules(arguments)?;
    let rest = arguments.get(1..).unwrap_or_default();
    let rest = take_paths(rest, &mut rules.protected)?;
    let command = take_paths(rest, &mut rules.masked)?;
    if command.is_empty() {
        return Err("there is no command".to_owned());
    }
    die_with_keeper(keeper)?;
    // Without a terminal of its own the command cannot type into the user's.
    let _ = rustix::process::setsid();
    match rules.enforcement {
        Enforcement::None { .. } => {}
        Enforcement::Landlock => {
            limits::set(&rules)?;
            drop_capabilities()?;
            landlock::restrict(&rules)?;
            filter::apply(filter::Sockets::None)?;
        }
        Enforcement::Namespaces => {
            own_mounts(&rules)?;
            limits::set(&rules)?;
            drop_capabilities()?;
            landlock::restrict(&rules)?;
            filter::apply(filter::Sockets::Internet)?;
        }
    }
    let confined = !matches!(rules.enforcement, Enforcement::None { .. });
    start(command, confined.then(|| limits::Watch::new(&rules)))
}

/// A count and that many paths; what follows them.
fn take_paths<'a>(arguments: &'a [OsString], into: &mut Vec<PathBuf>) -> Result<&'a [OsString], String> {
    let (count, rest) = arguments.split_first().ok_or("the paths are missing")?;
    let count = count.to_str().and_then(|count| count.parse().ok()).ok_or("the paths are not counted")?;
    let (paths, rest) = rest.split_at_checked(count).ok_or("paths are missing")?;
    into.extend(paths.iter().map(PathBuf::from));
    Ok(rest)
}

/// File systems, network and /proc of our own.
fn own_mounts(rules: &Rules) -> Result<(), String> {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWIPC;
    if !rules.network {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    nix::sched::unshare(flags).map_err(|error| told("namespaces are not allowed", error))?;
    let folder = std::env::current_dir().map_err(|error| told("the current folder", error))?;
    mounts::arrange(rules)?;
    // The folder we stand in is still that of the old, now read-only mount; the same path leads to the new one.
    std::env::set_current_dir(folder).map_err(|error| told("the current folder", error))?;
    if !rules.network {
        mounts::loopback_up()?;
    }
    own_proc();
    Ok(())
}

/// The kernel kills us when the keeper dies. It may have died before we asked for that, which our parent's number shows:
/// the old /proc still counts by the keeper's numbers.
fn die_with_keeper(keeper: &OsStr) -> Result<(), String> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| told("prctl", error))?;
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| told("/proc/self/status", error))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim);
    if parent == keeper.to_str() { Ok(()) } else { Err("the keeper is gone".to_owned()) }
}

/// A /proc that shows only what lives here. A container may forbid it; then the old one stays, read-only, and Landlock
/// keeps us from the processes it shows.
fn own_proc() {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("proc", "/proc", "proc", flags, None);
}

fn drop_capabilities() -> Result<(), String> {
    let failed = |error: rustix::io::Errno| told("dropping capabilities", error);
    rustix::thread::clear_ambient_capability_set().map_err(failed)?;
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel knows no more, or we are nobody who could have any: then no program gives us one either.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    rustix::thread::set_capabilities(None, sets).map_err(failed)?;
    rustix::thread::set_no_new_privs(true).map_err(failed)
}

/// Starts the command and waits for it. Orphans that end meanwhile are reaped, since we are their parent now.
fn start(command: &[OsString], watch: Option<limits::Watch>) -> Result<Report, String> {
    let mut child = Command::new(&command[0]);
    // Its own process group, so that `kill 0` in a script ends the script and not us.
    child.args(&command[1..]).stdin(Stdio::null()).process_group(0);
    let child = match child.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            boundary::errln!("{}: {error}", command[0].display());
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            return Ok(Report::Ended { code: Some(code), signal: None });
        }
    };
    if let Some(watch) = watch {
        watch.begin();
    }
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == child => {
                let status = std::process::ExitStatus::from_raw(status.as_raw());
                return Ok(Report::Ended { code: status.code(), signal: status.signal() });
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(told("waiting for the command", error)),
        }
    }
}
