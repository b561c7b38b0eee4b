//! The names that a text of code uses and those that it makes, read token by token from code without strings and comments.
//!
//! Used is what is called, stands behind a `.` or `::`, or is imported. What a text makes is told generously: a name that is
//! assigned, declared or a parameter anywhere in it is no invention.

use std::collections::HashSet;

use crate::outline::{self, Item, Kind, Language};
use crate::terms;

/// How a name is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// `name(`, `name!(`.
    Call,
    /// `.name`, `::name`, or the name before `::`.
    Member,
    /// In an import.
    Import,
}

/// What stands before the `.` or `::` of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receiver<'a> {
    /// Nothing.
    None,
    /// Names, outermost first.
    Path(Vec<&'a str>),
    /// A call, an index, something in brackets.
    Expression,
}

/// One use of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site<'a> {
    /// The name.
    pub name: &'a str,
    /// Where it stands, in bytes.
    pub at: usize,
    /// Its line, from 0.
    pub line: usize,
    /// How it is used.
    pub how: Use,
    /// What it is a part of.
    pub receiver: Receiver<'a>,
}

/// What was read of a text.
#[derive(Debug, Default)]
pub struct Scan<'a> {
    /// The names it uses, in order.
    pub sites: Vec<Site<'a>>,
    /// The names it makes.
    pub made: HashSet<&'a str>,
    /// The names that its imports bring in, as it calls them.
    pub imported: HashSet<&'a str>,
    /// Those of them that it gives itself, behind `as`.
    pub aliases: HashSet<&'a str>,
}

/// Words that a name is not, or before which one is declared.
fn keywords(language: Language) -> (&'static [&'static str], &'static [&'static str]) {
    match language {
        Language::Python => (
            &[
                "if", "elif", "else", "while", "for", "in", "not", "and", "or", "is", "return", "yield", "lambda",
                "with", "as", "assert", "del", "raise", "except", "from", "import", "def", "class", "print", "await",
                "async", "match", "case", "global", "nonlocal", "pass", "None", "True", "False", "self", "cls",
                "super", "exec", "try", "finally",
            ],
            &["def", "class", "as", "global", "nonlocal", "lambda"],
        ),
        Language::Rust => (
            &[
                "if", "else", "while", "for", "in", "match", "return", "let", "mut", "ref", "move", "fn", "struct",
                "enum", "trait", "impl", "type", "mod", "use", "pub", "crate", "self", "Self", "super", "as", "where",
                "unsafe", "async", "await", "loop", "break", "continue", "const", "static", "dyn", "extern", "box",
                "true", "false",
            ],
            &[
                "fn",
                "struct",
                "enum",
                "trait",
                "type",
                "mod",
                "let",
                "mut",
                "ref",
                "const",
                "static",
                "as",
                "macro_rules",
            ],
        ),
        Language::Go => (
            &[
                "if",
                "else",
                "for",
                "range",
                "switch",
                "case",
                "select",
                "return",
                "go",
                "defer",
                "func",
                "type",
                "struct",
                "interface",
                "map",
                "chan",
                "var",
                "const",
                "import",
                "package",
                "nil",
                "true",
                "false",
                "default",
            ],
            &["func", "type", "var", "const", "package"],
        ),
        _ => (
            &[
                "if",
                "else",
                "while",
                "for",
                "in",
                "of",
                "switch",
                "case",
                "return",
                "function",
                "class",
                "new",
                "typeof",
                "instanceof",
                "await",
                "async",
                "yield",
                "import",
                "export",
                "from",
                "as",
                "throw",
                "catch",
                "try",
                "finally",
                "do",
                "const",
                "let",
                "var",
                "this",
                "super",
                "void",
                "delete",
                "default",
                "extends",
                "static",
                "public",
                "private",
                "protected",
                "constructor",
                "get",
                "set",
                "null",
                "true",
                "false",
                "undefined",
                "sizeof",
                "fun",
                "func",
                "val",
                "when",
                "foreach",
                "using",
                "catch",
                "template",
                "typename",
                "operator",
                "require",
                "interface",
                "enum",
                "struct",
                "namespace",
                "type",
                "final",
                "abstract",
                "override",
            ],
            &[
                "function",
                "class",
                "interface",
                "type",
                "enum",
                "struct",
                "namespace",
                "const",
                "let",
                "var",
                "as",
                "fun",
                "func",
                "val",
                "def",
                "catch",
                "module",
                "record",
                "trait",
                "object",
                "typename",
                "define",
            ],
        ),
    }
}

