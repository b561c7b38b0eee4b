//! A shell line taken apart into simple commands, as bash and sh take it apart, as far as that can be done with certainty.
//!
//! Understood are words, quotes, backslashes, continued lines, comments, the operators `;`, `&&`, `||`, `|` and line ends,
//! and redirections to `/dev/null` or between the two outputs. Whatever else a shell would expand, redirect or nest makes
//! the line opaque: nobody may conclude anything from its first word. The error says why, for the question.

use std::iter::Peekable;
use std::str::Chars;

/// Bytes of a line that is looked at; a longer one is asked about.
const LINE_BYTES_MAX: usize = 16 << 10;

/// The words of a simple command.
pub(crate) type Words = Vec<String>;

/// The simple commands of a line in their order, or why it is opaque.
pub(crate) fn simple_commands(line: &str) -> Result<Vec<Words>, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("it is longer than {LINE_BYTES_MAX} bytes"));
    }
    if let Some(odd) = line.chars().find(|c| is_odd(*c)) {
        return Err(format!("it contains the invisible character U+{:04X}", u32::from(odd)));
    }
    let mut reader = Reader {
        rest: line.chars().peekable(),
        word: None,
        plain: true,
        target: false,
        words: Vec::new(),
        commands: Vec::new(),
    };
    reader.line()?;
    if reader.commands.is_empty() { Err("there is no command in it".to_owned()) } else { Ok(reader.commands) }
}

/// Characters that a shell and a person may read differently. The shell's blanks are the blank, the tab and the line feed;
/// everything else that looks like one is part of a word.
fn is_odd(c: char) -> bool {
    !matches!(c, ' ' | '\t' | '\n') && (c.is_whitespace() || boundary::terminal::is_hidden(c))
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    /// The word being read.
    word: Option<String>,
    /// Nothing of the word was quoted.
    plain: bool,
    /// The next word is the file of a redirection.
    target: bool,
    words: Words,
    commands: Vec<Words>,
}

