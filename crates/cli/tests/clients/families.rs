//! Codex, Claude Code and the Open Responses suite on a model of each family: its tokens, its template, and an actor that
//! answers in its form, thinking and not.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, mpsc};

use engine::{Engine, EngineOptions};
use model::gguf::Gguf;
use serde_json::{Value, json};
use server::guard::Limits;
use server::sessions::store::StoreOptions;
use server::{FileFacts, Loader, ModelCard, ModelLimits, ModelParts, ServerOptions};
use testkit::chat::Gate;
use testkit::families::Family;
use testkit::families::FamilyBackend;
use testkit::toy::ToyOptions;
use text::{ChatTemplate, Tokenizer};

use crate::install::npm_dir;
use crate::server::{KEY, json_lines};
use crate::{client, finish, given_path, scratch, success, text, turn};

/// Clients send tens of kilobytes of instructions and tools, and a byte is a token here.
const CONTEXT: usize = 400_000;
const NOTE: &str = "The meeting is moved to Thursday.";
const CODEX_PROMPT: &str = "call exec_command {\"cmd\":\"cat NOTE.txt\"}";
const CLAUDE_PROMPT: &str = "call Bash {\"command\":\"cat NOTE.txt\",\"description\":\"reads the note\"}";

/// One model of each family.
struct Actors;

impl Loader for Actors {
    fn cards(&self) -> Vec<ModelCard> {
        let card = |family: &Family| ModelCard {
            name: family.name().to_owned(),
            aliases: Vec::new(),
            description: String::new(),
            context: CONTEXT,
            file: FileFacts::default(),
        };
        Family::ALL.iter().map(card).collect()
    }

    fn load(&self, name: &str) -> Result<ModelParts, String> {
        let family = Family::ALL.into_iter().find(|family| family.name() == name).ok_or("no such model")?;
        let bytes = family.vocabulary().bytes();
        let gguf = Gguf::parse(&bytes, bytes.len() as u64).map_err(|error| error.to_string())?;
        let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).map_err(|error| error.to_string())?);
        let toy = ToyOptions { context: CONTEXT, blocks: 2 * CONTEXT / 32, rows_max: 4096, ..ToyOptions::default() };
        let backend = FamilyBackend::new(family, toy, Arc::new(Gate::default()));
        let engine = Engine::start(Box::new(backend), EngineOptions::default()).map_err(|error| error.to_string())?;
        Ok(ModelParts {
            engine,
            template: ChatTemplate::new(tokenizer.vocabulary()),
            tokenizer,
            served_model: name.to_owned(),
            fingerprint: family as u64 + 1,
            quantisation: "F32".to_owned(),
            context: CONTEXT,
            after_tools: None,
        })
    }
}

/// A server of all families, for the rest of this process.
fn start() -> SocketAddr {
    let (address, started) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let options = ServerOptions {
                tcp: Some(([127, 0, 0, 1], 0).into()),
                host: None,
                unix: None,
                tls: None,
                keys: None,
                origins: Vec::new(),
                limits: Limits::default(),
                model_limits: ModelLimits { loaded_max: Family::ALL.len(), ..ModelLimits::default() },
                store: StoreOptions { path: None, ..StoreOptions::default() },
            };
            let server = server::Server::bind(options, Arc::new(Actors)).await.unwrap();
            address.send(server.address().unwrap()).unwrap();
            server.run(std::future::pending()).await;
        });
    });
    started.recv().unwrap()
}

#[test]
fn codex_runs_a_command_with_every_family() {
    let Some(_turn) = turn() else { return };
    let packages = npm_dir("codex", &["@openai/codex@0.166.0"]);
    let codex = packages.join("node_modules/.bin/codex");
    let address = start();
    for (family, effort) in Family::ALL.into_iter().flat_map(|family| [(family, "high"), (family, "none")]) {
        let home = scratch("codex-");
        let work = scratch("work-");
        fs::write(work.path().join("NOTE.txt"), format!("{NOTE}\n")).expect("the note");
        let config = codex_config(address, family, effort);
        fs::write(home.path().join("config.toml"), config).expect("the configuration");
        let mut command = client(&codex, home.path());
        command.env("CODEX_HOME", home.path()).env("FLINT_KEY", KEY).current_dir(work.path());
        command.args(["exec", "--json", "--skip-git-repo-check", "--ephemeral"]);
        command.args(["--dangerously-bypass-approvals-and-sandbox", CODEX_PROMPT]);
        let output = success(&mut command);
        let events = json_lines(&text(&output.stdout));
        let about = format!("{family:?} {effort}: {events:?}");
        let done = |kind: &str| {
            events.iter().rfind(|event| event["type"] == "item.completed" && event["item"]["type"] == kind)
        };
        let executed = done("command_execution").unwrap_or_else(|| panic!("no command: {about}"));
        assert!(executed["item"]["aggregated_output"].as_str().unwrap().contains(NOTE), "{about}");
        let answer = done("agent_message").unwrap_or_else(|| panic!("no answer: {about}"));
        assert!(answer["item"]["text"].as_str().unwrap().starts_with("got"), "{about}");
        assert!(!events.iter().any(|event| event["type"] == "error"), "{about}");
    }
}

