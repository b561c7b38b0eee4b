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
        "prompt 200 again",
    ];
    assert_eq!(names, expected);
    for line in &lines {
        assert!(line["provenance"]["bytes_per_token"].as_u64().unwrap() > 50_000_000, "{line}");
    }
    let hash = |i: usize| lines[i]["hash"].as_str().unwrap().to_string();
    assert!(hash(1) == hash(2) && hash(2) == hash(3) && hash(3) == hash(4), "{names:?}");
    assert!(lines[7]["cached_tokens"].as_u64().unwrap() >= 199);
}

#[test]
fn a_peer_that_is_no_program_is_named() {
    pull_small();
    let text = failure(flint(&["bench", "-m", "smollm2-135m", "--peer", "other=/no/such/file"]));
    assert!(text.contains("other") && text.contains("is not a file"), "{text}");
}

#[test]
fn the_screen_is_watched_in_a_real_terminal() {
    let output = success(flint(&["bench", "screen", "--seconds", "1", "--size", "80x24", "--json"]));
    let lines: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["figure"].as_str().unwrap()).collect();
    assert_eq!(names, ["screen text", "screen edit", "screen history"]);
    for line in &lines {
        let values = &line["values"];
        // How fast is for `flint bench` on a quiet machine; that keys come through and the stream is drawn is for here.
        assert!(values["key_to_echo (limit 20)"]["n"].as_u64().unwrap() >= 3, "{line}");
        assert!(values["tokens_per_s"].as_f64().unwrap() > 1_000.0, "{line}");
    }
}
