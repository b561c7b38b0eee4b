//! The user's own Python package installer, run as a child process.
//!
//! We run it rather than speak to a package index because it already knows this user's indexes, mirrors, proxies and
//! certificates. It gets a directory of its own for its temporary files too, so that its progress can be seen by size,
//! its leftovers are ours to delete, and no other disk fills up. Only ready-made wheels are accepted: a source package
//! would run its build script.
//!
//! Nothing of the folder worked in takes part: the program is found outside of it, starts in the root of the file system, Python in
//! isolated mode (it would import `./pip` otherwise), and its environment is a list of names without what points there.
//!
//! A child that outlives a killed pull writes into a directory that the next pull has deleted, and fails there.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::disk;
use crate::error::{Error, SourceError};
use crate::pull::PullOptions;

/// Longest silence before an installer is stopped. It retries by itself well within this.
const STALL_LIMIT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How much of the end of its output goes into an error.
const OUTPUT_BYTES_MAX: usize = 600;

/// How this user reaches package indexes: what pip and uv are told by their environment.
const INDEX_VARIABLES: &[&str] = &[
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_FIND_LINKS",
    "PIP_TRUSTED_HOST",
    "PIP_CERT",
    "PIP_CLIENT_CERT",
    "PIP_PROXY",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_TIMEOUT",
    "PIP_RETRIES",
    "UV_INDEX",
    "UV_DEFAULT_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_NO_INDEX",
    "UV_FIND_LINKS",
    "UV_INSECURE_HOST",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "UV_CONFIG_FILE",
    "UV_HTTP_TIMEOUT",
];

/// An installer that answered.
pub(crate) struct Installer {
    kind: Kind,
    /// The program, by its whole path, and its first arguments.
    command: Vec<OsString>,
    /// Folders that may have no part in it.
    never: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `pip download` leaves a wheel.
    Pip,
    /// uv has no `download`; `pip install --target` leaves the unpacked files.
    Uv,
}

/// What a run left in its directory.
pub(crate) enum Delivered {
    Wheel(PathBuf),
    /// Directory with the unpacked package.
    Unpacked(PathBuf),
}

/// The command of the installer that a pull would use: the one given, else the first that answers.
pub fn installer_name(options: &PullOptions) -> Option<String> {
    Installer::find(options).ok().map(|installer| shown(&installer.command))
}

impl Installer {
    /// The first installer that answers: the one given, else pip in its usual guises, else uv.
    pub(crate) fn find(options: &PullOptions) -> Result<Installer, SourceError> {
        let candidates: Vec<(Kind, Vec<OsString>)> = match &options.pip {
            // A name is looked for like the others; a path is from where the user is.
            Some(path) if path.components().count() > 1 => {
                vec![(Kind::Pip, vec![std::path::absolute(path).unwrap_or_else(|_| path.clone()).into()])]
            }
            Some(name) => vec![(Kind::Pip, vec![name.into()])],
            None => vec![
                (Kind::Pip, vec!["python3".into(), "-I".into(), "-m".into(), "pip".into()]),
                (Kind::Uv, vec!["uv".into()]),
                (Kind::Pip, vec!["pip3".into()]),
                (Kind::Pip, vec!["pip".into()]),
            ],
        };
        let tried = candidates.iter().map(|(_, command)| shown(command)).collect::<Vec<_>>().join(", ");
        let mut installers = candidates.into_iter().filter_map(|(kind, mut command)| {
            // One that the user names may be anywhere.
            let never: &[PathBuf] = if options.pip.is_some() { &[] } else { &options.never };
            command[0] = boundary::program::find(&command[0], never)?.into();
            Some(Installer { kind, command, never: options.never.clone() })
        });
        installers.find(Installer::answers).ok_or(SourceError::NoInstaller { tried })
    }

