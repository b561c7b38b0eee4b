//! The state machine that reads text with tags in it: this file the text, `call` the calls.

mod call;

use super::fence::Fence;
use super::open::{self, Call, Stop, Wrap, starts_with};
use super::until::unfinished;
use super::value::Value;
use super::xml::{self, Xml};
use super::{AnswerOptions, Part, Reasoning, ToolKind};

/// White space that is held back at the end of text, in case a call follows. Of a longer run the rest is passed on.
const SPACE_BYTES_MAX: usize = 64;

/// Longest indent of a line that begins with a call; white space that is held back goes further.
const INDENT_MAX: usize = 32;

const THINK: &str = "<think>";
const END_THINK: &str = "</think>";

/// Where a call begins inside of thoughts.
const CALL: &str = "<tool_call>";

/// Reads one answer.
#[derive(Debug, Clone)]
pub struct TagParser {
    options: AnswerOptions,
    state: State,
    /// What the calls just read are wrapped in.
    wrap: Wrap,
    /// Text that nothing could be said about yet.
    held: String,
    /// White space at the end of what was passed on.
    space: String,
    /// White space that comes now is dropped.
    skip_space: bool,
    /// How the tool takes its input whose call has started and not ended.
    call: Option<ToolKind>,
    /// The arguments of this call are not empty.
    has_arguments: bool,
    /// Said before the first text.
    lead: &'static str,
    /// No more text will come.
    ending: bool,
    stopped: bool,
}

#[derive(Debug, Clone)]
enum State {
    /// Before the thoughts, if there are any.
    BeforeThoughts { opened: bool },
    /// In the thoughts.
    Thoughts,
    /// At the start and behind a call, where bare JSON may be a call without arguments.
    Start,
    /// In text.
    Text,
    /// In a code fence.
    Fence(Fence),
    /// At a custom tool's value, which may be a text in an object.
    Input { depth: usize },
    /// In the arguments.
    Value { value: Value, depth: usize },
    /// Behind the arguments, in what is left of the objects around them.
    Tail { depth: usize, comma: bool, string: bool, escape: bool },
    /// Behind `{"name": "T"}` of a custom tool; `started` once the line is over.
    Raw { started: bool },
    /// In a call written as XML.
    Xml(Xml),
    /// Behind a call.
    After,
    /// Nothing matters any more.
    Over,
}

enum Step {
    /// This many bytes are done with; none where only the state has changed.
    Go(usize),
    /// More text is needed.
    Wait,
}

use Step::{Go, Wait};

impl TagParser {
    /// A parser at the start of an answer.
    pub fn new(options: AnswerOptions) -> Self {
        let state = match options.reasoning {
            Reasoning::None => State::Start,
            Reasoning::ThinkTags => State::BeforeThoughts { opened: false },
            Reasoning::ThinkTagsOpened => State::BeforeThoughts { opened: true },
        };
        let skip_space = options.reasoning == Reasoning::ThinkTagsOpened;
        TagParser {
            options,
            state,
            wrap: Wrap::default(),
            held: String::new(),
            space: String::new(),
            skip_space,
            call: None,
            has_arguments: false,
            lead: "",
            ending: false,
            stopped: false,
        }
    }

