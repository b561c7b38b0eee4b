//! The real binary serving a real model, as a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::ServeBenchArgs;

/// A running `flint serve`; killed when dropped.
pub struct Served {
    child: Child,
    /// Where it listens.
    pub port: u16,
}

impl Served {
    /// Starts the server and waits until it answers. The model must be here already.
    pub fn start(model: &str, args: &ServeBenchArgs, state: &Path) -> Result<Self> {
        let port_file = state.join("port");
        let _ = std::fs::remove_file(&port_file);
        let mut command = boundary::program::ourselves(&std::env::current_dir()?)?;
        command.args(["serve", "--offline", "--port", "0", "--log-level", "warn", "--model", model, "--no-socket"]);
        command.args(args.device_arguments());
        command.arg("--state").arg(state).arg("--port-file").arg(&port_file);
        let child = command.stdout(Stdio::null()).stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut served = Self { child, port: 0 };
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Some(status) = served.child.try_wait()? {
                bail!("flint serve --model {model} ended with {status}");
            }
            if let Ok(port) = std::fs::read_to_string(&port_file) {
                served.port = port.parse().context("the port file")?;
                return Ok(served);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("flint serve --model {model} did not begin to listen")
    }

    /// Memory it holds now.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = PathBuf::from(format!("/proc/{}/status", self.child.id()));
        load::kilobytes(&status, "VmRSS").context("the memory of the server")
    }

    /// Ends it without warning, as a crash would.
    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// A number of `/metrics`, summed over its labels that contain `label`.
    pub async fn metric(&self, name: &str, label: &str) -> Result<f64> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let values = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        Ok(values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