/// Reads a text.
pub fn scan<'a>(language: Language, text: &'a str) -> Scan<'a> {
    scan_masked(language, text, &outline::code_lines(language, text).join("\n"), &outline::items(language, text))
}

struct Token<'a> {
    name: &'a str,
    at: usize,
    end: usize,
    /// The last character before it and the first behind it, spaces left out.
    before: u8,
    behind: u8,
}

pub(crate) fn scan_masked<'a>(language: Language, text: &'a str, masked: &str, items: &[Item]) -> Scan<'a> {
    let (reserved, declaring) = keywords(language);
    let bytes = masked.as_bytes();
    let mut found = Scan::default();
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let line_of = |at: usize| starts.partition_point(|start| *start <= at) - 1;
    let mut imports: Vec<(usize, usize)> = items
        .iter()
        .filter(|item| item.kind == Kind::Import)
        .map(|item| {
            let end = starts.get(item.lines.end).copied().unwrap_or(text.len());
            (starts.get(item.lines.start).copied().unwrap_or(text.len()), end)
        })
        .collect();
    if language == Language::Rust {
        for (at, _) in masked.match_indices("use ") {
            let line = masked[..at].rsplit('\n').next().unwrap_or_default().trim();
            if line.is_empty() || line.starts_with("pub") {
                imports.push((at, masked[at..].find(';').map_or(masked.len(), |end| at + end)));
            }
        }
        imports.sort_unstable();
    }
    let in_import = |at: usize| {
        let next = imports.partition_point(|(start, _)| *start <= at);
        next > 0 && at < imports[next - 1].1
    };
    let mut path: Vec<&'a str> = Vec::new();
    let mut last_end = 0;
    let mut last_word = "";
    // Parameters are being read, up to the bracket that closes them.
    let (mut parameters, mut depth) = (None::<i32>, 0i32);
    let mut loops = false;
    for (at, name) in terms::identifiers(masked) {
        let end = at + name.len();
        // The same bytes stand in the text, where code is.
        let Some(name) = text.get(at..end) else { continue };
        for byte in &bytes[last_end..at] {
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => {
                    depth -= 1;
                    if parameters.is_some_and(|open| depth <= open) {
                        parameters = None;
                    }
                }
                b'|' if language == Language::Rust => {}
                b':' if language == Language::Python && parameters == Some(depth) => parameters = None,
                _ => {}
            }
        }
        let gap = &masked[last_end..at];
        let token = Token { name, at, end, before: before(bytes, at), behind: behind(bytes, end) };
        let previous = std::mem::replace(&mut last_word, name);
        let previous = if gap.bytes().all(|byte| matches!(byte, b' ' | b'\t')) && last_end > 0 { previous } else { "" };
        let joined = joins(gap, language);
        last_end = end;
        if token.behind == b'"' && bytes.get(end) == Some(&b'"') || name.as_bytes()[0].is_ascii_digit() {
            path.clear();
            continue;
        }
        let receiver = match joined {
            Joined::No => {
                path.clear();
                Receiver::None
            }
            Joined::Name if path.first().is_some_and(|first| !first.is_empty()) => Receiver::Path(path.clone()),
            // Nothing is known of what stands behind it either.
            _ => {
                path = vec![""];
                Receiver::Expression
            }
        };
        path.push(name);
        if in_import(at) {
            import(language, &token, previous, receiver, reserved, line_of(at), &mut found);
            continue;
        }
        if joined == Joined::No && language == Language::Python {
            match name {
                "for" => loops = true,
                "in" => loops = false,
                _ => {}
            }
        }
        if matches!(name, "def" | "fn" | "func" | "function" | "lambda") && joined == Joined::No {
            parameters = Some(depth);
        }
        if reserved.contains(&name) && joined == Joined::No {
            continue;
        }
        let declared = declaring.contains(&previous) && joined == Joined::No;
        if declared || loops || makes(language, bytes, &token, joined, parameters.is_some()) {
            found.made.insert(name);
        }
        if declared {
            continue;
        }
        let called = is_called(language, bytes, &token);
        let qualifies =
            language == Language::Rust && masked[end..].starts_with("::") && !masked[end..].starts_with("::<");
        let how = match (called, joined != Joined::No || qualifies) {
            (_, true) => Use::Member,
            (true, false) => Use::Call,
            _ => continue,
        };
        // What is assigned to a member makes it.
        if joined != Joined::No && !called && assigned(bytes, end) {
            continue;
        }
        found.sites.push(Site { name, at, line: line_of(at), how, receiver });
    }
    found
}

