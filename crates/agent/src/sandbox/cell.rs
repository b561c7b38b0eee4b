//! The cell: the first process of the namespaces. It gives up every privilege, then starts the command and waits for it.
//! When it ends, the kernel ends whatever is left in the namespaces.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use rustix::mount::MountFlags;
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::keeper::{Control, Report, read_rules, told};
use super::{Enforcement, filter, landlock};

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
    let rules = read_rules(arguments)?;
    let command = arguments.get(1..).filter(|command| !command.is_empty()).ok_or("there is no command")?;
    die_with_keeper(keeper)?;
    // Without a terminal of its own the command cannot type into the user's.
    let _ = rustix::process::setsid();
    match rules.enforcement {
        Enforcement::None { .. } => {}
        Enforcement::Landlock => {
            drop_capabilities()?;
            landlock::restrict(&rules)?;
            filter::apply(filter::Sockets::None)?;
        }
        Enforcement::Namespaces => {
            own_proc();
            drop_capabilities()?;
            landlock::restrict(&rules)?;
            filter::apply(filter::Sockets::Internet)?;
        }
    }
    start(command)
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
fn start(command: &[OsString]) -> Result<Report, String> {
    let mut child = Command::new(&command[0]);
    // Its own process group, so that `kill 0` in a script ends the script and not us.
    child.args(&command[1..]).stdin(Stdio::null()).process_group(0);
    let child = match child.spawn() {
        Ok(child) => Pid::from_child(&child),
        Err(error) => {
            eprintln!("{}: {error}", command[0].display());
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            return Ok(Report::Ended { code: Some(code), signal: None });
        }
    };
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
