//! The beginning of a tool call: recognised or rejected, as early as possible, from what has been written so far.
//!
//! Everything here is a function of the text alone, so it does not matter in which pieces the text came.

use super::ToolName;

/// Longest beginning of a call. A longer one (an `id` of kilobytes, a page of white space) is text; so a model that
/// never comes to the point is not held back for long, nor read again and again.
const OPENING_BYTES_MAX: usize = 2048;

/// Languages of a fence that may hold a call.
const FENCES: [&str; 7] = ["", "json", "tool_call", "tool_calls", "tools", "function_call", "xml"];

/// Tags that models put around calls, and what closes each. Prompts that list the tools in `<tools>` teach small models
/// to answer in it.
pub(super) const TAGS: [(&str, &str); 6] = [
    ("<tool_call>", "</tool_call>"),
    ("<tool_calls>", "</tool_calls>"),
    ("<tools>", "</tools>"),
    ("<tool>", "</tool>"),
    ("<function_call>", "</function_call>"),
    ("<function_calls>", "</function_calls>"),
];

/// Keys that may stand in a call before its arguments.
const KEYS: [&str; 8] = ["name", "arguments", "parameters", "input", "function", "type", "id", "call_id"];

/// Why there is no call to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// There may be one, once more text is there.
    More,
    /// There is none.
    No,
}

/// What a call is wrapped in, from the outside in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wrap {
    /// Backticks of the fence around it; 0 without one.
    pub fence: usize,
    /// What closes the tag it is in; `None` outside of any.
    pub tag: Option<&'static str>,
    /// Inside a JSON array.
    pub array: bool,
}

/// How a call goes on behind its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// The value of the arguments comes next, inside this many JSON objects.
    Arguments { tool: usize, depth: usize },
    /// The JSON object is over and had no arguments.
    NoArguments { tool: usize },
    /// `<parameter=...>` comes next.
    Xml { tool: usize },
    /// `<arg_key>` comes next.
    Keys { tool: usize },
}

/// A beginning of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opening {
    /// Its bytes. At least one more follows where arguments do.
    pub length: usize,
    pub wrap: Wrap,
    pub call: Call,
}

/// Reads the beginning of a call at the start of `text`.
pub(super) fn read(text: &str, tools: &[ToolName]) -> Result<Opening, Stop> {
    bounded(text, |cursor| cursor.opening(tools))
}

/// Reads `{"anything": "`, the beginning of an object whose first value is a string, and gives its length.
pub(super) fn read_string_field(text: &str) -> Result<usize, Stop> {
    bounded(text, |cursor| {
        cursor.expect(b'{')?;
        cursor.space();
        cursor.skip_string()?;
        cursor.space();
        cursor.expect(b':')?;
        cursor.space();
        cursor.expect(b'"')?;
        Ok(cursor.at)
    })
}

