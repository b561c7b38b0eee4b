//! Reads the dialects whose structure is tokens of their own: Harmony, Mistral, Gemma.
//!
//! Such a token comes as [`MARK`] and its name; anything that only looks like one is text. What lies between markers is
//! read by the reader of tags, so a model that falls back to another way of writing calls is still understood.

mod arguments;
mod named;

use super::tags::TagParser;
use super::{AnswerOptions, Part, Reasoning, ToolKind, ToolName};
use crate::dialect::{Dialect, MARK};
use arguments::Arguments;

/// Longest header of a message, or name of a call. A longer one is text.
const HEADER_BYTES_MAX: usize = 512;

/// Between two messages of one answer.
const PARAGRAPH: &str = "\n\n";

/// Reads one answer.
#[derive(Debug, Clone)]
pub(super) struct Marked {
    options: AnswerOptions,
    state: State,
    /// The beginning of a marker whose rest has not come yet.
    held: String,
    /// The last messages were text, with nothing between them and the next one.
    spoke: bool,
    stopped: bool,
}

#[derive(Debug, Clone)]
enum State {
    /// Before the text of a message: who speaks, to whom, on which channel.
    Header { text: String, marked: bool },
    /// Behind the mark of a Gemma channel, whose name ends with the line.
    Label,
    /// What is thought. White space at the end is held back.
    Thoughts { started: bool, space: String },
    /// What is said.
    Text(Box<TagParser>),
    /// The name of the tool that is called, or all of a call in JSON.
    Name(String),
    /// The identity of a call, which nobody needs.
    CallId(usize),
    /// What a tool is called with.
    Call(Box<Arguments>),
}

impl Marked {
    /// A reader at the start of an answer.
    pub fn new(options: AnswerOptions) -> Marked {
        let state = match (options.dialect, options.reasoning) {
            (_, Reasoning::ThinkTagsOpened) => State::Thoughts { started: false, space: String::new() },
            (Dialect::Harmony, _) => State::Header { text: String::new(), marked: false },
            _ => text(&options, false),
        };
        Marked { options, state, held: String::new(), spoke: false, stopped: false }
    }

    /// Reads a piece of the answer.
    pub fn push(&mut self, piece: &str, out: &mut Vec<Part>) {
        let mut held = std::mem::take(&mut self.held);
        held.push_str(piece);
        let mut rest = held.as_str();
        while let Some(at) = rest.find(MARK) {
            self.plain(&rest[..at], out);
            let behind = &rest[at + MARK.len_utf8()..];
            let markers = self.options.dialect.markers();
            match markers.iter().find(|marker| behind.starts_with(**marker)) {
                Some(marker) => {
                    self.marker(marker, out);
                    rest = &behind[marker.len()..];
                }
                None if markers.iter().any(|marker| marker.starts_with(behind)) => {
                    self.held = rest[at..].to_owned();
                    return;
                }
                None => rest = behind,
            }
        }
        self.plain(rest, out);
    }

    /// Ends the answer.
    pub fn finish(&mut self, out: &mut Vec<Part>) {
        self.held.clear();
        match &mut self.state {
            // A model that leaves the structure out altogether.
            State::Header { text, marked: false } if !self.spoke => add(Part::Text(std::mem::take(text)), out),
            State::Text(parser) => parser.finish(out),
            State::Call(arguments) => {
                let complete = arguments.finish(self.options.dialect == Dialect::Harmony, out);
                out.push(Part::CallEnd { complete });
            }
            State::Name(name) => {
                let name = std::mem::take(name);
                self.whole_name(&name, out);
            }
            _ => {}
        }
        self.state = State::Header { text: String::new(), marked: true };
    }

    /// Whether the one call that was allowed is over.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Text without markers.
    fn plain(&mut self, text: &str, out: &mut Vec<Part>) {
        if text.is_empty() || self.stopped {
            return;
        }
        match &mut self.state {
            State::Header { text: header, marked } => {
                header.push_str(text);
                if !*marked && header.len() > HEADER_BYTES_MAX {
                    let header = std::mem::take(header);
                    self.say(&header, out);
                }
            }
            State::Label => {
                if let Some(end) = text.find('\n') {
                    self.state = State::Thoughts { started: false, space: String::new() };
                    self.plain(&text[end + 1..], out);
                }
            }
            State::Thoughts { started, space } => think(text, started, space, out),
            State::Text(parser) => parser.push(text, out),
            State::Name(name) => {
                name.push_str(text);
                self.name(out);
            }
            State::CallId(_) => {}
            State::Call(arguments) => {
                if let Some(rest) = arguments.read(text, out) {
                    self.end_call(true, out);
                    self.plain(&rest, out);
                }
            }
        }
    }

