//! The OpenAI SDKs for Python and Node.

use std::fs;
use std::path::PathBuf;

use crate::install::{npm_dir, pip_venv};
use crate::server::Server;
use crate::{DEFAULT_MODEL, SMALL_MODEL, client, program, scratch, success, turn};

#[test]
fn python_sdk() {
    let Some(_turn) = turn() else { return };
    let python = python();
    let server = Server::start(DEFAULT_MODEL);
    let home = scratch("home-");
    let mut command = client(python, home.path());
    success(command.arg(program("openai_sdk.py")).arg(DEFAULT_MODEL).env("OPENAI_BASE_URL", server.base_url()));
}

#[test]
fn python_sdk_with_a_key() {
    let Some(_turn) = turn() else { return };
    let python = python();
    let server = Server::start_with_key(SMALL_MODEL);
    let home = scratch("home-");
    let mut command = client(python, home.path());
    command.arg(program("openai_sdk.py")).args([SMALL_MODEL, "key"]);
    success(command.env("OPENAI_BASE_URL", server.base_url()));
}

#[test]
fn node_sdk() {
    let Some(_turn) = turn() else { return };
    let packages = npm_dir("openai-node", &["openai@7.53.0", "ws@8.22.2", "zod@3.25.76"]);
    // Node looks for packages beside the program.
    let program_there = packages.join("openai_sdk.mjs");
    fs::copy(program("openai_sdk.mjs"), &program_there).expect("the program is copied");
    let server = Server::start(DEFAULT_MODEL);
    let home = scratch("home-");
    let mut command = client("node", home.path());
    success(command.arg(program_there).arg(DEFAULT_MODEL).env("OPENAI_BASE_URL", server.base_url()));
}

fn python() -> PathBuf {
    pip_venv("openai-python", &["openai[realtime]==3.49.0"]).join("bin/python")
}
