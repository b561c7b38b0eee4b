//! `flint bench intent`: does the partner do what was said, and nothing else?
//!
//! Each message of a set is given to the real binary in a fresh copy of its project, and every byte is compared before and
//! after. `bench/intent/README.md` says what the sets hold and what must be true of each kind of message.

mod tally;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};

use super::apart::{Apart, bounded_run};
use tally::Tally;

/// Arguments of `flint bench intent`.
#[derive(Args)]
pub struct IntentArgs {
    /// The set: JSON lines
    #[arg(long, default_value = "bench/intent/first.jsonl")]
    set: PathBuf,
    /// The folder of the projects [default: `projects` beside the set]
    #[arg(long)]
    projects: Option<PathBuf>,
    /// The model
    #[arg(short, long, default_value = "qwen2.5-coder-1.5b")]
    model: String,
    /// Only decide what each message asks for; nothing is answered and nothing can change
    #[arg(long)]
    decide_only: bool,
    /// Only messages of these categories
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// At most this many messages
    #[arg(long)]
    limit: Option<usize>,
    /// Where results go, one line each; messages that are in it already are not sent again
    #[arg(short, long)]
    out: Option<PathBuf>,
    /// Seconds one message may take
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// More settings for the partner, as `flint exec -c` takes them
    #[arg(short = 'c', value_name = "KEY=VALUE")]
    config: Vec<String>,
    /// Print the result as one line of JSON
    #[arg(long)]
    json: bool,
}

/// One message of a set.
#[derive(Debug, Deserialize)]
struct Message {
    id: String,
    lang: String,
    project: String,
    category: String,
    text: String,
}

impl Message {
    /// Whether it asks for a change.
    fn wants_change(&self) -> bool {
        matches!(self.category.as_str(), "polite" | "change")
    }
}

/// Every file of a folder, with its bytes.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Runs the set.
pub fn run(args: &IntentArgs) -> Result<()> {
    let messages = read(args)?;
    let projects = match &args.projects {
        Some(projects) => projects.clone(),
        None => args.set.with_file_name("projects"),
    };
    let place = tempfile::tempdir()?;
    let apart = Apart::new(place.path(), &[]);
    apart.warm_up(&args.model)?;
    // The examples are read once; what a message adds to them is what is measured.
    let mut first = apart.flint(place.path())?;
    first.args(["exec", "--decide", "--ephemeral", "-m", &args.model, "Hello."]);
    bounded_run(first, Duration::from_secs(args.timeout))?;
    let mut results = Results::open(args.out.as_deref())?;
    for message in &messages {
        if results.lines.iter().any(|line| line["id"] == message.id.as_str()) {
            continue;
        }
        let line = send(args, &apart, place.path(), &projects, message)?;
        if !args.json {
            outln!("{}", tally::row(&line));
        }
        results.add(line)?;
    }
    let wanted: HashSet<&str> = messages.iter().map(|message| message.id.as_str()).collect();
    results.lines.retain(|line| line["id"].as_str().is_some_and(|id| wanted.contains(id)));
    let tally = Tally::of(&results.lines);
    match args.json {
        true => boundary::print::json_line(&tally.json(args))?,
        false => out!("{}", tally.text()),
    }
    Ok(())
}

