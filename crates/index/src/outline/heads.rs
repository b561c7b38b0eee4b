//! What the words before a body or a semicolon declare.

use super::{Kind, Language, squeezed};

/// What a head declares.
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) name: String,
    /// What the head itself says it belongs to: `Foo` of `Foo::bar`, the receiver of a Go method.
    pub(super) owner: Vec<String>,
}

impl Head {
    fn new(kind: Kind, name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        (!name.is_empty()).then_some(Self { kind, name, owner: Vec::new() })
    }
}

/// Reads a head in masked text. `member` says that it stands in a class or an object.
pub(super) fn read(language: Language, head: &str, member: bool) -> Option<Head> {
    let words = words(without_attributes(language, head));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match language {
        Language::Rust => rust(&words, head),
        Language::Go => go(&words, head),
        Language::Script => script(&words, head, member),
        Language::CLike | Language::KotlinLike => c_like(&words, head),
        Language::Python => None,
    }
}

/// Names and numbers whole, everything else one character each, except the arrows and the path mark.
fn words(head: &str) -> Vec<String> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
    let mut words: Vec<String> = Vec::new();
    let mut joined = false;
    for c in head.chars() {
        let joins = words.last().is_some_and(|last| match c {
            c if is_name(c) => joined && last.chars().all(is_name),
            '>' => joined && (last == "=" || last == "-"),
            ':' => joined && last == ":",
            _ => false,
        });
        match words.last_mut() {
            Some(last) if joins => last.push(c),
            _ if c.is_whitespace() => {}
            _ => words.push(c.to_string()),
        }
        joined = !c.is_whitespace();
    }
    words
}

/// The head behind its attributes: `#[…]`, `@name(…)`, `[[…]]`, `template <…>`.
pub(super) fn without_attributes(language: Language, head: &str) -> &str {
    let mut rest = head.trim_start();
    loop {
        let after = match language {
            Language::Rust => rest.strip_prefix('#').map(|rest| after_bracket(rest, '[', ']')),
            Language::Go => None,
            _ if rest.starts_with("@interface") => None,
            _ if rest.starts_with('@') => {
                let name =
                    rest[1..].trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | ':'));
                Some(if name.starts_with('(') { after_bracket(name, '(', ')') } else { name })
            }
            Language::CLike if rest.starts_with('[') => Some(after_bracket(rest, '[', ']')),
            Language::CLike => {
                let after = rest.strip_prefix("template").map(str::trim_start);
                after.filter(|rest| rest.starts_with('<')).map(|rest| after_bracket(rest, '<', '>'))
            }
            _ => None,
        };
        match after {
            Some(after) if after.len() < rest.len() => rest = after.trim_start(),
            _ => return rest,
        }
    }
}

fn after_bracket(text: &str, open: char, close: char) -> &str {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return &text[at + c.len_utf8()..];
            }
        }
    }
    ""
}

fn rust(words: &[&str], head: &str) -> Option<Head> {
    const KEYS: [&str; 11] =
        ["fn", "struct", "enum", "union", "trait", "impl", "mod", "type", "static", "macro_rules", "use"];
    let function_follows = |at: usize| matches!(words.get(at + 1), Some(&"fn" | &"unsafe" | &"async" | &"extern"));
    let is_key = |(at, word): (usize, &&str)| KEYS.contains(word) || *word == "const" && !function_follows(at);
    let at = words.iter().enumerate().position(is_key)?;
    // What stands before the keyword may only be visibility and the like, else this is a field or an expression.
    let shown = match words {
        ["pub", "(", ..] => words.iter().position(|word| *word == ")").map_or(at, |end| end + 1),
        _ => 0,
    };
    let known = ["pub", "default", "const", "async", "unsafe", "extern", "\""];
    if !words[shown.min(at)..at].iter().all(|word| known.contains(word)) {
        return None;
    }
    let name = words.get(at + 1).copied().unwrap_or("");
    match words[at] {
        "fn" => Head::new(Kind::Function, name),
        "macro_rules" => Head::new(Kind::Function, words.get(at + 2).copied().unwrap_or("")),
        "impl" => Head::new(Kind::Impl, implementation(&words[at + 1..])),
        "use" => Head::new(Kind::Import, squeezed(head)),
        "const" | "static" => {
            let name = if name == "mut" { words.get(at + 2).copied().unwrap_or("") } else { name };
            Head::new(Kind::Value, name)
        }
        _ => Head::new(Kind::Type, name),
    }
}

