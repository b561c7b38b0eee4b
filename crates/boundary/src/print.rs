//! Writing to standard output and standard error: the one way for words to a terminal, so that whatever was printed was
//! cleaned. Clippy refuses `println!` and its like elsewhere (see `clippy.toml`).
//!
//! [`outln!`](crate::outln), [`errln!`](crate::errln), [`out!`](crate::out) and [`err!`](crate::err) stand for the
//! standard library's macros; [`stdout`] and [`stderr`] are writers that clean what passes through. Colours of our own are
//! given apart from the text ([`Stream::styled`]) and so survive.

use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, IsTerminal, Result, Write};

use crate::terminal::{clean, clean_json};

/// Which of the two it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Out,
    Err,
}

/// A writer to standard output or standard error that cleans text on its way (see [`clean`]).
///
/// Bytes may come in pieces cut anywhere: half a character, or a carriage return that a line feed may follow, waits for
/// what comes next. What is no UTF-8 becomes U+FFFD.
#[derive(Debug)]
pub struct Stream {
    to: To,
    exact: bool,
    /// Bytes that cannot be judged yet: at most three, of one character.
    pending: Vec<u8>,
}

/// Standard output, cleaned.
pub fn stdout() -> Stream {
    Stream { to: To::Out, exact: false, pending: Vec::new() }
}

/// Standard error, cleaned.
pub fn stderr() -> Stream {
    Stream { to: To::Err, exact: false, pending: Vec::new() }
}

/// Whether standard output is a terminal.
#[allow(clippy::disallowed_methods, reason = "nothing is written")]
pub fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Whether standard error is a terminal.
#[allow(clippy::disallowed_methods, reason = "nothing is written")]
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

impl Stream {
    /// Byte for byte where no terminal is: for what a program or a file is to get as it is.
    pub fn exact_unless_terminal(mut self) -> Self {
        self.exact = !match self.to {
            To::Out => stdout_is_terminal(),
            To::Err => stderr_is_terminal(),
        };
        self
    }

    /// Text in a style of ours: `style` is the number of an SGR sequence, such as 31 for red.
    pub fn styled(&mut self, style: u8, text: &str) -> Result<()> {
        self.settle()?;
        self.send(format!("\x1b[{style}m{}\x1b[0m", clean(text)).as_bytes())
    }

    /// Writes what still waited for its other half: nothing follows it any more.
    fn settle(&mut self) -> Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return Ok(());
        }
        self.send(clean(&String::from_utf8_lossy(&pending)).as_bytes())
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that may")]
    fn send(&self, bytes: &[u8]) -> Result<()> {
        match self.to {
            To::Out => std::io::stdout().lock().write_all(bytes),
            To::Err => std::io::stderr().lock().write_all(bytes),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.exact {
            self.send(bytes)?;
            return Ok(bytes.len());
        }
        let mut all = std::mem::take(&mut self.pending);
        all.extend_from_slice(bytes);
        let whole = judged(&all);
        self.pending = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        self.send(clean(&text).as_bytes())?;
        Ok(bytes.len())
    }

    #[allow(clippy::disallowed_methods, reason = "the one place that may")]
    fn flush(&mut self) -> Result<()> {
        match self.to {
            To::Out => std::io::stdout().lock().flush(),
            To::Err => std::io::stderr().lock().flush(),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = self.settle();
    }
}

/// How many of the bytes can be judged without what follows.
fn judged(bytes: &[u8]) -> usize {
    if bytes.last() == Some(&b'\r') {
        return bytes.len() - 1;
    }
    // The beginning of a character, at most three bytes from the end, whose rest has not come yet.
    let start = bytes.iter().rev().take(3).position(|byte| byte & 0xc0 == 0xc0).map(|back| bytes.len() - 1 - back);
    let Some(start) = start else { return bytes.len() };
    match std::str::from_utf8(&bytes[start..]) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => start,
        _ => bytes.len(),
    }
}

/// One line of JSON on standard output. What a terminal would obey is escaped, so the value is the same.
pub fn json_line(value: &impl Display) -> Result<()> {
    let mut out = stdout();
    // Sent as it is: JSON has no line feed but between its parts, and cleaning it as text would change its value.
    out.send(format!("{}\n", clean_json(&value.to_string())).as_bytes())?;
    out.flush()
}

/// What the macros do. A reader that has gone is no failure; another reason is one, as with the standard library's.
#[doc(hidden)]
pub fn say(mut to: Stream, text: Arguments<'_>, end: &str) {
    // Cleaned as one text, so that a line is written in one piece.
    let written = to.write_all(format!("{text}{end}").as_bytes()).and_then(|()| to.flush());
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => panic!("cannot print: {error}"),
        _ => {}
    }
}

/// As `println!`, cleaned.
#[macro_export]
macro_rules! outln {
    () => { $crate::print::say($crate::print::stdout(), format_args!(""), "\n") };
    ($($text:tt)*) => { $crate::print::say($crate::print::stdout(), format_args!($($text)*), "\n") };
}

/// As `print!`, cleaned.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => { $crate::print::say($crate::print::stdout(), format_args!($($text)*), "") };
}

/// As `eprintln!`, cleaned.
#[macro_export]
macro_rules! errln {
    () => { $crate::print::say($crate::print::stderr(), format_args!(""), "\n") };
    ($($text:tt)*) => { $crate::print::say($crate::print::stderr(), format_args!($($text)*), "\n") };
}

/// As `eprint!`, cleaned.
#[macro_export]
macro_rules! err {
    ($($text:tt)*) => { $crate::print::say($crate::print::stderr(), format_args!($($text)*), "") };
}

/// Has the messages of panics cleaned too: they quote what the program was working on.
pub fn clean_panics() {
    std::panic::set_hook(Box::new(|info| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        let _ = writeln!(stderr(), "thread '{}' {info}", thread.name().unwrap_or("without a name"));
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            let _ = writeln!(stderr(), "{backtrace}");
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_anywhere_is_judged_when_it_is_whole() {
        for (bytes, whole) in [
            (&b""[..], 0),
            (b"a", 1),
            (b"a\r", 1),
            (b"\xc3", 0),
            ("\u{e9}".as_bytes(), 2),
            (b"a\xe2\x80", 1),
            (b"a\xf0\x9f\x98", 1),
            (b"\x9b", 1),
            (b"a\xff", 2),
            (b"\xc3a", 2),
            (b"\xc0", 1),
        ] {
            assert_eq!(judged(bytes), whole, "{bytes:?}");
        }
        // Every cut of a text gives the same pieces in the end, and no byte is lost.
        let text = "a\u{202e}\u{1f600}\r\nb\u{9b}c".as_bytes();
        for cut in 0..text.len() {
            let first = judged(&text[..cut]);
            let rest = [&text[first..cut], &text[cut..]].concat();
            let joined =
                clean(&String::from_utf8_lossy(&text[..first])).into_owned() + &clean(&String::from_utf8_lossy(&rest));
            assert_eq!(joined, "a\u{fffd}\u{1f600}\nb\u{fffd}c", "cut at {cut}");
        }
    }
}
