//! The Codex CLI: its own check of a provider, and a turn with a command over each transport.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::install::npm_dir;
use crate::server::{KEY, Server, json_lines};
use crate::{DEFAULT_MODEL, client, scratch, success, text, turn};

const NOTE: &str = "The meeting is moved to Thursday.";
const PROMPT: &str = "Run the command `cat NOTE.txt` and tell me what it says.";
/// The checks of `codex doctor` that are about the provider; the others are about the machine.
const PROVIDER_CHECKS: [&str; 4] =
    ["auth.credentials", "config.load", "network.provider_reachability", "network.websocket_reachability"];

#[test]
fn codex_doctor() {
    let Some(_turn) = turn() else { return };
    let codex = Codex::new();
    let report = text(&success(codex.command().args(["doctor", "--json"])).stdout);
    let report: Value = serde_json::from_str(&report).expect("a JSON report");
    for check in PROVIDER_CHECKS {
        assert_eq!(report["checks"][check]["status"], "ok", "{}", report["checks"][check]);
    }
}

#[test]
fn codex_runs_a_command_over_websocket() {
    let Some(_turn) = turn() else { return };
    runs_a_command("true");
}

#[test]
fn codex_runs_a_command_over_http() {
    let Some(_turn) = turn() else { return };
    runs_a_command("false");
}

/// A whole turn: the model calls the shell, Codex runs it, the model reads the output and answers.
fn runs_a_command(websockets: &str) {
    let codex = Codex::new();
    let work = scratch("work-");
    fs::write(work.path().join("NOTE.txt"), format!("{NOTE}\n")).expect("the note");
    let mut command = codex.command();
    command.args(["exec", "--json", "--strict-config", "--skip-git-repo-check", "--ephemeral"]);
    command.args(["--dangerously-bypass-approvals-and-sandbox", "-c"]);
    command.arg(format!("model_providers.flint.supports_websockets={websockets}")).arg(PROMPT);
    let output = success(command.current_dir(work.path()));

    // A warning, a retry or a fallback to the other transport is a line here or an error there.
    let complaints: Vec<String> = text(&output.stderr)
        .lines()
        .filter(|line| !line.starts_with("Reading additional input"))
        .map(str::to_owned)
        .collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let events = json_lines(&text(&output.stdout));
    let errors = |event: &&Value| event["type"] == "error" || event["item"]["type"] == "error";
    assert!(!events.iter().any(|event| errors(&event)), "an error among the events");
    let done = |kind: &str| {
        let of_kind = |event: &&Value| event["type"] == "item.completed" && event["item"]["type"] == kind;
        events.iter().rfind(of_kind).map(|event| &event["item"]).unwrap_or_else(|| panic!("no {kind}"))
    };
    let executed = done("command_execution");
    assert_eq!(executed["exit_code"], 0, "{executed}");
    assert!(executed["aggregated_output"].as_str().unwrap().contains(NOTE), "{executed}");
    let answer = done("agent_message");
    assert!(answer["text"].as_str().unwrap().contains("Thursday"), "{answer}");
    let last = events.last().expect("events");
    assert_eq!(last["type"], "turn.completed", "{last}");
    assert!(last["usage"]["cached_input_tokens"].as_u64() > Some(0), "the second step reads only what is new: {last}");
}

/// Codex with a home of its own, a server, and that server's word on what its model is.
struct Codex {
    binary: PathBuf,
    home: tempfile::TempDir,
    _server: Server,
}

impl Codex {
    fn new() -> Self {
        let packages = npm_dir("codex", &["@openai/codex@0.166.0"]);
        // Codex names no limit, and a model that does not end must not look like a server that hangs.
        let server = Server::start_with(DEFAULT_MODEL, &["--max-output-tokens", "512"]);
        let home = scratch("codex-");
        let catalogue = home.path().join("catalogue.json");
        fs::write(&catalogue, server.get("/v1/models")).expect("the catalogue");
        fs::write(home.path().join("config.toml"), configuration(&server, &catalogue)).expect("the configuration");
        Self { binary: packages.join("node_modules/.bin/codex"), home, _server: server }
    }

    fn command(&self) -> Command {
        let mut command = client(&self.binary, self.home.path());
        command.env("CODEX_HOME", self.home.path()).env("FLINT_KEY", KEY).current_dir(self.home.path());
        command
    }
}

/// Nothing that calls home, and of the tools only those a command needs: with more of them, a model of this size writes to
/// the input of a command that has ended instead of answering. Codex has no other shell tools than these since 0.166,
/// whatever the catalogue's `shell_type` is.
fn configuration(server: &Server, catalogue: &Path) -> String {
    format!(
        r#"
model = "{DEFAULT_MODEL}"
model_provider = "flint"
model_catalog_json = {catalogue:?}
check_for_update_on_startup = false
web_search = "disabled"
analytics.enabled = false
feedback.enabled = false
otel = {{ exporter = "none", metrics_exporter = "none", trace_exporter = "none" }}
features = {{ multi_agent = false, goals = false, view_image = false, unified_exec_tty = false }}
tools = {{ experimental_request_user_input = {{ enabled = false }} }}
skills.include_instructions = false

[model_providers.flint]
name = "Flint"
base_url = "{}"
env_key = "FLINT_KEY"
wire_api = "responses"
supports_websockets = true
"#,
        server.base_url()
    )
}
