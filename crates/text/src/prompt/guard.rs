//! Keeps what came from outside apart from what the template writes.
//!
//! Where a text contains the text of a control token, a marker is put behind the token's first character before the
//! template sees it. So the token is not found in the rendered text, wherever the template writes it: as it is, trimmed,
//! or inside JSON, where the marker needs no escape. After the rendered text was cut at special tokens the markers are
//! taken out again, and each part is encoded as plain text. Unlike a placeholder for the whole text this keeps what
//! templates ask about it (is it empty, does it start with ...), and the words at its ends are the usual ones.
//!
//! A message that comes as tokens is rendered as a placeholder: the other marker around its index.
//!
//! Both markers are private-use characters that occur nowhere in the request.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use crate::chat::{ChatRequest, Message};
use crate::error::TextError;
use crate::special::SpecialTokens;

/// Candidates for markers, the last private-use characters there are. Icon fonts use the first ones.
const MARKERS: std::ops::RangeInclusive<char> = '\u{10ffbe}'..='\u{10fffd}';

/// The first half of a candidate, and the start of the second, in JSON that is ASCII only.
const ESCAPE_START: &str = "\\udbff\\u";

/// The markers of one request, and its guarded copy where it needs one.
pub(super) struct Guard {
    /// Breaks control tokens.
    split: char,
    /// Stands on both sides of the index of a message that comes as tokens.
    raw: char,
    guarded: Option<Guarded>,
}

/// What a request owns once it is changed.
pub(super) struct Guarded {
    messages: Vec<Message>,
    tools: Vec<Value>,
    variables: BTreeMap<String, Value>,
}

/// A part of the rendered text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Span<'a> {
    /// Text of the template and of the request.
    Text(&'a str),
    /// The tokens of a message.
    Raw(&'a [u32]),
}

impl Guard {
    /// Looks through a request and guards what needs it.
    pub fn new(control: &SpecialTokens, request: &ChatRequest<'_>) -> Result<Guard, TextError> {
        let mut guarded = Guarded {
            messages: request.messages.to_vec(),
            tools: request.tools.to_vec(),
            variables: request.variables.clone(),
        };
        let mut used = Used(0);
        guarded.each_text(&mut |text| used.note(text));
        let (split, raw) = used.two_free().ok_or(TextError::NoMarker)?;
        let mut changed = false;
        for (index, message) in guarded.messages.iter_mut().enumerate() {
            if message.raw.is_some() {
                *message = Message::new(message.role.clone(), format!("{raw}{index}{raw}"));
                changed = true;
            }
        }
        guarded.each_text(&mut |text| {
            if let Some(broken) = control.broken(text, split) {
                *text = broken;
                changed = true;
            }
        });
        Ok(Guard { split, raw, guarded: changed.then_some(guarded) })
    }

    /// The copy to render instead of the request.
    pub fn guarded(&self) -> Option<&Guarded> {
        self.guarded.as_ref()
    }

    /// The rendered text with markers as characters, also where the template asked for JSON in ASCII.
    pub fn markers_decoded(&self, rendered: String) -> String {
        if self.guarded.is_none() || !rendered.contains(ESCAPE_START) {
            return rendered;
        }
        [self.split, self.raw]
            .into_iter()
            .fold(rendered, |text, marker| text.replace(&escaped(marker), marker.encode_utf8(&mut [0; 4])))
    }

    /// Cuts the rendered text where messages come as tokens.
    pub fn spans<'a>(&self, rendered: &'a str, messages: &'a [Message]) -> Vec<Span<'a>> {
        let mut spans = Vec::new();
        for (part, text) in rendered.split(self.raw).enumerate() {
            // The markers come in pairs, so every other part is an index.
            let index = if part % 2 == 1 { text.parse::<usize>().ok() } else { None };
            match index.and_then(|index| messages.get(index)?.raw.as_deref()) {
                Some(tokens) => spans.push(Span::Raw(tokens)),
                None => spans.push(Span::Text(text)),
            }
        }
        spans
    }

    /// The text without markers.
    pub fn unmarked<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let mut marker = [0; 4];
        let marker = self.split.encode_utf8(&mut marker).as_bytes();
        if self.guarded.is_none() || !text.windows(marker.len()).any(|window| window == marker) {
            return Cow::Borrowed(text);
        }
        let mut clean = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            match rest.strip_prefix(marker) {
                Some(after) => rest = after,
                None => {
                    clean.push(byte);
                    rest = after;
                }
            }
        }
        Cow::Owned(clean)
    }
}

impl Guarded {
    /// The same request with guarded texts.
    pub fn request<'a>(&'a self, request: &ChatRequest<'_>) -> ChatRequest<'a> {
        ChatRequest {
            messages: &self.messages,
            tools: &self.tools,
            add_generation_prompt: request.add_generation_prompt,
            unix_seconds: request.unix_seconds,
            variables: self.variables.clone(),
        }
    }

    /// Shows every text in it to `visit`. Roles too: they are checked by callers, but not here.
    fn each_text(&mut self, visit: &mut dyn FnMut(&mut String)) {
        for message in &mut self.messages {
            let Message {
                role,
                content,
                tool_calls,
                tool_call_id,
                name,
                reasoning_content,
                thinking,
                tool_responses,
                raw: _,
            } = message;
            visit(role);
            visit(content);
            [tool_call_id, name, reasoning_content, thinking].into_iter().flatten().for_each(&mut *visit);
            for given in tool_responses {
                visit(&mut given.name);
                visit(&mut given.response);
            }
            for call in tool_calls {
                call.id.iter_mut().for_each(&mut *visit);
                visit(&mut call.function.name);
                each_string(&mut call.function.arguments, visit);
            }
        }
        self.tools.iter_mut().for_each(|tool| each_string(tool, visit));
        self.variables.values_mut().for_each(|value| each_string(value, visit));
    }
}

/// Shows every string and every key of a JSON value to `visit`.
fn each_string(value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_string(item, visit)),
        Value::Object(entries) => {
            *entries = std::mem::take(entries)
                .into_iter()
                .map(|(mut key, mut value)| {
                    visit(&mut key);
                    each_string(&mut value, visit);
                    (key, value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Which candidates occur in a request, one bit each.
struct Used(u64);

impl Used {
    fn note(&mut self, text: &str) {
        // Every candidate starts with this byte, and next to no text contains it.
        if text.as_bytes().contains(&0xf4) {
            text.chars().for_each(|c| self.0 |= position(c));
        }
        if text.contains(ESCAPE_START) {
            for escape in text.split(ESCAPE_START).skip(1) {
                let low = escape.get(..4).and_then(|digits| u32::from_str_radix(digits, 16).ok());
                let c = low.and_then(|low| char::from_u32(0x10_fc00 + low.checked_sub(0xdc00)?));
                self.0 |= c.map_or(0, position);
            }
        }
    }

    fn two_free(&self) -> Option<(char, char)> {
        let mut free = MARKERS.rev().filter(|&c| self.0 & position(c) == 0);
        Some((free.next()?, free.next()?))
    }
}

/// The bit of a candidate; none for other characters.
fn position(c: char) -> u64 {
    if MARKERS.contains(&c) { 1 << (c as u32 - *MARKERS.start() as u32) } else { 0 }
}

/// How JSON in ASCII writes a candidate.
fn escaped(marker: char) -> String {
    format!("{ESCAPE_START}{:04x}", 0xdc00 + (marker as u32 & 0x3ff))
}