/// `impl Display for A`, without generics and conditions, so that two spellings of one block are equal.
fn implementation(words: &[&str]) -> String {
    let mut depth = 0usize;
    let mut kept = vec!["impl"];
    for word in words {
        match *word {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            "where" if depth == 0 => break,
            _ if depth == 0 => kept.push(word),
            _ => {}
        }
    }
    kept.join(" ").replace(" :: ", "::")
}

fn go(words: &[&str], head: &str) -> Option<Head> {
    match *words.first()? {
        "func" if words.get(1) == Some(&"(") => {
            let close = words.iter().position(|word| *word == ")")?;
            let is_name = |word: &&&str| word.chars().all(|c| c.is_alphanumeric() || c == '_');
            let names: Vec<&&str> = words[2..close].iter().take_while(|word| **word != "[").filter(is_name).collect();
            let mut found = Head::new(Kind::Function, *words.get(close + 1)?)?;
            found.owner = names.last().map(|name| (**name).to_owned()).into_iter().collect();
            Some(found)
        }
        "func" => Head::new(Kind::Function, *words.get(1)?),
        "type" => Head::new(Kind::Type, *words.get(1)?).filter(|head| head.name != "("),
        "var" | "const" => Head::new(Kind::Value, *words.get(1)?).filter(|head| head.name != "("),
        "import" | "package" => Head::new(Kind::Import, squeezed(head)),
        _ => None,
    }
}

/// Words that look like a call or a method before a brace and are neither.
const CONTROL: [&str; 16] = [
    "if", "for", "while", "switch", "catch", "return", "else", "do", "try", "with", "new", "throw", "await", "case",
    "match", "foreach",
];

fn script(words: &[&str], head: &str, member: bool) -> Option<Head> {
    const MODIFIERS: [&str; 13] = [
        "export",
        "default",
        "async",
        "declare",
        "abstract",
        "public",
        "private",
        "protected",
        "static",
        "readonly",
        "override",
        "get",
        "set",
    ];
    // `get() {}` is a method called get.
    let is_modifier = |at: usize| {
        let ends = matches!(words.get(at + 1), Some(&"(" | &"=" | &":" | &"<"));
        words.get(at).is_some_and(|word| MODIFIERS.contains(word) || *word == "*" || *word == "#") && !ends
    };
    let at = (0..words.len()).find(|at| !is_modifier(*at)).unwrap_or(words.len());
    let rest = &words[at..];
    let by_default = || words[..at].contains(&"default");
    let makes_function = |words: &[&str]| words.iter().any(|word| matches!(*word, "=>" | "function"));
    let Some(first) = rest.first() else { return by_default().then(|| Head::new(Kind::Value, "default")).flatten() };
    let name = rest.get(1).copied().unwrap_or("");
    match *first {
        "import" => Head::new(Kind::Import, squeezed(head)),
        "function" => {
            let name = if name == "*" { rest.get(2).copied().unwrap_or("") } else { name };
            Head::new(Kind::Function, if name == "(" { "default" } else { name })
        }
        "class" | "interface" | "enum" | "namespace" | "module" if name != "." => {
            Head::new(Kind::Type, if matches!(name, "" | "extends") { "default" } else { name })
        }
        "type" if !member && name != "=" => Head::new(Kind::Type, name),
        "const" | "let" | "var" => {
            let value = rest.iter().position(|word| *word == "=").map_or(&[][..], |at| &rest[at + 1..]);
            match value.first() {
                Some(&"require") => Head::new(Kind::Import, squeezed(head)),
                _ if makes_function(value) => Head::new(Kind::Function, name),
                _ => Head::new(Kind::Value, name),
            }
        }
        first if CONTROL.contains(&first) => None,
        first if member => match name {
            "(" | "<" => Head::new(Kind::Function, first),
            "=" | ":" | "?" | "!" | ";" if makes_function(rest) => Head::new(Kind::Function, first),
            "=" | ":" | "?" | "!" | ";" | "" => Head::new(Kind::Value, first),
            _ => None,
        },
        _ if by_default() => Head::new(if makes_function(rest) { Kind::Function } else { Kind::Value }, "default"),
        _ => assigned(rest, makes_function(rest)),
    }
}

