//! What a turn and a token cost when the engine costs nothing.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use server::sessions::store::StoreOptions;
use server::{Server, ServerOptions};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::ServeBenchArgs;
use super::instant::{InstantLoader, Produced, WORD};
use super::measure::{Times, print, round, thread_cpu};
use super::wire::{Socket, is_end, post};

/// Names of the two runtimes' threads, by which their CPU time is told apart.
const SERVER: &str = "bench-server";
const CLIENT: &str = "bench-client";

/// A server in this process.
struct Local {
    port: u16,
    stop: Option<oneshot::Sender<()>>,
    runtime: Option<Runtime>,
    _state: tempfile::TempDir,
}

impl Local {
    fn start(args: &ServeBenchArgs, pace: Option<Duration>) -> Result<(Self, Produced)> {
        let (loader, produced) = InstantLoader::new(&args.small, pace)?;
        let state = tempfile::tempdir()?;
        let options = ServerOptions {
            tcp: Some(([127, 0, 0, 1], 0).into()),
            store: StoreOptions { path: Some(state.path().join("responses.sqlite")), ..StoreOptions::default() },
            ..ServerOptions::default()
        };
        let runtime = Builder::new_multi_thread().thread_name(SERVER).enable_all().build()?;
        let server = runtime.block_on(Server::bind(options, Arc::new(loader)))?;
        runtime.block_on(server.preload(None)).map_err(anyhow::Error::msg)?;
        let port = server.address().context("no address")?.port();
        let (stop, stopped) = oneshot::channel();
        runtime.spawn(server.run(async {
            let _ = stopped.await;
        }));
        Ok((Self { port, stop: Some(stop), runtime: Some(runtime), _state: state }, produced))
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(3));
        }
    }
}

/// The client's side: one thread is enough.
fn client() -> Result<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(1).thread_name(CLIENT).enable_all().build()?)
}

/// A turn of a coding session that has used tools: on a warm WebSocket against new HTTP connections.
pub fn turn(args: &ServeBenchArgs) -> Result<()> {
    let (server, _) = Local::start(args, None)?;
    let client = client()?;
    for (name, tools, history) in [
        ("bare", 0, 0),
        ("after 20 steps of 3 kB", 0, 20),
        ("12 tools", 12, 0),
        ("after 20 steps of 3 kB with 12 tools", 12, 20),
        ("after 40 steps of 3 kB with 12 tools", 12, 40),
    ] {
        for store in [false, true] {
            let tools = tool_list(tools);
            let socket = client.block_on(socket_turns(server.port, &tools, history, args.turns, store))?;
            let http = client.block_on(http_turns(server.port, &tools, history, args.turns, store))?;
            let ratio = round(socket.at(0.5) / http.at(0.5));
            let values =
                json!({"websocket": socket.json(), "new http connections": http.json(), "ratio of medians": ratio});
            print(args, &format!("turn, {name}, store {store}"), values);
        }
    }
    Ok(())
}

/// What comes back from a tool in one step of a coding session: about 3 kB of a file.
fn step(index: usize) -> String {
    let line = |line: usize| format!("{line:4}  pub fn step_{index}_{line}(input: &str) -> Result<usize, Error> {{\n");
    (0..48).map(line).collect()
}

/// What every measured turn asks.
const ASK: &str = "Now rename the function in the second file and tell me which tests you would run to be sure.";

/// Tokens of every answer: one, so that it is the turn that is measured and not the stream.
const ANSWER: usize = 1;

async fn socket_turns(port: u16, tools: &[Value], history: usize, turns: usize, store: bool) -> Result<Times> {
    let mut socket = Socket::open(port).await?;
    let mut previous = Value::Null;
    let mut times = Vec::new();
    // The session grows to its length, then each measured turn forks from there, so that all have the same history.
    for turn in 0..history + 1 + turns {
        let input = if turn > history || history == 0 { ASK.to_owned() } else { step(turn) };
        let request = json!({"type": "response.create", "model": "instant", "input": input, "tools": tools,
            "store": store, "previous_response_id": previous, "max_output_tokens": ANSWER});
        let begun = Instant::now();
        socket.send(&request).await?;
        let response = socket.end().await?;
        if turn > history {
            times.push(begun.elapsed());
        } else {
            previous = response["id"].clone();
        }
        check(&response)?;
    }
    Ok(Times::new(times))
}

