//! The functions, types and imports of a source file, by their lines.
//!
//! Small models edit best by whole functions, and a person asks for them by name; both need to know where a function
//! begins (with its comments and attributes) and ends. A parser per language would know more and weigh megabytes; this
//! reads strings, comments, brackets and indentation, which is enough to find whole items in formatted code and to notice
//! when it is not ([`Item::whole_lines`]).

mod braces;
mod check;
mod heads;
mod indented;
mod mask;

use std::ops::Range;
use std::path::Path;

pub use check::{Fault, fault};

/// What reading a file needs to know of its language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Blocks by indentation.
    Python,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// JavaScript and TypeScript.
    Script,
    /// C, C++, Java, C#, PHP, Dart: types in front, semicolons behind.
    CLike,
    /// Kotlin, Swift, Scala: braces, and lines that end without semicolons.
    KotlinLike,
}

impl Language {
    /// By the file's name; `None` where functions cannot be found.
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "py" | "pyi" | "pyw" => Self::Python,
            "rs" => Self::Rust,
            "go" => Self::Go,
            "js" | "mjs" | "cjs" | "jsx" | "ts" | "mts" | "cts" | "tsx" => Self::Script,
            "c" | "h" | "cc" | "cpp" | "cxx" | "hh" | "hpp" | "hxx" | "cu" | "cuh" | "java" | "cs" | "php" | "dart" => {
                Self::CLike
            }
            "kt" | "kts" | "swift" | "scala" => Self::KotlinLike,
            _ => return None,
        })
    }

    /// Whether a statement may end with its line.
    fn ends_with_lines(self) -> bool {
        matches!(self, Self::Go | Self::Script | Self::KotlinLike)
    }
}

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function or method.
    Function,
    /// A class, structure, trait, module: what has a name and may hold others.
    Type,
    /// A Rust `impl` block.
    Impl,
    /// A named value: a constant, a field, a variable of the file.
    Value,
    /// What brings in names from elsewhere.
    Import,
}

/// One item of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// Its name; of an `impl` block the whole head (`impl Display for A`), of an import its text.
    pub name: String,
    /// Its head without attributes, comments and body, spaces made even.
    pub signature: String,
    /// Names of what it stands in, outermost first.
    pub parents: Vec<String>,
    /// All its lines, from 0, with the comments and attributes above it.
    pub lines: Range<usize>,
    /// The line with its name or its first keyword.
    pub head: usize,
    /// The spaces before its head.
    pub indent: String,
    /// Whether it has a body, and not only a head.
    pub has_body: bool,
    /// Whether nothing else stands on its first and last line.
    pub whole_lines: bool,
}

impl Item {
    /// Its name with those of what it stands in.
    pub fn path(&self) -> String {
        let parents: String = self.parents.iter().map(|parent| format!("{parent}.")).collect();
        format!("{parents}{}", self.name)
    }

    /// Whether it is called on an object, as far as its head says so.
    pub fn takes_self(&self) -> bool {
        let Some((_, parameters)) = self.signature.split_once('(') else { return false };
        let first: String = parameters.chars().take_while(|c| !matches!(c, ',' | ')' | ':')).collect();
        let first = first.trim_start_matches(['&', ' ']).trim_start_matches("mut ").trim();
        matches!(first.rsplit(' ').next(), Some("self" | "cls"))
    }
}

/// The items of a text, in order of their heads; members come after what they stand in.
pub fn items(language: Language, text: &str) -> Vec<Item> {
    match language {
        Language::Python => indented::items(text),
        _ => braces::items(language, text, &mask::mask(language, text), false),
    }
}

/// The items of a text that is the inside of a class: `name() {}` is a method there.
pub fn members(language: Language, text: &str) -> Vec<Item> {
    match language {
        Language::Python => indented::items(text),
        _ => braces::items(language, text, &mask::mask(language, text), true),
    }
}

/// The text with strings and comments made blank, line by line: strings as `"`, comments as spaces.
pub fn code_lines(language: Language, text: &str) -> Vec<String> {
    mask::mask(language, text).split('\n').map(str::to_owned).collect()
}

/// Moves the beginning of an item up over the comments that stand right above it.
fn with_comments_above(first: usize, lines: &[&str], masked: &[&str]) -> usize {
    let is_comment = |at: usize| {
        let line = lines[at].trim_start();
        // Inner documentation belongs to what is around the item, and a first line `#!` to the file.
        masked[at].trim().is_empty() && !line.is_empty() && !line.starts_with("//!") && !line.starts_with("#!")
    };
    let mut start = first;
    while start > 0 && is_comment(start - 1) {
        start -= 1;
        // A block comment is taken whole, empty lines and all.
        if lines[start].trim_end().ends_with("*/") && !lines[start].contains("/*") {
            start = (0..start).rev().find(|at| lines[*at].contains("/*")).unwrap_or(start);
        }
    }
    start
}

/// The spaces and tabs a line begins with.
pub fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Words with single spaces between them.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

#[cfg(test)]
mod tests;
