//! `flint serve` for the length of one test, with a state directory of its own.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// The key every client sends. Only a server started with [`Server::start_with_key`] looks at it.
pub const KEY: &str = "flint-test-key";
/// Reading and packing the default model takes seconds; the rest is for a machine that does something else as well.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How much of the log a failed test shows.
const LOG_LINES_SHOWN: usize = 200;

/// A running server. Dropping it ends the process, and shows its log when the test failed.
pub struct Server {
    process: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Server {
    /// Starts a server on a free loopback port and waits until it listens.
    pub fn start(model: &str) -> Self {
        Self::start_with(model, &[])
    }

    /// The same, with more arguments.
    pub fn start_with(model: &str, arguments: &[&str]) -> Self {
        Self::start_in(crate::scratch("server-"), model, arguments)
    }

    /// The same, for clients that send [`KEY`] only.
    pub fn start_with_key(model: &str) -> Self {
        let directory = crate::scratch("server-");
        let file = directory.path().join("keys");
        fs::write(&file, format!("{KEY}\n")).expect("the key file");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("the key file is ours alone");
        let file = file.to_str().unwrap().to_owned();
        Self::start_in(directory, model, &["--api-key-file", &file])
    }

    fn start_in(directory: tempfile::TempDir, model: &str, arguments: &[&str]) -> Self {
        let pulled = flint().args(["models", "pull", model]).status().expect("flint starts");
        assert!(pulled.success(), "flint models pull {model}: {pulled}");
        let log = File::create(directory.path().join("log")).expect("the log file");
        let port_file = directory.path().join("port");
        let process = flint()
            .args(["serve", "--no-socket", "--host", "127.0.0.1", "--port", "0", "--model", model])
            .arg("--port-file")
            .arg(&port_file)
            .arg("--state")
            .arg(directory.path().join("state"))
            .args(arguments)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("flint starts");
        let mut server = Self { process, port: 0, directory };
        let start = Instant::now();
        server.port = loop {
            if let Some(port) = fs::read_to_string(&port_file).ok().and_then(|text| text.trim().parse().ok()) {
                break port;
            }
            let status = server.process.try_wait().expect("the state of the process");
            assert!(status.is_none(), "flint serve ended before it listened: {}", status.unwrap());
            assert!(start.elapsed() < START_LIMIT, "flint serve does not listen after {START_LIMIT:?}");
            thread::sleep(Duration::from_millis(20));
        };
        println!("{model} listens after {:.1} s", start.elapsed().as_secs_f64());
        server
    }

    /// What clients call the base URL: up to and with `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// The server without a path.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The body of `GET` on a path, as text.
    pub fn get(&self, path: &str) -> String {
        self.request("GET", path, "")
    }

    /// What comes back when JSON is sent to a path.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.request("POST", path, &body.to_string());
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    fn request(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server listens");
        let head = format!("{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).expect("the request is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the answer is read");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(" 200 "), "{method} {path}: {answer}");
        body.to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            println!("the server's log:\n{}", lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n"));
        }
    }
}

/// Lines of JSON, as `codex exec --json` prints them.
pub fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn flint() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
    command.stdin(Stdio::null()).env_remove("FLINT_MODEL").env_remove("FLINT_KERNELS");
    command
}
