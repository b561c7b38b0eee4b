//! What qwen2.5-coder-0.5b and 1.5b really answered (2026-11-19, greedy, to the prompt of a pair turn), and those answers
//! with their lines left out, their blocks in another order and their headings wrong.

use index::outline::{Item, Kind};
use serde_json::Value;

use super::files::Sample;
use super::{Case, Dice, blocks};
use crate::context::definitions;

const ANSWERS: &str = include_str!("recorded.jsonl");

pub(super) fn case(dice: &mut Dice, samples: &[Sample]) -> Case {
    let answers: Vec<Value> = ANSWERS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let known = |path: &str| samples.iter().position(|sample| sample.path == path);
    let usable: Vec<&Value> =
        answers.iter().filter(|answer| paths(answer).iter().all(|path| known(path).is_some())).collect();
    let chosen = *dice.pick(&usable);
    let files: Vec<usize> = paths(chosen).iter().filter_map(|path| known(path)).collect();
    let mut answer = chosen["answer"].as_str().unwrap().to_owned();
    let mut shape = "recorded";
    if !dice.once_in(4) {
        shape = "recorded, mutated";
        answer = mutated(dice, &answer, samples, &files);
    }
    let request = chosen["task"].as_str().unwrap().to_owned();
    let may_go = accounted(&answer, &request, samples, &files);
    Case { shape, request, answer, files, may_go, ..Case::default() }
}

fn paths(answer: &Value) -> Vec<&str> {
    answer["files"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect()
}

/// Lines of the functions, fields and the like whose names the answer has. All others must stay.
fn accounted(answer: &str, request: &str, samples: &[Sample], files: &[usize]) -> Vec<(usize, usize)> {
    let mut lines = Vec::new();
    for (_, text) in blocks(answer) {
        for file in files {
            let path = std::path::Path::new(samples[*file].path);
            let shown = definitions(path, &text);
            for item in samples[*file].items() {
                let is_shown = shown.iter().any(|other| other.name == item.name && other.kind == Kind::Function);
                let gone = request.starts_with("Remove") && request.split(' ').any(|word| word == item.name);
                if item.kind == Kind::Function && (is_shown || gone) {
                    lines.extend(item.lines.clone().map(|at| (*file, at)));
                }
            }
            // A line that was changed in its place, such as a field's type.
            if text.contains("markdown") || samples[*file].language().is_none() {
                lines.extend((0..samples[*file].lines().len()).map(|at| (*file, at)));
            }
        }
    }
    lines
}

fn mutated(dice: &mut Dice, answer: &str, samples: &[Sample], files: &[usize]) -> String {
    let mut lines: Vec<String> = answer.lines().map(str::to_owned).collect();
    let path = std::path::Path::new(samples[files[0]].path);
    let items: Vec<Item> =
        definitions(path, &lines.join("\n")).into_iter().filter(|item| item.kind == Kind::Function).collect();
    match dice.roll(5) {
        // A member is missing.
        0 if !items.is_empty() => drop(lines.drain(dice.pick(&items).lines.clone())),
        // Two stand the other way round.
        1 if items.len() > 1 => {
            let at = dice.roll(items.len() - 1);
            let (one, two) = (&items[at], &items[at + 1]);
            if one.lines.end <= two.lines.start {
                let second: Vec<String> = lines.drain(two.lines.clone()).collect();
                lines.splice(one.lines.start..one.lines.start, second);
            }
        }
        2 => lines.insert(0, format!("**{}**", samples[dice.roll(samples.len())].path)),
        3 => {
            let said = ["Here is the whole file.", "I removed nothing.", "See shop/catalog.py for Item."];
            lines.insert(0, (*dice.pick(&said)).to_owned());
            lines.push("That is all; delete what you do not need.".to_owned());
        }
        _ => {
            let at = 1 + dice.roll(lines.len().saturating_sub(2));
            let line = &lines[at];
            let indent: String = line.chars().take_while(|c| c.is_whitespace()).collect();
            lines.insert(at, format!("{indent}# ... the rest as it was"));
        }
    }
    lines.join("\n") + "\n"
}
