//! A process in a pseudo-terminal, watched.

use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pty_process::blocking::{Command, Pty, open};

/// What ends a frame.
const FRAME_END: &[u8] = b"\x1b[?2026l";

/// What was seen.
#[derive(Default)]
struct Seen {
    frames: Vec<Instant>,
    /// When each letter that is no ASCII was last seen.
    letters: Vec<(char, Instant)>,
    /// Bytes that may be the beginning of a mark or a letter.
    open: Vec<u8>,
    ended: bool,
}

/// A process on a terminal whose screen is read by a thread.
pub struct Watched {
    child: Child,
    terminal: Arc<Pty>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

impl Watched {
    /// Starts this program again with arguments, the last of which is a file, on a terminal of a size.
    pub fn start(arguments: &[&str], file: &Path, (columns, rows): (u16, u16)) -> Result<Watched> {
        let (terminal, side) = open().context("a pseudo-terminal")?;
        terminal.resize(pty_process::Size::new(rows, columns))?;
        let program = std::env::current_exe()?;
        let command = Command::new(program).args(arguments).arg(file).env("TERM", "xterm-256color");
        let child = command.spawn(side)?;
        let terminal = Arc::new(terminal);
        let seen: Arc<(Mutex<Seen>, Condvar)> = Arc::default();
        let (reader, told) = (Arc::clone(&terminal), Arc::clone(&seen));
        std::thread::spawn(move || read(&reader, &told));
        Ok(Watched { child, terminal, seen })
    }

    /// Presses keys.
    pub fn write(&self, keys: &[u8]) -> Result<()> {
        Ok((&*self.terminal).write_all(keys)?)
    }

    /// Presses a letter and waits until it is on the screen.
    pub fn echo(&self, letter: char, limit: Duration) -> Result<Duration> {
        let pressed = Instant::now();
        self.write(letter.encode_utf8(&mut [0; 4]).as_bytes())?;
        let (lock, changed) = &*self.seen;
        let mut seen = lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let echo = seen.letters.iter().find(|(found, at)| *found == letter && *at >= pressed);
            if let Some(&(_, at)) = echo {
                return Ok(at - pressed);
            }
            if seen.ended || pressed.elapsed() > limit {
                bail!("the key {letter} never came to the screen");
            }
            seen = changed.wait_timeout(seen, limit).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// When frames ended.
    pub fn frames_since(&self, began: Instant) -> Vec<Duration> {
        let seen = self.seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.frames.iter().filter_map(|at| at.checked_duration_since(began)).collect()
    }

    /// CPU time of all its threads so far.
    pub fn cpu(&self) -> Result<Duration> {
        let mut sum = Duration::ZERO;
        let tasks = format!("/proc/{}/task", self.child.id());
        for task in std::fs::read_dir(tasks).context("CPU times are read from /proc")? {
            // A thread may end while we look.
            let Ok(stat) = std::fs::read_to_string(task?.path().join("schedstat")) else { continue };
            let ran = stat.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0);
            sum += Duration::from_nanos(ran);
        }
        Ok(sum)
    }

    /// Waits until it has ended by itself.
    pub fn wait(&mut self, limit: Duration) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(status) = self.child.try_wait()? {
                anyhow::ensure!(status.success(), "the screen ended with {status}");
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("the screen did not end when it was asked to")
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(terminal: &Pty, told: &(Mutex<Seen>, Condvar)) {
    let mut buffer = [0; 64 * 1024];
    let mut terminal = terminal;
    loop {
        let count = match terminal.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // This is how a pseudo-terminal says that its last process has ended.
            Err(_) => break,
        };
        let now = Instant::now();
        told.0.lock().unwrap_or_else(PoisonError::into_inner).take(&buffer[..count], now);
        told.1.notify_all();
    }
    told.0.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
    told.1.notify_all();
}

impl Seen {
    fn take(&mut self, bytes: &[u8], now: Instant) {
        self.open.extend_from_slice(bytes);
        let marks = self.open.windows(FRAME_END.len()).filter(|window| *window == FRAME_END).count();
        self.frames.extend(std::iter::repeat_n(now, marks));
        for letter in String::from_utf8_lossy(&self.open).chars().filter(|letter| ('α'..='ω').contains(letter)) {
            self.letters.retain(|(known, _)| *known != letter);
            self.letters.push((letter, now));
        }
        // A mark or a letter may go on in the next bytes; one that is whole must not be counted again.
        let keep = open_end(&self.open);
        self.open.drain(..self.open.len() - keep);
    }
}

/// Bytes at the end that may be the beginning of a mark or a letter.
fn open_end(bytes: &[u8]) -> usize {
    let mark = (1..FRAME_END.len()).rev().find(|&length| bytes.ends_with(&FRAME_END[..length])).unwrap_or(0);
    mark.max(usize::from(bytes.last().is_some_and(|byte| *byte >= 0xc0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_letters_are_found_however_they_are_cut() {
        let output = "ab\x1b[?2026lα\x1b[?2026h\x1b[?2026lβ\x1b[".as_bytes();
        for cut in 0..output.len() {
            let mut seen = Seen::default();
            let now = Instant::now();
            seen.take(&output[..cut], now);
            seen.take(&output[cut..], now);
            assert_eq!(seen.frames.len(), 2, "cut at {cut}");
            assert_eq!(seen.letters.iter().map(|(letter, _)| *letter).collect::<String>(), "αβ", "cut at {cut}");
        }
    }
}