/// Reads no further than an opening may go; what is undecided there is none.
fn bounded<T>(text: &str, read: impl FnOnce(&mut Cursor<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
    let bytes = &text.as_bytes()[..text.len().min(OPENING_BYTES_MAX)];
    match read(&mut Cursor { bytes, at: 0 }) {
        Err(Stop::More) if text.len() >= OPENING_BYTES_MAX => Err(Stop::No),
        other => other,
    }
}

/// Whether `text` starts with `tag`; [`Stop::More`] while it may.
pub(super) fn starts_with(text: &[u8], tag: &str) -> Result<bool, Stop> {
    if text.len() < tag.len() && tag.as_bytes().starts_with(text) {
        return Err(Stop::More);
    }
    Ok(text.starts_with(tag.as_bytes()))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn opening(&mut self, tools: &[ToolName]) -> Result<Opening, Stop> {
        let mut wrap = Wrap::default();
        if self.peek()? == b'`' {
            wrap.fence = self.fence()?;
        }
        if self.peek()? == b'<' {
            // Some leave out the tag around it.
            if let Some(tool) = self.function(tools)? {
                return Ok(Opening { length: self.at, wrap, call: Call::Xml { tool } });
            }
            wrap.tag = self.tags()?;
            self.space();
            match self.peek()? {
                b'<' => {
                    let tool = self.function(tools)?.ok_or(Stop::No)?;
                    return Ok(Opening { length: self.at, wrap, call: Call::Xml { tool } });
                }
                b'{' | b'[' | b'`' => {}
                _ if wrap.tag == Some(TAGS[0].1) => {
                    let tool = self.bare_name(tools)?;
                    return Ok(Opening { length: self.at, wrap, call: Call::Keys { tool } });
                }
                _ => {}
            }
        }
        if self.peek()? == b'[' {
            wrap.array = true;
            self.at += 1;
            self.space();
        }
        let call = self.object(tools)?;
        Ok(Opening { length: self.at, wrap, call })
    }

    /// `<function=NAME>`; nothing where another tag stands.
    fn function(&mut self, tools: &[ToolName]) -> Result<Option<usize>, Stop> {
        match self.tag("<function=") {
            Ok(true) => self.choice(b'>', || tools.iter().map(|tool| &*tool.name)).map(Some),
            Ok(false) => Ok(None),
            // It may still be `<function_call>`.
            Err(more) => Err(more),
        }
    }

    /// A name as GLM writes it: up to the first key, or the end of the call.
    fn bare_name(&mut self, tools: &[ToolName]) -> Result<usize, Stop> {
        let rest = &self.bytes[self.at..];
        let mut more = false;
        for (tool, name) in tools.iter().enumerate() {
            let Some(behind) = rest.strip_prefix(name.name.as_bytes()) else {
                more |= name.name.as_bytes().starts_with(rest);
                continue;
            };
            let next = behind.trim_ascii_start();
            for tag in ["<arg_key>", TAGS[0].1] {
                match starts_with(next, tag) {
                    Ok(true) => {
                        self.at += rest.len() - next.len();
                        return Ok(tool);
                    }
                    Ok(false) => {}
                    Err(_) => more = true,
                }
            }
        }
        Err(if more { Stop::More } else { Stop::No })
    }

    /// An object that names a tool, up to its arguments or its end.
    fn object(&mut self, tools: &[ToolName]) -> Result<Call, Stop> {
        self.expect(b'{')?;
        let mut depth = 1;
        // Qwen2.5-Coder's template shows calls with doubled braces by mistake, and the model copies them.
        if self.peek()? == b'{' {
            self.at += 1;
            depth = 2;
        }
        let mut found = None;
        let mut first = true;
        loop {
            self.space();
            match self.peek()? {
                b'}' => {
                    self.at += 1;
                    depth -= 1;
                    if depth == 0 {
                        return found.map(|tool| Call::NoArguments { tool }).ok_or(Stop::No);
                    }
                    continue;
                }
                b',' if !first => {
                    self.at += 1;
                    self.space();
                }
                _ => {}
            }
            first = false;
            self.expect(b'"')?;
            let key = KEYS[self.choice(b'"', || KEYS.into_iter())?];
            self.space();
            self.expect(b':')?;
            self.space();
            match (key, self.peek()?) {
                ("name" | "function", b'"') => {
                    self.at += 1;
                    found = Some(self.choice(b'"', || tools.iter().map(|tool| &*tool.name))?);
                }
                ("function", b'{') if depth == 1 => {
                    self.at += 1;
                    depth = 2;
                    first = true;
                }
                ("arguments" | "parameters" | "input", _) => {
                    return found.map(|tool| Call::Arguments { tool, depth }).ok_or(Stop::No);
                }
                ("type" | "id" | "call_id", b'"') => self.skip_string()?,
                _ => return Err(Stop::No),
            }
        }
    }

    /// Three backticks or more, a language that fits, and white space.
    fn fence(&mut self) -> Result<usize, Stop> {
        let ticks = self.bytes.iter().take_while(|&&byte| byte == b'`').count();
        self.at = ticks;
        self.peek()?;
        if ticks < 3 {
            return Err(Stop::No);
        }
        let rest = &self.bytes[ticks..];
        let end = rest.iter().position(|byte| byte.is_ascii_whitespace() || b"{[<".contains(byte));
        let language = &rest[..end.unwrap_or(rest.len())];
        if end.is_some() && FENCES.iter().any(|fence| fence.as_bytes() == language) {
            self.at += language.len();
            self.space();
            return Ok(ticks);
        }
        let may_grow = end.is_none() && FENCES.iter().any(|fence| fence.as_bytes().starts_with(language));
        Err(if may_grow { Stop::More } else { Stop::No })
    }

    /// Which of `options` comes next, followed by `end`.
    fn choice<'b, I: Iterator<Item = &'b str>>(&mut self, end: u8, options: impl Fn() -> I) -> Result<usize, Stop> {
        let rest = &self.bytes[self.at..];
        match rest.iter().position(|&byte| byte == end) {
            Some(length) => {
                self.at += length + 1;
                options().position(|option| option.as_bytes() == &rest[..length]).ok_or(Stop::No)
            }
            None if options().any(|option| option.as_bytes().starts_with(rest)) => Err(Stop::More),
            None => Err(Stop::No),
        }
    }

    /// A JSON string, whatever it says.
    fn skip_string(&mut self) -> Result<(), Stop> {
        self.expect(b'"')?;
        loop {
            let byte = self.peek()?;
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return Ok(());
            }
        }
    }

    /// Passes over `tag` where it comes next.
    fn tag(&mut self, tag: &str) -> Result<bool, Stop> {
        let found = starts_with(&self.bytes[self.at..], tag)?;
        self.at += if found { tag.len() } else { 0 };
        Ok(found)
    }

    /// Passes over whichever tag for calls comes next, and gives what closes it.
    fn tags(&mut self) -> Result<Option<&'static str>, Stop> {
        let mut more = false;
        for (open, close) in TAGS {
            match self.tag(open) {
                Ok(true) => return Ok(Some(close)),
                Ok(false) => {}
                Err(_) => more = true,
            }
        }
        if more { Err(Stop::More) } else { Ok(None) }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Stop> {
        if self.peek()? != byte {
            return Err(Stop::No);
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.bytes.get(self.at).copied().ok_or(Stop::More)
    }

    fn space(&mut self) {
        self.at += self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }
}