async fn http_turns(port: u16, tools: &[Value], history: usize, turns: usize, store: bool) -> Result<Times> {
    let answer = WORD.repeat(ANSWER);
    let mut input = Vec::new();
    for turn in 0..history {
        input.push(json!({"type": "message", "role": "user", "content": step(turn)}));
        input.push(
            json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]}),
        );
    }
    input.push(json!({"type": "message", "role": "user", "content": ASK}));
    let request = json!({"model": "instant", "input": input, "tools": tools, "store": store, "stream": true,
        "max_output_tokens": ANSWER});
    let mut times = Vec::new();
    for _ in 0..turns {
        let begun = Instant::now();
        let response = post(port, &request).await?;
        times.push(begun.elapsed());
        check(&response)?;
    }
    Ok(Times::new(times))
}

fn check(response: &Value) -> Result<()> {
    let text = &response["output"][0]["content"][0]["text"];
    ensure!(text.as_str() == Some(&WORD.repeat(ANSWER)), "a wrong answer: {response}");
    Ok(())
}

/// Tools of the size that coding agents send: about 1.5 kB each.
fn tool_list(count: usize) -> Vec<Value> {
    let text = "Runs a command in the repository and returns what it printed, cut in the middle when it is long. ";
    let tool = |index: usize| {
        let property = json!({"type": "string", "description": text});
        let properties = json!({"command": property, "folder": property, "reason": property});
        let parameters = json!({"type": "object", "properties": properties, "required": ["command"]});
        json!({"type": "function", "name": format!("tool_{index}"), "description": text.repeat(9), "parameters": parameters})
    };
    (0..count).map(tool).collect()
}

/// A long answer at a steady rate: the CPU time each token costs the server, and how late each one comes.
pub fn stream(args: &ServeBenchArgs) -> Result<()> {
    let pace = Duration::from_secs(1) / args.rate;
    let (server, produced) = Local::start(args, Some(pace))?;
    let client = client()?;
    let request = json!({"type": "response.create", "model": "instant", "input": "Go.", "store": false,
        "max_output_tokens": args.tokens});
    let (arrived, used, whole) = client.block_on(async {
        let mut socket = Socket::open(server.port).await?;
        let before = thread_cpu(SERVER)?;
        socket.send(&request).await?;
        let begun = Instant::now();
        let mut arrived = Vec::with_capacity(args.tokens);
        loop {
            let event = socket.raw().await?;
            let now = Instant::now();
            if event.starts_with(r#"{"type":"response.output_text.delta""#) {
                let event: Value = serde_json::from_str(&event)?;
                let bytes = event["delta"].as_str().context("a delta without text")?.len();
                ensure!(bytes % WORD.len() == 0, "a torn word: {event}");
                arrived.extend(std::iter::repeat_n(now, bytes / WORD.len()));
            } else if is_end(&serde_json::from_str(&event)?) {
                return Ok::<_, anyhow::Error>((arrived, thread_cpu(SERVER)? - before, begun.elapsed()));
            }
        }
    })?;
    ensure!(arrived.len() == args.tokens, "{} of {} tokens came", arrived.len(), args.tokens);
    let produced = produced.lock().unwrap_or_else(PoisonError::into_inner);
    // The first step reads the prompt and gives the first token.
    let late = arrived.iter().zip(produced.iter()).map(|(arrived, made)| arrived.saturating_duration_since(*made));
    let late = Times::new(late.collect());
    let values = json!({
        "tokens_per_s": (args.tokens as f64 / whole.as_secs_f64()).round(),
        "server_cpu_us_per_token": round(used.as_secs_f64() * 1e6 / args.tokens as f64),
        "delay": late.json(),
    });
    print(args, &format!("stream of {} tokens at {}/s", args.tokens, args.rate), values);
    Ok(())
}
