//! Reads along with an answer, byte by byte, and says where calls begin and end.
//!
//! A call may begin after `<tool_call>` or a tag like it, after the first line of a fence, at the start of a line outside of
//! fences, at the start of the answer (or after its thoughts), and after another call. It has begun for certain once its name is known and its arguments come next:
//! `{"name": "T", "arguments":`. Until then the text may turn out to be anything, and nothing happens.

use super::marks::MarkWatcher;
use crate::dialect::Dialect;

/// Blanks between two words of a call, at most.
const BLANKS: usize = 64;
/// Bytes of a line that are kept. The marks to find are shorter.
const LINE: usize = 80;
/// Tags other than `<tool_call>` that a call may stand in. Text for custom tools is written in that one only.
const TAGS: [&[u8]; 5] = [b"<tool_calls>", b"<tools>", b"<tool>", b"<function_call>", b"<function_calls>"];
/// First lines of fences that a call may stand in.
const FENCES: [&[u8]; 6] = [b"```", b"```json", b"```tool_call", b"```tool_calls", b"```tools", b"```function_call"];

/// What the last byte brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Nothing.
    None,
    /// The arguments of this tool come next, maybe after blanks.
    Arguments(usize),
    /// The arguments are complete.
    ArgumentsEnd,
    /// The text of this custom tool comes next.
    Text(usize),
}

/// A tool, as far as reading is concerned.
#[derive(Debug, Clone)]
pub(super) struct Name {
    /// Its name as a JSON string.
    pub quoted: Vec<u8>,
    /// Its name as it is.
    pub plain: Vec<u8>,
    /// Whether text follows and not arguments.
    pub custom: bool,
}

/// Reads along with an answer in any dialect.
#[derive(Debug, Clone)]
pub(super) enum Watcher {
    Tags(TagWatcher),
    Marks(MarkWatcher),
}

impl Watcher {
    pub fn new(dialect: Dialect) -> Watcher {
        match dialect.markers() {
            [] => Watcher::Tags(TagWatcher::new(dialect)),
            _ => Watcher::Marks(MarkWatcher::new(dialect)),
        }
    }

    /// Forgets the call at hand; the next ones are found as ever.
    pub fn reset(&mut self) {
        match self {
            Watcher::Tags(watcher) => watcher.reset(),
            Watcher::Marks(watcher) => watcher.reset(),
        }
    }

    /// A byte of text.
    pub fn push(&mut self, byte: u8, names: &[Name]) -> Event {
        match self {
            Watcher::Tags(watcher) => watcher.push(byte, names),
            Watcher::Marks(watcher) => watcher.push(byte, names),
        }
    }

    /// A marker of the dialect.
    pub fn marker(&mut self, marker: &str, names: &[Name]) -> Event {
        match self {
            Watcher::Tags(_) => Event::None,
            Watcher::Marks(watcher) => watcher.marker(marker, names),
        }
    }
}

/// Where in an answer of text we are.
#[derive(Debug, Clone)]
pub(super) struct TagWatcher {
    dialect: Dialect,
    state: State,
    /// The end of the current line.
    line: Vec<u8>,
    /// Whether `line` is all of it.
    whole: bool,
    /// Whether the line is in a fence.
    fenced: bool,
}

#[derive(Debug, Clone)]
enum State {
    /// Text.
    Idle,
    /// A call may begin here, after blanks and one bracket.
    Opened { tags: bool, blanks: usize },
    /// The beginning of what may be a call.
    Head { tags: bool, text: Vec<u8> },
    /// The arguments of a call.
    Arguments(Json),
    /// The same between tags.
    Xml(Xml),
    /// After arguments: the rest of a call, then maybe another one.
    After { closed: bool, blanks: usize },
}

/// Finds the end of arguments between tags.
#[derive(Debug, Clone)]
struct Xml {
    glm: bool,
    /// Inside of a value, where tags are text.
    value: bool,
    /// The last bytes.
    tail: Vec<u8>,
}

impl Xml {
    /// Whether the arguments are over.
    fn push(&mut self, byte: u8) -> bool {
        self.tail.push(byte);
        let (open, close, end): (&[u8], &[u8], &[u8]) = match self.glm {
            true => (b"<arg_value>", b"</arg_value>", b"</tool_call>"),
            false => (b"<parameter=", b"</parameter>", b"</function>"),
        };
        if byte == b'>' || byte == b'=' {
            if self.value {
                self.value = !self.tail.ends_with(close);
            } else if self.tail.ends_with(end) {
                return true;
            } else {
                self.value = self.tail.ends_with(open);
            }
        }
        if self.tail.len() > LINE {
            self.tail.drain(..LINE / 2);
        }
        false
    }
}

