//! Reads an answer while it is being written: prose, and fenced blocks of code.
//!
//! A model's stream comes in pieces of any size. The parser gives prose on at once and holds back only what could still
//! become a fence, so that however the text is cut the parts are the same; a test cuts it everywhere.

/// Longest line that is waited for before it is taken for prose. A fence is never that long.
const HELD_BYTES_MAX: usize = 512;

/// What became known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// More prose.
    Text(String),
    /// A block began.
    Opened(Head),
    /// The block has another line.
    Line(String),
    /// The block ended. `whole` is false when the answer ended before its fence did.
    Closed {
        /// Whether its closing fence was seen.
        whole: bool,
    },
}

/// What stood around the opening fence of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// What stood behind the fence, such as `python` or `rust src/lib.rs`.
    pub info: String,
    /// The last line of prose before it, where a path may be named.
    pub heading: String,
}

/// A fence that is open.
#[derive(Debug)]
struct Fence {
    mark: char,
    length: usize,
    /// Spaces before the opening fence, which a list puts before every line of the block.
    indent: usize,
    /// Markdown may hold fences of its own.
    nests: bool,
    depth: usize,
    /// Until the first line says what the block is: small models open a block, name the file in it, and open it again.
    unopened: Option<Head>,
    named: Option<String>,
}

/// The parser of one answer.
#[derive(Debug, Default)]
pub struct Parser {
    /// The unfinished line.
    line: String,
    /// How much of it was given on as prose.
    given: usize,
    heading: String,
    fence: Option<Fence>,
}

impl Parser {
    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        let mut parts = Vec::new();
        for piece in piece.split_inclusive('\n') {
            self.line.push_str(piece);
            if self.line.ends_with('\n') {
                self.end_line(&mut parts);
            } else if self.fence.is_none() {
                self.give_prose(&mut parts);
            }
        }
        parts
    }

    /// The answer is over; what was held back follows.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut parts);
        }
        if let Some(mut fence) = self.fence.take() {
            fence.open(&mut parts);
            parts.push(Part::Closed { whole: false });
        }
        parts
    }

    /// Gives on what of the unfinished line can only be prose.
    fn give_prose(&mut self, parts: &mut Vec<Part>) {
        let could_be_fence = {
            let start = self.line.trim_start_matches([' ', '\t']);
            start.is_empty() || start.starts_with("```") || start.starts_with("~~~") || "```~~~".contains(start)
        };
        if (could_be_fence && self.line.len() <= HELD_BYTES_MAX) || self.given == self.line.len() {
            return;
        }
        push_text(parts, &self.line[self.given..]);
        self.given = self.line.len();
    }

    fn end_line(&mut self, parts: &mut Vec<Part>) {
        let line = std::mem::take(&mut self.line);
        let given = std::mem::take(&mut self.given);
        let Some(fence) = &mut self.fence else {
            match opening(&line, &self.heading).filter(|_| given == 0) {
                Some(fence) => {
                    self.heading.clear();
                    self.fence = Some(fence);
                }
                None => {
                    if !line.trim().is_empty() {
                        line.trim().clone_into(&mut self.heading);
                    }
                    push_text(parts, &line[given..]);
                }
            }
            return;
        };
        if let Some(path) = &fence.named
            && let Some(again) = opening(&line, path).filter(|again| !again.info().is_empty())
        {
            self.fence = Some(again);
            return;
        }
        if fence.closes(&line) {
            fence.open(parts);
            self.fence = None;
            parts.push(Part::Closed { whole: true });
        } else if fence.unopened.is_some() && fence.named.is_none() && is_lone_path(&line) {
            fence.named = Some(line);
        } else {
            fence.open(parts);
            parts.push(Part::Line(without_indent(&line, fence.indent).to_owned()));
        }
    }
}

impl Fence {
    fn info(&self) -> &str {
        self.unopened.as_ref().map_or("", |head| &head.info)
    }

    /// Says that the block is open, unless that was said.
    fn open(&mut self, parts: &mut Vec<Part>) {
        parts.extend(self.unopened.take().map(Part::Opened));
        parts.extend(self.named.take().map(Part::Line));
    }

    /// Whether this line ends the block.
    fn closes(&mut self, line: &str) -> bool {
        let text = line.trim();
        let run = text.chars().take_while(|&letter| letter == self.mark).count();
        if run < self.length {
            return false;
        }
        let bare = text.chars().count() == run;
        match (bare, self.nests) {
            (false, true) => self.depth += 1,
            (true, true) if self.depth > 0 => self.depth -= 1,
            (true, _) => return true,
            (false, false) => {}
        }
        false
    }
}

/// A line that is nothing but the path of a file.
fn is_lone_path(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty()
        && line.chars().all(|letter| letter.is_alphanumeric() || "._-/".contains(letter))
        && line.contains('.')
}

