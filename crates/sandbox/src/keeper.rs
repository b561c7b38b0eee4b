//! The keeper: makes the namespaces a cell lives in, and lives exactly as long as the command and its owner want.
//!
//! Its standard input is a socket to the owner, who closes it to end the command; an owner that dies closes it too. What is
//! to be said about the sandbox, and not by the command, is said there, one JSON object per line.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sched::CloneFlags;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use crate::guard::Guard;
use crate::policy::Rules;
use crate::{CELL, Enforcement};

/// What the helper processes say to the owner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The sandbox could not be set up; the command was not run.
    Failed { why: String },
    /// The command ended.
    Ended { code: Option<i32>, signal: Option<i32> },
    /// Something was made at a protected name, and now has another.
    Moved { from: PathBuf, to: PathBuf },
    /// Something was made at a protected name and is still there.
    Stuck { path: PathBuf, why: String },
    /// The command was ended because it took too much of something.
    Limit { what: String },
}

/// The socket to the owner.
pub(crate) struct Control(UnixStream);

impl Control {
    pub(crate) fn open() -> std::io::Result<Self> {
        let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
        Ok(Self(UnixStream::from(stdin)))
    }

    /// Says something. An owner that is gone need not hear it.
    pub(crate) fn say(&mut self, report: &Report) {
        if let Ok(mut line) = serde_json::to_vec(report) {
            line.push(b'\n');
            let _ = self.0.write_all(&line);
        }
    }
}

/// Runs the keeper: the rules as JSON, then the command.
pub(crate) fn run(arguments: Vec<OsString>) -> u8 {
    let Ok(mut control) = Control::open() else { return 125 };
    match keep(&arguments, &mut control) {
        Ok(()) => 0,
        Err(why) => {
            control.say(&Report::Failed { why });
            125
        }
    }
}

fn keep(arguments: &[OsString], control: &mut Control) -> Result<(), String> {
    // A key typed in the user's terminal must not end us before we have cleared up: the owner ends us.
    let _ = rustix::process::setsid();
    let mut rules = read_rules(arguments)?;
    match rules.enforcement {
        Enforcement::Namespaces => enter_namespaces()?,
        // Without namespaces whoever loses its parent becomes our child, so that we find and end it.
        _ => rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(|e| told("subreaper", e))?,
    }
    let guard = Guard::stand(&rules)?;
    rules.protected.clone_from(&guard.protected);
    rules.masked.clone_from(&guard.masked);
    let ended = start_cell(&rules, arguments, control).and_then(|mut cell| wait(&mut cell, control));
    if rules.enforcement != Enforcement::Namespaces {
        end_descendants();
    }
    guard.leave(control);
    ended
}

pub(crate) fn read_rules(arguments: &[OsString]) -> Result<Rules, String> {
    let json = arguments.first().and_then(|json| json.to_str()).ok_or("the rules are missing")?;
    serde_json::from_str(json).map_err(|error| format!("the rules are not readable: {error}"))
}

pub(crate) fn told(what: &str, error: impl std::fmt::Display) -> String {
    format!("{what}: {error}")
}

/// A user and a process namespace. The mounts are the cell's own, so that we see the files as they are.
fn enter_namespaces() -> Result<(), String> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    nix::sched::unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)
        .map_err(|error| told("namespaces are not allowed", error))?;
    // The user is the same inside, so that files keep their owners; the group list must be given up for that.
    let write =
        |name: &str, text: String| std::fs::write(format!("/proc/self/{name}"), text).map_err(|e| told(name, e));
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))?;
    keep_capabilities()
}

/// The cell must mount, switch its loopback on and drop its bounding set, and starting a program takes the capabilities of
/// everyone but root. It gives them up before the command starts.
fn keep_capabilities() -> Result<(), String> {
    let needed = [CapabilitySet::SYS_ADMIN, CapabilitySet::NET_ADMIN, CapabilitySet::SETPCAP];
    let sets = rustix::thread::capabilities(None).map_err(|error| told("capabilities", error))?;
    let inheritable = needed.into_iter().fold(CapabilitySet::empty(), |all, one| all | one);
    let sets = CapabilitySets { inheritable, ..sets };
    rustix::thread::set_capabilities(None, sets).map_err(|error| told("capabilities", error))?;
    for capability in needed {
        rustix::thread::configure_capability_in_ambient_set(capability, true).map_err(|e| told("ambient set", e))?;
    }
    Ok(())
}

/// The paths go as arguments of their own: one argument has a limit that many paths would exceed.
fn start_cell(rules: &Rules, arguments: &[OsString], control: &Control) -> Result<Child, String> {
    let stdin = control.0.try_clone().map_err(|error| told("the control socket", error))?;
    let slim = Rules { protected: Vec::new(), masked: Vec::new(), ..rules.clone() };
    let json = serde_json::to_string(&slim).map_err(|error| told("the rules", error))?;
    let mut cell = Command::new("/proc/self/exe");
    cell.arg(CELL).arg(std::process::id().to_string()).arg(json);
    for list in [&rules.protected, &rules.masked] {
        cell.arg(list.len().to_string()).args(list);
    }
    cell.args(arguments.get(1..).unwrap_or_default()).stdin(Stdio::from(OwnedFd::from(stdin)));
    cell.spawn().map_err(|error| told("starting the cell", error))
}

/// Waits until the cell ends, or ends it when the owner has closed the socket.
fn wait(cell: &mut Child, control: &Control) -> Result<(), String> {
    let pid = Pid::from_child(cell);
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|error| told("pidfd", error))?;
    loop {
        let mut polled =
            [PollFd::new(&pidfd, PollFlags::IN), PollFd::new(&control.0, PollFlags::IN | PollFlags::RDHUP)];
        match rustix::event::poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(told("waiting", error)),
        }
        // The owner never writes: whatever happens on its side of the socket means that it is done with us.
        if !polled[1].revents().is_empty() {
            let _ = cell.kill();
        }
        if !polled[0].revents().is_empty() || !polled[1].revents().is_empty() {
            return cell.wait().map(drop).map_err(|error| told("waiting", error));
        }
    }
}

/// Ends every process below us. Those that lost their parent are ours, and a killed one's children become ours, so this
/// comes to an end when there is none; what forks faster than it is killed meets the limit of processes.
fn end_descendants() {
    for _ in 0..100_000 {
        let me = rustix::process::getpid();
        let children = std::fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap_or_default();
        let pids: Vec<Pid> = children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
        if pids.is_empty() {
            return;
        }
        for pid in &pids {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
        for pid in pids {
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
        }
    }
}
