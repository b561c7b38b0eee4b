//! The OpenAI Agents SDK with a function tool, over both transports.

use crate::install::pip_venv;
use crate::server::Server;
use crate::{DEFAULT_MODEL, client, program, scratch, success, turn};

#[test]
fn agents_sdk() {
    let Some(_turn) = turn() else { return };
    let python = pip_venv("agents", &["openai-agents==0.24.0", "openai[realtime]==3.49.0"]).join("bin/python");
    let server = Server::start(DEFAULT_MODEL);
    let home = scratch("home-");
    for transport in ["http", "websocket"] {
        let mut command = client(&python, home.path());
        command.arg(program("agents_sdk.py")).args([DEFAULT_MODEL, transport]);
        success(command.env("OPENAI_BASE_URL", server.base_url()));
    }
}