fn read(args: &IntentArgs) -> Result<Vec<Message>> {
    let text = fs::read_to_string(&args.set).with_context(|| format!("the set {}", args.set.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = lines.map(|(number, line)| {
        serde_json::from_str::<Message>(line).with_context(|| format!("{}:{}", args.set.display(), number + 1))
    });
    let mut messages = read.collect::<Result<Vec<_>>>()?;
    messages.retain(|message| args.only.is_empty() || args.only.contains(&message.category));
    messages.truncate(args.limit.unwrap_or(usize::MAX));
    ensure!(!messages.is_empty(), "the set has no such messages");
    Ok(messages)
}

/// Sends one message in a fresh copy of its project, and sees what became of the copy.
fn send(args: &IntentArgs, apart: &Apart, place: &Path, projects: &Path, message: &Message) -> Result<Value> {
    let folder = place.join("work").join(&message.project);
    let _ = fs::remove_dir_all(&folder);
    copy(&projects.join(&message.project), &folder)?;
    let before = tree(&folder)?;
    let mut command = apart.flint(&folder)?;
    command.args(["exec", "--json", "--ephemeral", "-m", &args.model]);
    for setting in &args.config {
        command.args(["-c", setting]);
    }
    if args.decide_only {
        command.arg("--decide");
    }
    command.args(["--", &message.text]);
    let ran = bounded_run(command, Duration::from_secs(args.timeout))?;
    let after = tree(&folder)?;
    let paths: std::collections::BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let changed: Vec<&PathBuf> = paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).collect();
    let events: Vec<Value> = ran.output.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let decided = events.iter().find(|event| event["type"] == "intent.decided").cloned().unwrap_or_default();
    let asked = match args.decide_only {
        true => decided["intent"] == "unclear",
        false => ran.exit_code == Some(tally::ASKED),
    };
    let changes = if args.decide_only { decided["intent"] == "change" } else { !changed.is_empty() };
    let right = if message.wants_change() { changes || asked } else { !changes };
    // What did not run at all has shown nothing.
    let ran_through = ran.exit_code.is_some() && !decided.is_null();
    Ok(json!({"id": message.id, "lang": message.lang, "category": message.category, "text": message.text,
        "right": right && ran_through, "intent": decided["intent"], "odds": decided["odds"], "asked": asked,
        "changes": changes, "changed": changed, "prompt_tokens": decided["prompt_tokens"], "ms": decided["ms"],
        "exit_code": ran.exit_code, "seconds": (ran.seconds * 1e3).round() / 1e3, "said": last_words(&events, &ran.output)}))
}

/// What was said at the end, for whoever looks into a miss.
fn last_words(events: &[Value], output: &str) -> String {
    let said = events.iter().rev().find_map(|event| {
        event["error"]["message"]
            .as_str()
            .or_else(|| event["item"]["text"].as_str())
            .or(event["item"]["error"].as_str())
    });
    let last = || output.lines().last().unwrap_or_default();
    said.unwrap_or_else(last).chars().take(400).collect()
}

/// Copies a folder with everything in it.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    for (path, bytes) in tree(from)? {
        let path = to.join(path);
        fs::create_dir_all(path.parent().unwrap_or(to))?;
        fs::write(path, bytes)?;
    }
    Ok(())
}

fn tree(folder: &Path) -> Result<Tree> {
    let (mut tree, mut open) = (Tree::new(), vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("the project {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
            } else {
                tree.insert(path.strip_prefix(folder)?.to_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(tree)
}

/// Results so far, in memory and in a file.
pub(super) struct Results {
    pub lines: Vec<Value>,
    file: Option<fs::File>,
}

impl Results {
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self { lines: Vec::new(), file: None }) };
        let text = fs::read_to_string(path).unwrap_or_default();
        // A last line that was torn by a crash is sent again.
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut file = fs::File::options().create(true).append(true).open(path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        Ok(Self { lines, file: Some(file) })
    }

    pub fn add(&mut self, line: Value) -> Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{line}")?;
        }
        self.lines.push(line);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_hold_what_their_description_says() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/intent");
        let mut ids = HashSet::new();
        for name in ["first.jsonl", "second.jsonl"] {
            let Ok(text) = fs::read_to_string(folder.join(name)) else {
                assert_eq!(name, "second.jsonl", "the first set is there");
                continue;
            };
            let messages: Vec<Message> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let count = |test: &dyn Fn(&Message) -> bool| messages.iter().filter(|message| test(message)).count();
            for (category, wanted) in [
                ("talk", 40),
                ("question", 48),
                ("review", 24),
                ("polite", 32),
                ("change", 32),
                ("command", 12),
                ("unclear", 12),
            ] {
                assert_eq!(count(&|message| message.category == category), wanted, "{name}: {category}");
            }
            for lang in ["en", "de", "fr", "es", "pt", "zh", "ja", "ru"] {
                assert_eq!(count(&|message| message.lang == lang), 25, "{name}: {lang}");
            }
            for message in &messages {
                assert!(ids.insert(message.id.clone()), "{} twice", message.id);
                assert!(folder.join("projects").join(&message.project).is_dir(), "{}", message.id);
                assert!(!message.text.trim().is_empty(), "{}", message.id);
            }
        }
    }
}