fn codex_config(address: SocketAddr, family: Family, effort: &str) -> String {
    format!(
        r#"
model = "{}"
model_provider = "flint"
model_reasoning_effort = "{effort}"
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
base_url = "http://{address}/v1"
env_key = "FLINT_KEY"
wire_api = "responses"
supports_websockets = true
"#,
        family.name()
    )
}

#[test]
fn claude_code_runs_a_command_with_every_family() {
    let Some(_turn) = turn() else { return };
    let packages = npm_dir("claude-code", &["@anthropic-ai/claude-code@2.1.328"]);
    let claude = claude_binary(&packages);
    let address = start();
    for (family, thinking) in Family::ALL.into_iter().flat_map(|family| [(family, "2048"), (family, "0")]) {
        let home = scratch("claude-");
        let work = scratch("work-");
        fs::write(work.path().join("NOTE.txt"), format!("{NOTE}\n")).expect("the note");
        let mut command = client(&claude, home.path());
        command.current_dir(work.path());
        command.env("ANTHROPIC_BASE_URL", format!("http://{address}")).env("ANTHROPIC_API_KEY", KEY);
        command.env("ANTHROPIC_MODEL", family.name()).env("ANTHROPIC_SMALL_FAST_MODEL", family.name());
        command.env("MAX_THINKING_TOKENS", thinking).env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1");
        command.env("IS_SANDBOX", "1").env("DISABLE_AUTOUPDATER", "1");
        command.args(["-p", CLAUDE_PROMPT, "--output-format", "stream-json", "--verbose", "--max-turns", "4"]);
        command.args(["--dangerously-skip-permissions"]);
        let output = finish(&mut command);
        let events = json_lines(&text(&output.stdout));
        let about = format!("{family:?} {thinking}: {}", text(&output.stderr));
        let last = events.last().unwrap_or_else(|| panic!("no events: {about}"));
        assert_eq!((&last["type"], &last["is_error"]), (&json!("result"), &json!(false)), "{about}: {last}");
        assert_eq!(last["result"], format!("got {NOTE}"), "{about}");
        let used = |event: &Value| {
            let blocks = event["message"]["content"].as_array();
            blocks.is_some_and(|blocks| blocks.iter().any(|block| block["name"] == "Bash"))
        };
        assert!(events.iter().any(used), "{about}");
    }
}

/// The program of the package: its own script, or the one for this platform beside it.
fn claude_binary(packages: &Path) -> std::path::PathBuf {
    let platform = packages.join("node_modules/@anthropic-ai/claude-code-linux-x64/claude");
    if platform.exists() { platform } else { packages.join("node_modules/.bin/claude") }
}

#[test]
fn open_responses_with_every_family() {
    let Some(_turn) = turn() else { return };
    let Some(suite) = given_path("FLINT_OPENRESPONSES", "a checkout of the Open Responses repository") else { return };
    let packages = npm_dir("bun", &["bun@1.4.4", "zod@3.25.76"]);
    let (address, home) = (start(), scratch("home-"));
    for family in Family::ALL {
        let modules = packages.join("node_modules");
        let mut command = client(modules.join("@oven/bun-linux-x64/bin/bun"), home.path());
        command.arg("run").arg(suite.join("bin/compliance-test.ts")).env("NODE_PATH", &modules);
        command.args(["-u", &format!("http://{address}/v1"), "-k", KEY, "-m", family.name(), "--json"]);
        let output = finish(&mut command);
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
        let failed: Vec<&Value> = report["results"]
            .as_array()
            .expect("results")
            .iter()
            .filter(|result| result["status"] != "passed" && result["id"] != "image-input")
            // The actor says only what it is told, and the suite tells it nothing: that it calls is the model's part.
            .filter(|result| result["id"] != "tool-calling")
            .collect();
        assert!(failed.is_empty(), "{family:?}: {failed:?}");
    }
}
