//! A home of its own for the binary under test, a model that says what the test wrote down, and users to be.
#![allow(dead_code, reason = "not every attack needs every helper")]

use std::collections::VecDeque;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::provider::{self, Events};

/// Who attacks or is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the tests.
    Me,
    /// An ordinary user; only root can become one.
    Ordinary(u32),
}

/// Everyone a test can be run as.
pub fn users() -> Vec<User> {
    if nix::unistd::geteuid().is_root() { vec![User::Me, User::Ordinary(64_001)] } else { vec![User::Me] }
}

/// The binary under test, where every user can run it.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<(PathBuf, tempfile::TempDir)> = OnceLock::new();
    let (path, _) = BINARY.get_or_init(|| {
        let built = std::env::var_os("FLINT_UNDER_TEST").unwrap_or_else(|| env!("CARGO_BIN_EXE_flint").into());
        let folder = tempfile::Builder::new().prefix("flint-bin").tempdir().unwrap();
        open_to_all(folder.path());
        let copy = folder.path().join("flint");
        copied(built.as_ref(), &copy);
        (copy, folder)
    });
    path
}

/// Copies a program by another one: had this process the copy open, so would whatever another test starts meanwhile, and a
/// program that is open for writing cannot be run.
pub fn copied(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("--").arg(from).arg(to).status().unwrap().success());
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn open_to_all(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// A user's home, state and configuration, and a folder to work in.
pub struct Home {
    pub user: User,
    folder: tempfile::TempDir,
    /// The repository; empty at first.
    pub work: PathBuf,
    /// What FLINT_HOME names: `config.toml` and `state/` are in it.
    pub flint: PathBuf,
}

impl Home {
    pub fn new(user: User) -> Self {
        let folder = tempfile::Builder::new().prefix("flint-attack").tempdir().unwrap();
        open_to_all(folder.path());
        let (work, flint) = (folder.path().join("work"), folder.path().join("flint"));
        let home = Self { user, work, flint, folder };
        for made in [&home.work, &home.flint, &home.folder.path().join("tmp")] {
            std::fs::create_dir(made).unwrap();
            home.give(made);
        }
        home.give(home.folder.path());
        home
    }

    /// The folder around everything, which is HOME.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file of the user's, by its path below the home, with the folders it needs.
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(path);
        for folder in
            path.parent().unwrap().ancestors().take_while(|folder| !folder.exists()).collect::<Vec<_>>().iter().rev()
        {
            std::fs::create_dir(folder).unwrap();
            self.give(folder);
        }
        std::fs::write(&path, text).unwrap();
        self.give(&path);
        path
    }

    /// Makes the user the owner.
    pub fn give(&self, path: &Path) {
        if let User::Ordinary(id) = self.user {
            std::os::unix::fs::lchown(path, Some(id), Some(id)).unwrap();
        }
    }

    /// The user's configuration, so that `model` answers in the given style (`pair` or `agent`).
    pub fn use_model(&self, model: &FakeModel, more: &str) {
        let text = format!(
            "model = \"scripted\"\nmodel_provider = \"fake\"\nintent = \"change\"\n{more}\n[model_providers.fake]\nname = \"fake\"\n\
             base_url = \"{}\"\nwire_api = \"responses\"\n",
            model.url
        );
        self.write("flint/config.toml", text);
    }

    /// The binary as this user, in the folder to work in, without anything of the real environment but PATH.
    pub fn flint(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(binary());
        command.args(arguments);
        command
    }

    /// Any program as this user.
    pub fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.work).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path()).env("FLINT_HOME", &self.flint).env("TMPDIR", self.path().join("tmp"));
        command.stdin(Stdio::null());
        if let User::Ordinary(id) = self.user {
            command.uid(id).gid(id);
        }
        command
    }

    /// Runs the binary to its end, at most a minute: who hangs has failed.
    pub fn run(&self, arguments: &[&str]) -> Output {
        output(self.flint(arguments), Duration::from_secs(60))
    }
}

/// What a command printed. One that takes longer is killed, and the test fails.
pub fn output(mut command: Command, limit: Duration) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let reader = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            bytes
        })
    };
    let (out, err) = (reader(Box::new(child.stdout.take().unwrap())), reader(Box::new(child.stderr.take().unwrap())));
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begun.elapsed() > limit => {
                let group = nix::unistd::Pid::from_raw(-i32::try_from(child.id()).unwrap());
                let _ = nix::sys::signal::kill(group, nix::sys::signal::Signal::SIGKILL);
                let _ = child.wait();
                panic!("{command:?} took longer than {limit:?}");
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    Output { status, stdout: out.join().unwrap(), stderr: err.join().unwrap() }
}

/// Everything a command printed, as text.
pub fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// One answer of the fake model: the output items of a response.
#[derive(Clone, Debug)]
pub struct Answer(pub Vec<Value>);

impl Answer {
    /// Words.
    pub fn text(text: &str) -> Self {
        Self(vec![json!({
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        })])
    }

    /// A tool call.
    pub fn call(tool: &str, arguments: &Value) -> Self {
        Self(vec![json!({
            "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool, "status": "completed",
            "arguments": arguments.to_string(),
        })])
    }
}

/// A Responses provider on a loopback socket. After the prepared answers it says `Done.`
pub struct FakeModel {
    pub url: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl FakeModel {
    pub fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let seen = requests.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answers) = (seen.clone(), answers.clone());
                std::thread::spawn(move || serve(stream, &seen, &answers));
            }
        });
        Self { url, requests }
    }

    /// Bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, requests: &Mutex<Vec<Value>>, answers: &Mutex<VecDeque<Answer>>) -> Option<()> {
    let body = provider::request(&mut stream)?;
    let number = {
        let mut requests = requests.lock().unwrap();
        requests.push(body);
        requests.len()
    };
    let answer = answers.lock().unwrap().pop_front().unwrap_or_else(|| Answer::text("Done."));
    let mut events = Events::begin(stream)?;
    let id = format!("resp_{number}");
    events.send(json!({"type": "response.created", "response": {"id": id, "status": "in_progress"}}))?;
    for (index, item) in answer.0.iter().enumerate() {
        events.send(json!({"type": "response.output_item.added", "output_index": index, "item": item}))?;
        let (part, text) = match item["type"].as_str() {
            Some("message") => ("response.output_text.delta", &item["content"][0]["text"]),
            _ => ("response.function_call_arguments.delta", &item["arguments"]),
        };
        let delta =
            json!({"type": part, "item_id": item["id"], "output_index": index, "content_index": 0, "delta": text});
        events.send(delta)?;
        events.send(json!({"type": "response.output_item.done", "output_index": index, "item": item}))?;
    }
    let usage = json!({"input_tokens": 100, "output_tokens": 1, "total_tokens": 101});
    let done = json!({"id": id, "status": "completed", "output": answer.0, "usage": usage});
    events.send(json!({"type": "response.completed", "response": done}))
}
