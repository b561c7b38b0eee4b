//! Whether a text can be whole code of its language: brackets that close, indentation that a parser would take.
//!
//! Not a parser: what it finds is surely wrong in formatted code, and what it lets through may still not compile. It is
//! asked before and after a change, so that what it misreads in a file is not held against the change.

use super::{Language, indented, mask};

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub why: String,
}

/// The first thing in a text that its language cannot have; none when nothing is seen.
pub fn fault(language: Language, text: &str) -> Option<Fault> {
    let masked = mask::mask(language, text);
    brackets(&masked).or_else(|| if language == Language::Python { indentation(text) } else { None })
}

fn brackets(masked: &str) -> Option<Fault> {
    let mut open: Vec<(char, usize)> = Vec::new();
    for (number, line) in masked.lines().enumerate() {
        for c in line.chars() {
            let opener = match c {
                '(' | '[' | '{' => {
                    open.push((c, number + 1));
                    continue;
                }
                ')' => '(',
                ']' => '[',
                '}' => '{',
                _ => continue,
            };
            match open.pop() {
                Some((other, _)) if other == opener => {}
                Some((other, line)) => {
                    return Some(Fault {
                        line: number + 1,
                        why: format!("`{c}` does not close `{other}` of line {line}"),
                    });
                }
                None => return Some(Fault { line: number + 1, why: format!("`{c}` closes nothing") }),
            }
        }
    }
    open.first().map(|(c, line)| Fault { line: *line, why: format!("`{c}` is never closed") })
}

fn indentation(text: &str) -> Option<Fault> {
    let (masked, in_strings) = mask::mask_with_strings(Language::Python, text);
    let code: Vec<&str> = masked.split('\n').collect();
    let mut levels: Vec<usize> = vec![0];
    let mut opens = false;
    for statement in indented::statements(&code, &in_strings) {
        let line = statement.lines.start + 1;
        let level = levels.last().copied().unwrap_or(0);
        let wrong = |why: &str| Some(Fault { line, why: why.to_owned() });
        match (opens, statement.depth > level) {
            (true, false) => return wrong("an indented block is missing before it"),
            (false, true) => return wrong("it is indented, and nothing above opens a block"),
            (true, true) => levels.push(statement.depth),
            (false, false) => {
                levels.retain(|known| *known <= statement.depth);
                if levels.last() != Some(&statement.depth) {
                    return wrong("its indentation fits no block above it");
                }
            }
        }
        opens = code[statement.lines.end - 1].trim_end().ends_with(':');
    }
    opens.then(|| Fault { line: code.len(), why: "the last block is empty".to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_is_found_and_what_is_whole_is_not() {
        let check = |language, text: &str| fault(language, text).map(|fault| (fault.line, fault.why));
        let python =
            "def f(a,\n      b):\n    if a:\n        return {\n  1: 2}\n\n    # more\n    return \"(\"\n\nx = [\n1]\n";
        assert_eq!(check(Language::Python, python), None);
        assert_eq!(check(Language::Python, "if a: pass\nclass A: pass\n"), None);
        assert_eq!(check(Language::Python, "def f():\nreturn 1\n").unwrap().0, 2);
        assert_eq!(check(Language::Python, "def f():\n    a\n      b\n").unwrap().0, 3);
        assert_eq!(check(Language::Python, "def f():\n        a\n    b\n").unwrap().0, 3);
        assert_eq!(check(Language::Python, "def f():\n    # nothing\n").unwrap().1, "the last block is empty");
        assert_eq!(check(Language::Rust, "fn f<'a>() { let c = '{'; }\n"), None);
        assert_eq!(check(Language::Rust, "fn f() {\n    (1]\n}\n").unwrap().0, 2);
        assert_eq!(
            check(Language::Script, "function f() {\n  return `${a}`\n").unwrap(),
            (1, "`{` is never closed".to_owned())
        );
    }

    /// Everything this project is written in is whole.
    #[test]
    fn real_code_is_whole() {
        let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if let (Some(language), Ok(text)) = (Language::of(&path), std::fs::read_to_string(&path)) {
                    assert_eq!(fault(language, &text), None, "{}", path.display());
                    seen += 1;
                }
            }
        }
        assert!(seen > 100, "only {seen} files");
    }
}
