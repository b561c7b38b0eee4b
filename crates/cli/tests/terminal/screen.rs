//! `flint` on a pseudo-terminal, and the screen that a person would see.

use std::io::{ErrorKind, Read, Write};
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use pty_process::blocking::{Command, Pty, open};

/// How long anything may take before a test gives up: the machine may be busy, and a cold model is loaded once.
const PATIENCE: Duration = Duration::from_secs(120);

/// Rows that have left the screen and are remembered, as terminals do.
const SCROLLBACK: usize = 2_000;

/// A terminal with `flint` in it.
pub struct Screen {
    child: Child,
    pty: Arc<Pty>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

struct Seen {
    parser: vt100::Parser,
    ended: bool,
}

impl Screen {
    /// Starts a command on a terminal of a size.
    pub fn start(command: Command, size: (u16, u16)) -> Screen {
        Screen::start_after("", command, size)
    }

    /// The same on a terminal on which other programs have printed.
    pub fn start_after(before: &str, command: Command, (columns, rows): (u16, u16)) -> Screen {
        let (pty, side) = open().unwrap();
        pty.resize(pty_process::Size::new(rows, columns)).unwrap();
        let child = command.env("TERM", "xterm-256color").spawn(side).unwrap();
        let mut seen = Seen { parser: vt100::Parser::new(rows, columns, SCROLLBACK), ended: false };
        seen.parser.process(before.as_bytes());
        let seen = Arc::new((Mutex::new(seen), Condvar::new()));
        let pty = Arc::new(pty);
        let (reader, told) = (Arc::clone(&pty), Arc::clone(&seen));
        std::thread::spawn(move || read(&reader, &told));
        Screen { child, pty, seen }
    }

    /// Presses keys.
    pub fn keys(&self, keys: &str) {
        (&*self.pty).write_all(keys.as_bytes()).unwrap();
    }

    /// Writes a line and presses Enter. The line must be on the screen first, or a completion could take the Enter.
    pub fn enter(&self, line: &str) {
        // What is typed before the program reads keys one by one is lost.
        self.sees("›");
        self.keys(line);
        let end: String = line.chars().rev().take(12).collect::<Vec<_>>().into_iter().rev().collect();
        self.wait("the line is written", |text| text.contains(&end));
        self.keys("\r");
    }

    /// What is on the screen now.
    pub fn text(&self) -> String {
        self.seen.0.lock().unwrap().parser.screen().contents()
    }

    /// The rows from the first question to the end of what was said.
    pub fn conversation(&self) -> std::ops::Range<u16> {
        let seen = self.seen.0.lock().unwrap();
        let (_, columns) = seen.parser.screen().size();
        let rows: Vec<String> = seen.parser.screen().rows(0, columns).collect();
        let first = rows.iter().position(|row| row.starts_with('›')).unwrap();
        let rule = rows.iter().position(|row| row.starts_with("──")).unwrap();
        let last = (first..rule).rev().find(|&row| !rows[row].trim().is_empty()).unwrap();
        first as u16..last as u16 + 1
    }

    /// Rows as text, without blanks at their ends.
    pub fn lines(&self, rows: std::ops::Range<u16>) -> Vec<String> {
        let seen = self.seen.0.lock().unwrap();
        let (_, columns) = seen.parser.screen().size();
        let all = seen.parser.screen().rows(0, columns).map(|row| row.trim_end().to_owned());
        all.skip(rows.start.into()).take(rows.len()).collect()
    }

