//! The parser inside a call, and directly behind one.

use super::Step::{self, Go, Wait};
use super::{State, TagParser, add_delta, leading_space};
use crate::answer::open::{self, Call, Opening, Stop, TAGS, Wrap, starts_with};
use crate::answer::until::{Found, until};
use crate::answer::value::{Progress, Value};
use crate::answer::xml::{self, Xml};
use crate::answer::{Part, ToolKind};

impl TagParser {
    /// Goes on behind the beginning of a call.
    pub(super) fn begin_call(&mut self, opening: Opening, text: &str, out: &mut Vec<Part>) -> Step {
        let Opening { length, wrap, call } = opening;
        let outer = if wrap.fence > 0 { Wrap::default() } else { self.wrap };
        self.wrap =
            Wrap { fence: outer.fence.max(wrap.fence), tag: wrap.tag.or(outer.tag), array: outer.array || wrap.array };
        self.space.clear();
        self.has_arguments = false;
        let (Call::Arguments { tool, .. } | Call::NoArguments { tool } | Call::Xml { tool } | Call::Keys { tool }) =
            call;
        out.push(Part::CallStart { tool });
        let kind = self.options.tools[tool].kind;
        self.call = Some(kind);
        let custom = kind == ToolKind::Custom;
        match call {
            Call::Arguments { depth, .. } => {
                let first = text.as_bytes()[length];
                self.state = match first {
                    b'{' if custom => State::Input { depth },
                    first => State::Value { value: Value::starting_with(first), depth },
                };
                return Go(length + usize::from(first == b'"'));
            }
            Call::NoArguments { .. } if custom && self.wrap.tag.is_some() => self.state = State::Raw { started: false },
            Call::NoArguments { .. } => {
                add_delta(if custom { "" } else { "{}" }, out);
                self.end_call(true, out);
            }
            Call::Xml { tool } => self.state = State::Xml(Xml::new(tool, xml::QWEN)),
            Call::Keys { tool } => self.state = State::Xml(Xml::new(tool, xml::GLM)),
        }
        Go(length)
    }

    pub(super) fn end_call(&mut self, complete: bool, out: &mut Vec<Part>) {
        out.push(Part::CallEnd { complete });
        self.call = None;
        self.skip_space = true;
        self.stopped = !self.options.parallel;
        self.state = if self.stopped { State::Over } else { State::After };
    }

    /// A custom tool's `{"input": "..."}` is its text; any other object is passed on as it is.
    pub(super) fn input(&mut self, text: &str, depth: usize) -> Step {
        match open::read_string_field(text) {
            Ok(length) => {
                self.state = State::Value { value: Value::Text, depth: depth + 1 };
                Go(length)
            }
            Err(Stop::More) if !self.ending => Wait,
            Err(_) => {
                self.state = State::Value { value: Value::starting_with(b'{'), depth };
                Go(0)
            }
        }
    }

    pub(super) fn value(&mut self, text: &str, out: &mut Vec<Part>) -> Step {
        let State::Value { value, depth } = &mut self.state else {
            return Go(0);
        };
        let depth = *depth;
        let mut more = String::new();
        let progress = value.read(text, &mut more);
        self.has_arguments |= !more.trim_ascii().is_empty();
        add_delta(&more, out);
        match progress {
            Progress::Inside(length) => Go(length),
            Progress::Wait => Wait,
            Progress::End { length, complete } => {
                // `""` is the same as no arguments.
                if complete && !self.has_arguments && self.call == Some(ToolKind::Function) {
                    add_delta("{}", out);
                }
                self.end_call(complete, out);
                if !self.stopped {
                    self.state = State::Tail { depth, comma: false, string: false, escape: false };
                }
                Go(length)
            }
        }
    }

    /// The input of a custom tool, as it is, up to the closing tag.
    pub(super) fn raw(&mut self, text: &str, started: bool, out: &mut Vec<Part>) -> Step {
        if !started {
            let spaces = text.bytes().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
            if spaces == text.len() {
                return Wait;
            }
            self.state = State::Raw { started: true };
            return Go(if text.as_bytes()[spaces] == b'\n' { spaces + 1 } else { 0 });
        }
        let Found { text_length, end } = until(text, self.wrap.tag.unwrap_or(TAGS[0].1));
        add_delta(&text[..text_length], out);
        match end {
            Some(end) => {
                self.wrap.tag = None;
                self.end_call(true, out);
                Go(end)
            }
            None if text_length == 0 => Wait,
            None => Go(text_length),
        }
    }

    /// Passes over what closes a call and separates it from the next.
    pub(super) fn after(&mut self, text: &str) -> Step {
        let wrapped = self.wrap.tag.is_some() || self.wrap.fence > 0;
        match text.as_bytes()[0] {
            byte if byte.is_ascii_whitespace() => return Go(leading_space(text)),
            b'<' => match closing_tag(text) {
                Ok(Some(length)) => {
                    self.wrap.tag = None;
                    return Go(length);
                }
                Err(_) if !self.ending => return Wait,
                _ => {}
            },
            b'`' if self.wrap.fence > 0 => {
                let ticks = text.bytes().take_while(|&byte| byte == b'`').count();
                if ticks == text.len() && !self.ending {
                    return Wait;
                }
                if ticks >= self.wrap.fence {
                    self.wrap = Wrap::default();
                    return Go(ticks);
                }
            }
            b',' if self.wrap.array => return Go(1),
            b']' if self.wrap.array => {
                self.wrap.array = false;
                return Go(1);
            }
            // One brace too many is a common slip.
            b'}' | b']' if wrapped => return Go(1),
            _ => {}
        }
        self.state = State::Start;
        Go(0)
    }
}

/// How long the tag is that closes a call here. Models close one tag with another, so any of them will do.
fn closing_tag(text: &str) -> Result<Option<usize>, Stop> {
    let mut more = false;
    for (_, close) in TAGS {
        match starts_with(text.as_bytes(), close) {
            Ok(true) => return Ok(Some(close.len())),
            Ok(false) => {}
            Err(_) => more = true,
        }
    }
    if more { Err(Stop::More) } else { Ok(None) }
}

/// What is left of the objects around the arguments. Gives where they end: closed, or where something else follows.
pub(super) fn tail(
    bytes: &[u8],
    depth: &mut usize,
    comma: &mut bool,
    string: &mut bool,
    escape: &mut bool,
) -> Option<usize> {
    for (at, &byte) in bytes.iter().enumerate() {
        if *depth == 0 {
            return Some(at);
        }
        match byte {
            _ if *string && *escape => *escape = false,
            b'\\' if *string => *escape = true,
            b'"' if *comma => *string = !*string,
            _ if *string => {}
            b'}' => *depth -= 1,
            b',' => *comma = true,
            b']' if *comma => *depth -= 1,
            b'{' | b'[' if *comma => *depth += 1,
            b'<' | b'`' => return Some(at),
            _ if *comma || byte.is_ascii_whitespace() => {}
            _ => return Some(at),
        }
    }
    None
}
