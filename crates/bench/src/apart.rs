//! The real binary with state and configuration of its own, for benchmarks of the partner: the person's sessions, settings
//! and warm server play no part in them and are not disturbed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// A place where `flint` runs apart from everything else. Its private server ends with it.
pub struct Apart {
    place: PathBuf,
    /// Another build; this one unless given.
    program: Option<PathBuf>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Apart {
    /// Keeps everything below `place`. The private server gets `variables` as well.
    pub fn new(place: &Path, variables: &[(&'static str, &'static str)]) -> Self {
        Self { place: place.to_owned(), program: None, variables: variables.to_vec() }
    }

    /// The same for another build of flint.
    pub fn of(program: &Path, place: &Path) -> Self {
        Self { place: place.to_owned(), program: Some(program.to_owned()), variables: Vec::new() }
    }

    /// `flint` in a folder.
    pub fn flint(&self, folder: &Path) -> Result<Command> {
        let mut command = match &self.program {
            Some(program) => {
                let mut command = Command::new(program);
                command.current_dir(folder);
                command
            }
            None => boundary::program::ourselves(folder).context("the path of this program")?,
        };
        command.stdin(Stdio::null()).envs(self.variables.iter().copied());
        command.env("XDG_STATE_HOME", self.place.join("state")).env("XDG_CONFIG_HOME", self.place.join("config"));
        if let Some(home) = std::env::var_os("FLINT_HOME") {
            // It would bring its own state and configuration; only its models are wanted.
            let data = self.place.join("data");
            let _ = fs::create_dir_all(&data);
            let _ = std::os::unix::fs::symlink(home, data.join("flint"));
            command.env_remove("FLINT_HOME").env("XDG_DATA_HOME", data);
        }
        Ok(command)
    }

    /// Starts the private server and has it read the model, which would otherwise count into the first request.
    pub fn warm_up(&self, model: &str) -> Result<()> {
        load::fetch::ensure(model, false)?;
        let folder = self.place.join("warm");
        fs::create_dir_all(&folder)?;
        let output = self
            .flint(&folder)?
            .args(["exec", "--ephemeral", "--intent", "answer"])
            .args(["-m", model, "Say hello."])
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "flint exec does not work here: {}", said.trim_end());
        Ok(())
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let stop = self.flint(&self.place);
        let _ = stop.map(|mut stop| stop.arg("stop").stdout(Stdio::null()).stderr(Stdio::null()).status());
    }
}

/// A finished process.
pub struct Ran {
    /// None when it was killed.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub seconds: f64,
    /// What it printed, on both streams.
    pub output: String,
}

/// Runs a process to its end, or kills it.
pub fn bounded_run(mut command: Command, limit: Duration) -> Result<Ran> {
    let output = tempfile::NamedTempFile::new()?;
    // One place in the file for both streams, or each would write over the other.
    let both = output.reopen()?;
    command.stdout(both.try_clone()?).stderr(both);
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = String::from_utf8_lossy(&fs::read(output.path())?).into_owned();
    Ok(Ran { exit_code: status.and_then(|status| status.code()), seconds: begun.elapsed().as_secs_f64(), output })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn both_streams_are_kept_and_a_process_that_takes_too_long_ends() {
        let shell = |line: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", line]);
            command
        };
        let ran = bounded_run(shell("echo one; echo two >&2; echo three; exit 3"), Duration::from_secs(20)).unwrap();
        assert_eq!((ran.exit_code, ran.output.as_str()), (Some(3), "one\ntwo\nthree\n"));
        let ran = bounded_run(shell("echo one; exec sleep 60"), Duration::from_millis(300)).unwrap();
        assert_eq!((ran.exit_code, ran.output.as_str()), (None, "one\n"));
        assert!(ran.seconds < 30.0);
    }
}