    /// Reads a piece of the answer and appends the parts that became certain with it.
    pub fn push(&mut self, text: &str, out: &mut Vec<Part>) {
        if self.held.is_empty() {
            let done = self.run(text, out);
            self.held.push_str(&text[done..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.push_str(text);
            let done = self.run(&held, out);
            held.drain(..done);
            self.held = held;
        }
    }

    /// This text follows something else: white space at its start is dropped, and `lead` stands before the rest.
    pub fn begin_with(&mut self, lead: &'static str) {
        (self.skip_space, self.lead) = (true, lead);
    }

    /// Ends the answer: what was held back comes out, and an open call is closed.
    pub fn finish(&mut self, out: &mut Vec<Part>) {
        self.interrupt(out);
        let space = std::mem::take(&mut self.space);
        let thinking = matches!(self.state, State::Thoughts);
        if !space.is_empty() && !thinking {
            add(Part::Text(space), out);
        }
        self.state = State::Over;
    }

    /// The same where something else follows, before which white space is dropped.
    pub fn interrupt(&mut self, out: &mut Vec<Part>) {
        self.ending = true;
        let held = std::mem::take(&mut self.held);
        let done = self.run(&held, out);
        if let State::Raw { started: true } = self.state {
            add_delta(held[done..].trim_start_matches('\n'), out);
        }
        if let State::Xml(call) = &mut self.state {
            let mut text = String::new();
            call.finish(&mut text);
            add_delta(&text, out);
        }
        if self.call.is_some() {
            self.end_call(false, out);
        }
    }

    /// Whether what comes now is thought.
    pub fn thinking(&self) -> bool {
        matches!(self.state, State::Thoughts | State::BeforeThoughts { opened: true })
    }

    /// Whether the one call that was allowed is over, so that the rest of the answer does not matter.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Reads as much as possible and gives how much that was.
    fn run(&mut self, text: &str, out: &mut Vec<Part>) -> usize {
        let mut at = 0;
        while at < text.len() {
            match self.step(&text[at..], out) {
                Go(length) => at += length,
                Wait => break,
            }
        }
        at
    }

    /// One step on text that is not empty.
    fn step(&mut self, text: &str, out: &mut Vec<Part>) -> Step {
        match &mut self.state {
            State::BeforeThoughts { opened } => {
                let opened = *opened;
                self.before_thoughts(text, opened, out)
            }
            State::Thoughts => self.thoughts(text, out),
            State::Start => self.start(text, out),
            State::Text => self.text(text, out),
            State::Fence(fence) => {
                let end = fence.read(text);
                if end.is_some() {
                    self.state = State::Text;
                }
                let length = end.unwrap_or(text.len());
                self.say(Part::Text, &text[..length], out);
                Go(length)
            }
            State::Input { depth } => {
                let depth = *depth;
                self.input(text, depth)
            }
            State::Value { .. } => self.value(text, out),
            State::Tail { depth, comma, string, escape } => {
                match call::tail(text.as_bytes(), depth, comma, string, escape) {
                    Some(length) => {
                        self.state = State::After;
                        Go(length)
                    }
                    None => Go(text.len()),
                }
            }
            State::Raw { started } => {
                let started = *started;
                self.raw(text, started, out)
            }
            State::Xml(call) => {
                let mut more = String::new();
                let progress = call.read(text, &self.options.tools, &mut more);
                add_delta(&more, out);
                match progress {
                    xml::Progress::Inside(length) => Go(length),
                    xml::Progress::Wait => Wait,
                    xml::Progress::End(length) => {
                        self.end_call(true, out);
                        Go(length)
                    }
                }
            }
            State::After => self.after(text),
            State::Over => Go(text.len()),
        }
    }

    fn before_thoughts(&mut self, text: &str, opened: bool, out: &mut Vec<Part>) -> Step {
        let space = leading_space(text);
        if space > 0 {
            self.say(Part::Text, &text[..space], out);
            return Go(space);
        }
        let found = match starts_with(text.as_bytes(), THINK) {
            Err(_) if !self.ending => return Wait,
            found => found == Ok(true),
        };
        if !found && !opened {
            self.state = State::Start;
            return Go(0);
        }
        self.space.clear();
        self.skip_space = true;
        self.state = State::Thoughts;
        Go(if found { THINK.len() } else { 0 })
    }

    fn thoughts(&mut self, text: &str, out: &mut Vec<Part>) -> Step {
        let end = text.find(END_THINK);
        let call = if self.options.tools.is_empty() { None } else { text.find(CALL) };
        if let Some(call) = call.filter(|&call| end.is_none_or(|end| call < end)) {
            if call > 0 {
                self.say(Part::Reasoning, &text[..call], out);
                return Go(call);
            }
            return match open::read(text, &self.options.tools) {
                // A call ends the thoughts that were left open around it.
                Ok(_) => {
                    self.space.clear();
                    self.state = State::Start;
                    Go(0)
                }
                Err(Stop::More) if !self.ending => Wait,
                Err(_) => {
                    self.say(Part::Reasoning, CALL, out);
                    Go(CALL.len())
                }
            };
        }
        if let Some(end) = end {
            self.say(Part::Reasoning, &text[..end], out);
            self.space.clear();
            self.skip_space = true;
            self.state = State::Start;
            return Go(end + END_THINK.len());
        }
        let held = match self.ending {
            true => 0,
            false => unfinished(text, END_THINK).max(unfinished(text, CALL)),
        };
        let length = text.len() - held;
        self.say(Part::Reasoning, &text[..length], out);
        if length == 0 { Wait } else { Go(length) }
    }

    fn start(&mut self, text: &str, out: &mut Vec<Part>) -> Step {
        let space = leading_space(text);
        if space > 0 {
            self.say(Part::Text, &text[..space], out);
            return Go(space);
        }
        // Behind a call there may be thoughts again.
        if self.options.reasoning != Reasoning::None && text.starts_with('<') {
            match starts_with(text.as_bytes(), THINK) {
                Ok(true) => {
                    self.space.clear();
                    self.skip_space = true;
                    self.state = State::Thoughts;
                    return Go(THINK.len());
                }
                Err(_) if !self.ending => return Wait,
                _ => {}
            }
        }
        if !self.options.tools.is_empty() && text.starts_with(['{', '[', '<', '`']) {
            return self.candidate(text, out);
        }
        self.state = self.text_state();
        Go(0)
    }

    fn text(&mut self, text: &str, out: &mut Vec<Part>) -> Step {
        let candidate = if self.options.tools.is_empty() { None } else { self.find_candidate(text) };
        match candidate {
            Some(0) => self.candidate(text, out),
            _ => {
                let length = candidate.unwrap_or(text.len());
                self.say(Part::Text, &text[..length], out);
                Go(length)
            }
        }
    }

    /// Where in text a call may start: at a tag, a fence, or JSON at the start of a line.
    fn find_candidate(&self, text: &str) -> Option<usize> {
        // White space at the end of what was passed on is still at hand, as far back as an indent goes.
        let begins_line = |at: usize| {
            let before = text[..at].bytes().rev().chain(self.space.bytes().rev());
            before.take(INDENT_MAX + 1).find(|byte| !matches!(byte, b' ' | b'\t')) == Some(b'\n')
        };
        let mut marks = text.match_indices(['<', '`', '{', '[']);
        marks.find(|(at, mark)| matches!(*mark, "<" | "`") || begins_line(*at)).map(|(at, _)| at)
    }

    /// At something a call may start with.
    fn candidate(&mut self, text: &str, out: &mut Vec<Part>) -> Step {
        // In the middle of a text an object with a name and nothing else is more often data.
        let data = matches!(self.state, State::Text) && text.starts_with(['{', '[']);
        match open::read(text, &self.options.tools) {
            Ok(opening) if data && matches!(opening.call, Call::NoArguments { .. }) => {}
            Ok(opening) => return self.begin_call(opening, text, out),
            Err(Stop::More) if !self.ending => return Wait,
            Err(_) => {}
        }
        let ticks = text.bytes().take_while(|&byte| byte == b'`').count();
        self.say(Part::Text, &text[..ticks.max(1)], out);
        self.state = match self.text_state() {
            State::Text if ticks >= 3 => State::Fence(Fence::new(ticks)),
            state => state,
        };
        Go(ticks.max(1))
    }

    /// Where text goes on: behind a call it may still be inside the fence around the call.
    fn text_state(&mut self) -> State {
        match std::mem::take(&mut self.wrap).fence {
            0 => State::Text,
            ticks => State::Fence(Fence::inside(ticks)),
        }
    }

    /// Passes text or thoughts on, but for white space that may turn out to be around a call.
    fn say(&mut self, part: fn(String) -> Part, text: &str, out: &mut Vec<Part>) {
        let text = if self.skip_space { text.trim_ascii_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.skip_space = false;
        let calls = !self.options.tools.is_empty();
        let hold = calls || matches!(self.state, State::BeforeThoughts { .. } | State::Thoughts);
        let body = if hold { text.trim_ascii_end() } else { text };
        if !body.is_empty() {
            add(part(std::mem::take(&mut self.lead).to_string()), out);
            add(part(std::mem::take(&mut self.space)), out);
            add(part(body.to_string()), out);
        }
        self.space.push_str(&text[body.len()..]);
        if self.space.len() > SPACE_BYTES_MAX {
            let rest = self.space.split_off(self.space.len() - SPACE_BYTES_MAX);
            add(part(std::mem::replace(&mut self.space, rest)), out);
        }
    }
}

fn leading_space(text: &str) -> usize {
    text.len() - text.trim_ascii_start().len()
}

fn add_delta(text: &str, out: &mut Vec<Part>) {
    add(Part::CallDelta(text.to_string()), out);
}

/// Appends a part, to the last one where that is of the same kind. Empty ones are left out.
fn add(part: Part, out: &mut Vec<Part>) {
    match (part, out.last_mut()) {
        (Part::Text(more) | Part::Reasoning(more) | Part::CallDelta(more), _) if more.is_empty() => {}
        (Part::Text(more), Some(Part::Text(text)))
        | (Part::Reasoning(more), Some(Part::Reasoning(text)))
        | (Part::CallDelta(more), Some(Part::CallDelta(text))) => text.push_str(&more),
        (part, _) => out.push(part),
    }
}
