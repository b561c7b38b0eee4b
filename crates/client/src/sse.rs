//! Server-sent events, read as they arrive: bytes in any pieces, the data of whole events out.
//!
//! Only `data:` matters, because every event of the protocol names its type inside. Comments keep the connection alive.

use std::collections::VecDeque;

/// Reads server-sent events from pieces cut anywhere.
#[derive(Debug)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The last byte was a carriage return, so a line feed that follows belongs to it.
    after_return: bool,
    /// Lines seen; a byte order mark may stand before the first.
    first_line: bool,
    bytes_max: usize,
    ready: VecDeque<String>,
}

/// An event is longer than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl SseParser {
    /// A parser of events of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            after_return: false,
            first_line: true,
            bytes_max,
            ready: VecDeque::new(),
        }
    }

    /// Takes the next piece.
    pub fn push(&mut self, mut piece: &[u8]) -> Result<(), TooLong> {
        while let Some(&first) = piece.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                piece = &piece[1..];
                continue;
            }
            let Some(end) = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.line.extend_from_slice(piece);
                return self.check();
            };
            self.line.extend_from_slice(&piece[..end]);
            self.check()?;
            self.after_return = piece[end] == b'\r';
            piece = &piece[end + 1..];
            self.end_line();
        }
        Ok(())
    }

    /// The data of the next whole event.
    pub fn pop(&mut self) -> Option<String> {
        self.ready.pop_front()
    }

    fn check(&self) -> Result<(), TooLong> {
        if self.line.len() + self.data.len() > self.bytes_max { Err(TooLong) } else { Ok(()) }
    }

    fn end_line(&mut self) {
        let mut line = self.line.as_slice();
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                self.ready.push_back(String::from_utf8_lossy(&self.data).into_owned());
            }
            self.data.clear();
        } else if let Some(rest) = line.strip_prefix(b"data")
            && matches!(rest.first(), None | Some(b':'))
        {
            let value = rest.strip_prefix(b":").unwrap_or(rest);
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = "\u{feff}: hello\ndata: {\"a\":1}\n\nevent: x\r\nid: 7\r\ndata:two\r\ndata:  lines\r\n\r\n\
                          :ping\r\rdata: \u{1f525} done\r\rdatabase: no\n\ndata\n\ndata: half";
    const EXPECTED: [&str; 4] = ["{\"a\":1}", "two\n lines", "\u{1f525} done", ""];

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut parser = SseParser::new(1000);
        for piece in pieces {
            parser.push(piece).unwrap();
        }
        std::iter::from_fn(|| parser.pop()).collect()
    }

    #[test]
    fn a_stream_cut_at_every_byte_reads_the_same() {
        let bytes = STREAM.as_bytes();
        assert_eq!(read(&[bytes]), EXPECTED);
        for cut in 0..=bytes.len() {
            assert_eq!(read(&[&bytes[..cut], &bytes[cut..]]), EXPECTED, "cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read(&single), EXPECTED);
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = SseParser::new(20);
        assert_eq!(parser.push(b"data: 0123456789\n"), Ok(()));
        assert_eq!(parser.push(b"data: 0123456789\n"), Err(TooLong));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            events in proptest::collection::vec("[a-z{}:\" ]{0,20}", 0..8),
            sizes in proptest::collection::vec(1usize..9, 1..40),
        ) {
            let text: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
            let mut rest = text.as_bytes();
            let mut pieces = Vec::new();
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            prop_assert_eq!(read(&pieces), events);
        }
    }
}
