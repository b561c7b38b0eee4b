//! Whether drafting changes anything: mixed prompts, each answered plainly and with every drafter.
//!
//! Plain answers are made several at a time, so what is compared are also two ways to cut work into steps.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Map, json};

use super::cases::{ARCHITECTURE, FILES, rewrite};
use super::measure::{Bench, Method, collect};

/// Prompts that are answered plainly at the same time, which is faster and, as engine and kernels promise and their
/// tests show, the same as one by one. Drafted answers run alone, as drafting is mostly used.
const PLAIN_TOGETHER: usize = 8;

/// A prompt, and what is predicted of its answer.
struct Mixed {
    kind: &'static str,
    prompt: String,
    prediction: String,
}

/// Compares the answers to `count` prompts of four kinds, up to `tokens` tokens each.
pub fn run(bench: &Bench, count: usize, tokens: usize, json: bool) -> Result<()> {
    let mut ways = vec![Method::Ngram, Method::Prediction, Method::Usual];
    if bench.drafts_with_model {
        ways.push(Method::Model);
    }
    let (mut compared, mut drafted, mut accepted) = (0, 0, 0);
    let all: Vec<Mixed> = (0..count).map(mixed).collect();
    for (group, some) in all.chunks(PLAIN_TOGETHER).enumerate() {
        let prompts = some.iter().map(|mixed| bench.prompt(&mixed.prompt)).collect::<Result<Vec<_>>>()?;
        let plain = |prompt: &Vec<u32>| bench.loaded.engine.submit(bench.request(prompt, tokens, Method::Plain, None));
        let streams = prompts.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        let answers = streams.into_iter().map(|stream| collect(stream, Instant::now())).collect::<Result<Vec<_>>>()?;
        for (place, ((mixed, prompt), plain)) in some.iter().zip(&prompts).zip(&answers).enumerate() {
            for &way in &ways {
                let predicted = matches!(way, Method::Prediction | Method::Usual).then_some(mixed.prediction.as_str());
                let outcome = bench.answer(prompt, tokens, way, predicted)?;
                let (index, kind) = (group * PLAIN_TOGETHER + place, mixed.kind);
                ensure!(outcome.tokens == plain.tokens, "prompt {index} ({kind}): {way:?} gave another answer");
                compared += outcome.tokens.len();
                drafted += outcome.drafts.total().tokens;
                accepted += outcome.drafts.total().accepted;
            }
        }
        if !json {
            let done = group * PLAIN_TOGETHER + some.len();
            errln!("{done} prompts, {compared} tokens equal, {accepted} of {drafted} drafted accepted");
        }
    }
    ensure!(count < 8 || accepted > 0, "no drafted token was accepted: nothing was checked");
    let values = json!({"prompts": count, "ways": ways.len(), "tokens_equal": compared, "drafted": drafted,
        "accepted": accepted});
    bench.print("answers equal", values.as_object().cloned().unwrap_or_else(Map::new), json);
    Ok(())
}

/// The text of the prompt with this number.
pub fn prompt(index: usize) -> String {
    mixed(index).prompt
}

/// The prompt with this number: edits, code, prose and JSON in turn, none of them twice.
fn mixed(index: usize) -> Mixed {
    let file = FILES[index / 4 % FILES.len()];
    let lines: Vec<&str> = file.lines().collect();
    let start = index * 7 % (lines.len() - 40);
    let part = lines[start..start + 24 + index % 12].join("\n") + "\n";
    let paragraphs: Vec<&str> = ARCHITECTURE.split("\n\n").filter(|text| text.len() > 200).collect();
    let paragraph = paragraphs[index / 4 % paragraphs.len()];
    match index % 4 {
        0 => {
            let changes = [
                "Put a comment in front of every function.",
                "Rename every variable that has a short name to a longer one.",
                "Remove all comments.",
                "Add a line that logs the arguments to the first function.",
                "Replace every `for` loop by iterators where that is possible.",
            ];
            let prompt = rewrite(&part, changes[index / 4 % changes.len()]);
            Mixed { kind: "edit", prompt, prediction: part }
        }
        1 => {
            let prompt = format!("Write unit tests for this code, number {index}:\n\n```rust\n{part}```");
            Mixed { kind: "code", prompt, prediction: part }
        }
        2 => {
            let asks = ["Say this in other words", "Explain this to a beginner", "Summarise this in three sentences"];
            let ask = asks[index / 4 % asks.len()];
            Mixed { kind: "prose", prompt: format!("{ask}:\n\n{paragraph}"), prediction: paragraph.to_owned() }
        }
        _ => {
            let prompt = format!(
                "List the identifiers in this code as a JSON array of objects with the fields \"name\" and \"kind\". \
                 Answer with JSON only.\n\n```rust\n{part}```"
            );
            let prediction = "[\n  {\n    \"name\": \"self\",\n    \"kind\": \"variable\"\n  },\n".repeat(3);
            Mixed { kind: "JSON", prompt, prediction }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hundred_prompts_are_two_hundred_different_ones() {
        let mut prompts: Vec<String> = (0..200).map(|index| mixed(index).prompt).collect();
        prompts.sort();
        prompts.dedup();
        assert_eq!(prompts.len(), 200);
    }
}
