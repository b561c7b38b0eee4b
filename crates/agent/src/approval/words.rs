//! A shell line taken apart into simple commands, as far as that can be done with certainty. What a shell would expand,
//! redirect or nest is not taken apart: such a line is opaque, and nobody may conclude anything from its first word.

/// The simple commands of a line, as words; none when the line is opaque.
pub(crate) fn simple_commands(line: &str) -> Option<Vec<Vec<String>>> {
    let mut reader = Reader::default();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\'' => {
                reader.begin();
                reader.word.extend(characters.by_ref().take_while(|c| *c != '\''));
                // `take_while` also ends with the line; a quote left open is counted as such.
                if line.matches('\'').count() % 2 == 1 {
                    return None;
                }
            }
            '"' => {
                reader.begin();
                loop {
                    match characters.next()? {
                        '"' => break,
                        '$' | '`' => return None,
                        '\\' => reader.word.push(characters.next()?),
                        other => reader.word.push(other),
                    }
                }
            }
            '\\' => {
                reader.begin();
                reader.word.push(characters.next()?);
            }
            '$' | '`' | '(' | ')' | '<' | '>' | '{' | '}' | '*' | '?' | '[' | '~' | '!' => return None,
            '#' if reader.word.is_empty() && !reader.in_word => return None,
            '&' | '|' => {
                let doubled = characters.next_if_eq(&character).is_some();
                if character == '&' && !doubled {
                    return None;
                }
                reader.end_command()?;
            }
            ';' | '\n' => reader.end_command()?,
            blank if blank.is_whitespace() => reader.end_word(),
            other => {
                reader.begin();
                reader.word.push(other);
            }
        }
    }
    reader.end_word();
    if !reader.words.is_empty() {
        reader.end_command()?;
    }
    (!reader.commands.is_empty()).then_some(reader.commands)
}

#[derive(Default)]
struct Reader {
    word: String,
    in_word: bool,
    words: Vec<String>,
    commands: Vec<Vec<String>>,
}

impl Reader {
    fn begin(&mut self) {
        self.in_word = true;
    }

    fn end_word(&mut self) {
        if std::mem::take(&mut self.in_word) {
            self.words.push(std::mem::take(&mut self.word));
        }
    }

    /// None for an empty command, and for one that begins by setting a variable.
    fn end_command(&mut self) -> Option<()> {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        if words.first().is_none_or(|first| first.contains('=')) {
            return None;
        }
        self.commands.push(words);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_apart_or_are_opaque() {
        let cases: [(&str, Option<&[&[&str]]>); 18] = [
            ("ls -la", Some(&[&["ls", "-la"]])),
            ("git log -1 && cat 'a b' | wc -l", Some(&[&["git", "log", "-1"], &["cat", "a b"], &["wc", "-l"]])),
            ("echo \"a \\\" b\" c\\ d; pwd", Some(&[&["echo", "a \" b", "c d"], &["pwd"]])),
            ("echo ''", Some(&[&["echo", ""]])),
            ("a || b\nc", Some(&[&["a"], &["b"], &["c"]])),
            ("cat $HOME/x", None),
            ("echo `id`", None),
            ("echo \"$(id)\"", None),
            ("ls > x", None),
            ("cat <(id)", None),
            ("(ls)", None),
            ("sleep 9 & rm x", None),
            ("X=1 ls", None),
            ("ls 'open", None),
            ("ls \"open", None),
            ("ls *.rs", None),
            ("; ls", None),
            ("", None),
        ];
        for (line, expected) in cases {
            let got = simple_commands(line);
            let got: Option<Vec<Vec<&str>>> =
                got.as_ref().map(|all| all.iter().map(|words| words.iter().map(String::as_str).collect()).collect());
            let expected: Option<Vec<Vec<&str>>> = expected.map(|all| all.iter().map(|words| words.to_vec()).collect());
            assert_eq!(got, expected, "{line}");
        }
    }
}