/// The fence a line opens.
fn opening(line: &str, heading: &str) -> Option<Fence> {
    let text = line.trim_start_matches([' ', '\t']);
    let mark = text.chars().next().filter(|mark| "`~".contains(*mark))?;
    let length = text.chars().take_while(|&letter| letter == mark).count();
    let info = text[length..].trim();
    if length < 3 || info.contains('`') {
        return None;
    }
    let indent = line.len() - text.len();
    let first = info.split_whitespace().next().unwrap_or_default();
    let nests = matches!(first, "markdown" | "md") || info.ends_with(".md");
    let head = Head { info: info.to_owned(), heading: heading.trim().to_owned() };
    Some(Fence { mark, length, indent, nests, depth: 0, unopened: Some(head), named: None })
}

fn without_indent(line: &str, indent: usize) -> &str {
    let spaces = line.bytes().take(indent).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    &line[spaces..]
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Text(last)) => last.push_str(text),
        _ => parts.push(Part::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of the text when it comes in these pieces, neighbouring prose joined.
    fn parse<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<Part> {
        let mut parser = Parser::default();
        let mut parts: Vec<Part> = pieces.into_iter().flat_map(|piece| parser.push(piece)).collect();
        parts.extend(parser.finish());
        let mut joined: Vec<Part> = Vec::new();
        for part in parts {
            match part {
                Part::Text(text) => push_text(&mut joined, &text),
                part => joined.push(part),
            }
        }
        joined
    }

    const ANSWER: &str = "The range stops early.\n\n**src/a.py**\n```python\ndef f():\n    return `x`\n\n```\nDone: ``f``.\n\
                          1. and\n   ~~~ rust b.rs\n   fn é() {}\n     let s = \"```\";\n   ~~~\n``not a fence``\nend";

    #[test]
    fn prose_and_blocks_are_told_apart() {
        let parts = parse([ANSWER]);
        let head =
            |info: &str, heading: &str| Part::Opened(Head { info: info.to_owned(), heading: heading.to_owned() });
        let line = |text: &str| Part::Line(text.to_owned());
        assert_eq!(parts[0], Part::Text("The range stops early.\n\n**src/a.py**\n".to_owned()));
        assert_eq!(parts[1], head("python", "**src/a.py**"));
        assert_eq!(parts[2..5], [line("def f():\n"), line("    return `x`\n"), line("\n")]);
        assert_eq!(parts[5], Part::Closed { whole: true });
        assert_eq!(parts[7], head("rust b.rs", "1. and"));
        assert_eq!(parts[8..10], [line("fn é() {}\n"), line("  let s = \"```\";\n")]);
        assert_eq!(parts[11], Part::Text("``not a fence``\nend".to_owned()));
    }

    #[test]
    fn however_it_is_cut_the_parts_are_the_same() {
        let whole = parse([ANSWER]);
        let letters: Vec<String> = ANSWER.chars().map(String::from).collect();
        assert_eq!(parse(letters.iter().map(String::as_str)), whole);
        let cuts: Vec<usize> = ANSWER.char_indices().map(|(at, _)| at).collect();
        for &first in &cuts {
            for &second in cuts.iter().filter(|&&second| second >= first) {
                let pieces = [&ANSWER[..first], &ANSWER[first..second], &ANSWER[second..]];
                assert_eq!(parse(pieces), whole, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn a_block_without_its_end_is_not_whole() {
        let parts = parse(["```python\ndef f():\n    ret"]);
        assert_eq!(parts.last(), Some(&Part::Closed { whole: false }));
        assert_eq!(parts[parts.len() - 2], Part::Line("    ret".to_owned()));
    }

    #[test]
    fn markdown_may_hold_fences() {
        let parts = parse(["```markdown README.md\n# T\n```sh\nls\n```\nend\n```\nafter"]);
        assert_eq!(parts.iter().filter(|part| matches!(part, Part::Line(_))).count(), 5);
        assert_eq!(parts.last(), Some(&Part::Text("after".to_owned())));
    }

    #[test]
    fn a_file_named_inside_a_block_that_is_opened_again() {
        let parts = parse(["Here:\n```python\nmodule.py\n```python\nx = 1\n```\n"]);
        let head = Head { info: "python".to_owned(), heading: "module.py".to_owned() };
        let line = Part::Line("x = 1\n".to_owned());
        assert_eq!(parts[1..], [Part::Opened(head), line, Part::Closed { whole: true }]);
        let parts = parse(["```\na.txt\nb\n```\n"]);
        assert_eq!(parts[1..3], [Part::Line("a.txt\n".to_owned()), Part::Line("b\n".to_owned())]);
    }

    #[test]
    fn prose_is_not_held_back() {
        let mut parser = Parser::default();
        assert_eq!(parser.push("Hel"), [Part::Text("Hel".to_owned())]);
        assert_eq!(parser.push("lo"), [Part::Text("lo".to_owned())]);
        assert_eq!(parser.push("\n``"), [Part::Text("\n".to_owned())]);
        assert_eq!(parser.push("x"), [Part::Text("``x".to_owned())]);
    }
}
