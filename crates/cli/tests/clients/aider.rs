//! aider, editing a file.

use std::fs;

use crate::install::pip_venv;
use crate::server::Server;
use crate::{DEFAULT_MODEL, client, scratch, success, turn};

const BEFORE: &str = "def greet(a, b):\n    return a + b\n\n\nprint(greet(2, 3))\n";
const AFTER: &str = "def sum_two(a, b):\n    return a + b\n\n\nprint(sum_two(2, 3))\n";
/// Everything aider would ask, look up or remember is off: what stays is the edit.
const SETTINGS: [&str; 14] = [
    "--no-git",
    "--yes-always",
    "--no-pretty",
    "--no-show-model-warnings",
    "--no-show-release-notes",
    "--no-check-update",
    "--no-analytics",
    "--no-detect-urls",
    "--no-suggest-shell-commands",
    "--no-auto-lint",
    "--map-tokens=0",
    "--edit-format=whole",
    "--message=Rename the function greet to sum_two everywhere in calc.py.",
    "calc.py",
];

#[test]
fn aider_edits_a_file() {
    let Some(_turn) = turn() else { return };
    let aider = pip_venv("aider", &["aider-chat==0.86.2"]).join("bin/aider");
    let server = Server::start(DEFAULT_MODEL);
    let home = scratch("home-");
    let work = scratch("work-");
    let file = work.path().join("calc.py");
    fs::write(&file, BEFORE).expect("the file to edit");
    let mut command = client(aider, home.path());
    command.current_dir(work.path()).env("OPENAI_API_BASE", server.base_url());
    // Its own table of prices will do; the new one is a download.
    command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    success(command.arg(format!("--model=openai/{DEFAULT_MODEL}")).args(SETTINGS));
    assert_eq!(fs::read_to_string(&file).expect("the edited file"), AFTER);
}
