//! The attacks. Each is tried for real by this test program, started again inside the sandbox (see `attack` in main.rs), and
//! succeeds when it did its damage. That each of them works without a sandbox is a test of its own.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use nix::unistd::{Pid, Uid};

/// What an attack needs to know, passed in variables.
pub struct Target {
    pub work: PathBuf,
    pub outside: PathBuf,
    pub victim: i32,
    pub tcp: String,
    pub udp: String,
    pub abstract_name: String,
}

impl Target {
    pub fn from_environment() -> Self {
        let get = |name: &str| std::env::var(name).unwrap();
        Self {
            work: get("ATTACK_WORK").into(),
            outside: get("ATTACK_OUTSIDE").into(),
            victim: get("ATTACK_VICTIM").parse().unwrap(),
            tcp: get("ATTACK_TCP"),
            udp: get("ATTACK_UDP"),
            abstract_name: get("ATTACK_ABSTRACT"),
        }
    }
}

pub type Attack = fn(&Target) -> io::Result<()>;

/// All attacks by name.
pub const ATTACKS: &[(&str, Attack)] = &[
    ("write outside", |t| fs::write(t.outside.join("file"), "x")),
    ("create outside", |t| fs::write(t.outside.join("new"), "x")),
    ("make a folder outside", |t| fs::create_dir(t.outside.join("folder"))),
    ("delete outside", |t| fs::remove_file(t.outside.join("file"))),
    ("truncate outside", |t| fs::File::create(t.outside.join("file")).map(drop)),
    ("change the mode outside", |t| fs::set_permissions(t.outside.join("file"), Permissions::from_mode(0o777))),
    ("change the time outside", |t| fs::File::open(t.outside.join("file"))?.set_modified(SystemTime::UNIX_EPOCH)),
    ("write by dot-dot", |t| fs::write(t.work.join("../outside/file"), "x")),
    ("write through a link", |t| {
        symlink(t.outside.join("file"), t.work.join("link"))?;
        fs::write(t.work.join("link"), "x")
    }),
    ("write through a link to a folder", |t| {
        symlink(&t.outside, t.work.join("link"))?;
        fs::write(t.work.join("link/new"), "x")
    }),
    ("write through a hard link", |t| {
        fs::hard_link(t.outside.join("file"), t.work.join("hard"))?;
        fs::write(t.work.join("hard"), "x")
    }),
    ("move something out", |t| fs::rename(t.work.join("mine"), t.outside.join("mine"))),
    ("move something in", |t| fs::rename(t.outside.join("file"), t.work.join("taken"))),
    ("write by /proc/self/root", |t| fs::write(below("/proc/self/root", &t.outside).join("file"), "x")),
    ("write by /proc/self/cwd", |_| fs::write("/proc/self/cwd/../outside/file", "x")),
    ("write by another's root", |t| {
        fs::write(below(&format!("/proc/{}/root", t.victim), &t.outside).join("file"), "x")
    }),
    ("write by the first process's root", |t| fs::write(below("/proc/1/root", &t.outside).join("file"), "x")),
    ("plant a git hook", |t| fs::write(t.work.join(".git/hooks/pre-commit"), "x")),
    ("change git's configuration", |t| fs::write(t.work.join(".git/config"), "x")),
    ("change git's configuration by a hard link", |t| {
        fs::hard_link(t.work.join(".git/config"), t.work.join("hard"))?;
        fs::write(t.work.join("hard"), "x")
    }),
    ("move .git away", |t| fs::rename(t.work.join(".git"), t.work.join("git"))),
    ("delete .git", |t| fs::remove_dir_all(t.work.join(".git"))),
    ("change the project's configuration", |t| fs::write(t.work.join(".flint/config.toml"), "x")),
    ("change the user's configuration", |t| fs::write(t.work.join("home/conf/config.toml"), "x")),
    ("replace the folder of the user's configuration", |t| {
        fs::rename(t.work.join("home"), t.work.join("gone"))?;
        fs::create_dir_all(t.work.join("home/conf"))?;
        fs::write(t.work.join("home/conf/config.toml"), "x")
    }),
    ("read another's variables", |t| {
        let variables = fs::read(format!("/proc/{}/environ", t.victim))?;
        let found = variables.windows(6).any(|part| part == b"VICTIM");
        if found { Ok(()) } else { Err(io::Error::other("it is not there")) }
    }),
    ("write another's memory", |t| OpenOptions::new().write(true).open(format!("/proc/{}/mem", t.victim)).map(drop)),
    ("write another's out-of-memory score", |t| fs::write(format!("/proc/{}/oom_score_adj", t.victim), "7")),
    ("end another process", |t| nix::sys::signal::kill(Pid::from_raw(t.victim), None).map_err(io::Error::from)),
    ("trace another process", |t| {
        let victim = Pid::from_raw(t.victim);
        // It is let go when this thread ends.
        Ok(nix::sys::ptrace::seize(victim, nix::sys::ptrace::Options::empty())?)
    }),
    ("set a kernel parameter", |_| {
        let name = "/proc/sys/vm/swappiness";
        fs::write(name, fs::read(name)?)
    }),
    ("connect by TCP", |t| TcpStream::connect_timeout(&t.tcp.parse().unwrap(), Duration::from_secs(5)).map(drop)),
    ("send by UDP", |t| heard(UdpSocket::bind("127.0.0.1:0")?.send_to(b"x", &t.udp).map(drop), &t.outside)),
    ("connect to a Unix socket", |t| UnixStream::connect(t.outside.join("stream")).map(drop)),
    ("send to a Unix socket", |t| UnixDatagram::unbound()?.send_to(b"x", t.outside.join("datagram")).map(drop)),
    ("send to a Unix socket from a pair", |t| {
        UnixDatagram::pair()?.0.send_to(b"x", t.outside.join("datagram")).map(drop)
    }),
    ("connect to an abstract socket", |t| {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&t.abstract_name)?).map(drop)
    }),
    ("become another user", |_| nix::unistd::setuid(Uid::from_raw(1)).map_err(io::Error::from)),
    ("become another user by a program", |t| {
        let output = Command::new(t.outside.join("set-user-id")).arg("-u").output()?;
        let user = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if user == "1" { Ok(()) } else { Err(io::Error::other(format!("it runs as {user}"))) }
    }),
    ("mount something", |t| {
        let flags = rustix::mount::MountFlags::empty();
        Ok(rustix::mount::mount("tmpfs", t.work.join("empty"), "tmpfs", flags, None)?)
    }),
    ("make everything writable again", |t| {
        let flags = rustix::mount::MountFlags::BIND;
        rustix::mount::mount_remount("/", flags, "")?;
        fs::write(t.outside.join("file"), "x")
    }),
    ("make a user namespace", |_| {
        let status = Command::new("unshare").args(["--user", "--map-root-user", "--mount", "true"]).status()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
    }),
    ("change the root", |t| std::os::unix::fs::chroot(&t.work)),
];

