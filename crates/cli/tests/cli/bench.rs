//! `flint bench` with small parameters, so that it cannot rot, and the promise its hashes make.

use serde_json::Value;

use crate::{failure, flint, pull_small, stdout, success};

fn lines(arguments: &[&str]) -> Vec<Value> {
    pull_small();
    let mut command = flint(&["bench", "-m", "smollm2-135m", "--rounds", "1", "--json"]);
    command.args(arguments);
    stdout(&success(command)).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn figures_have_provenance_and_rows_do_not_change_answers() {
    let lines = lines(&["--prompt", "40", "--rows", "1,2,4", "--sequences", "1,2", "--reuse", "200"]);
    let names: Vec<&str> = lines.iter().map(|line| line["figure"].as_str().unwrap()).collect();
    let expected = [
        "prompt 40",
        "decode at 0",
        "step of 1",
        "step of 2",
        "step of 4",
        "1 sequences",
        "2 sequences",
        "1 sequence, temperature 0.8, top-p 0.95",
        "1 sequence, temperature 1, top-p 1",
        "prompt 200 again",
    ];
    assert_eq!(names, expected);
    for line in &lines {
        assert!(line["provenance"]["bytes_per_token"].as_u64().unwrap() > 50_000_000, "{line}");
    }
    let hash = |i: usize| lines[i]["hash"].as_str().unwrap().to_string();
    assert!(hash(1) == hash(2) && hash(2) == hash(3) && hash(3) == hash(4), "{names:?}");
    assert!(lines[9]["cached_tokens"].as_u64().unwrap() >= 199);
}

#[test]
fn a_peer_that_is_no_program_is_named() {
    pull_small();
    let text = failure(flint(&["bench", "-m", "smollm2-135m", "--peer", "other=/no/such/file"]));
    assert!(text.contains("other") && text.contains("is not a file"), "{text}");
}

#[test]
fn random_weights_need_a_card_and_a_known_shape() {
    pull_small();
    let run = |shape, device| {
        let shape = ["--shape", shape, "--random-weights", "--device", device];
        failure(flint(&[&["run", "-m", "smollm2-135m", "Hello."], &shape[..]].concat()))
    };
    let text = run("qwen2.5-coder-1.5b", "cpu");
    assert!(text.contains("random weights are made on a card"), "{text}");
    let text = run("qwen", "cuda");
    assert!(text.contains("there is no shape `qwen`") && text.contains("qwen2.5-coder-7b"), "{text}");
}

#[test]
fn drafting_changes_no_answer_of_mixed_prompts() {
    pull_small();
    let command = flint(&["bench", "edit", "-m", "smollm2-135m", "--check", "24", "--tokens", "48", "--json"]);
    let line: Value = serde_json::from_str(stdout(&success(command)).trim()).unwrap();
    let count = |name: &str| line["values"][name].as_u64().unwrap();
    assert_eq!(count("prompts"), 24);
    assert!(count("accepted") > 100 && count("accepted") < count("drafted"), "{line}");
}

#[test]
fn an_edit_is_measured_against_plain_decoding() {
    pull_small();
    let arguments =
        ["bench", "edit", "-m", "smollm2-135m", "--rounds", "1", "--tokens", "24", "--cases", "prose,bad", "--json"];
    let text = stdout(&success(flint(&arguments)));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 8);
    for line in &lines {
        assert!(line["values"]["plain"]["median"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["provenance"]["threads"].is_u64(), "{line}");
    }
}

#[test]
fn plain_and_drafted_decoding_take_turns() {
    pull_small();
    let arguments = [
        "bench",
        "edit",
        "-m",
        "smollm2-135m",
        "--paired",
        "4",
        "--rounds",
        "1",
        "--tokens",
        "40",
        "--json",
        "--cases",
    ];
    let mut command = flint(&arguments);
    command.arg("prose");
    let text = stdout(&success(command));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let figures: Vec<&str> = lines.iter().map(|line| line["figure"].as_str().unwrap()).collect();
    let ends = ["harbour, plain, paired", "harbour, usual, paired"];
    assert!(lines.len() == 14 && figures[0].ends_with(ends[0]) && figures[1].ends_with(ends[1]), "{figures:?}");
    for line in &lines {
        let values = &line["values"];
        let interval = &values["times_plain_of_totals"]["interval_95"];
        let value = values["times_plain_of_totals"]["value"].as_f64().unwrap();
        // Turns of four tokens: 40 tokens hold at least three pairs even if a draft makes a turn longer.
        assert!(values["pairs"].as_u64().unwrap() >= 3, "{line}");
        assert!(interval[0].as_f64().unwrap() <= value && value <= interval[1].as_f64().unwrap(), "{line}");
    }
    let control = &lines[0]["values"];
    assert_eq!(control["times_plain_by_counting"].as_f64().unwrap().round(), 1.0, "{control}");
    assert!(control["drafts"].as_object().unwrap().is_empty() && control["rows_cost_times"] == serde_json::json!([]));
}
