//! Items of languages whose blocks stand in braces.
//!
//! The text is walked once. Outside bodies the words since the last item are a head; a brace or a semicolon says that the
//! head is complete. Bodies of functions are skipped, those of classes and the like are walked.

use std::ops::Range;

use super::heads::{self, Head};
use super::{Item, Kind, Language, squeezed, with_comments_above};

pub(super) fn items(language: Language, text: &str, masked: &str, members: bool) -> Vec<Item> {
    let mut walk = Walk {
        language,
        text: masked,
        bytes: masked.as_bytes(),
        lines: text.split('\n').collect(),
        code: masked.split('\n').collect(),
        starts: std::iter::once(0).chain(masked.match_indices('\n').map(|(at, _)| at + 1)).collect(),
        members,
        open: Vec::new(),
        items: Vec::new(),
        head: None,
    };
    let mut at = 0;
    while at < walk.bytes.len() {
        at = walk.step(at);
    }
    let end = walk.bytes.len();
    if walk.among_items() {
        walk.finish(end);
    }
    walk.items.sort_by_key(|item| (item.lines.start, std::cmp::Reverse(item.lines.end)));
    walk.items
}

/// An open bracket.
enum Open {
    /// `(` or `[`, or a brace inside a body.
    Other,
    /// The body of something whose inside is not walked.
    Body { item: Option<usize>, head: usize },
    /// The body of something that holds items; its number if it has a name.
    Holder { item: Option<usize> },
}

struct Walk<'a> {
    language: Language,
    text: &'a str,
    bytes: &'a [u8],
    lines: Vec<&'a str>,
    code: Vec<&'a str>,
    starts: Vec<usize>,
    members: bool,
    open: Vec<Open>,
    items: Vec<Item>,
    /// Where the words of the head begin.
    head: Option<usize>,
}

