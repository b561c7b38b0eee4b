//! Judging what the partner left: the module in a fresh folder, beside the original tests, in the sandbox, with limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::tools::{Commands, bounded};
use anyhow::{Context, Result, ensure};
use sandbox::{Mode, WorkspaceWrite};

use super::Language;
use super::tasks::{MANIFEST, Task};

/// Seconds that building and running a test file may take, whatever its command says.
const SECONDS_MAX: u64 = 120;

/// Bytes of output kept in the results.
const OUTPUT_BYTES_MAX: usize = 600;

/// Runs test files.
pub struct Grader {
    language: Language,
    place: PathBuf,
    commands: Commands,
    runtime: tokio::runtime::Runtime,
    /// The versions of the crates that every task uses.
    lock: Option<String>,
}

/// What the tests said.
pub struct Graded {
    /// Whether they passed.
    pub passed: bool,
    /// The end of what they printed.
    pub output: String,
}

impl Grader {
    /// Prepares what tests of this language need; for Rust the crates, fetched and built once.
    pub fn new(language: Language, place: &Path) -> Result<Self> {
        fs::create_dir_all(place)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let commands = Commands::new(Mode::WorkspaceWrite, WorkspaceWrite::default(), Vec::new());
        let lock = match language {
            Language::Python => None,
            Language::Rust => Some(crates(place)?),
        };
        Ok(Self { language, place: place.to_owned(), commands, runtime, lock })
    }

    /// Whether the tests of a task pass with this module.
    pub fn passes(&self, task: &Task, module: &str) -> Result<Graded> {
        let folder = self.place.join("task");
        let _ = fs::remove_dir_all(&folder);
        task.write(&folder, module, self.lock.as_deref())?;
        let build = build_folder(&self.place);
        fs::create_dir_all(&build)?;
        let build_text = build.display().to_string();
        let variables = [("CARGO_TARGET_DIR", build_text.as_str()), ("PYTHONDONTWRITEBYTECODE", "1")];
        let timeout = Duration::from_secs(SECONDS_MAX);
        let writable = [folder.as_path(), build.as_path()];
        let ran = self.commands.run_in(&writable, &folder, self.language.check(), &variables, timeout);
        let ran = self.runtime.block_on(ran).map_err(anyhow::Error::msg).context("judging a task")?;
        let output = match ran.timed_out {
            true => format!("not done after {SECONDS_MAX} s"),
            false => bounded(&ran.output, OUTPUT_BYTES_MAX),
        };
        Ok(Graded { passed: ran.exit_code == Some(0), output })
    }

    /// The versions of crates, for the folders of tasks.
    pub fn lock(&self) -> Option<&str> {
        self.lock.as_deref()
    }
}

fn build_folder(place: &Path) -> PathBuf {
    place.join("build")
}

/// Fetches and builds the crates of the set, outside the sandbox, because there is no network in it.
fn crates(place: &Path) -> Result<String> {
    let folder = place.join("crates");
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("Cargo.toml"), MANIFEST)?;
    fs::write(folder.join("src/lib.rs"), "")?;
    let never = boundary::program::current_workspace();
    let cargo =
        boundary::program::find("cargo".as_ref(), &never).context("cargo must be on the PATH for the Rust set")?;
    let mut build = boundary::program::command_outside(&cargo, &folder, boundary::program::NETWORK, &never);
    build.args(["build", "--quiet", "--tests"]).env("CARGO_TARGET_DIR", build_folder(place));
    let output = build.output().context("running cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the crates of the set cannot be built: {}", said.trim_end());
    Ok(fs::read_to_string(folder.join("Cargo.lock"))?)
}
