//! The private server: found when it runs, started when it does not, left warm for the next time.
//!
//! It listens on a Unix socket in the state directory, which only this user can reach. A lock file makes two partners
//! that start at the same moment start one server. What the server prints goes to a log beside the socket.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::{Client, ClientOptions};
use serde_json::Value;

/// How long a server may take from its start to its first answer. Loading a model of 20 GB takes less.
const START_MAX: Duration = Duration::from_secs(180);

/// How often a server that starts is looked at: often enough that nobody notices.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Most that is read of the file with the server's process number.
const NUMBER_BYTES_MAX: u64 = 64;

/// Most that is read of the server's log, for its last line.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// How long a server that was told to stop may take; then it is stopped without being asked.
const STOP_MAX: Duration = Duration::from_secs(10);

/// How the private server is run.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// The `flint` binary.
    pub program: PathBuf,
    /// Arguments after `serve` beyond the socket and the models.
    pub arguments: Vec<String>,
    /// The models it offers, the one in use first. Empty leaves it to the server.
    pub models: Vec<String>,
    /// Where its socket, its log and its process number are.
    pub state: PathBuf,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// The state directory cannot be used.
    #[error("{}: {source}; choose another state directory with FLINT_HOME", path.display())]
    State {
        /// What could not be used.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The server could not be started.
    #[error("the local server could not be started: {why}\nits log is {}", log.display())]
    Start {
        /// What it said.
        why: String,
        /// Where more is.
        log: PathBuf,
    },
}

impl ServerSpec {
    fn socket(&self) -> PathBuf {
        self.state.join("partner.sock")
    }

    fn log(&self) -> PathBuf {
        self.state.join("partner.log")
    }

    fn process_file(&self) -> PathBuf {
        self.state.join("partner.pid")
    }

    /// Where clients find it.
    pub fn base_url(&self) -> String {
        format!("unix:{}", self.socket().display())
    }
}

/// The address of the private server, which offers `model`. It is started, or started anew, where need be.
pub async fn ensure(spec: &ServerSpec, model: &str) -> Result<String, LocalError> {
    if offers(spec, model).await == Some(true) {
        return Ok(spec.base_url());
    }
    let _lock = lock(spec)?;
    match offers(spec, model).await {
        Some(true) => return Ok(spec.base_url()),
        // It runs without the model, which must have been fetched since.
        Some(false) => drop(end(spec)),
        None => {}
    }
    let mut child = spawn(spec)?;
    let begun = Instant::now();
    let failed = |why: String| LocalError::Start { why, log: spec.log() };
    loop {
        if offers(spec, model).await.is_some() {
            return Ok(spec.base_url());
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(failed(format!("it ended with {status}: {}", last_line(&spec.log()))));
        }
        if begun.elapsed() > START_MAX {
            return Err(failed(format!("it did not answer within {START_MAX:?}")));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Ends the private server. False when none ran.
pub fn stop(spec: &ServerSpec) -> Result<bool, LocalError> {
    let _lock = lock(spec)?;
    Ok(end(spec))
}

/// Whether a server answers and offers the model; none when no server answers.
async fn offers(spec: &ServerSpec, model: &str) -> Option<bool> {
    if !spec.socket().exists() {
        return None;
    }
    let mut options = ClientOptions::new(spec.base_url());
    options.limits.retries = 0;
    let models = Client::new(options).ok()?.models().await.ok()?;
    let named = |list: &Value| {
        list.as_array().is_some_and(|entries| {
            entries.iter().any(|entry| {
                let aliases = entry["aliases"].as_array().into_iter().flatten();
                std::iter::once(&entry["id"]).chain([&entry["slug"]]).chain(aliases).any(|name| name == model)
            })
        })
    };
    Some(named(&models["data"]) || named(&models["models"]))
}

fn spawn(spec: &ServerSpec) -> Result<Child, LocalError> {
    let state = |path: &Path| {
        let path = path.to_owned();
        move |source| LocalError::State { path, source }
    };
    let log =
        OpenOptions::new().create(true).write(true).truncate(true).open(spec.log()).map_err(state(&spec.log()))?;
    let also = log.try_clone().map_err(state(&spec.log()))?;
    // This very program, by its own path. Its environment is ours: whatever is in it has had its effect already.
    #[allow(clippy::disallowed_methods)]
    let mut command = Command::new(&spec.program);
    command.arg("serve").arg("--socket").arg(spec.socket()).args(["--socket-only", "--snapshot-unstored"]);
    // Its one user's sessions are on disk anyway, as the partner writes them down.
    command.args(&spec.arguments);
    for model in &spec.models {
        command.arg("--model").arg(model);
    }
    // A group of its own: keys pressed in this terminal do not reach it.
    command.stdin(Stdio::null()).stdout(log).stderr(also).process_group(0).current_dir(&spec.state);
    let failed = |error: std::io::Error| LocalError::Start { why: error.to_string(), log: spec.log() };
    let child = command.spawn().map_err(failed)?;
    std::fs::write(spec.process_file(), child.id().to_string()).map_err(state(&spec.process_file()))?;
    Ok(child)
}

/// Tells the server to stop and waits until it has. False when none runs.
fn end(spec: &ServerSpec) -> bool {
    let Ok(number) = boundary::file::read(&spec.process_file(), NUMBER_BYTES_MAX) else { return false };
    let _ = std::fs::remove_file(spec.process_file());
    let Ok(process) = String::from_utf8_lossy(&number).trim().parse::<u32>() else { return false };
    if !is_our_server(process, spec) {
        return false;
    }
    let signal = |signal| {
        let number = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
        let _ = number.map(|number| rustix::process::kill_process(number, signal));
    };
    signal(rustix::process::Signal::TERM);
    let begun = Instant::now();
    while is_our_server(process, spec) {
        if begun.elapsed() > STOP_MAX {
            signal(rustix::process::Signal::KILL);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}

/// Whether the process with this number is the server, and not another that got its number.
#[allow(clippy::disallowed_methods, reason = "the system's own file")]
fn is_our_server(process: u32, spec: &ServerSpec) -> bool {
    let Ok(line) = std::fs::read(format!("/proc/{process}/cmdline")) else { return false };
    let line = String::from_utf8_lossy(&line).into_owned();
    line.split('\0').any(|argument| Path::new(argument) == spec.socket())
}

fn lock(spec: &ServerSpec) -> Result<File, LocalError> {
    let path = spec.state.join("partner.lock");
    let state = |source| LocalError::State { path: path.clone(), source };
    std::fs::create_dir_all(&spec.state).map_err(state)?;
    let file = OpenOptions::new().create(true).write(true).truncate(false).open(&path).map_err(state)?;
    file.lock().map_err(state)?;
    Ok(file)
}

fn last_line(path: &Path) -> String {
    let text = boundary::file::read(path, LOG_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned()
}