    /// Reads the screen.
    pub fn look<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.seen.0.lock().unwrap().parser.screen())
    }

    /// What has scrolled away and what is on the screen now.
    pub fn history(&self) -> Vec<String> {
        let mut seen = self.seen.0.lock().unwrap();
        let screen = seen.parser.screen_mut();
        let (_, columns) = screen.size();
        screen.set_scrollback(usize::MAX);
        let mut rows = Vec::new();
        for above in (0..=screen.scrollback()).rev() {
            screen.set_scrollback(above);
            if above > 0 {
                rows.extend(screen.rows(0, columns).next());
            } else {
                rows.extend(screen.rows(0, columns));
            }
        }
        rows
    }

    /// Whether a cell of the row that begins so has a colour.
    pub fn has_color(&self, start: &str) -> bool {
        let seen = self.seen.0.lock().unwrap();
        let screen = seen.parser.screen();
        let (_, columns) = screen.size();
        let row = screen.rows(0, columns).position(|row| row.trim_start().starts_with(start)).unwrap() as u16;
        (0..columns).filter_map(|column| screen.cell(row, column)).any(|cell| cell.fgcolor() != vt100::Color::Default)
    }

    /// Waits until the screen shows something, and says how long that took.
    pub fn wait(&self, what: &str, shows: impl Fn(&str) -> bool) -> Duration {
        self.wait_for(what, |screen| shows(&screen.contents()))
    }

    /// Waits until all rows together show something.
    pub fn wait_rows(&self, what: &str, shows: impl Fn(&[String]) -> bool) -> Duration {
        self.wait_for(what, |screen| {
            let (_, columns) = screen.size();
            shows(&screen.rows(0, columns).collect::<Vec<_>>())
        })
    }

    fn wait_for(&self, what: &str, shows: impl Fn(&vt100::Screen) -> bool) -> Duration {
        let began = Instant::now();
        let (lock, changed) = &*self.seen;
        let mut seen = lock.lock().unwrap();
        loop {
            if shows(seen.parser.screen()) {
                return began.elapsed();
            }
            let text = seen.parser.screen().contents();
            assert!(!seen.ended, "flint ended before {what}; the screen was:\n{text}");
            assert!(began.elapsed() < PATIENCE, "never seen: {what}; the screen is:\n{text}");
            seen = changed.wait_timeout(seen, Duration::from_secs(1)).unwrap().0;
        }
    }

    /// Waits for a text.
    pub fn sees(&self, text: &str) -> Duration {
        self.wait(text, |screen| screen.contains(text))
    }

    /// Another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.seen.0.lock().unwrap().parser.screen_mut().set_size(rows, columns);
        self.pty.resize(pty_process::Size::new(rows, columns)).unwrap();
    }

    /// Ends it without a warning.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended by itself, and gives its exit code and what is on the screen then.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let (lock, changed) = &*self.seen;
        let began = Instant::now();
        let mut seen = lock.lock().unwrap();
        while !seen.ended {
            assert!(
                began.elapsed() < PATIENCE,
                "flint did not end; the screen is:\n{}",
                seen.parser.screen().contents()
            );
            seen = changed.wait_timeout(seen, Duration::from_secs(1)).unwrap().0;
        }
        let text = seen.parser.screen().contents();
        drop(seen);
        (self.child.wait().unwrap().code(), text)
    }

    /// Leaves as a person does, and checks that the terminal is given back. Gives what is on the first screen then.
    pub fn leave(&mut self) -> String {
        self.keys("\x15\x04");
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < PATIENCE, "flint did not end; the screen is:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}:\n{}", self.text());
        let (lock, changed) = &*self.seen;
        let mut seen = lock.lock().unwrap();
        while !seen.ended {
            seen = changed.wait(seen).unwrap();
        }
        let screen = seen.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
        screen.contents()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(pty: &Pty, told: &(Mutex<Seen>, Condvar)) {
    let mut buffer = [0; 64 * 1024];
    let mut pty = pty;
    loop {
        match pty.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                let mut seen = lock(told);
                seen.parser.process(&buffer[..count]);
                // Asked where the cursor is, a terminal answers.
                if buffer[..count].windows(4).any(|window| window == b"\x1b[6n") {
                    let (row, column) = seen.parser.screen().cursor_position();
                    let _ = pty.write_all(format!("\x1b[{};{}R", row + 1, column + 1).as_bytes());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // This is how a pseudo-terminal says that its last process has ended.
            Err(_) => break,
        }
        told.1.notify_all();
    }
    lock(told).ended = true;
    told.1.notify_all();
}

/// A test that failed while it looked must not make the reader fail too.
fn lock(told: &(Mutex<Seen>, Condvar)) -> std::sync::MutexGuard<'_, Seen> {
    told.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
