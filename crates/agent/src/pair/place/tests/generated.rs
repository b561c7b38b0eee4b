//! Ten thousand answers, made from what models really write: whatever the answer, no line is lost that neither the request
//! nor the answer accounts for, and every block is placed or named with the reason.
//!
//! A few hundred of them in the ordinary test; all with FLINT_TEST_SLOW=1.

mod answers;
mod files;
mod recorded;

use std::collections::{BTreeMap, HashMap};

use super::super::*;
use crate::pair::parser::{Parser, Part};
use files::Sample;

const CASES: usize = 600;
const CASES_SLOW: usize = 10_000;

/// Numbers that look random and are the same every time (Steele and others, SplitMix, 2014).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % sides.max(1) as u64) as usize
    }

    pub(super) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.roll(list.len())]
    }

    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.roll(times) == 0
    }
}

/// One case: what is asked and answered, and what must come of it.
#[derive(Debug, Default)]
pub(super) struct Case {
    /// The name of how it was made, for the table.
    shape: &'static str,
    request: String,
    answer: String,
    /// Files that are shown.
    files: Vec<usize>,
    /// Lines of files that may go, by file and line.
    may_go: Vec<(usize, usize)>,
    /// What the answer brings: a mark, the file where it belongs, and the block it stands in.
    marks: Vec<(String, usize, usize)>,
    /// Nothing is wrong with it, so most such answers must be placed.
    plain: bool,
}

/// How a case ended.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    placed: usize,
    left: usize,
    refused: usize,
}

fn blocks(answer: &str) -> Vec<(Head, String)> {
    let mut parser = Parser::default();
    let mut parts = parser.push(answer);
    parts.extend(parser.finish());
    let mut blocks: Vec<(Head, String)> = Vec::new();
    for part in parts {
        match part {
            Part::Opened(head) => blocks.push((head, String::new())),
            Part::Line(line) => blocks.last_mut().unwrap().1.push_str(&line),
            Part::Text(_) | Part::Closed { .. } => {}
        }
    }
    blocks
}

fn place(root: &Path, case: &Case, samples: &[Sample]) -> Result<Placed, Refused> {
    let Case { request, answer, files, .. } = case;
    let shown = |at: &usize| Shown { path: samples[*at].path.into(), text: samples[*at].text.into(), excerpt: None };
    let shown: Vec<Shown> = files.iter().map(shown).collect();
    let task = Task::of(request);
    let around = Surroundings { root, files: &shown, task, request };
    let blocks = blocks(answer);
    let blocks: Vec<(&Head, &str)> = blocks.iter().map(|(head, text)| (head, text.as_str())).collect();
    all(&blocks, &around)
}

/// What is wrong with the result of a case, and how it ended.
fn judge(root: &Path, case: &Case, samples: &[Sample]) -> Result<&'static str, String> {
    let placed = match place(root, case, samples) {
        Ok(placed) => placed,
        Err(refused) if refused.why.to_string().trim().is_empty() => return Err("refused without a reason".to_owned()),
        Err(_) => return Ok("refused"),
    };
    for (path, new) in &placed.files {
        let Some(number) = samples.iter().position(|sample| Path::new(sample.path) == path) else { continue };
        survives(number, samples[number].text, new, &case.may_go)?;
        let language = Language::of(path);
        let broken = language.and_then(|language| fault(language, new));
        if let Some(fault) = broken.filter(|_| language.is_some_and(|l| fault(l, samples[number].text).is_none())) {
            return Err(format!("{} no longer parses: {fault:?}\n{new}", path.display()));
        }
    }
    let mut all_placed = true;
    for (mark, file, block) in &case.marks {
        let holds = placed.files.iter().find(|(_, text)| text.contains(mark.as_str()));
        match holds {
            Some((path, _)) if *path == Path::new(samples[*file].path) => {}
            Some((path, _)) if samples.iter().all(|sample| Path::new(sample.path) != path) => {}
            Some((path, text)) => return Err(format!("{mark} came into {}:\n{text}", path.display())),
            None => {
                all_placed = false;
                let told = |left: &&Left| left.block == *block && !left.why.trim().is_empty();
                if placed.left.iter().find(told).is_none() {
                    return Err(format!("{mark} of block {block} was dropped without a word: {placed:?}"));
                }
            }
        }
    }
    Ok(if all_placed { "placed" } else { "left" })
}

/// Every line that must stay is there as often as it was.
fn survives(file: usize, old: &str, new: &str, may_go: &[(usize, usize)]) -> Result<(), String> {
    let mut there: HashMap<&str, usize> = HashMap::new();
    for line in new.lines() {
        *there.entry(line.trim_end()).or_default() += 1;
    }
    for (number, line) in old.lines().enumerate() {
        if line.trim().is_empty() || may_go.contains(&(file, number)) {
            continue;
        }
        match there.get_mut(line.trim_end()).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => return Err(format!("line {} is lost: {line}\n{}", number + 1, workspace::diff::unified(old, new))),
        }
    }
    Ok(())
}

#[test]
fn no_line_is_lost_that_nobody_accounts_for() {
    let slow = std::env::var("FLINT_TEST_SLOW").is_ok_and(|value| !value.is_empty());
    let cases = if slow { CASES_SLOW } else { CASES };
    let samples = files::samples();
    let root = tempfile::tempdir().unwrap();
    for sample in &samples {
        let path = root.path().join(sample.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, sample.text).unwrap();
    }
    let mut table: BTreeMap<(bool, &'static str), Count> = BTreeMap::new();
    let mut failed: BTreeMap<&'static str, (usize, String)> = BTreeMap::new();
    for seed in 0..cases {
        let case = match seed % 10 {
            9 => recorded::case(&mut Dice(seed as u64), &samples),
            _ => answers::case(&mut Dice(seed as u64), &samples),
        };
        let count = table.entry((case.plain, case.shape)).or_default();
        match judge(root.path(), &case, &samples) {
            Ok("placed") => count.placed += 1,
            Ok("left") => count.left += 1,
            Ok(_) => count.refused += 1,
            Err(why) => {
                let shown = format!("seed {seed}: {why}\nrequest: {}\nanswer:\n{}", case.request, case.answer);
                failed.entry(case.shape).or_insert((0, shown)).0 += 1;
            }
        }
    }
    for ((plain, shape), Count { placed, left, refused }) in &table {
        println!(
            "{shape:<34} {} placed {placed:>5} left {left:>5} refused {refused:>5}",
            if *plain { "*" } else { " " }
        );
    }
    let all: usize = failed.values().map(|(count, _)| count).sum();
    let shown: Vec<String> = failed.iter().map(|(shape, (count, why))| format!("== {shape}: {count}\n{why}")).collect();
    assert!(failed.is_empty(), "{all} of {cases} failed\n{}", shown.join("\n"));
    for ((_, shape), count) in table.iter().filter(|((plain, _), _)| *plain) {
        let all = count.placed + count.left + count.refused;
        assert!(count.placed * 100 >= all * 95, "{shape}: only {} of {all} were placed", count.placed);
    }
}
