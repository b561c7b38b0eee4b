//! What is asked: real files with real edits, prose, fresh code, and predictions that are of no use.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Files of this project as they stood when the benchmark was written, so that figures stay comparable.
const CLIENT: &str = include_str!("texts/client.rs.txt");
const PACK: &str = include_str!("texts/pack.rs.txt");
pub const ARCHITECTURE: &str = include_str!("texts/architecture.md.txt");

/// All of them.
pub const FILES: [&str; 2] = [CLIENT, PACK];

/// One question.
pub struct Case {
    /// For the report.
    pub name: String,
    /// What the user says.
    pub prompt: String,
    /// What may be predicted, by name; the first is the right one.
    pub predictions: Vec<(&'static str, String)>,
    /// Most tokens of the answer.
    pub tokens: usize,
}

/// How a file is asked for whole.
pub fn rewrite(file: &str, change: &str) -> String {
    format!(
        "Here is a file:\n\n```rust\n{file}```\n\n{change} Change nothing else. \
         Answer with the whole new file in one code block, without any explanation, and leave nothing out."
    )
}

/// A file and a change of one function in it.
pub struct FileEdit {
    /// The file's name.
    pub name: &'static str,
    /// All of it.
    pub file: &'static str,
    /// What is asked for.
    pub change: &'static str,
    /// What the changed file has and the old one has not.
    pub expected: &'static str,
}

/// Two files of 294 lines.
pub fn file_edits() -> [FileEdit; 2] {
    [
        FileEdit {
            name: "client.rs",
            file: CLIENT,
            change: "Change the function `headers` so that it also inserts the header `x-language` with the value `rust`.",
            expected: "x-language",
        },
        FileEdit {
            name: "pack.rs",
            file: PACK,
            change: "Change the function `pack_float` so that it returns at once, without doing anything, when `rows` is empty.",
            expected: "rows.is_empty()",
        },
    ]
}

/// The same as questions without a partner.
pub fn edits() -> Vec<Case> {
    let case = |FileEdit { name, file, change, .. }: FileEdit| Case {
        name: format!("{name}, {} lines, one function changed", file.lines().count()),
        prompt: rewrite(file, change),
        predictions: vec![("old file", file.to_owned())],
        tokens: 4096,
    };
    file_edits().map(case).into()
}

/// Prose that no prompt contains.
pub fn prose(tokens: usize) -> Vec<Case> {
    let case = |(name, prompt): (&str, &str)| Case {
        name: format!("prose: {name}"),
        prompt: prompt.to_owned(),
        predictions: Vec::new(),
        tokens,
    };
    [
        (
            "harbour",
            "Tell a story about an old lighthouse keeper and the last ship of the year. Write at least 400 words.",
        ),
        ("history", "Explain in plain prose, without lists, how the printing press changed daily life in Europe."),
        ("letter", "Write a long letter from a gardener to a friend about a cold spring and what grew all the same."),
        ("advice", "What should one think about before moving from a city to the country? Answer in flowing prose."),
        ("review", "Write a review of an imaginary novel about two sisters who keep bees. Write at least 300 words."),
        ("science", "Explain to a curious ten-year-old, without lists, why the sky is blue and sunsets are red."),
    ]
    .map(case)
    .into()
}

fn fresh_case(tokens: usize, (index, prompt): (usize, String)) -> Case {
    Case { name: format!("fresh code {index}"), prompt, predictions: Vec::new(), tokens }
}

/// Functions that must be thought of.
pub fn own_fresh(tokens: usize) -> Vec<Case> {
    let own = [
        "Write a Rust function that parses a line of CSV with quoted fields, with tests.",
        "Write a Python class for a bounded priority queue that drops its worst entry, with an example.",
        "Write a TypeScript function that debounces calls and can be cancelled, with comments.",
        "Write a SQL schema for a small library with books, members and loans, and three useful queries.",
    ];
    own.map(str::to_owned).into_iter().enumerate().map(|numbered| fresh_case(tokens, numbered)).collect()
}

/// The same, or those of a file.
pub fn fresh(tokens: usize, file: Option<&Path>, count: usize) -> Result<Vec<Case>> {
    let ask = |prompt: &str| format!("Complete this function. Answer with code only.\n\n```python\n{prompt}```");
    let Some(file) = file else { return Ok(own_fresh(tokens)) };
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    // Spread over the file, which goes from easy to hard.
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let chosen = lines.iter().step_by(lines.len().div_ceil(count.max(1)).max(1));
    let prompt = |line: &&str| -> Result<String> {
        let line: Value =
            serde_json::from_str(line).with_context(|| format!("{} is not JSON lines", file.display()))?;
        line["prompt"].as_str().map(ask).context("a line has no `prompt`")
    };
    let prompts = chosen.map(prompt).collect::<Result<Vec<_>>>()?;
    Ok(prompts.into_iter().enumerate().map(|numbered| fresh_case(tokens, numbered)).collect())
}

/// An answer that has nothing to do with what was predicted.
pub fn bad(tokens: usize) -> Vec<Case> {
    let binary: String = (0..20_000u32).map(|i| char::from_u32(i * 7919 % 0xd7ff).unwrap_or('\0')).collect();
    let huge: String = std::iter::repeat_n(CLIENT, (1 << 20) / CLIENT.len() + 1).collect();
    let predictions = vec![
        ("nothing", String::new()),
        ("another file", PACK.to_owned()),
        ("1 MB", huge),
        ("binary", binary),
        ("one character 100,000 times", "a".repeat(100_000)),
    ];
    let case = |name: &str, prompt: &str| Case {
        name: format!("bad prediction: {name}"),
        prompt: prompt.to_owned(),
        predictions: predictions.clone(),
        tokens,
    };
    vec![
        case("code", "Write a Rust struct for a ring buffer of bytes with push, pop and len, and tests for it."),
        case("prose", "Explain how a suspension bridge carries its load, in several paragraphs."),
    ]
}
