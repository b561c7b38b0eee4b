//! Source text in which strings and comments cannot be mistaken for code.
//!
//! The result has the same bytes at the same places, but comments are spaces and strings are `"`. Line ends stay.

use super::Language;

/// Blanks strings and comments.
pub(super) fn mask(language: Language, text: &str) -> String {
    mask_with_strings(language, text).0
}

/// Blanks strings and comments, and says which lines begin inside a string.
pub(super) fn mask_with_strings(language: Language, text: &str) -> (String, Vec<usize>) {
    let mut masker = Masker {
        language,
        text: text.as_bytes(),
        out: Vec::with_capacity(text.len()),
        templates: Vec::new(),
        line_starts_in_strings: Vec::new(),
    };
    while masker.out.len() < text.len() {
        masker.next();
    }
    // Whole characters become spaces or quotes byte by byte, and the others are copied, so this is UTF-8.
    let starts: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let line = |at: &usize| starts.partition_point(|start| start <= at);
    let inside = masker.line_starts_in_strings.iter().map(line).collect();
    (String::from_utf8(masker.out).unwrap_or_default(), inside)
}

struct Masker<'a> {
    language: Language,
    text: &'a [u8],
    /// What was read has been written, so this is also the place in `text`.
    out: Vec<u8>,
    /// Open braces inside each `${` of a JavaScript template that is being read.
    templates: Vec<usize>,
    line_starts_in_strings: Vec<usize>,
}