/// Finds the end of a JSON object.
#[derive(Debug, Clone, Default)]
pub(super) struct Json {
    depth: usize,
    string: bool,
    escape: bool,
}

/// What the beginning of a call says.
enum Head {
    Partial,
    Other,
    Arguments(usize),
    Text(usize),
}

impl TagWatcher {
    fn new(dialect: Dialect) -> TagWatcher {
        let state = State::Opened { tags: false, blanks: 0 };
        TagWatcher { dialect, state, line: Vec::new(), whole: true, fenced: false }
    }

    fn reset(&mut self) {
        self.state = State::Idle;
    }

    fn push(&mut self, byte: u8, names: &[Name]) -> Event {
        if let State::Xml(xml) = &mut self.state {
            if !xml.push(byte) {
                return Event::None;
            }
            self.state = State::After { closed: true, blanks: 0 };
            return Event::ArgumentsEnd;
        }
        if let State::Arguments(json) = &mut self.state {
            let end = json.push(byte);
            if end == Some(true) {
                self.state = State::After { closed: false, blanks: 0 };
                return Event::ArgumentsEnd;
            } else if end == Some(false) {
                self.reset();
            }
            return Event::None;
        }
        if let Some(tags) = self.opener(byte) {
            self.state = State::Opened { tags, blanks: 0 };
            return Event::None;
        }
        let blank = byte.is_ascii_whitespace();
        match &mut self.state {
            State::Opened { blanks, .. } | State::After { blanks, .. } if blank && *blanks < BLANKS => *blanks += 1,
            State::Opened { tags: true, .. } if self.dialect == Dialect::Qwen && byte == b'<' => {
                self.state = State::Head { tags: true, text: vec![byte] };
            }
            State::Opened { tags: true, .. } if self.dialect == Dialect::Glm && byte != b'{' => {
                self.state = State::Head { tags: true, text: vec![byte] };
            }
            // Calls in JSON are read and not held where the model was taught another form.
            State::Opened { .. } | State::After { .. } if self.dialect != Dialect::Hermes => self.reset(),
            State::Opened { blanks, .. } if byte == b'[' && *blanks < BLANKS => *blanks = BLANKS / 2,
            State::After { closed, .. } if byte == b'}' && !*closed => *closed = true,
            State::After { closed: true, .. } if byte == b',' => {}
            State::Opened { tags, .. } if byte == b'{' => self.state = State::Head { tags: *tags, text: vec![byte] },
            State::After { closed: true, .. } if byte == b'{' => {
                self.state = State::Head { tags: false, text: vec![byte] };
            }
            State::Head { tags, text } => {
                text.push(byte);
                let head = match self.dialect {
                    Dialect::Hermes => read_head(text, names, *tags),
                    _ => read_tagged(text, names),
                };
                return self.begin(head);
            }
            _ => self.reset(),
        }
        Event::None
    }

    fn begin(&mut self, head: Head) -> Event {
        match head {
            Head::Partial => Event::None,
            Head::Other => {
                self.reset();
                Event::None
            }
            Head::Arguments(tool) => {
                self.state = match self.dialect {
                    Dialect::Qwen | Dialect::Glm => {
                        State::Xml(Xml { glm: self.dialect == Dialect::Glm, value: false, tail: Vec::new() })
                    }
                    _ => State::Arguments(Json::default()),
                };
                Event::Arguments(tool)
            }
            Head::Text(tool) => {
                self.reset();
                Event::Text(tool)
            }
        }
    }

    /// Whether a call may begin after this byte, and then whether in tags.
    fn opener(&mut self, byte: u8) -> Option<bool> {
        if byte == b'\n' {
            let line = self.line.trim_ascii();
            let fence = self.whole && FENCES.contains(&line);
            if self.whole && line.starts_with(b"```") {
                let ticks = line.iter().take_while(|&&byte| byte == b'`').count();
                self.fenced = match self.fenced {
                    // Backticks further on close what was opened on the same line.
                    false => !line[ticks..].contains(&b'`'),
                    true => ticks < line.len(),
                };
            }
            self.line.clear();
            self.whole = true;
            return (fence || !self.fenced && matches!(self.state, State::Idle)).then_some(false);
        }
        self.line.push(byte);
        if self.line.len() > LINE {
            self.line.drain(..LINE / 2);
            self.whole = false;
        }
        if byte != b'>' {
            None
        } else if self.line.ends_with(b"<tool_call>") {
            Some(true)
        } else {
            let ends = |tag: &&[u8]| self.line.ends_with(tag);
            (ends(&&b"</think>"[..]) || TAGS.iter().any(ends)).then_some(false)
        }
    }
}