impl Reader<'_> {
    fn line(&mut self) -> Result<(), String> {
        // Whether a command must follow, as behind `&&`.
        let mut wanted = false;
        while let Some(c) = self.next() {
            match c {
                ' ' | '\t' => self.end_word()?,
                '\n' => {
                    self.end_word()?;
                    if !self.words.is_empty() {
                        self.end_command()?;
                    }
                    continue;
                }
                '#' if self.word.is_none() => {
                    // A comment ends with its line, whatever is before that end.
                    while self.rest.next_if(|c| *c != '\n').is_some() {}
                }
                ';' => {
                    self.end_command()?;
                    wanted = false;
                    continue;
                }
                '&' if self.peek() == Some('>') => {
                    self.end_word()?;
                    self.next();
                    self.next_if('>');
                    self.begin_target("&>")?;
                }
                '&' | '|' => {
                    let doubled = self.next_if(c);
                    if c == '&' && !doubled {
                        return Err("`&` leaves a command running in the background".to_owned());
                    }
                    if c == '|' && self.peek() == Some('&') {
                        return Err(opaque("|&"));
                    }
                    self.end_command()?;
                    wanted = true;
                    continue;
                }
                '>' | '<' => self.redirect(c)?,
                '\'' => self.single_quoted()?,
                '"' => self.double_quoted()?,
                '\\' => match self.rest.next() {
                    Some(c) => {
                        self.plain = false;
                        self.push(c);
                    }
                    None => return Err("it ends with a backslash".to_owned()),
                },
                '$' | '`' => return Err(expanded(c)),
                '(' | ')' | '{' | '}' => return Err(opaque(&c.to_string())),
                // `[` by itself is a command.
                '[' if self.word.is_none() && matches!(self.peek(), Some(' ' | '\t')) => self.push('['),
                '*' | '?' | '[' => {
                    return Err(format!("`{c}` stands for whatever files there are"));
                }
                // Elsewhere it is a letter like any other, as in `HEAD~1`.
                '~' if self.word.as_ref().is_none_or(|word| word.ends_with(['=', ':'])) => return Err(expanded('~')),
                c => self.push(c),
            }
            wanted = wanted && self.word.is_none() && self.words.is_empty();
        }
        self.end_word()?;
        if !self.words.is_empty() {
            self.end_command()?;
        } else if wanted || self.target {
            return Err("it ends in the middle of a command".to_owned());
        }
        Ok(())
    }

    /// The next character, lines that are continued by a backslash put together.
    fn next(&mut self) -> Option<char> {
        self.join_lines();
        self.rest.next()
    }

    fn peek(&mut self) -> Option<char> {
        self.join_lines();
        self.rest.peek().copied()
    }

    fn next_if(&mut self, wanted: char) -> bool {
        let is_next = self.peek() == Some(wanted);
        if is_next {
            self.rest.next();
        }
        is_next
    }

    fn join_lines(&mut self) {
        loop {
            let mut ahead = self.rest.clone();
            if ahead.next() != Some('\\') || ahead.next() != Some('\n') {
                return;
            }
            self.rest = ahead;
        }
    }

    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn single_quoted(&mut self) -> Result<(), String> {
        self.plain = false;
        self.word.get_or_insert_default();
        loop {
            match self.rest.next() {
                Some('\'') => return Ok(()),
                Some(c) => self.push(c),
                None => return Err("a quote is left open".to_owned()),
            }
        }
    }

    fn double_quoted(&mut self) -> Result<(), String> {
        self.plain = false;
        self.word.get_or_insert_default();
        loop {
            match self.next() {
                Some('"') => return Ok(()),
                Some('`') => return Err(expanded('`')),
                // Before these a dollar means nothing, as at the end of a regular expression.
                Some('$') if matches!(self.peek(), Some('"' | ' ' | '|' | '/' | ')')) => self.push('$'),
                Some('$') => return Err(expanded('$')),
                // Before anything else a backslash stays.
                Some('\\') if matches!(self.rest.peek(), Some('$' | '`' | '"' | '\\')) => {
                    if let Some(c) = self.rest.next() {
                        self.push(c);
                    }
                }
                Some(c) => self.push(c),
                None => return Err("a quote is left open".to_owned()),
            }
        }
    }

    /// `>` and `<`, with the number before them: to `/dev/null`, or one output to the other.
    fn redirect(&mut self, sign: char) -> Result<(), String> {
        let numbered = self.plain && self.word.as_ref().is_some_and(|word| word.bytes().all(|b| b.is_ascii_digit()));
        let number = if numbered { self.word.take() } else { None };
        self.end_word()?;
        if sign == '<' {
            return if number.is_none() { self.begin_target("<") } else { Err(opaque("<")) };
        }
        if number.is_some_and(|number| number != "1" && number != "2") {
            return Err(opaque(">"));
        }
        if self.next_if('&') {
            let output = self.next();
            let ends = matches!(self.peek(), None | Some(' ' | '\t' | '\n' | ';' | '|' | '&'));
            return if matches!(output, Some('1' | '2')) && ends { Ok(()) } else { Err(writes(">&")) };
        }
        self.next_if('>');
        self.begin_target(">")
    }

    fn begin_target(&mut self, sign: &str) -> Result<(), String> {
        if self.target || matches!(self.peek(), Some('<' | '>' | '&' | '|' | '(')) {
            return Err(opaque(sign));
        }
        self.target = true;
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), String> {
        self.plain = true;
        let Some(word) = self.word.take() else { return Ok(()) };
        if std::mem::take(&mut self.target) {
            return if word == "/dev/null" { Ok(()) } else { Err(writes(&word)) };
        }
        self.words.push(word);
        Ok(())
    }

    fn end_command(&mut self) -> Result<(), String> {
        self.end_word()?;
        if self.words.is_empty() || self.target {
            return Err("a command in it is empty".to_owned());
        }
        self.commands.push(std::mem::take(&mut self.words));
        Ok(())
    }
}

fn expanded(c: char) -> String {
    format!("`{c}` is replaced by the shell with something else")
}

fn opaque(sign: &str) -> String {
    format!("`{sign}` may make it do more than can be seen")
}

