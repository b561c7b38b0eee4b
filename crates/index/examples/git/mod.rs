//! A git that is asked for trees and contents, for laboratories.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What git says.
pub fn run(git: &Path, arguments: &[&str]) -> String {
    let out = Command::new("git").arg("-C").arg(git).args(arguments).output().unwrap();
    assert!(out.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// One git that gives contents.
pub struct Blobs {
    child: std::process::Child,
}

impl Blobs {
    /// Starts it.
    pub fn new(git: &Path) -> Self {
        let mut command = Command::new("git");
        command.arg("-C").arg(git).args(["cat-file", "--batch"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    /// Contents by their name.
    pub fn read(&mut self, blob: &str) -> Vec<u8> {
        writeln!(self.child.stdin.as_mut().unwrap(), "{blob}").unwrap();
        let out = self.child.stdout.as_mut().unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while byte != [b'\n'] {
            out.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let bytes = String::from_utf8(head).unwrap().trim().rsplit(' ').next().unwrap().parse::<usize>().unwrap();
        let mut contents = vec![0; bytes + 1];
        out.read_exact(&mut contents).unwrap();
        contents.truncate(bytes);
        contents
    }
}

impl Drop for Blobs {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
