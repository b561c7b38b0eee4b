//! `flint run`: prompts from everywhere, answers as text and as JSON, and every way an answer can end.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::{failure, flint, flint_run, stderr, stdout, success};

const QUESTION: &str = "What is the capital of France?";
/// With the system prompt of its template this small model talks in French, in llama.cpp too.
const SYSTEM: [&str; 2] = ["--system", "You are a helpful assistant."];
/// A question with an answer that is far from over when a test interrupts it.
const LONG: [&str; 3] = ["Count from 1 to 1000 in words, one per line.", "--max-tokens", "4000"];

/// The question that the model can answer, with more arguments.
fn question(arguments: &[&str]) -> Command {
    let mut command = flint_run(&SYSTEM);
    command.arg(QUESTION).args(arguments);
    command
}

fn json_lines(mut command: Command) -> Vec<Value> {
    command.arg("--json");
    let text = stdout(&success(command));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn answer(lines: &[Value]) -> String {
    lines.iter().filter(|line| line["type"] == "delta").map(|line| line["text"].as_str().unwrap()).collect()
}

fn with_stdin(mut command: Command, text: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

fn long_answer() -> Child {
    flint_run(&LONG).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn greedy_answers_are_right_and_repeat() {
    let first = success(question(&["--max-tokens", "24"]));
    assert!(stdout(&first).contains("Paris"), "{}", stdout(&first));
    assert!(stdout(&first).ends_with('\n'));
    let figures = stderr(&first);
    assert!(figures.starts_with("first token ") && figures.contains(" tok/s · cached 0"), "{figures}");
    let again = success(question(&["--max-tokens", "24", "--threads", "1"]));
    assert_eq!(stdout(&first), stdout(&again));
}

#[test]
fn json_lines_add_up() {
    let lines = json_lines(question(&["--max-tokens", "64", "--logprobs", "2"]));
    let (started, finished) = (&lines[0], lines.last().unwrap());
    assert_eq!((&started["type"], &finished["type"]), (&"started".into(), &"finished".into()));
    assert_eq!(started["prompt_tokens"], finished["usage"]["prompt"]);
    let logprobs: Vec<&Value> = lines.iter().filter_map(|line| line["logprobs"].as_array()).flatten().collect();
    let tokens: usize = lines.iter().filter_map(|line| Some(line["tokens"].as_array()?.len())).sum();
    assert_eq!(logprobs.len(), tokens);
    // A stop token is generated and not published.
    let stopped = usize::from(finished["reason"] == "stop_token");
    assert_eq!(finished["usage"]["generated"].as_u64().unwrap() as usize, tokens + stopped);
    for entry in logprobs {
        // Greedy: the token is the most likely of all.
        assert_eq!(entry["top"].as_array().unwrap().len(), 2);
        assert_eq!((&entry["id"], &entry["logprob"]), (&entry["top"][0]["id"], &entry["top"][0]["logprob"]));
    }
    assert!(answer(&lines).contains("Paris"));
    assert!(finished["timings"]["first_token_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(finished["model"]["name"], "smollm2-135m");
}

#[test]
fn prompts_come_from_arguments_and_pipes() {
    let ask = |arguments: &[&str]| {
        let mut command = flint_run(arguments);
        command.args(["--max-tokens", "8"]);
        command
    };
    let argument = stdout(&success(ask(&["First line.\n\nSecond line."])));
    assert_eq!(with_stdin(ask(&[]), "First line.\n\nSecond line."), argument);
    assert_eq!(with_stdin(ask(&["First", "line."]), "Second line."), argument);
    assert!(failure(ask(&[])).contains("there is no prompt"));
}

#[test]
fn raw_prompts_are_continued_and_system_prompts_are_heard() {
    let raw = stdout(&success(flint_run(&["--raw", "The capital of France is", "--max-tokens", "4"])));
    assert!(raw.contains("Paris"), "{raw}");
    let tokens = |arguments: &[&str]| json_lines(flint_run(arguments))[0]["prompt_tokens"].as_u64().unwrap();
    let short = tokens(&["--system", "Rhyme.", "Hi", "--max-tokens", "1"]);
    let long = tokens(&["--system", "Rhyme, and be as brief as you can.", "Hi", "--max-tokens", "1"]);
    assert!(long > short && short > tokens(&["--raw", "Hi", "--max-tokens", "1"]));
}

#[test]
fn answers_end_at_stop_strings_and_at_their_length() {
    let lines = json_lines(question(&["--max-tokens", "5"]));
    let finished = lines.last().unwrap();
    assert_eq!((&finished["reason"], &finished["usage"]["generated"]), (&"max_tokens".into(), &5.into()));
    let whole = answer(&json_lines(question(&["--max-tokens", "24"])));
    let (before, _) = whole.split_once("aris").expect("the answer names Paris");
    let lines = json_lines(question(&["--max-tokens", "24", "--stop", "never this", "--stop", "aris"]));
    assert_eq!(answer(&lines), before);
    assert_eq!(lines.last().unwrap()["reason"], "stop_string");
}

#[test]
fn samples_follow_their_seed() {
    let sample = |seed: &str| {
        let arguments = ["Tell me a story.", "--max-tokens", "16", "--temperature", "1.5", "--seed", seed];
        stdout(&success(flint_run(&arguments)))
    };
    assert_eq!(sample("1"), sample("1"));
    assert_ne!(sample("1"), sample("2"));
}

#[test]
fn errors_say_what_happened_and_what_to_do() {
    let error = failure(flint(&["run", "-m", "smolm2-135m", "hello"]));
    assert!(error.contains("no model is called `smolm2-135m`; did you mean smollm2-135m"), "{error}");
    let error = failure(flint(&["run", "-m", "nothing/here.gguf", "hello"]));
    assert!(error.contains("nothing/here.gguf is not a model file: there is no such file"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("broken.gguf");
    let path_text = path.to_str().unwrap();
    std::fs::write(&path, "not a model").unwrap();
    let error = failure(flint(&["run", "-m", path_text, "hello"]));
    assert!(error.contains("is not a model file: it begins with"), "{error}");
    std::fs::write(&path, b"GGUF\x03\0\0\0rubbish").unwrap();
    let error = failure(flint(&["run", "-m", path_text, "hello"]));
    assert!(error.contains("cannot be loaded") && error.contains("flint models list"), "{error}");
    let error = failure(flint_run(&["hello", "--context", "1000000"]));
    assert!(error.contains("--context 1000000 is more than the"), "{error}");
    let error = failure(flint_run(&["hello", "--top-p", "7"]));
    assert!(error.contains("top_p must be above 0, up to 1"), "{error}");
}

#[test]
fn a_reader_that_leaves_ends_it_quietly() {
    let mut child = long_answer();
    child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    // The pipe is closed now, as `head -c 1` does.
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(stderr(&output), "");
}

#[test]
#[cfg(unix)]
fn an_interrupt_keeps_the_text_and_shows_the_figures() {
    let mut child = long_answer();
    let mut reader = child.stdout.take().unwrap();
    reader.read_exact(&mut [0]).unwrap();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(rest.ends_with('\n'));
    let figures = stderr(&output);
    assert!(figures.starts_with("first token ") && figures.trim_end().ends_with("interrupted"), "{figures}");
}