/// What stands between two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joined {
    No,
    /// A `.`, `::` or `->` alone.
    Name,
    /// The same behind a bracket.
    Expression,
}

fn joins(gap: &str, language: Language) -> Joined {
    let gap = gap.trim();
    let signs: &[&str] = match language {
        Language::Rust => &["::", "."],
        Language::CLike => &["::", "->", "."],
        Language::Script | Language::KotlinLike => &["?.", "!.", "."],
        _ => &["."],
    };
    let Some(rest) = signs.iter().find_map(|sign| gap.strip_suffix(sign)) else { return Joined::No };
    if rest.ends_with('.') {
        // A range, or what is spread out.
        return Joined::No;
    }
    match rest.trim_end() {
        "" if gap.len() == rest.len() + 1 || rest.is_empty() => Joined::Name,
        "?" | "!" => Joined::Expression,
        rest if rest.ends_with([')', ']', '}', '"', '?', '>']) => Joined::Expression,
        _ => Joined::No,
    }
}

fn before(bytes: &[u8], at: usize) -> u8 {
    bytes[..at].iter().rev().copied().find(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(b'\n')
}

fn behind(bytes: &[u8], end: usize) -> u8 {
    bytes[end..].iter().copied().find(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(b'\n')
}

/// Whether `=` follows, alone.
fn assigned(bytes: &[u8], end: usize) -> bool {
    let rest = &bytes[end..];
    let from = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(rest.len());
    let rest = &rest[from..];
    rest.starts_with(b":=") || rest.first() == Some(&b'=') && !rest.starts_with(b"==") && !rest.starts_with(b"=>")
}

fn is_called(language: Language, bytes: &[u8], token: &Token<'_>) -> bool {
    match (language, bytes.get(token.end)) {
        (Language::Rust, Some(b'!')) => matches!(bytes.get(token.end + 1), Some(b'(' | b'[' | b'{')),
        (Language::Rust, Some(b':')) => bytes[token.end..].starts_with(b"::<"),
        (Language::Script, Some(b'<')) => false,
        _ => token.behind == b'(',
    }
}

/// Whether a name is made where it stands.
fn makes(language: Language, bytes: &[u8], token: &Token<'_>, joined: Joined, parameter: bool) -> bool {
    if assigned(bytes, token.end) {
        return true;
    }
    let (before, behind) = (token.before, token.behind);
    let listed = matches!(before, b'(' | b',' | b'*' | b'\n' | b'[' | b'{' | b'|' | b'&' | b'<');
    match language {
        _ if joined != Joined::No => false,
        // Annotations and members of enumerations; what a tuple of names is assigned to.
        Language::Python => {
            parameter && listed && matches!(behind, b',' | b')' | b':' | b'\n')
                || matches!(before, b'\n' | b'(' | b',') && behind == b':' && token.at > 0
                || matches!(before, b'\n' | b',' | b'(')
                    && matches!(behind, b',' | b')')
                    && tuple_is_assigned(bytes, token.end)
        }
        Language::Rust | Language::Go | Language::CLike | Language::KotlinLike => {
            let single = behind == b':' && !starts_at(bytes, token.end, b"::");
            single
                || matches!(before, b'|' | b'\n' | b'(' | b',' | b'{' | b'}')
                    && matches!(behind, b',' | b'|' | b')' | b'{' | b'}')
                || before == b'\n' && behind == b'(' && parameter
                || matches!(before, b'\n' | b'{' | b',') && behind == b'(' && token.name.starts_with(char::is_uppercase)
        }
        Language::Script => {
            listed && matches!(behind, b',' | b')' | b'}' | b']' | b':' | b'?' | b'\n') || arrow(bytes, token.end)
        }
    }
}

fn starts_at(bytes: &[u8], end: usize, sign: &[u8]) -> bool {
    bytes[end..].trim_ascii_start().starts_with(sign)
}

fn arrow(bytes: &[u8], end: usize) -> bool {
    starts_at(bytes, end, b"=>")
}

/// Whether the rest of the line is names up to a `=`.
fn tuple_is_assigned(bytes: &[u8], end: usize) -> bool {
    let line = bytes[end..].split(|byte| *byte == b'\n').next().unwrap_or_default();
    let name = |byte: &u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b' ' | b'.' | b'(' | b')' | b'*' | b'[' | b']')
    };
    let rest = line.iter().position(|byte| !name(byte)).map_or(&[][..], |at| &line[at..]);
    rest.first() == Some(&b'=') && !rest.starts_with(b"==")
}

