//! Grammars in the notation of llama.cpp and xgrammar (`root ::= "yes" | "no"`), rewritten in Lark's.
//!
//! Nothing is checked here: what is wrong stays wrong in the other notation, and its compiler says so.

use std::collections::HashMap;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// A word of the notation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Name(String),
    /// `::=`
    Is,
    Text(String),
    /// Characters, as a regular expression.
    Class(String),
    /// `|`, brackets, and how often something comes.
    Other(String),
}

/// Whether a grammar is in this notation: Lark's has no `::=`.
pub(super) fn is_gbnf(text: &str) -> bool {
    text.lines().any(|line| line.contains("::="))
}

/// The same grammar in Lark's notation.
pub(super) fn to_lark(text: &str) -> String {
    let words = words(text);
    let defines = |index: usize| words.get(index + 1) == Some(&Word::Is);
    let mut names: HashMap<&str, String> = HashMap::new();
    for (index, word) in words.iter().enumerate() {
        if let Word::Name(name) = word
            && defines(index)
        {
            let lark = if name == "root" { "start".to_owned() } else { format!("r{index}") };
            names.entry(name).or_insert(lark);
        }
    }
    let mut lark = String::new();
    for (index, word) in words.iter().enumerate() {
        let _ = match word {
            Word::Name(name) => {
                let begin = if defines(index) { "\n" } else { " " };
                // A rule that is not there is asked for by its own name, which the error will then say.
                write!(lark, "{begin}{}", names.get(name.as_str()).unwrap_or(&name.to_lowercase().replace('-', "_")))
            }
            Word::Is => write!(lark, ":"),
            Word::Text(text) => write!(lark, " {}", serde_json::Value::from(text.as_str())),
            Word::Class(class) => write!(lark, " /{class}/"),
            Word::Other(sign) => write!(lark, "{sign}"),
        };
    }
    lark.trim_start().to_owned() + "\n"
}

fn words(text: &str) -> Vec<Word> {
    let mut rest = text.chars().peekable();
    let mut words = Vec::new();
    while let Some(letter) = rest.next() {
        words.push(match letter {
            '#' => {
                rest.by_ref().find(|letter| *letter == '\n');
                continue;
            }
            ':' => {
                while rest.next_if(|letter| matches!(letter, ':' | '=')).is_some() {}
                Word::Is
            }
            '"' => Word::Text(literal(&mut rest)),
            '[' => Word::Class(class(&mut rest)),
            '.' => Word::Class("(?s:.)".to_owned()),
            '{' => {
                Word::Other(format!("{{{}}}", rest.by_ref().take_while(|letter| *letter != '}').collect::<String>()))
            }
            letter if letter.is_alphanumeric() || letter == '_' => {
                let mut name = String::from(letter);
                while let Some(more) = rest.next_if(|letter| letter.is_alphanumeric() || matches!(letter, '_' | '-')) {
                    name.push(more);
                }
                Word::Name(name)
            }
            '|' | '(' => Word::Other(format!(" {letter}")),
            ')' | '*' | '+' | '?' => Word::Other(letter.to_string()),
            letter if letter.is_whitespace() => continue,
            other => Word::Other(format!(" {other}")),
        });
    }
    words
}

/// The text of a literal, up to its closing quote.
fn literal(rest: &mut Peekable<Chars>) -> String {
    let mut text = String::new();
    while let Some(letter) = rest.next().filter(|letter| *letter != '"') {
        text.push(if letter == '\\' { escaped(rest) } else { letter });
    }
    text
}

/// A class of characters, in which nothing but `^` at its start and `-` keeps a meaning.
fn class(rest: &mut Peekable<Chars>) -> String {
    let mut class = String::from("[");
    if rest.next_if_eq(&'^').is_some() {
        class.push('^');
    }
    let mut first = true;
    while let Some(letter) = rest.next().filter(|letter| *letter != ']') {
        let range = letter == '-' && !first && rest.peek() != Some(&']');
        first = false;
        let letter = if letter == '\\' { escaped(rest) } else { letter };
        let _ = match letter {
            '-' if range => write!(class, "-"),
            letter if letter.is_ascii_alphanumeric() => write!(class, "{letter}"),
            letter => write!(class, "\\x{{{:x}}}", letter as u32),
        };
    }
    class.push(']');
    class
}

/// The character behind a backslash.
fn escaped(rest: &mut Peekable<Chars>) -> char {
    let digits = match rest.next() {
        Some('n') => return '\n',
        Some('r') => return '\r',
        Some('t') => return '\t',
        Some('x') => 2,
        Some('u') => 4,
        Some('U') => 8,
        other => return other.unwrap_or('\\'),
    };
    let mut number = 0u32;
    for _ in 0..digits {
        let Some(digit) = rest.peek().and_then(|letter| letter.to_digit(16)) else { break };
        rest.next();
        number = number << 4 | digit;
    }
    char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_of_the_notation() {
        let gbnf = r#"
# a list of numbers
root ::= "[" ws (number ("," ws number)*)? "]"
number ::= "-"? [0-9]+ ( "." [0-9]{1,3} )?
  | special-word
special-word ::= "a\"\x41\n" | [^\]/a-z\\-] | .
ws ::= [ \t]*
"#;
        assert!(is_gbnf(gbnf) && !is_gbnf("start: \"a\""));
        let lark = to_lark(gbnf);
        let mut lines = lark.lines();
        assert!(lines.next().unwrap().starts_with("start: \"[\" r"), "{lark}");
        let number = lines.next().unwrap();
        assert!(number.contains(": \"-\"? /[0-9]/+ ( \".\" /[0-9]/{1,3})? | r"), "{number}");
        assert!(
            lines.next().unwrap().ends_with(r#": "a\"A\n" | /[^\x{5d}\x{2f}a-z\x{5c}\x{2d}]/ | /(?s:.)/"#),
            "{lark}"
        );
        assert!(lines.next().unwrap().ends_with(": /[\\x{20}\\x{9}]/*"), "{lark}");
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn what_is_wrong_stays_wrong() {
        assert_eq!(to_lark("root ::= Missing-Rule"), "start: missing_rule\n");
        for broken in ["root ::= \"a", "root ::= [a", "root ::= [\\", "::=", "root ::= a{", "\\", "root ::= \"\\u"] {
            to_lark(broken);
        }
    }
}