/// `a.prototype.b = function` and `module.exports = {`.
fn assigned(words: &[&str], function: bool) -> Option<Head> {
    let at = words.iter().position(|word| *word == "=").filter(|at| *at > 0 && words.get(at + 1) != Some(&"="))?;
    let path: Vec<&str> = words[..at].iter().copied().filter(|word| *word != ".").collect();
    let is_path = path.iter().all(|word| word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '$')));
    let (name, owner) = path.split_last().filter(|(_, owner)| is_path && !owner.is_empty())?;
    let mut head = Head::new(if function { Kind::Function } else { Kind::Value }, *name)?;
    head.owner = owner.iter().filter(|word| **word != "prototype").map(|word| (*word).to_owned()).collect();
    Some(head)
}

fn c_like(words: &[&str], head: &str) -> Option<Head> {
    let is_name = |word: &str| word.chars().next().is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '$'));
    let first = *words.first()?;
    if matches!(first, "import" | "using" | "package" | "use") {
        return Head::new(Kind::Import, squeezed(head));
    }
    let parenthesis = words.iter().position(|word| *word == "(");
    if let Some(at) = words.iter().position(|word| matches!(*word, "fun" | "func" | "function" | "def")) {
        let name = words[at + 1..].iter().take_while(|word| **word != "(").filter(|word| is_name(word)).last()?;
        return Head::new(Kind::Function, *name);
    }
    let before = &words[..parenthesis.unwrap_or(words.len())];
    let plain = ["struct", "enum", "union"];
    let holders = ["class", "interface", "namespace", "record", "trait", "object", "protocol", "extension"];
    let holds = |word: &&&str| holders.contains(*word) || (plain.contains(*word) && parenthesis.is_none());
    if let Some(keyword) = before.iter().rev().find(holds) {
        let at = before.iter().rposition(|word| word == keyword)?;
        let names = words[at + 1..].iter().take_while(|word| is_name(word) || **word == "::" || **word == ".");
        let stops = ["extends", "implements", "final", "where", "permits"];
        let name = names.take_while(|word| !stops.contains(*word)).filter(|word| is_name(word)).last();
        return Some(Head { kind: Kind::Type, name: name.copied().unwrap_or("").to_owned(), owner: Vec::new() });
    }
    if first == "extern" && parenthesis.is_none() && words.iter().all(|word| matches!(*word, "extern" | "\"")) {
        return Some(Head { kind: Kind::Type, name: String::new(), owner: Vec::new() });
    }
    match parenthesis {
        Some(at) if !before.contains(&"=") || before.contains(&"operator") => called(&words[..at]),
        _ => {
            let end = words.iter().position(|word| matches!(*word, "=" | "[" | ":")).unwrap_or(words.len());
            let (name, kind_of_value) = words[..end].split_last().filter(|(name, _)| is_name(name))?;
            // A lone name is an enumerator, and a list of them too.
            let typed = !kind_of_value.is_empty() && !kind_of_value.contains(&",");
            typed.then(|| Head::new(Kind::Value, *name)).flatten()
        }
    }
}

/// The name right before the parameters, with what it is qualified by.
fn called(before: &[&str]) -> Option<Head> {
    let is_name = |word: &str| word.chars().next().is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '$'));
    if let Some(at) = before.iter().position(|word| *word == "operator") {
        return Head::new(Kind::Function, before[at..].concat());
    }
    // `name<T>(` of C++ and C#: the parameters of the type stand between.
    let mut end = before.len();
    if before.last() == Some(&">") {
        end = before.iter().rposition(|word| *word == "<")?;
    }
    let name = *before[..end].last().filter(|word| is_name(word) && !CONTROL.contains(word))?;
    let destroys = end >= 2 && before[end - 2] == "~";
    let mut head = Head::new(Kind::Function, if destroys { format!("~{name}") } else { name.to_owned() })?;
    let mut at = end - 1 - usize::from(destroys);
    while at >= 2 && before[at - 1] == "::" && is_name(before[at - 2]) {
        head.owner.insert(0, before[at - 2].to_owned());
        at -= 2;
    }
    Some(head)
}