fn writes(file: &str) -> String {
    format!("it is redirected: `{file}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_apart_or_are_opaque() {
        let cases: &[(&str, Option<&[&[&str]]>)] = &[
            ("ls -la", Some(&[&["ls", "-la"]])),
            ("git log -1 && cat 'a b' | wc -l", Some(&[&["git", "log", "-1"], &["cat", "a b"], &["wc", "-l"]])),
            ("echo \"a \\\" b\" c\\ d; pwd", Some(&[&["echo", "a \" b", "c d"], &["pwd"]])),
            ("echo ''", Some(&[&["echo", ""]])),
            ("a || b\nc", Some(&[&["a"], &["b"], &["c"]])),
            ("so\\\nrt a", Some(&[&["sort", "a"]])),
            ("a &\\\n& b", Some(&[&["a"], &["b"]])),
            ("a |\n\n b\n", Some(&[&["a"], &["b"]])),
            ("a '\\\n' \"\\d\\\\\\\n\"", Some(&[&["a", "\\\n", "\\d\\"]])),
            ("ls # rm x \\\npwd", Some(&[&["ls"], &["pwd"]])),
            ("ls a#b ''#c", Some(&[&["ls", "a#b", "#c"]])),
            ("git show HEAD~1", Some(&[&["git", "show", "HEAD~1"]])),
            ("grep \"x$\" a 2>/dev/null", Some(&[&["grep", "x$", "a"]])),
            ("a 2>&1 | b > /dev/null", Some(&[&["a"], &["b"]])),
            ("a &>/dev/null; b >>'/dev/null'", Some(&[&["a"], &["b"]])),
            ("[ -f x ]", Some(&[&["[", "-f", "x", "]"]])),
            ("a a2>/dev/null", Some(&[&["a", "a2"]])),
            ("cat $HOME/x", None),
            ("echo `id`", None),
            ("echo \"$(id)\"", None),
            ("echo $'a'", None),
            ("echo \"$'\"", None),
            ("ls > x", None),
            ("ls >& x", None),
            ("ls >&2x", None),
            ("ls 3>/dev/null", None),
            ("ls >/dev/nul\\l2", None),
            ("ls > /dev/null/../x", None),
            ("cat <<x\nx", None),
            ("cat <(id)", None),
            ("cat < a", None),
            ("(ls)", None),
            ("ls() { x; }", None),
            ("{ ls; }", None),
            ("sleep 9 & rm x", None),
            ("ls |& x", None),
            ("ls 'open", None),
            ("ls \"open", None),
            ("ls \\", None),
            ("ls *.rs", None),
            ("ls [a]", None),
            ("ls ~", None),
            ("echo a=~", None),
            ("; ls", None),
            ("ls;; ls", None),
            ("ls &&", None),
            ("ls | ", None),
            ("ls >", None),
            ("ls\u{a0}x", None),
            ("ls\rx", None),
            ("ls\u{b}x", None),
            ("ls '\u{200b}'", None),
            ("", None),
            ("# ls", None),
        ];
        for (line, expected) in cases {
            let got = simple_commands(line).ok();
            let got: Option<Vec<Vec<&str>>> =
                got.as_ref().map(|all| all.iter().map(|words| words.iter().map(String::as_str).collect()).collect());
            let expected: Option<Vec<Vec<&str>>> = expected.map(|all| all.iter().map(|words| words.to_vec()).collect());
            assert_eq!(got, expected, "{line:?}");
        }
    }

    /// Words that are understood are the words bash would hand to the program.
    #[test]
    fn words_are_those_of_bash() {
        let lines = [
            "printf '%s\\0' a\\\nb 'c d' \"e\\\"f\" g\\ h \"i\\j\" k#l ''#m \"n$\" o~p q=r '' \"\\\\\" \\\\ \\' \"'\" a''b",
            "printf '%s\\0' \"a\\\nb\" 'a\\\nb' 2>/dev/null \\\n x 1 2>&1",
            "printf '%s\\0' a:b ^c @ % + , ] - a]b \u{fc}\u{4e2d} # comment 'open",
            "printf '%s\\0' \"\\$a\" \"\\`\" \"\\n\" \\n a\\>b a\\\\\\\nb \"x$ y\" \"z$|w\"",
        ];
        for line in lines {
            let words = simple_commands(line).unwrap();
            let output = std::process::Command::new("bash").args(["-c", line]).output().unwrap();
            let heard: Vec<String> =
                output.stdout.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            assert_eq!(words[0][2..], heard[..heard.len() - 1], "{line:?}");
        }
    }
}