    /// Fetches one requirement into `directory`. `watch` is told the bytes in there every now and then and says whether
    /// to go on; when it says no the child is stopped and the answer is `None`.
    pub(crate) fn run(
        &self,
        requirement: &str,
        directory: &Path,
        mut watch: impl FnMut(u64) -> bool,
    ) -> Result<Option<Delivered>, SourceError> {
        let directory = &std::path::absolute(directory).map_err(Error::io("find", directory))?;
        let (out, temporary, log) = (directory.join("out"), directory.join("tmp"), directory.join("log"));
        disk::create_dir(&out)?;
        disk::create_dir(&temporary)?;
        let mut command = self.command(requirement, &out);
        let output = File::create(&log).map_err(Error::io("create", &log))?;
        let errors = output.try_clone().map_err(Error::io("open", &log))?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors).env("TMPDIR", &temporary);
        let child = command.spawn().map_err(Error::io("run", Path::new(command.get_program())))?;
        let Some(status) = wait(child, [&out, &temporary], &mut watch)? else {
            return Ok(None);
        };
        if !status.success() {
            let command = format!("{} ... {requirement}", shown(&self.command));
            return Err(SourceError::Installer { command, status: status.to_string(), output: tail(&log) });
        }
        self.delivered(out, requirement).map(Some)
    }

    fn answers(&self) -> bool {
        let mut command = self.base();
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn base(&self) -> Command {
        let (program, arguments) = self.command.split_first().expect("a command has a program");
        // Where pip and uv look for settings and environments of a project there is none above the root.
        const NOWHERE: &str = "/";
        let also = [INDEX_VARIABLES, boundary::program::NETWORK].concat();
        let mut command =
            boundary::program::command_outside(Path::new(program), Path::new(NOWHERE), &also, &self.never);
        command.args(arguments);
        command
    }

    fn command(&self, requirement: &str, out: &Path) -> Command {
        let mut command = self.base();
        match self.kind {
            Kind::Pip => {
                command.args(["download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]);
                command.args(["--no-input", "--disable-pip-version-check", "--progress-bar=off"]);
                command.arg("-d").arg(out);
            }
            Kind::Uv => {
                command.args(["pip", "install", "--no-deps", "--no-build", "--no-cache", "--no-progress"]);
                command.arg("--target").arg(out);
            }
        }
        command.arg(requirement);
        command
    }

    fn delivered(&self, out: PathBuf, requirement: &str) -> Result<Delivered, SourceError> {
        if self.kind == Kind::Uv {
            return Ok(Delivered::Unpacked(out));
        }
        let files = std::fs::read_dir(&out).map_err(Error::io("read", &out))?;
        let wheel = files.flatten().map(|file| file.path()).find(|path| path.extension().is_some_and(|e| e == "whl"));
        let missing =
            || SourceError::Package { file: out, member: requirement.to_owned(), reason: "no wheel came".into() };
        wheel.map(Delivered::Wheel).ok_or_else(missing)
    }
}

/// `None` when the watcher said to stop.
fn wait(
    mut child: Child,
    directories: [&Path; 2],
    watch: &mut impl FnMut(u64) -> bool,
) -> Result<Option<ExitStatus>, SourceError> {
    let mut bytes = 0;
    let mut grown = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(Error::io("wait for the installer in", directories[0]))? {
            return Ok(Some(status));
        }
        let now = directories.into_iter().map(disk::bytes_below).sum();
        if now != bytes {
            (bytes, grown) = (now, Instant::now());
        }
        let stalled = grown.elapsed() > STALL_LIMIT;
        if stalled || !watch(bytes) {
            // It may have ended by itself meanwhile; either way it is collected.
            let _ = child.kill();
            let _ = child.wait();
            return if stalled { Err(SourceError::Stalled { seconds: STALL_LIMIT.as_secs() }) } else { Ok(None) };
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn shown(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// The end of the installer's output on one line.
fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let end = &text[text.len().saturating_sub(OUTPUT_BYTES_MAX)..];
    let words = String::from_utf8_lossy(end);
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "it printed nothing".to_owned() } else { lines.join(" | ") }
}
