//! What a call between markers holds: JSON, the form of Gemma, or the text of a custom tool.

use super::super::open::{Stop, read_string_field};
use super::super::value::{Progress, Value};
use super::super::{Part, ToolKind};
use super::add;

/// The arguments of one call.
#[derive(Debug, Clone)]
pub struct Arguments {
    kind: ToolKind,
    form: Form,
    /// Text that nothing could be said about yet.
    held: String,
}

#[derive(Debug, Clone)]
enum Form {
    /// JSON that has not begun.
    Before,
    Json(Value),
    /// The text of a custom tool.
    Raw,
    Gemma(Gemma),
    /// Behind the text of a custom tool, in what is left of the object around it.
    Tail,
    /// Complete.
    Over,
}

/// `key:value` pairs, in which words need no quotes and texts stand between marks of their own.
#[derive(Debug, Clone, Default)]
struct Gemma {
    /// Open objects and arrays, by what closes them; the first one is open from the start.
    open: Vec<char>,
    /// A word that may become a key or a value.
    word: String,
    /// A key comes next.
    key: bool,
    quoted: Quoted,
    escape: bool,
}

/// What the text at hand stands between.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Quoted {
    #[default]
    No,
    /// The marks of the dialect.
    Marks,
    /// Quotes, as in JSON.
    Quotes,
}

impl Arguments {
    /// JSON.
    pub fn json(kind: ToolKind) -> Arguments {
        Arguments { kind, form: Form::Before, held: String::new() }
    }

    /// The form of Gemma, behind its first brace.
    pub fn gemma(kind: ToolKind) -> Arguments {
        let gemma = Gemma { open: vec!['}'], key: true, ..Gemma::default() };
        Arguments { kind, form: Form::Gemma(gemma), held: String::new() }
    }

    /// Reads on; gives what follows the arguments when they are complete.
    pub fn read(&mut self, text: &str, out: &mut Vec<Part>) -> Option<String> {
        let mut held = std::mem::take(&mut self.held);
        held.push_str(text);
        let mut delta = String::new();
        let done = self.step(&held, false, &mut delta);
        held.drain(..done);
        add(Part::CallDelta(delta), out);
        if matches!(self.form, Form::Over) {
            return Some(held);
        }
        self.held = held;
        None
    }

    /// A mark around text, in the form of Gemma.
    pub fn quote(&mut self, out: &mut Vec<Part>) {
        let custom = self.kind == ToolKind::Custom;
        let mut delta = String::new();
        if let Form::Gemma(gemma) = &mut self.form {
            gemma.flush(&mut delta);
            gemma.quoted = if gemma.quoted == Quoted::Marks { Quoted::No } else { Quoted::Marks };
            delta.push('"');
        }
        if !custom {
            add(Part::CallDelta(delta), out);
        }
    }

    /// Nothing more comes; whether the arguments are whole. `raw_ends` says that text without an end ends here.
    pub fn finish(&mut self, raw_ends: bool, out: &mut Vec<Part>) -> bool {
        let held = std::mem::take(&mut self.held);
        let mut delta = String::new();
        self.step(&held, true, &mut delta);
        add(Part::CallDelta(delta), out);
        match &self.form {
            Form::Before if self.kind == ToolKind::Function => {
                add(Part::CallDelta("{}".to_owned()), out);
                true
            }
            Form::Before | Form::Tail | Form::Over => true,
            Form::Raw => raw_ends,
            Form::Json(_) | Form::Gemma(_) => false,
        }
    }