/// What Landlock alone does not cover; `Enforcement::Landlock` says so.
pub const BEYOND_LANDLOCK: &[&str] = &["change the mode outside", "change the time outside", "end another process"];

/// What is not tried without a sandbox: the one would change this machine, the other's success depends on who the first
/// process is (some are closed even to root).
pub const NEVER_WITHOUT: &[&str] = &["make everything writable again", "write by the first process's root"];

/// What only root can do even without a sandbox, or only where the kernel allows it.
pub const FOR_ROOT: &[&str] = &[
    "become another user",
    "become another user by a program",
    "mount something",
    "change the root",
    "set a kernel parameter",
    "make a user namespace",
];

fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap())
}

/// A datagram that is sent may still reach nobody: the one who waits for it writes down that it came.
fn heard(sent: io::Result<()>, outside: &Path) -> io::Result<()> {
    sent?;
    let deadline = std::time::Instant::now() + Duration::from_secs(1);
    while std::time::Instant::now() < deadline {
        if outside.join("heard").exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(io::Error::other("nobody heard it"))
}

/// Says how it went where the test reads it.
pub fn report(result: &io::Result<()>) {
    let mut out = io::stdout().lock();
    let _ = match result {
        Ok(()) => writeln!(out, "\nRESULT escaped"),
        Err(error) => writeln!(out, "\nRESULT refused: {error}"),
    };
}
