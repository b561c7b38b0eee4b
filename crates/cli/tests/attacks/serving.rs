//! `flint serve` with tiny models, and clients that send what they like.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Home;

/// A template that does what it should.
pub const HONEST: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                          <|im_start|>assistant\n";

/// Writes a tiny model with this chat template into the home.
pub fn model(home: &Home, name: &str, template: &str) -> PathBuf {
    let mut file = testkit::chat::tiny_model(template);
    // Ids no byte has, so that it can fill in the middle as well.
    for (id, part) in (300..).zip(["prefix", "suffix", "middle"]) {
        file = file.meta(format!("tokenizer.ggml.{part}_token_id"), model::gguf::Value::U32(id));
    }
    home.write(name, file.bytes())
}

/// A server of its own; killed when dropped.
pub struct Server {
    child: Child,
    pub port: u16,
    pub home: Home,
}

impl Server {
    /// Serves these models on a port, with more options; state is in the home.
    pub fn start(home: Home, models: &[PathBuf], more: &[&str]) -> Self {
        let mut server = Self { child: spawn(&home, models, more), port: 0, home };
        server.listens();
        server
    }

    /// Kills the server and starts another on the same state.
    pub fn restart(&mut self, models: &[PathBuf], more: &[&str]) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        std::fs::remove_file(port_file(&self.home)).unwrap();
        self.child = spawn(&self.home, models, more);
        self.port = 0;
        self.listens();
    }

    fn listens(&mut self) {
        let begun = Instant::now();
        while self.port == 0 {
            assert!(begun.elapsed() < Duration::from_secs(120), "flint serve did not begin to listen");
            assert_eq!(self.child.try_wait().unwrap(), None, "flint serve ended");
            self.port = std::fs::read_to_string(port_file(&self.home)).unwrap_or_default().parse().unwrap_or(0);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The folder of stored responses and snapshots.
    pub fn state(&self) -> PathBuf {
        self.home.path().join("state")
    }

    /// Memory of the server and of the processes it started, in kB.
    pub fn memory_kb(&self) -> u64 {
        let resident = |pid: &str| -> u64 {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        let own = self.child.id().to_string();
        let mut sum = resident(&own);
        for task in std::fs::read_dir(format!("/proc/{own}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            sum += children.split_whitespace().map(resident).sum::<u64>();
        }
        sum
    }

    /// Processor time of the server and of the processes it started, in hundredths of a second.
    pub fn worked(&self) -> u64 {
        let used = |pid: &str, fields: usize| -> u64 {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            after_name.split_whitespace().skip(11).take(fields).filter_map(|field| field.parse::<u64>().ok()).sum()
        };
        let own = self.child.id().to_string();
        // Of the server itself with the children that have ended.
        let mut sum = used(&own, 4);
        for task in std::fs::read_dir(format!("/proc/{own}/task")).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            sum += children.split_whitespace().map(|child| used(child, 2)).sum::<u64>();
        }
        sum
    }

    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks the server to end, and does not wait for it.
    pub fn terminate(&self) {
        let id = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    }

    /// Whether the server has ended by itself within this time.
    pub fn ends_within(&mut self, limit: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if !self.runs() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn port_file(home: &Home) -> PathBuf {
    home.path().join("port")
}

fn spawn(home: &Home, models: &[PathBuf], more: &[&str]) -> Child {
    let models: Vec<String> = models.iter().map(|model| model.display().to_string()).collect();
    let mut command = home.flint(&["serve", "--offline", "--port", "0", "--model", &models.join(",")]);
    command.arg("--state").arg(home.path().join("state")).arg("--port-file").arg(port_file(home)).args(more);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Sends a request; the connection to read the answer from.
pub fn send(port: u16, method: &str, path: &str, key: Option<&str>, body: &[u8]) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = format!("{method} {path} HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n{key}");
    stream.write_all(format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes())?;
    stream.write_all(body)?;
    Ok(stream)
}

/// The status of an answer and its body; 0 when there was none.
pub fn ask(port: u16, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> (u16, String) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut bytes = Vec::new();
    if let Ok(mut stream) = send(port, method, path, key, body.as_bytes()) {
        let _ = stream.read_to_end(&mut bytes);
    }
    let text = String::from_utf8_lossy(&bytes);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// All files below a folder.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}
