//! JSON by real schemas, as the format of an answer and as the arguments of a strict tool.

use crate::install::pip_venv;
use crate::server::Server;
use crate::{SMALL_MODEL, client, program, scratch, success, turn};

#[test]
fn schemas_of_answers() {
    let Some(_turn) = turn() else { return };
    generations("answer");
}

#[test]
fn schemas_of_strict_tools() {
    let Some(_turn) = turn() else { return };
    generations("call");
}

fn generations(kind: &str) {
    let packages = ["openai==3.49.0", "jsonschema[format-nongpl]==4.26.0"];
    let python = pip_venv("jsonschema", &packages).join("bin/python");
    // The smallest model at temperature 1 tries the most of what a grammar allows.
    let server = Server::start(SMALL_MODEL);
    let home = scratch("home-");
    let mut command = client(python, home.path());
    command.arg(program("schemas.py")).args([SMALL_MODEL, kind]);
    success(command.env("OPENAI_BASE_URL", server.base_url()));
}