    fn marker(&mut self, marker: &str, out: &mut Vec<Part>) {
        if self.stopped {
            return;
        }
        match (self.options.dialect, marker) {
            (Dialect::Harmony, _) => self.harmony(marker, out),
            (Dialect::Mistral, "[THINK]") => self.begin(State::Thoughts { started: false, space: String::new() }, out),
            (Dialect::Mistral, "[TOOL_CALLS]") => self.begin(State::Name(String::new()), out),
            (Dialect::Mistral, "[CALL_ID]") => {
                let State::Name(name) = &self.state else { return };
                match named::find(name, &self.options.tools) {
                    Some(tool) => self.state = State::CallId(tool),
                    None => self.unknown(out),
                }
            }
            (Dialect::Mistral, "[ARGS]") => match &self.state {
                State::Name(name) => match named::find(name, &self.options.tools) {
                    Some(tool) => self.begin_call(tool, Arguments::json, out),
                    None => self.unknown(out),
                },
                State::CallId(tool) => self.begin_call(*tool, Arguments::json, out),
                _ => {}
            },
            (Dialect::Gemma, "<|channel>") => self.begin(State::Label, out),
            (Dialect::Gemma, "<|tool_call>") => self.begin(State::Name(String::new()), out),
            (Dialect::Gemma, "<|\"|>") => match &mut self.state {
                State::Call(arguments) => arguments.quote(out),
                _ => self.plain("\"", out),
            },
            // What ends thoughts or a call ends anything else as well.
            _ => {
                let text = text(&self.options, true);
                self.begin(text, out);
            }
        }
    }

    /// The markers of messages.
    fn harmony(&mut self, marker: &str, out: &mut Vec<Part>) {
        match marker {
            "<|message|>" => {
                let State::Header { text, .. } = &mut self.state else { return };
                let header = std::mem::take(text);
                self.message(&header, out);
            }
            "<|start|>" | "<|end|>" | "<|return|>" | "<|call|>" => {
                self.begin(State::Header { text: String::new(), marked: true }, out);
            }
            // `<|channel|>` and `<|constrain|>` stand between the words of a header.
            _ => {
                if !matches!(self.state, State::Header { .. }) {
                    self.begin(State::Header { text: String::new(), marked: true }, out);
                }
                if let State::Header { text, marked } = &mut self.state {
                    *marked = true;
                    text.push_str(if marker == "<|channel|>" { " \u{1}" } else { " " });
                }
            }
        }
    }

    /// The text of a message begins.
    fn message(&mut self, header: &str, out: &mut Vec<Part>) {
        let recipient = header.split_whitespace().find_map(|word| word.strip_prefix("to="));
        let channel = header.rsplit('\u{1}').next().and_then(|words| words.split_whitespace().next());
        let tool = recipient.and_then(|name| named::recipient(name, &self.options.tools));
        match (tool, channel) {
            (Some(tool), _) => self.begin_call(tool, Arguments::json, out),
            (None, Some("analysis")) if header.contains('\u{1}') => {
                self.spoke = false;
                self.state = State::Thoughts { started: false, space: String::new() };
            }
            _ => {
                let mut text = text(&self.options, true);
                if let State::Text(parser) = &mut text
                    && self.spoke
                {
                    parser.begin_with(PARAGRAPH);
                }
                self.spoke = true;
                self.state = text;
            }
        }
    }

    /// What was taken for a header or a name is text.
    fn say(&mut self, said: &str, out: &mut Vec<Part>) {
        self.state = text(&self.options, false);
        self.spoke = true;
        self.plain(said, out);
    }

    /// A call of a tool that there is not: what it says is text.
    fn unknown(&mut self, out: &mut Vec<Part>) {
        if let State::Name(name) = &mut self.state {
            let name = std::mem::take(name);
            self.say(&name, out);
        }
    }