/// A name in an import.
fn import<'a>(
    language: Language,
    token: &Token<'a>,
    previous: &str,
    receiver: Receiver<'a>,
    reserved: &[&str],
    line: usize,
    found: &mut Scan<'a>,
) {
    let name = token.name;
    if previous == "as" {
        found.imported.insert(name);
        found.aliases.insert(name);
        return;
    }
    // `from` and `import` of a module's own path are no names.
    if reserved.contains(&name) && receiver == Receiver::None || matches!(name, "crate" | "super" | "self") {
        return;
    }
    let last = !matches!(token.behind, b'.' | b':');
    if last {
        found.imported.insert(name);
    }
    let _ = language;
    found.sites.push(Site { name, at: token.at, line, how: Use::Import, receiver });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(language: Language, text: &str, sites: &[&str], made: &[&str]) {
        let found = scan(language, text);
        let names: Vec<String> = found
            .sites
            .iter()
            .map(|site| match &site.receiver {
                Receiver::None => site.name.to_owned(),
                Receiver::Path(path) => format!("{}.{}", path.join("."), site.name),
                Receiver::Expression => format!("?.{}", site.name),
            })
            .collect();
        assert_eq!(names, sites, "{text}");
        let mut all: Vec<&str> = found.made.into_iter().collect();
        all.sort_unstable();
        assert_eq!(all, made, "{text}");
    }

    #[test]
    fn python() {
        check(
            Language::Python,
            "import os.path as p\nfrom a import (b, c as d)\n\ndef f(x, *rest, key=None) -> int:\n    y, z = g(x)[0].h\n    \
             for i, j in k():\n        self.m = y.n.o(\"s.t()\")  # u()\n    return not (v == 1)\n",
            &["os", "os.path", "a", "b", "c", "g", "?.h", "k", "y.n", "y.n.o"],
            &["f", "i", "j", "key", "m", "rest", "x", "y", "z"],
        );
        check(
            Language::Python,
            "lambda a, b: c(a)\nx: int = f\"{y()}\" + d(e=1)\n",
            &["c", "d"],
            &["a", "b", "e", "int", "x"],
        );
    }

    #[test]
    fn rust() {
        check(
            Language::Rust,
            "enum A {\n    B(u8),\n    C { d: u8 },\n    E,\n}\n",
            &["B"],
            &["A", "B", "C", "E", "d", "u8"],
        );
        check(
            Language::Rust,
            "use a::{b::C, d};\n\nfn f<T>(x: &T) -> u8 {\n    let y = C::new(x)?.run::<u8>();\n    for z in 0..len(y) {\n        \
             g!(z.w.v);\n    }\n    Some(|k| k.m())\n}\n",
            &["a", "b", "b.C", "d", "C", "C.new", "?.run", "len", "g", "z.w", "z.w.v", "Some", "k.m"],
            &["Some", "f", "k", "x", "y"],
        );
    }

    #[test]
    fn scripts() {
        check(
            Language::Script,
            "import { a, b as c } from \"./d\";\nconst e = (f, g) => h(f)?.i.j;\nfunction k({ l, m: n }) { return [...o()] }\n",
            &["a", "b", "h", "?.i", "?.j", "o"],
            &["e", "f", "g", "k", "l", "m"],
        );
    }
}
