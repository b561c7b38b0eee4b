//! Reads along with an answer in a dialect whose calls begin with tokens of their own.

use super::watcher::{Event, Json, Name};
use crate::dialect::Dialect;

/// Longest name of a call, with what stands around it.
const HEAD_BYTES_MAX: usize = 512;

/// Where in the answer we are.
#[derive(Debug, Clone)]
pub(super) struct MarkWatcher {
    dialect: Dialect,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    /// Text.
    Idle,
    /// The header of a message, or the name of a tool.
    Head(Vec<u8>),
    /// Arguments in JSON.
    Json(Json),
    /// Arguments that end with a marker.
    Marked,
}

impl MarkWatcher {
    pub fn new(dialect: Dialect) -> MarkWatcher {
        let state = if dialect == Dialect::Harmony { State::Head(Vec::new()) } else { State::Idle };
        MarkWatcher { dialect, state }
    }

    pub fn reset(&mut self) {
        self.state = State::Idle;
    }

    /// A byte of text.
    pub fn push(&mut self, byte: u8, names: &[Name]) -> Event {
        match &mut self.state {
            State::Idle | State::Marked => Event::None,
            State::Json(json) => match json.push(byte) {
                None => Event::None,
                Some(complete) => {
                    self.reset();
                    if complete { Event::ArgumentsEnd } else { Event::None }
                }
            },
            State::Head(head) => {
                if self.dialect == Dialect::Gemma && byte == b'{' {
                    let name = head.trim_ascii();
                    let tool = find(name.strip_prefix(b"call:").unwrap_or(name), names);
                    self.state = if tool.is_some() { State::Marked } else { State::Idle };
                    return tool.map_or(Event::None, Event::Arguments);
                }
                head.push(byte);
                if head.len() > HEAD_BYTES_MAX {
                    self.reset();
                }
                Event::None
            }
        }
    }

    /// A marker.
    pub fn marker(&mut self, marker: &str, names: &[Name]) -> Event {
        match marker {
            "<|start|>" | "[TOOL_CALLS]" | "<|tool_call>" => self.state = State::Head(Vec::new()),
            "<|channel|>" | "<|constrain|>" => match &mut self.state {
                State::Head(head) => head.push(b' '),
                _ => self.state = State::Head(Vec::new()),
            },
            "[ARGS]" | "<|message|>" => {
                let State::Head(head) = &self.state else { return Event::None };
                let tool = if marker == "[ARGS]" { find(head.trim_ascii(), names) } else { recipient(head, names) };
                self.state = match tool {
                    Some(_) => State::Json(Json::default()),
                    None => State::Idle,
                };
                return tool.map_or(Event::None, Event::Arguments);
            }
            "<tool_call|>" if matches!(self.state, State::Marked) => {
                self.reset();
                return Event::ArgumentsEnd;
            }
            "<|\"|>" => {}
            "[CALL_ID]" => self.reset(),
            _ => self.reset(),
        }
        Event::None
    }
}

fn find(name: &[u8], names: &[Name]) -> Option<usize> {
    names.iter().position(|other| other.plain == name)
}

/// The tool that the header of a message is for.
fn recipient(head: &[u8], names: &[Name]) -> Option<usize> {
    let to = head.split(u8::is_ascii_whitespace).find_map(|word| word.strip_prefix(b"to="))?;
    find(to.strip_prefix(b"functions.").unwrap_or(to), names)
}