impl Masker<'_> {
    fn rest(&self) -> &[u8] {
        &self.text[self.out.len()..]
    }

    fn next(&mut self) {
        let rest = self.rest();
        let hash_comments = self.language == Language::Python;
        if hash_comments && rest[0] == b'#' || !hash_comments && rest.starts_with(b"//") {
            let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            return self.blank(end, b' ');
        }
        if !hash_comments && rest.starts_with(b"/*") {
            let end = self.block_comment();
            return self.blank(end, b' ');
        }
        if let Some(length) = self.raw_string() {
            return self.blank(length, b'"');
        }
        match self.text[self.out.len()] {
            b'"' | b'\'' | b'`' => self.quote(),
            b'/' if self.language == Language::Script && self.regex_may_begin() => self.regex(),
            // The code inside a template is over; the template goes on.
            b'}' if self.templates.last() == Some(&0) => {
                self.templates.pop();
                self.template(1);
            }
            byte => {
                if let Some(open) = self.templates.last_mut() {
                    *open = *open + usize::from(byte == b'{') - usize::from(byte == b'}');
                }
                self.out.push(byte);
            }
        }
    }

    /// Writes `count` bytes of this kind, keeping line ends.
    fn blank(&mut self, count: usize, with: u8) {
        let start = self.out.len();
        let end = (start + count).min(self.text.len());
        if with == b'"' {
            let ends = (start..end).filter(|at| self.text[*at] == b'\n');
            self.line_starts_in_strings.extend(ends.map(|at| at + 1));
        }
        self.out.extend(self.text[start..end].iter().map(|byte| if *byte == b'\n' { b'\n' } else { with }));
    }

    fn block_comment(&self) -> usize {
        let rest = self.rest();
        let (mut at, mut depth) = (2, 1);
        while at < rest.len() && depth > 0 {
            if rest[at..].starts_with(b"*/") {
                (at, depth) = (at + 2, depth - 1);
            } else if rest[at..].starts_with(b"/*") && self.language == Language::Rust {
                (at, depth) = (at + 2, depth + 1);
            } else {
                at += 1;
            }
        }
        at
    }

    fn quote(&mut self) {
        let rest = self.rest();
        let quote = rest[0];
        let triple = [quote; 3];
        let tripled = matches!(self.language, Language::Python | Language::CLike | Language::KotlinLike);
        if tripled
            && quote != b'`'
            && rest.starts_with(&triple)
            && !(quote == b'\'' && self.language != Language::Python)
        {
            let end = find_end(&rest[3..], &triple, true);
            return self.blank(3 + end, b'"');
        }
        match (self.language, quote) {
            (Language::Rust | Language::CLike | Language::KotlinLike, b'`') => self.out.push(quote),
            (Language::Rust, b'\'') => self.rust_quote(),
            (Language::Script, b'`') => self.template(1),
            (Language::Go, b'`') => {
                let end = find_end(&rest[1..], b"`", false);
                self.blank(1 + end, b'"');
            }
            // Strings of Rust may hold line ends; those of the others end with the line at the latest.
            (Language::Rust, _) => {
                let end = find_end(&rest[1..], &[quote], true);
                self.blank(1 + end, b'"');
            }
            // Digit separators of C++: 1'000'000.
            (Language::CLike, b'\'') if self.out.last().is_some_and(u8::is_ascii_hexdigit) => self.out.push(b' '),
            _ => {
                let line = rest.iter().enumerate().position(|(at, byte)| *byte == b'\n' && rest[at - 1] != b'\\');
                let line = line.unwrap_or(rest.len());
                let end = find_end(&rest[1..line.max(1)], &[quote], true);
                self.blank(1 + end, b'"');
            }
        }
    }

    /// A character or a lifetime.
    fn rust_quote(&mut self) {
        let rest = self.rest();
        let width = rest.get(1).map_or(1, |byte| match byte {
            0xf0.. => 4,
            0xe0.. => 3,
            0xc0.. => 2,
            _ => 1,
        });
        if rest.get(1) == Some(&b'\\') {
            let end = find_end(&rest[1..], b"'", true);
            self.blank(1 + end, b'"');
        } else if rest.get(1 + width) == Some(&b'\'') {
            self.blank(2 + width, b'"');
        } else {
            self.out.push(b'\'');
        }
    }

    /// The length of a raw string that begins here: `r#"…"#` of Rust, `R"x(…)x"` of C++. Its prefix must begin a word.
    fn raw_string(&self) -> Option<usize> {
        let rest = self.rest();
        let in_word = self.out.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if in_word || !matches!(rest[0], b'r' | b'b' | b'c' | b'R') {
            return None;
        }
        let (start, close) = match self.language {
            Language::Rust => {
                let letters = rest.iter().take_while(|byte| matches!(byte, b'b' | b'r' | b'c')).count();
                let hashes = rest[letters..].iter().take_while(|byte| **byte == b'#').count();
                let opens = rest.get(letters + hashes) == Some(&b'"') && rest[..letters].contains(&b'r');
                opens.then(|| (letters + hashes + 1, [&b"\""[..], &b"#".repeat(hashes)].concat()))?
            }
            Language::CLike if rest.starts_with(b"R\"") => {
                let name: Vec<u8> = rest[2..].iter().take(16).take_while(|byte| **byte != b'(').copied().collect();
                (2 + name.len(), [&b")"[..], &name, b"\""].concat())
            }
            _ => return None,
        };
        Some(start + find_end(&rest[start.min(rest.len())..], &close, false))
    }

    /// A JavaScript template from `skip` bytes on, up to its end or to the next `${`, whose inside is code.
    fn template(&mut self, skip: usize) {
        let rest = self.rest();
        let mut at = skip;
        while at < rest.len() {
            match rest[at] {
                b'\\' => at += 2,
                b'`' => return self.blank(at + 1, b'"'),
                b'$' if rest.get(at + 1) == Some(&b'{') => {
                    self.templates.push(0);
                    return self.blank(at + 2, b'"');
                }
                _ => at += 1,
            }
        }
        self.blank(at, b'"');
    }

    /// After an operator or an opening bracket `/` begins a regular expression, after a value it divides.
    fn regex_may_begin(&self) -> bool {
        let before: &[u8] = self.out.trim_ascii_end();
        let word: Vec<u8> = before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).copied().collect();
        match before.last() {
            None => true,
            Some(byte) if b"(,=:[!&|?{};+-*%<>~^".contains(byte) => true,
            // Spelled backwards, as it was read.
            Some(_) => matches!(&word[..], b"nruter" | b"foepyt" | b"esac" | b"dleiy" | b"tiawa"),
        }
    }

    fn regex(&mut self) {
        let rest = self.rest();
        let mut class = false;
        let mut at = 1;
        while at < rest.len() {
            match rest[at] {
                b'\n' => return self.out.push(b'/'),
                b'\\' => at += 1,
                b'[' => class = true,
                b']' => class = false,
                b'/' if !class => return self.blank(at + 1, b'"'),
                _ => {}
            }
            at += 1;
        }
        self.out.push(b'/');
    }
}

/// Bytes up to and with the closing mark; all when there is none.
fn find_end(text: &[u8], close: &[u8], escapes: bool) -> usize {
    let mut at = 0;
    while at < text.len() {
        if escapes && text[at] == b'\\' {
            at += 2;
        } else if text[at..].starts_with(close) {
            return at + close.len();
        } else {
            at += 1;
        }
    }
    text.len()
}
