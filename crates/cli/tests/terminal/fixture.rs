//! A folder to work in, with a state of its own, whose private server ends with the test.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use pty_process::blocking::Command;

use crate::screen::Screen;

/// A workspace and the state around it.
pub struct Fixture {
    folder: tempfile::TempDir,
    model: &'static str,
}

impl Fixture {
    /// An empty workspace for a model, which is fetched unless it is here.
    pub fn new(model: &'static str) -> Fixture {
        let pulled = Process::new(env!("CARGO_BIN_EXE_flint")).args(["models", "pull", model]).output().unwrap();
        assert!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        Fixture { folder, model }
    }

    /// A file of the workspace.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    /// Writes a file of the workspace.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }

    /// Reads a file of the workspace.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).unwrap()
    }

    /// `flint` with arguments, in a terminal of 80 columns and 24 rows.
    pub fn flint(&self, arguments: &[&str]) -> Screen {
        self.flint_with(arguments, &[], (80, 24))
    }

    /// `flint` with arguments and variables, in a terminal of a size.
    pub fn flint_with(&self, arguments: &[&str], variables: &[(&str, &str)], size: (u16, u16)) -> Screen {
        let command = Command::new(env!("CARGO_BIN_EXE_flint"))
            .args(arguments)
            .args(["-m", self.model])
            .args(if self.model == crate::SMALL { &["-c", "intent=answer"][..] } else { &[] })
            .current_dir(self.file(""))
            .env("XDG_STATE_HOME", self.state())
            .env("XDG_CONFIG_HOME", self.folder.path().join("config"))
            .env_remove("NO_COLOR")
            .env_remove("FLINT_MODEL")
            .envs(variables.iter().copied());
        let screen = Screen::start(command, size);
        if !arguments.contains(&"--plain") {
            // Keys that come before would be read as a terminal reads lines: Enter as the end of a line.
            screen.sees("Enter asks");
        }
        screen
    }

    fn state(&self) -> PathBuf {
        Path::join(self.folder.path(), "state")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let mut stop = Process::new(env!("CARGO_BIN_EXE_flint"));
        let _ = stop.arg("stop").env("XDG_STATE_HOME", self.state()).output();
    }
}
