//! `flint bench questions`: does the partner know where things are?
//!
//! Each question is asked in a fresh copy of its repository, and the answer is searched for the places that are known to be
//! right. `bench/questions/README.md` says what the set holds.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::apart::{Apart, bounded_run};
use super::intent::{Results, copy};

/// Arguments of `flint bench questions`.
#[derive(Args)]
pub struct QuestionsArgs {
    /// The set: JSON lines
    #[arg(long, default_value = "bench/questions/questions.jsonl")]
    set: PathBuf,
    /// The folder with the repositories; bench/questions/fetch.sh fills it
    #[arg(long)]
    repositories: PathBuf,
    /// The model
    #[arg(short, long, default_value = "qwen2.5-coder-1.5b")]
    model: String,
    /// Another build of flint to ask instead of this one
    #[arg(long, value_name = "PROGRAM")]
    flint: Option<PathBuf>,
    /// At most this many questions
    #[arg(long)]
    limit: Option<usize>,
    /// Where results go, one line each; questions that are in it already are not asked again
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// Seconds one answer may take
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// One question of the set.
#[derive(Deserialize)]
struct Question {
    id: String,
    repository: String,
    lang: String,
    question: String,
    places: Vec<Definition>,
}

/// Where an answer is: the lines of a definition, from 1, both included.
#[derive(Deserialize)]
struct Definition {
    file: String,
    first: usize,
    last: usize,
}

/// Asks the set.
pub fn run(args: &QuestionsArgs) -> Result<()> {
    let text = fs::read_to_string(&args.set).with_context(|| format!("the set {}", args.set.display()))?;
    let mut questions = text
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("{}: {line}", args.set.display())))
        .collect::<Result<Vec<Question>>>()?;
    questions.truncate(args.limit.unwrap_or(usize::MAX));
    ensure!(!questions.is_empty(), "the set is empty");
    let place = tempfile::tempdir()?;
    let apart = match &args.flint {
        Some(program) => Apart::of(&fs::canonicalize(program)?, place.path()),
        None => Apart::new(place.path(), &[]),
    };
    if args.flint.is_none() {
        apart.warm_up(&args.model)?;
    }
    let mut results = Results::open(args.out.as_deref())?;
    let mut lines = Vec::new();
    for question in &questions {
        let known = results.lines.iter().find(|line| line["id"] == question.id.as_str()).cloned();
        let line = match known {
            Some(line) => line,
            None => {
                let line = ask(args, &apart, place.path(), question)?;
                results.add(line.clone())?;
                line
            }
        };
        if !args.json {
            let mark = |key: &'static str| if line[key] == true { key } else { "-" };
            outln!("{:<14} {:<5} {:<4} {}", question.id, mark("right"), mark("file"), question.question);
        }
        lines.push(line);
    }
    let count = |key: &str| lines.iter().filter(|line| line[key] == true).count();
    let (right, first, file, all) = (count("right"), count("right at once"), count("file"), lines.len());
    let seconds = lines.iter().filter_map(|line| line["seconds"].as_f64()).sum::<f64>() / all as f64;
    let share = |part: usize| (part as f64 * 1000.0 / all as f64).round() / 10.0;
    match args.json {
        true => boundary::print::json_line(&json!({
            "questions": all, "model": args.model, "right": right, "right at once": first, "file": file,
            "right %": share(right), "right at once %": share(first), "file %": share(file), "seconds mean": seconds,
            "cpu": load::machine::cpu_name(), "cores": load::cores(),
        }))?,
        false => {
            outln!(
                "\nof {all} questions: right {right} ({} %), right at once {first} ({} %),",
                share(right),
                share(first)
            );
            outln!("the file named {file} ({} %); {seconds:.1} s each", share(file));
        }
    }
    Ok(())
}

/// Asks one question in a fresh copy of its repository.
fn ask(args: &QuestionsArgs, apart: &Apart, place: &Path, question: &Question) -> Result<Value> {
    let repository = args.repositories.join(&question.repository);
    ensure!(repository.is_dir(), "{} is not there; bench/questions/fetch.sh fetches it", repository.display());
    let folder = place.join("work").join(&question.repository);
    let _ = fs::remove_dir_all(&folder);
    copy(&repository, &folder)?;
    let mut command = apart.flint(&folder)?;
    command.args(["exec", "--json", "--ephemeral", "-m", &args.model, "--", &question.question]);
    let ran = bounded_run(command, Duration::from_secs(args.timeout))?;
    let answer = answer(&ran.output);
    let named = places(&answer);
    let fits = |(file, line): &(String, usize)| question.places.iter().any(|place| place.holds(file, *line));
    Ok(json!({"id": question.id, "lang": question.lang, "question": question.question,
        "right": named.iter().any(fits), "right at once": named.first().is_some_and(fits),
        "file": question.places.iter().any(|place| answer.contains(&place.file)),
        "exit_code": ran.exit_code, "seconds": (ran.seconds * 1e3).round() / 1e3, "answer": answer}))
}

impl Definition {
    fn holds(&self, file: &str, line: usize) -> bool {
        file == self.file && (self.first..=self.last).contains(&line)
    }
}

/// What was said, of the events of `flint exec --json`.
fn answer(output: &str) -> String {
    let events = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let said = events.filter(|event| event["type"] == "item.completed" && event["item"]["type"] == "agent_message");
    said.filter_map(|event| Some(event["item"]["text"].as_str()?.to_owned())).collect::<Vec<_>>().join("\n")
}

/// Every `path:line` of an answer, in order.
fn places(answer: &str) -> Vec<(String, usize)> {
    let is_path = |letter: char| letter.is_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-' | ':');
    let words = answer.split(|letter: char| !is_path(letter));
    words
        .filter_map(|word| {
            let mut parts = word.trim_end_matches(['.', ':']).split(':');
            let (path, line) = (parts.next()?, parts.next()?);
            Some((path.trim_start_matches("./").to_owned(), line.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_what_was_said() {
        let said = "It is `retry` in src/net/retry.py:12. See also (./lib/a.js:7:3), b.rs: 4 and http://x:80.";
        assert_eq!(places(said), [("src/net/retry.py".to_owned(), 12), ("lib/a.js".to_owned(), 7)]);
        let definition = Definition { file: "lib/a.js".to_owned(), first: 5, last: 7 };
        assert!(definition.holds("lib/a.js", 7) && !definition.holds("lib/a.js", 8) && !definition.holds("a.js", 7));
    }

    #[test]
    fn the_set_holds_what_its_description_says() {
        let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/questions/questions.jsonl");
        let text = fs::read_to_string(set).unwrap();
        let questions: Vec<Question> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ids: std::collections::HashSet<&str> = questions.iter().map(|question| question.id.as_str()).collect();
        assert_eq!((questions.len(), ids.len()), (60, 60));
        for repository in ["requests", "commander", "ignore"] {
            assert_eq!(
                questions.iter().filter(|question| question.repository == repository).count(),
                20,
                "{repository}"
            );
        }
        for question in &questions {
            assert!(!question.places.is_empty(), "{}", question.id);
            assert!(
                question.places.iter().all(|place| 0 < place.first && place.first <= place.last),
                "{}",
                question.id
            );
        }
    }
}