impl Json {
    /// Whether the object is complete; `Some(false)` when it is none.
    pub fn push(&mut self, byte: u8) -> Option<bool> {
        if self.string {
            match byte {
                _ if self.escape => self.escape = false,
                b'\\' => self.escape = true,
                b'"' => self.string = false,
                _ => {}
            }
            return None;
        }
        match byte {
            b'{' | b'[' if self.depth > 0 || byte == b'{' => self.depth += 1,
            b'}' | b']' if self.depth > 0 => {
                self.depth -= 1;
                return (self.depth == 0).then_some(true);
            }
            b'"' if self.depth > 0 => self.string = true,
            _ if self.depth == 0 && !byte.is_ascii_whitespace() => return Some(false),
            _ => {}
        }
        None
    }
}

/// Reads the beginning of a call without JSON: `<function=NAME>` and the end of its line, or a name and that end.
fn read_tagged(text: &[u8], names: &[Name]) -> Head {
    let (open, close): (&[u8], &[u8]) = if text.starts_with(b"<") { (b"<function=", b">\n") } else { (b"", b"\n") };
    let rest = match literal(text, open) {
        Ok(rest) => rest,
        Err(head) => return head,
    };
    let mut partial = false;
    for (tool, name) in names.iter().enumerate() {
        match literal(rest, &name.plain).and_then(|rest| literal(rest, close)) {
            Ok(_) => return Head::Arguments(tool),
            Err(head) => partial |= matches!(head, Head::Partial),
        }
    }
    if partial { Head::Partial } else { Head::Other }
}

/// Reads the beginning of a call. Called after every byte of it; beginnings are short.
fn read_head(text: &[u8], names: &[Name], tags: bool) -> Head {
    fn read(text: &[u8], names: &[Name], tags: bool) -> Result<Head, Head> {
        let text = literal(text, b"{")?;
        // Some models double the braces around a call.
        let text = blanks(text.strip_prefix(b"{").unwrap_or(text))?;
        let text = blanks(literal(text, b"\"name\"")?)?;
        let text = blanks(literal(text, b":")?)?;
        let (tool, text) = any_name(text, names)?;
        let text = blanks(text)?;
        if names[tool].custom {
            let text = literal(text, b"}")?;
            let spaces = text.iter().take_while(|&&byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
            literal(&text[spaces..], b"\n")?;
            return Ok(if tags && spaces <= BLANKS { Head::Text(tool) } else { Head::Other });
        }
        let text = blanks(literal(text, b",")?)?;
        let text = literal(text, b"\"arguments\"").or_else(|no| match no {
            Head::Partial => Err(no),
            _ => literal(text, b"\"parameters\""),
        })?;
        literal(blanks(text)?, b":")?;
        Ok(Head::Arguments(tool))
    }
    read(text, names, tags).unwrap_or_else(|head| head)
}

/// The text after some exact bytes.
fn literal<'a>(text: &'a [u8], bytes: &[u8]) -> Result<&'a [u8], Head> {
    match text.strip_prefix(bytes) {
        Some(rest) => Ok(rest),
        None if bytes.starts_with(text) => Err(Head::Partial),
        None => Err(Head::Other),
    }
}

/// The text after blanks.
fn blanks(text: &[u8]) -> Result<&[u8], Head> {
    let rest = text.trim_ascii_start();
    if text.len() - rest.len() > BLANKS { Err(Head::Other) } else { Ok(rest) }
}

/// The tool whose name comes next, and the text after it.
fn any_name<'a>(text: &'a [u8], names: &[Name]) -> Result<(usize, &'a [u8]), Head> {
    let mut partial = false;
    for (tool, name) in names.iter().enumerate() {
        match literal(text, &name.quoted) {
            Ok(rest) => return Ok((tool, rest)),
            Err(head) => partial |= matches!(head, Head::Partial),
        }
    }
    Err(if partial { Head::Partial } else { Head::Other })
}