    /// Reads as much as possible and gives how much that was.
    fn step(&mut self, text: &str, ending: bool, delta: &mut String) -> usize {
        let mut at = 0;
        loop {
            let rest = &text[at..];
            match &mut self.form {
                Form::Over => return at,
                Form::Tail => match rest.find('}') {
                    Some(end) => {
                        at += end + 1;
                        self.form = Form::Over;
                    }
                    None => return text.len(),
                },
                Form::Raw => {
                    delta.push_str(rest);
                    return text.len();
                }
                Form::Gemma(gemma) => {
                    let end = match self.kind {
                        ToolKind::Custom => gemma.read_input(rest, delta),
                        ToolKind::Function => gemma.read(rest, delta),
                    };
                    let Some(end) = end else { return text.len() };
                    at += end;
                    self.form = Form::Over;
                }
                Form::Before => {
                    at += rest.len() - rest.trim_ascii_start().len();
                    let rest = &text[at..];
                    let Some(&first) = rest.as_bytes().first() else { return at };
                    if self.kind == ToolKind::Function {
                        match first {
                            b'{' | b'"' => {
                                self.form = Form::Json(Value::starting_with(first));
                                at += usize::from(first == b'"');
                            }
                            // What does not belong there is passed over.
                            _ => at += rest.chars().next().map_or(1, char::len_utf8),
                        }
                        continue;
                    }
                    match read_string_field(rest) {
                        Ok(length) => {
                            self.form = Form::Json(Value::Text);
                            at += length;
                        }
                        Err(Stop::More) if !ending => return at,
                        Err(_) => self.form = Form::Raw,
                    }
                }
                Form::Json(value) => match value.read(rest, delta) {
                    Progress::Inside(0) | Progress::Wait => return at,
                    Progress::Inside(length) => at += length,
                    Progress::End { length, complete } => {
                        at += length;
                        if complete {
                            let inside = self.kind == ToolKind::Custom && *value == Value::Text;
                            self.form = if inside { Form::Tail } else { Form::Over };
                        } else {
                            at += text[at..].chars().next().map_or(0, char::len_utf8);
                        }
                    }
                },
            }
            if at == text.len() {
                return at;
            }
        }
    }
}

impl Gemma {
    /// Reads on; gives where the arguments end, if they do.
    fn read(&mut self, text: &str, delta: &mut String) -> Option<usize> {
        for (at, c) in text.char_indices() {
            match self.quoted {
                Quoted::Marks => push_escaped(c, delta),
                Quoted::Quotes => {
                    delta.push(c);
                    match c {
                        _ if self.escape => self.escape = false,
                        '\\' => self.escape = true,
                        '"' => self.quoted = Quoted::No,
                        _ => {}
                    }
                }
                Quoted::No => {
                    if self.structure(c, delta) {
                        return Some(at + c.len_utf8());
                    }
                }
            }
        }
        None
    }

    fn structure(&mut self, c: char, delta: &mut String) -> bool {
        match c {
            ':' if self.key => {
                let word = std::mem::take(&mut self.word);
                if !word.trim().is_empty() {
                    delta.push_str(&serde_json::Value::from(word.trim()).to_string());
                }
                delta.push_str(": ");
                self.key = false;
            }
            ',' => {
                self.flush(delta);
                delta.push_str(", ");
                self.key = self.open.last() == Some(&'}');
            }
            '{' | '[' if self.word.trim().is_empty() => {
                delta.push(c);
                self.open.push(if c == '{' { '}' } else { ']' });
                self.key = c == '{';
            }
            '}' | ']' => {
                self.flush(delta);
                delta.push(self.open.pop().unwrap_or(c));
                self.key = false;
                return self.open.is_empty();
            }
            '"' if self.word.trim().is_empty() => {
                self.word.clear();
                self.quoted = Quoted::Quotes;
                delta.push('"');
            }
            c => self.word.push(c),
        }
        false
    }

    /// A word without quotes is JSON where it is, and else a text.
    fn flush(&mut self, delta: &mut String) {
        let word = std::mem::take(&mut self.word);
        match word.trim() {
            "" => {}
            "None" => delta.push_str("null"),
            "True" => delta.push_str("true"),
            "False" => delta.push_str("false"),
            word if serde_json::from_str::<serde_json::Value>(word).is_ok() => delta.push_str(word),
            word => delta.push_str(&serde_json::Value::from(word).to_string()),
        }
    }

    /// The same for a custom tool: the text between the marks is all that counts.
    fn read_input(&mut self, text: &str, delta: &mut String) -> Option<usize> {
        let mut unseen = String::new();
        match self.quoted {
            Quoted::Marks => {
                delta.push_str(text);
                None
            }
            _ => self.read(text, &mut unseen),
        }
    }
}

/// Appends a character as JSON writes it inside of a string.
fn push_escaped(c: char, delta: &mut String) {
    match c {
        '"' | '\\' | '\0'..='\x1f' => {
            let quoted = serde_json::Value::from(c.to_string()).to_string();
            delta.push_str(&quoted[1..quoted.len() - 1]);
        }
        c => delta.push(c),
    }
}
