//! A workspace of small files, a patch of twenty of them in either style, and a person who talks to Flint in lines.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Answer, FakeModel, Home, User};

/// How long anything may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Path, mode and bytes of every file; folders have no bytes.
pub type Tree = BTreeMap<PathBuf, (u32, Option<Vec<u8>>)>;

/// How the model works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Pair,
    Agent,
}

pub const STYLES: [Style; 2] = [Style::Pair, Style::Agent];

fn text(number: usize, version: &str) -> String {
    (0..100).map(|line| format!("[{number}, {line}, \"{version}\"]\n")).collect()
}

/// Files that are there before: 16, of which the patch changes 14 and, in the agent style, deletes 2.
fn before() -> Vec<(String, String)> {
    (0..16).map(|number| (format!("data/part{}/f{number:02}.json", number % 3), text(number, "before"))).collect()
}

/// Files that the patch makes, some in folders of their own.
fn made() -> Vec<(String, String)> {
    ["new0.json", "data/new1.json", "made/new2.json", "made/deep/new3.json", "made/deep/new4.json", "new5.json"]
        .iter()
        .enumerate()
        .map(|(number, path)| ((*path).to_owned(), text(100 + number, "after")))
        .collect()
}

/// An answer that changes, makes and deletes twenty files.
pub fn twenty(style: Style) -> Answer {
    match style {
        Style::Pair => {
            let changed =
                before().into_iter().take(14).enumerate().map(|(number, (path, _))| (path, text(number, "after")));
            let block = |(path, text): (String, String)| format!("```json {path}\n{text}```\n\n");
            Answer::text(&changed.chain(made()).map(block).collect::<String>())
        }
        Style::Agent => {
            let mut patch = "*** Begin Patch\n".to_owned();
            for (number, (path, _)) in before().into_iter().enumerate() {
                patch += &match number {
                    14.. => format!("*** Delete File: {path}\n"),
                    _ => {
                        let line = |sign: char, line: usize, version: &str| {
                            format!("{sign}[{number}, {line}, \"{version}\"]\n")
                        };
                        let lines = |sign, version| (0..100).map(|at| line(sign, at, version)).collect::<String>();
                        format!("*** Update File: {path}\n@@\n{}{}", lines('-', "before"), lines('+', "after"))
                    }
                };
            }
            for (path, text) in made().into_iter().take(4) {
                let lines: String = text.lines().map(|line| format!("+{line}\n")).collect();
                patch += &format!("*** Add File: {path}\n{lines}");
            }
            Answer::call("apply_patch", &json!({"input": patch + "*** End Patch\n"}))
        }
    }
}

/// What the twenty files become, relative to the tree before.
pub fn after(style: Style, tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    for (number, (path, _)) in before().into_iter().take(14).enumerate() {
        tree.insert(path.into(), (0o644, Some(text(number, "after").into_bytes())));
    }
    let new = if style == Style::Agent { 4 } else { 6 };
    for (path, text) in made().into_iter().take(new) {
        tree.insert(path.into(), (0o644, Some(text.into_bytes())));
    }
    for folder in ["made", "made/deep"] {
        tree.insert(folder.into(), (0o755, None));
    }
    if style == Style::Agent {
        before().iter().skip(14).for_each(|(path, _)| drop(tree.remove(Path::new(path))));
    }
    tree
}

/// A workspace with the files before, and a model that answers with these.
pub fn world(user: User, style: Style, answers: impl IntoIterator<Item = Answer>) -> (Home, FakeModel) {
    let home = Home::new(user);
    for (path, text) in before() {
        home.write(Path::new("work").join(path), text);
    }
    home.write("work/theirs.txt", "nobody touches this\n");
    let model = FakeModel::start(answers);
    configure(&home, &model, style, "");
    (home, model)
}

/// Lets the model answer in a style; commands run without a sandbox and without questions.
pub fn configure(home: &Home, model: &FakeModel, style: Style, more: &str) {
    let style = if style == Style::Pair { "pair" } else { "agent" };
    let modes = "sandbox_mode = \"danger-full-access\"\napproval_policy = \"never\"";
    home.use_model(model, &format!("style = \"{style}\"\n{modes}\n{more}"));
}

/// Everything in a folder, read without any help.
pub fn read(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let Ok(data) = std::fs::symlink_metadata(&path) else { continue };
            let mode = data.permissions().mode() & 0o777;
            let bytes = if data.is_symlink() {
                Some(format!("link to {}", std::fs::read_link(&path).unwrap().display()).into_bytes())
            } else if data.is_dir() {
                open.push(path.clone());
                None
            } else if data.is_file() {
                std::fs::read(&path).ok()
            } else {
                Some(b"no file at all".to_vec())
            };
            tree.insert(path.strip_prefix(root).unwrap().to_owned(), (mode, bytes));
        }
    }
    tree
}

/// The paths at which two trees differ, for messages.
pub fn differences(a: &Tree, b: &Tree) -> Vec<PathBuf> {
    a.keys().chain(b.keys()).filter(|path| a.get(*path) != b.get(*path)).cloned().collect()
}

/// No path.
pub fn none() -> Vec<PathBuf> {
    Vec::new()
}

/// A person at `flint resume --plain`.
pub struct Person {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Arc<Mutex<String>>,
    read: usize,
}

impl Person {
    /// Goes on with the last session of the workspace.
    pub fn resume(home: &Home) -> Self {
        Self::start(home, &["resume", "--plain"])
    }

    pub fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut command = home.flint(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for mut stream in streams {
            let said = said.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 65536];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    said.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
                }
            });
        }
        let stdin = child.stdin.take();
        Self { child, stdin, said, read: 0 }
    }

    /// Writes a line. One who has left hears nothing.
    pub fn says(&mut self, line: &str) {
        let _ = writeln!(self.stdin.as_mut().unwrap(), "{line}");
    }

    /// Waits until one of these is said, and returns what was said since the last time.
    pub fn hears(&mut self, any: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let said = self.said.lock().unwrap().clone();
            let fresh = &said[self.read..];
            if any.iter().any(|wanted| fresh.contains(wanted)) {
                self.read = said.len();
                return fresh.to_owned();
            }
            let ended = self.child.try_wait().unwrap().is_some();
            if ended {
                // What was said last may still be on its way.
                std::thread::sleep(Duration::from_millis(200));
                let said = self.said.lock().unwrap().clone();
                self.read = said.len();
                return said;
            }
            assert!(begun.elapsed() < PATIENCE, "none of {any:?} was said, but: {said}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// `/undo` and what it answers; asked about others' work, this one says `answer`.
    pub fn undoes(&mut self, command: &str, answer: &str) -> String {
        const ENDS: [&str; 6] =
            ["undo: ", "redo: ", "rewind: ", "nothing to undo", "nothing to redo", "there is no session"];
        self.says(command);
        let mut heard = self.hears(&[&ENDS[..], &["answer y for yes"]].concat());
        if heard.contains("answer y for yes") {
            self.says(answer);
            heard += &self.hears(&ENDS);
        }
        heard
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let begun = Instant::now();
        while self.child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether anything of the workspace has changed yet.
pub fn begun(home: &Home) -> bool {
    let changed = |(path, text): &(String, String)| {
        std::fs::read(home.work.join(path)).map_or(true, |now| now != text.as_bytes())
    };
    before().iter().any(changed) || made().iter().any(|(path, _)| home.work.join(path).exists())
}
