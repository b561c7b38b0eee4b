//! `flint try` on a real model and its private server: candidates begin like the first and depart from it.

use std::path::Path;
use std::process::{Command, Output};

const MODEL: &str = "smollm2-135m";
const BROKEN: &str =
    "def total(prices):\n    result = 0\n    for price in prices:\n        result -= price\n    return result\n";

fn flint(folder: &Path, arguments: &[&str]) -> Output {
    let state = folder.join("state");
    let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
    command.args(arguments).current_dir(folder.join("work")).stdin(std::process::Stdio::null());
    command.env("XDG_STATE_HOME", &state).env("XDG_CONFIG_HOME", &state).env_remove("FLINT_HOME");
    command.env_remove("FLINT_MODEL").output().unwrap()
}

/// Ends the private server, also when the test fails.
struct PrivateServer(tempfile::TempDir);

impl Drop for PrivateServer {
    fn drop(&mut self) {
        flint(self.0.path(), &["stop"]);
    }
}

#[test]
fn candidates_begin_like_the_first_and_depart_from_it() {
    let server = PrivateServer(tempfile::tempdir().unwrap());
    let folder = server.0.path();
    std::fs::create_dir(folder.join("work")).unwrap();
    std::fs::write(folder.join("work/a.py"), BROKEN).unwrap();
    let pulled = flint(folder, &["models", "pull", MODEL]);
    assert!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
    let task = "Fix the bug in @a.py: total must add.";
    let limit = "max_output_tokens=60";
    let tried = flint(folder, &["try", "-n", "3", "-m", MODEL, "-c", limit, "--json", "--check", "false", task]);
    let lines = String::from_utf8_lossy(&tried.stdout);
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap_or_default()).unwrap();
    let why = last["error"]["message"].as_str().unwrap_or_else(|| panic!("nothing can pass: {lines}"));
    let evidence = Path::new(why.split(" is in ").nth(1).unwrap_or_else(|| panic!("{why}")));
    let answer =
        |number: usize| std::fs::read_to_string(evidence.join(format!("candidate-{number}/answer.md"))).unwrap();
    let first = answer(1);
    for number in [2, 3] {
        let other = answer(number);
        let alike = first.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
        assert!(first[..alike].contains("def total(prices"), "no departure: {first}\n---\n{other}");
        assert_ne!(first, other);
        // An answer that began anew would have a fence in the middle of a line.
        let broken = other.lines().any(|line| line.contains("```") && !line.starts_with("```"));
        assert!(!broken, "{other}");
    }
    assert_ne!(answer(2), answer(3));
}