impl Walk<'_> {
    /// Whether items can stand here.
    fn among_items(&self) -> bool {
        matches!(self.open.last(), None | Some(Open::Holder { .. }))
    }

    /// Reads what is at `at`, and says where to go on.
    fn step(&mut self, at: usize) -> usize {
        let byte = self.bytes[at];
        if byte == b'#' && self.language == Language::CLike && self.first_of_line(at) {
            return self.directive(at);
        }
        if self.language == Language::Rust && self.head.is_none() && self.text[at..].starts_with("#![") {
            return self.text[at..].find(']').map_or(self.bytes.len(), |end| at + end + 1);
        }
        match byte {
            b'{' => self.open_brace(at),
            b'(' | b'[' => {
                self.begin(at);
                self.open.push(Open::Other);
            }
            b'}' | b')' | b']' => self.close(at),
            b';' if self.among_items() => self.finish(at),
            b',' if self.among_items() && self.in_object() => self.finish(at),
            b':' if self.among_items() && self.is_label(at) => self.head = None,
            b'\n' if self.among_items() && self.language.ends_with_lines() => {
                if self.head.is_some_and(|head| self.statement_ends(head, at)) {
                    self.finish(at);
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => self.begin(at),
        }
        at + 1
    }

    fn begin(&mut self, at: usize) {
        if self.among_items() {
            self.head.get_or_insert(at);
        }
    }

    fn first_of_line(&self, at: usize) -> bool {
        self.text[self.starts[self.line(at)]..at].trim().is_empty()
    }

    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// A line for the preprocessor. Its brackets need not balance, so it is not walked.
    fn directive(&mut self, at: usize) -> usize {
        let mut line = self.line(at);
        while self.code[line].ends_with('\\') && line + 1 < self.code.len() {
            line += 1;
        }
        let end = self.starts.get(line + 1).copied().unwrap_or(self.bytes.len());
        if self.open.is_empty() && self.text[at..].trim_start_matches(['#', ' ']).starts_with("include") {
            let first = self.line(at);
            let name = squeezed(self.lines[first]);
            self.push(Head { kind: Kind::Import, name, owner: Vec::new() }, at..at, Some(end.saturating_sub(1)), false);
        }
        if self.among_items() {
            self.head = None;
        }
        end
    }

    fn in_object(&self) -> bool {
        let holder = match self.open.last() {
            Some(Open::Holder { item: Some(item) }) => *item,
            _ => return self.members && self.open.is_empty(),
        };
        self.language == Language::Script && self.items[holder].kind == Kind::Value
    }

    /// `public:` and the like.
    fn is_label(&self, at: usize) -> bool {
        let Some(head) = self.head else { return false };
        let labels = ["public", "private", "protected", "signals", "public slots", "private slots", "default"];
        self.language == Language::CLike && labels.contains(&self.text[head..at].trim())
    }

    fn open_brace(&mut self, at: usize) {
        if !self.among_items() {
            return self.open.push(Open::Other);
        }
        let begin = *self.head.get_or_insert(at);
        let head = self.text[begin..at].trim_end();
        let inside = !self.open.is_empty() || self.members;
        let Some(found) = heads::read(self.language, head, inside) else {
            // Items may stand in the braces of a Rust macro.
            if self.language == Language::Rust && head.ends_with('!') {
                self.head = None;
                return self.open.push(Open::Holder { item: None });
            }
            return self.open.push(Open::Body { item: None, head: begin });
        };
        let object = self.language == Language::Script
            && found.kind == Kind::Value
            && (head.ends_with(['=', ':']) || head.ends_with("default"));
        let type_holds = found.kind == Kind::Type && !head.ends_with('=');
        if matches!(found.kind, Kind::Import) {
            // `use a::{b, c};`: the brace is a part of the head.
            return self.open.push(Open::Other);
        }
        let holds = type_holds || object || found.kind == Kind::Impl;
        let item = (!found.name.is_empty()).then(|| self.push(found, begin..at, None, true));
        if holds {
            self.open.push(Open::Holder { item });
            self.head = None;
        } else {
            self.open.push(Open::Body { item, head: begin });
        }
    }

    fn close(&mut self, at: usize) {
        if matches!(self.open.last(), Some(Open::Holder { .. })) {
            self.finish(at);
        }
        match self.open.pop() {
            None | Some(Open::Other) => {}
            Some(Open::Holder { item }) => {
                self.end(item, at);
                self.head = None;
            }
            Some(Open::Body { item, head }) => {
                // A brace that was not the body after all: a type, a member that is set up before the body.
                let rest = self.text[at + 1..].trim_start_matches([' ', '\t']);
                let more = rest.starts_with(['{', '>', '[', '|', '&']) || rest.starts_with("=>");
                let set_up =
                    self.language == Language::CLike && rest.starts_with(',') && self.text[head..at].contains(':');
                if more || set_up || self.waits_for_body(item, head, at) {
                    if let Some(item) = item {
                        self.items.remove(item);
                    }
                    self.head = Some(head);
                    return;
                }
                self.end(item, at);
                self.head = None;
            }
        }
    }

    /// `A() : b{1}` on lines of its own before the body.
    fn waits_for_body(&self, item: Option<usize>, head: usize, at: usize) -> bool {
        let next = self.text[at + 1..].trim_start();
        let function = item.is_some_and(|item| self.items[item].kind == Kind::Function);
        let words = &self.text[head..at];
        let set_up = words.split_once(')').is_some_and(|(_, after)| after.trim_start().starts_with(':'));
        self.language == Language::CLike && function && set_up && next.starts_with(['{', ','])
    }

    /// Whether a line end is the end of the statement that began at `head`.
    fn statement_ends(&self, head: usize, at: usize) -> bool {
        let words = self.text[head..at].trim_end();
        let next = self.text[at..].trim_start();
        let decorators_only = words.starts_with('@') && heads::without_attributes(self.language, words).is_empty();
        let last_word = words.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
        let hangs = words.ends_with([',', '=', '<', '|', '&', '+', '-', '*', '?', ':', '.', '('])
            || words.ends_with("=>")
            || matches!(last_word, "export" | "default" | "async" | "extends" | "implements" | "static" | "public");
        let goes_on = next.starts_with(['{', '.', '?', '|', '&', ',', '=', ':', '<', '>', ')'])
            || ["extends ", "implements ", "where "].iter().any(|word| next.starts_with(word));
        !decorators_only && !hangs && !goes_on
    }

    /// The head ends without a body.
    fn finish(&mut self, at: usize) {
        let Some(begin) = self.head.take() else { return };
        let head = self.text[begin..at].trim_end();
        let inside = !self.open.is_empty() || self.members;
        let Some(found) = heads::read(self.language, head, inside) else { return };
        if found.name.is_empty() {
            return;
        }
        let last = begin + head.len().saturating_sub(1);
        // An arrow without braces has its body all the same.
        let body = found.kind == Kind::Function && head.contains("=>");
        let semicolon = self.bytes.get(at).is_some_and(|byte| matches!(byte, b';' | b','));
        self.push(found, begin..at, Some(if semicolon { at } else { last }), body);
    }

    /// Notes an item with this head, which reaches to the byte `last`, or to the end of the body that begins now; its
    /// number.
    fn push(&mut self, found: Head, head: Range<usize>, last: Option<usize>, has_body: bool) -> usize {
        let bare = heads::without_attributes(self.language, &self.text[head.clone()]);
        let named = head.end - bare.len();
        let first = self.line(head.start);
        let mut parents: Vec<String> = Vec::new();
        for open in &self.open {
            if let Open::Holder { item: Some(item) } = open {
                parents.push(self.items[*item].name.clone());
            }
        }
        parents.extend(found.owner);
        let lines = with_comments_above(first, &self.lines, &self.code)..self.line(last.unwrap_or(head.end)) + 1;
        let signature = match found.kind {
            // Paths may be strings, which the masked text does not have.
            Kind::Import => squeezed(&self.lines[first..lines.end].join(" ")),
            _ => squeezed(bare),
        };
        let name = if found.kind == Kind::Import { signature.clone() } else { found.name };
        self.items.push(Item {
            kind: found.kind,
            name,
            signature,
            parents,
            lines,
            head: self.line(named),
            indent: super::indent(self.lines[first]).to_owned(),
            has_body,
            whole_lines: self.first_of_line(head.start) && last.is_none_or(|last| self.nothing_after(last)),
        });
        self.items.len() - 1
    }

    fn end(&mut self, item: Option<usize>, at: usize) {
        let Some(item) = item else { return };
        self.items[item].lines.end = self.line(at) + 1;
        self.items[item].whole_lines &= self.nothing_after(at);
    }

    /// Whether the rest of the line is nothing, or only closes the statement.
    fn nothing_after(&self, at: usize) -> bool {
        let line_end = self.starts.get(self.line(at) + 1).copied().unwrap_or(self.text.len());
        let rest = self.text.get(at + 1..line_end).unwrap_or("").trim();
        let name = rest.trim_end_matches(';').trim();
        rest.trim_matches([';', ',', ' ']).is_empty()
            || rest.ends_with(';') && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '*' | ' '))
    }
}
