//! A small shop to work in, with a model that says what the test wrote down, on the screen, in lines and by `flint exec`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use pty_process::blocking;

use crate::screen::Screen;
use crate::scripted::Scripted;

pub const CART: &str = "\
class Item:
    def __init__(self, name, price):
        self.name = name
        self.price = price


class Cart:
    def __init__(self):
        self.items = []

    def add(self, item):
        self.items.append(item)


def total(cart):
    return sum(item.price for item in cart.items)
";

/// How long an answer may take before a test gives up: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The binary that is tried: `FLINT_UNDER_TEST` names another one, such as that of an older commit, to see that a test can fail.
fn under_test() -> PathBuf {
    std::env::var_os("FLINT_UNDER_TEST").map_or_else(|| env!("CARGO_BIN_EXE_flint").into(), PathBuf::from)
}

/// A folder, a state of its own, and a model.
pub struct World {
    folder: tempfile::TempDir,
    pub model: Scripted,
}

impl World {
    /// The shop. Every message is sorted as `sorts` says.
    pub fn new(sorts: fn(&str) -> &'static str, answers: &'static [&'static str]) -> Self {
        let world = Self::empty(sorts, answers);
        world.write("shop/cart.py", CART);
        world
    }

    /// A folder without files, and this model.
    pub fn with(model: Scripted) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        Self { folder, model }
    }

    /// A folder without files.
    pub fn empty(sorts: fn(&str) -> &'static str, answers: &'static [&'static str]) -> Self {
        Self::with(Scripted::start(sorts, answers))
    }

    /// The workspace.
    pub fn root(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Writes a file of the workspace.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Reads a file of the workspace.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Every file of the workspace with its text, but those of git.
    pub fn files(&self) -> Vec<(PathBuf, String)> {
        fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true if entry.file_name() != ".git" => walk(&entry.path(), found),
                    true => {}
                    false => found.push((entry.path(), std::fs::read_to_string(entry.path()).unwrap())),
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.root(), &mut found);
        found.sort();
        found
    }

    /// The user's configuration, beside the model's.
    fn settings(&self) -> Vec<String> {
        let provider = "model_providers.scripted";
        let settings = [
            "model_provider=\"scripted\"".to_owned(),
            "style=\"pair\"".to_owned(),
            format!("{provider}.base_url=\"{}\"", self.model.url),
            format!("{provider}.supports_websockets=false"),
        ];
        ["-c", "model=\"scripted\""]
            .map(str::to_owned)
            .into_iter()
            .chain(settings.map(|set| format!("-c{set}")))
            .collect()
    }

    fn variables(&self) -> [(&'static str, PathBuf); 3] {
        let below = |name: &str| self.folder.path().join(name);
        [("XDG_STATE_HOME", below("state")), ("XDG_CONFIG_HOME", below("config")), ("HOME", below("home"))]
    }

    /// `flint` with these arguments; those of the model are added where they may stand.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(under_test());
        // Older builds take settings behind the subcommand alone.
        let (before, behind) = arguments.split_at(arguments.first().is_some_and(|first| *first == "exec").into());
        command.args(before).args(self.settings()).args(behind).envs(self.variables()).env_remove("FLINT_HOME");
        command.current_dir(self.root()).stdin(Stdio::null());
        command
    }

    /// `flint exec`.
    pub fn exec(&self, arguments: &[&str]) -> Output {
        self.command(&[&["exec"], arguments].concat()).output().unwrap()
    }

    /// `flint --plain` with these lines, and what it said.
    pub fn plain(&self, arguments: &[&str], lines: &str) -> String {
        let mut command = self.command(&[&["--plain"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        printed(&child.wait_with_output().unwrap())
    }

    /// `flint --plain`, told one line after the other: each when what the one before it leads to was seen.
    pub fn talk(&self, arguments: &[&str], lines: &[(&str, &str)]) -> String {
        let mut command = self.command(&[&["--plain"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, pieces) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut piece) {
                let _ = tell.send(String::from_utf8_lossy(&piece[..count]).into_owned());
            }
        });
        let mut told = String::new();
        for (line, wanted) in lines {
            let from = told.len();
            writeln!(input, "{line}").unwrap();
            while !told[from..].contains(wanted) {
                match pieces.recv_timeout(PATIENCE) {
                    Ok(piece) => told += &piece,
                    Err(why) => {
                        let _ = child.kill();
                        panic!("never told: {wanted:?} ({why}): {told}");
                    }
                }
            }
        }
        drop(input);
        told.extend(pieces);
        assert!(child.wait().unwrap().success(), "{told}");
        told
    }

    /// `flint` in a terminal of a size.
    pub fn screen(&self, arguments: &[&str], size: (u16, u16)) -> Screen {
        self.screen_after("", arguments, size)
    }

    /// The same where something was printed before.
    pub fn screen_after(&self, before: &str, arguments: &[&str], size: (u16, u16)) -> Screen {
        let command = blocking::Command::new(under_test());
        let command = command.args(self.settings()).args(arguments).envs(self.variables());
        let command = command.env_remove("FLINT_HOME").env_remove("NO_COLOR").current_dir(self.root());
        let screen = Screen::start_after(&before.replace('\n', "\r\n"), command, size);
        screen.sees("Enter asks");
        screen
    }
}

/// Everything a command printed, as text.
pub fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