    /// Ends what there was and begins something else.
    fn begin(&mut self, next: State, out: &mut Vec<Part>) {
        match &mut self.state {
            State::Text(parser) => parser.interrupt(out),
            State::Call(arguments) => {
                let complete = arguments.finish(true, out);
                self.end_call(complete, out);
            }
            State::Name(name) => {
                let name = std::mem::take(name);
                self.whole_name(&name, out);
            }
            _ => {}
        }
        if !self.stopped {
            self.state = next;
        }
    }

    /// More of a name has come.
    fn name(&mut self, out: &mut Vec<Part>) {
        let State::Name(name) = &self.state else { return };
        if self.options.dialect == Dialect::Gemma {
            if let Some(at) = name.find('{') {
                let rest = name[at + 1..].to_owned();
                let called = name[..at].trim().trim_start_matches("call:");
                match named::find(called, &self.options.tools) {
                    Some(tool) => {
                        self.begin_call(tool, Arguments::gemma, out);
                        if self.options.tools[tool].kind == ToolKind::Function {
                            out.push(Part::CallDelta("{".to_owned()));
                        }
                        self.plain(&rest, out);
                    }
                    None => self.unknown(out),
                }
            }
        } else if name.trim_start().starts_with(['[', '{']) {
            // The older form: JSON as in tags.
            let json = name.clone();
            self.state = text(&self.options, true);
            self.plain("<tool_call>\n", out);
            self.plain(&json, out);
        } else if let Some(at) = name.find('{') {
            // The mark between name and arguments left out.
            let rest = name[at..].to_owned();
            match named::find(&name[..at], &self.options.tools) {
                Some(tool) => {
                    self.begin_call(tool, Arguments::json, out);
                    self.plain(&rest, out);
                }
                None => self.unknown(out),
            }
        }
        if matches!(&self.state, State::Name(name) if name.len() > HEADER_BYTES_MAX) {
            self.unknown(out);
        }
    }

    /// A name that nothing follows: a call without arguments, or text.
    fn whole_name(&mut self, name: &str, out: &mut Vec<Part>) {
        match named::find(name.trim().trim_start_matches("call:"), &self.options.tools) {
            Some(tool) if !name.trim().is_empty() => {
                self.begin_call(tool, Arguments::json, out);
                if let State::Call(arguments) = &mut self.state {
                    let complete = arguments.finish(true, out);
                    self.end_call(complete, out);
                }
            }
            _ => {
                let mut parser = TagParser::new(plain_options(&self.options));
                parser.push(name, out);
                parser.finish(out);
            }
        }
    }

    fn begin_call(&mut self, tool: usize, arguments: fn(ToolKind) -> Arguments, out: &mut Vec<Part>) {
        out.push(Part::CallStart { tool });
        self.spoke = false;
        self.state = State::Call(Box::new(arguments(self.options.tools[tool].kind)));
    }

    fn end_call(&mut self, complete: bool, out: &mut Vec<Part>) {
        out.push(Part::CallEnd { complete });
        self.stopped = !self.options.parallel;
        self.state = match self.options.dialect {
            // Nothing counts before the next mark.
            Dialect::Harmony => State::Header { text: String::new(), marked: true },
            _ => text(&self.options, true),
        };
    }

    /// Whether what comes now is thought.
    pub fn thinking(&self) -> bool {
        matches!(self.state, State::Thoughts { .. } | State::Label)
    }
}

/// The state in text; `fresh` behind something else.
fn text(options: &AnswerOptions, fresh: bool) -> State {
    let mut parser = TagParser::new(plain_options(options));
    if fresh {
        parser.begin_with("");
    }
    State::Text(Box::new(parser))
}

/// How text between markers is read.
fn plain_options(options: &AnswerOptions) -> AnswerOptions {
    AnswerOptions { reasoning: Reasoning::None, dialect: Dialect::Hermes, ..options.clone() }
}

fn think(text: &str, started: &mut bool, space: &mut String, out: &mut Vec<Part>) {
    let text = if *started { text } else { text.trim_ascii_start() };
    let body = text.trim_ascii_end();
    if !body.is_empty() {
        *started = true;
        add(Part::Reasoning(std::mem::take(space)), out);
        add(Part::Reasoning(body.to_owned()), out);
    }
    if *started {
        space.push_str(&text[body.len()..]);
    }
}

/// Appends a part that is not empty.
fn add(part: Part, out: &mut Vec<Part>) {
    match &part {
        Part::Text(text) | Part::Reasoning(text) | Part::CallDelta(text) if text.is_empty() => {}
        _ => out.push(part),
    }
}
