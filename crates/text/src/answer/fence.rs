//! Code fences that are no calls. Inside one everything is text, and the backticks that close it open nothing.

/// An open fence.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    /// Its backticks; as many close it.
    ticks: usize,
    /// Still on the line that opened it, where any backticks close it: ```` ```like this``` ````.
    first_line: bool,
    /// Only white space and backticks on this line so far.
    blank: bool,
    /// Backticks just before.
    run: usize,
    /// Enough backticks stand alone on this line so far.
    closing: bool,
}

impl Fence {
    /// Behind its opening backticks.
    pub fn new(ticks: usize) -> Fence {
        Fence { ticks, first_line: true, blank: false, run: 0, closing: false }
    }

    /// Somewhere inside, not at the start of a line.
    pub fn inside(ticks: usize) -> Fence {
        Fence { first_line: false, ..Fence::new(ticks) }
    }

    /// Reads on; gives where the fence is closed, if it is.
    pub fn read(&mut self, text: &str) -> Option<usize> {
        for (at, byte) in text.bytes().enumerate() {
            if byte == b'`' {
                self.run += usize::from(self.first_line || self.blank);
                continue;
            }
            if self.run >= self.ticks {
                if self.first_line {
                    return Some(at);
                }
                self.closing = true;
            }
            self.run = 0;
            if byte == b'\n' {
                if self.closing {
                    return Some(at);
                }
                (self.first_line, self.blank) = (false, true);
            } else if !byte.is_ascii_whitespace() {
                (self.blank, self.closing) = (false, false);
            }
        }
        None
    }
}
