//! schemathesis: requests made up from OpenAI's own description of its API, right ones and wrong ones.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::install::pip_venv;
use crate::server::Server;
use crate::{SMALL_MODEL, client, given_path, program, scratch, success, turn};

/// What of the description the server has.
const PATHS: &str = "^/(responses|responses/compact|chat/completions|completions|models)$";

#[test]
fn schemathesis_valid_input() {
    let Some(_turn) = turn() else { return };
    made_up_requests("positive", "not_a_server_error,says_what_is_wrong");
}

#[test]
fn schemathesis_bad_input() {
    let Some(_turn) = turn() else { return };
    made_up_requests("negative", "not_a_server_error,says_what_is_wrong,refuses_or_warns");
}

fn made_up_requests(mode: &str, checks: &str) {
    let Some(description) = given_path("FLINT_OPENAI_SPEC", "OpenAI's OpenAPI description (YAML or YAML.gz)") else {
        return;
    };
    let binary = pip_venv("schemathesis", &["schemathesis==4.32.*"]).join("bin/schemathesis");
    let server = Server::start_with(SMALL_MODEL, &["--max-output-tokens", "16"]);
    let home = scratch("home-");
    let mut command = client(binary, home.path());
    command.current_dir(home.path()).arg("run").arg(plain(&description, home.path()));
    command.args(["--url", &server.base_url(), "--include-path-regex", PATHS, "--mode", mode, "--checks", checks]);
    command.args(["--phases", "examples,fuzzing", "--max-examples", "25", "--suppress-health-check", "all"]);
    // The same requests on every run: a new failure comes from a new server.
    command.args([
        "--generation-with-security-parameters",
        "false",
        "--seed",
        "1",
        "--generation-database",
        "none",
        "--continue-on-failure",
        "--no-shrink",
    ]);
    command.env("SCHEMATHESIS_HOOKS", "schemathesis_hooks").env("PYTHONPATH", program(""));
    success(command.env("PYTHONDONTWRITEBYTECODE", "1").env("FLINT_TEST_MODEL", SMALL_MODEL));
}

/// The description as a file that can be read as it is.
fn plain(description: &Path, directory: &Path) -> PathBuf {
    if description.extension().is_none_or(|extension| extension != "gz") {
        return fs::canonicalize(description).expect("the description is there");
    }
    let path = directory.join("openapi.yaml");
    let file = File::create(&path).expect("the plain description");
    let status = Command::new("gzip").arg("-dc").arg(description).stdout(file).status().expect("gzip starts");
    assert!(status.success(), "gzip -dc {}: {status}", description.display());
    path
}
