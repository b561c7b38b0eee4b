//! What a file defines, read line by line.
//!
//! No language is parsed: a definition is a line that looks like one, and it lasts until the indentation says so. That
//! is right for formatted code of the usual languages, costs microseconds, and is only ever used to find places and to
//! draw a map; what is written to a file is decided by `edit`.

/// Words that may stand before the word that defines something.
const MODIFIERS: &[&str] = &[
    "pub",
    "async",
    "export",
    "default",
    "static",
    "public",
    "private",
    "protected",
    "final",
    "abstract",
    "unsafe",
    "override",
    "inline",
    "virtual",
    "declare",
    "extern",
    "internal",
    "open",
    "data",
    "suspend",
];

/// Words that define something, the name being the next word.
const KEYWORDS: &[&str] = &[
    "def",
    "class",
    "fn",
    "struct",
    "enum",
    "trait",
    "mod",
    "type",
    "interface",
    "func",
    "function",
    "module",
    "union",
    "namespace",
    "fun",
    "object",
    "record",
    "protocol",
    "extension",
];

/// Words that begin a statement and no definition, whatever follows.
const STATEMENTS: &[&str] = &[
    "if", "for", "while", "switch", "else", "do", "return", "match", "loop", "catch", "try", "with", "new", "await",
    "assert", "print", "throw", "elif", "except", "use", "import", "from", "let", "var", "in", "not", "case", "when",
];

/// One definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// Its first line, from 0; decorators and comments above it are not part of it.
    pub first: usize,
    /// The line behind its last.
    pub end: usize,
    /// Spaces before it.
    pub indent: usize,
    /// Its first line, trimmed.
    pub signature: String,
}

/// Every definition of a text, in order; methods follow their class.
pub fn items(text: &str) -> Vec<Item> {
    let lines: Vec<&str> = text.lines().collect();
    let mut items = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        if let Some(name) = defined(line) {
            let indent = indent_of(line);
            let end = end_of(&lines, first, indent);
            items.push(Item { name, first, end, indent, signature: line.trim().to_owned() });
        }
    }
    items
}

/// Spaces before a line; a tab counts as four.
pub fn indent_of(line: &str) -> usize {
    let blank = line.len() - line.trim_start().len();
    line[..blank].chars().map(|letter| if letter == '\t' { 4 } else { 1 }).sum()
}

/// The name a line defines, if it defines one.
pub fn defined(line: &str) -> Option<String> {
    let mut rest = line.trim_start();
    if rest.starts_with(['#', '/', '*', '@', '"', '\'']) {
        return None;
    }
    loop {
        let (word, after) = first_word(rest);
        if word == "const" && after.trim_start().starts_with("fn ") {
            rest = after.trim_start();
        } else if word == "impl" {
            return implemented(after);
        } else if MODIFIERS.contains(&word) {
            rest = after.trim_start();
            // `pub(crate)`, `extern "C"`
            for (open, close) in [('(', ')'), ('"', '"')] {
                if let Some(inner) = rest.strip_prefix(open) {
                    rest = inner.split_once(close)?.1.trim_start();
                }
            }
        } else if KEYWORDS.contains(&word) && after.starts_with([' ', '\t', '*']) {
            let after = after.trim_start_matches([' ', '\t', '*']);
            // The receiver of a method in Go.
            let after = match after.strip_prefix('(') {
                Some(inner) if word == "func" => inner.split_once(')')?.1.trim_start(),
                _ => after,
            };
            let (name, _) = first_word(after);
            return (!name.is_empty()).then(|| name.to_owned());
        } else {
            return assigned(word, after).or_else(|| c_like(rest));
        }
    }
}

/// `impl<T> Trait for Name<T> {` is about `Name`.
fn implemented(rest: &str) -> Option<String> {
    let head = rest.split('{').next()?;
    let subject = head.rsplit(" for ").next()?.trim();
    let subject = if subject.starts_with('<') { subject.split_once('>')?.1.trim() } else { subject };
    let (name, _) = first_word(subject.trim_start_matches('&'));
    (!name.is_empty()).then(|| format!("impl {name}"))
}

/// `const name = (a) => ...` and `const NAME: u8 = 1;`
fn assigned(word: &str, after: &str) -> Option<String> {
    if word != "const" {
        return None;
    }
    let (name, _) = first_word(after.trim_start());
    (!name.is_empty()).then(|| name.to_owned())
}

/// `int name(int a) {`: a name before parentheses, a type before the name, a brace at the end.
fn c_like(rest: &str) -> Option<String> {
    let trimmed = rest.trim_end();
    let (before, _) = trimmed.split_once('(')?;
    let (first, _) = first_word(rest);
    if !trimmed.ends_with('{') || STATEMENTS.contains(&first) || before.contains(['=', '"', '\'', '.']) {
        return None;
    }
    let name = before.trim_end().rsplit(|letter: char| !is_word(letter)).next()?;
    let typed = before.trim_end().len() > name.len();
    (typed && !name.is_empty() && !STATEMENTS.contains(&name)).then(|| name.to_owned())
}

/// The line behind the last line of the definition that begins at `first`.
fn end_of(lines: &[&str], first: usize, indent: usize) -> usize {
    let mut end = first + 1;
    for (at, line) in lines.iter().enumerate().skip(first + 1) {
        if line.trim().is_empty() {
            continue;
        }
        if indent_of(line) <= indent {
            let start = line.trim_start();
            // The end of a long signature, and an opening brace on a line of its own, belong to the definition.
            if start.starts_with([')', '{', ']']) || start.starts_with("where") {
                end = at + 1;
                continue;
            }
            return if start.starts_with('}') || start.starts_with("end") { at + 1 } else { end };
        }
        end = at + 1;
    }
    end
}

fn first_word(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !is_word(letter)).unwrap_or(text.len());
    text.split_at(end)
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, usize, usize)]) {
        let found = items(text);
        let found: Vec<(&str, usize, usize)> =
            found.iter().map(|item| (item.name.as_str(), item.first, item.end)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn python() {
        let text = "import os\n\nclass A:\n    x = 1\n\n    def f(self,\n          a):\n        return a\n\n\n\
                    @wraps\nasync def g(\n    a,\n):\n    return a\n\nprint(g(1))\n";
        check(text, &[("A", 2, 8), ("f", 5, 8), ("g", 11, 15)]);
    }

    #[test]
    fn rust() {
        let text = "pub(crate) struct S<T> {\n    a: T,\n}\n\nimpl<T> Clone for S<T>\nwhere\n    T: Clone,\n{\n    \
                    fn clone(&self) -> Self {\n        S { a: self.a.clone() }\n    }\n}\n\npub const fn two() -> u8 { 2 }\n\
                    const N: usize = 3;\n";
        check(text, &[("S", 0, 3), ("impl S", 4, 12), ("clone", 8, 11), ("two", 13, 14), ("N", 14, 15)]);
    }

    #[test]
    fn others() {
        check("func (s *Server) Run(a int) error {\n\treturn nil\n}\n", &[("Run", 0, 3)]);
        check(
            "export default function App() {\n  return 1;\n}\nconst add = (a, b) => {\n  return a + b;\n};\n",
            &[("App", 0, 3), ("add", 3, 6)],
        );
        check("static int *find(char *a)\n", &[]);
        check("int main(int argc) {\n    if (a) {\n        run(b);\n    }\n}\n", &[("main", 0, 5)]);
        check("class A {\n    public int get(int a) {\n        return a;\n    }\n}\n", &[("A", 0, 5), ("get", 1, 4)]);
    }
}
