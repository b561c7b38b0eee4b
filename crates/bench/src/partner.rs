//! `flint bench partner`: what the partner itself costs, against a model that answers at once.
//!
//! The real binary runs `flint exec` in the agent style against a server in this process that speaks the same WebSocket as
//! `flint serve` and has its answers ready. Two times are taken, both at the server: from the start of the process to its
//! first request, and from the last event of an answer to the request that brings the result of its call.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use super::serve::measure::{Times, round};

/// How long a whole session may take before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `flint bench partner`.
#[derive(Args)]
pub struct PartnerBenchArgs {
    /// Sessions of each kind
    #[arg(short, long, default_value_t = 10)]
    rounds: usize,
    /// Tool steps in a session
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
}

/// A kind of step, by the call the model makes. No two calls of a session are alike, because the partner ends a model
/// that repeats itself.
struct Kind {
    name: &'static str,
    /// What a step should cost at most, in milliseconds.
    target_ms: f64,
    call: fn(usize) -> Value,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "read a file",
        target_ms: 12.0,
        call: |step| call("read", &json!({"path": "notes.txt", "lines": step + 1})),
    },
    Kind {
        name: "edit a file",
        target_ms: 12.0,
        call: |step| {
            let number = |step: usize| format!("step {step}.");
            call("edit", &json!({"path": "notes.txt", "old": number(step), "new": number(step + 1)}))
        },
    },
    Kind {
        name: "apply a patch",
        target_ms: 12.0,
        call: |step| {
            let patch = format!(
                "*** Begin Patch\n*** Update File: notes.txt\n@@\n-step {step}.\n+step {}.\n*** End Patch\n",
                step + 1
            );
            json!({"type": "custom_tool_call", "id": "ctc_1", "status": "completed", "call_id": "call_1",
                "name": "apply_patch", "input": patch})
        },
    },
    Kind {
        name: "run a command in the sandbox",
        target_ms: 25.0,
        call: |step| call("shell", &json!({"command": format!("test {step} != x")})),
    },
];

fn call(name: &str, arguments: &Value) -> Value {
    json!({"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "call_1", "name": name,
        "arguments": arguments.to_string()})
}

/// Measures and prints.
pub fn run(args: PartnerBenchArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut starts = Vec::new();
    for kind in &KINDS {
        let mut steps = Vec::new();
        for _ in 0..args.rounds.max(1) {
            let session = runtime.block_on(session(kind, args.steps))?;
            starts.push(session.start);
            // The first step finds out what the sandbox of this machine can do, and is not like the others.
            steps.extend(session.steps.into_iter().skip(1));
        }
        print(&args, kind.name, kind.target_ms, steps);
    }
    print(&args, "start to first request", 40.0, starts);
    Ok(())
}

struct Session {
    start: Duration,
    steps: Vec<Duration>,
}

/// One `flint exec` from start to end.
async fn session(kind: &Kind, steps: usize) -> Result<Session> {
    let (folder, state) = (tempfile::tempdir()?, tempfile::tempdir()?);
    std::fs::write(folder.path().join("notes.txt"), "first line\nstep 0.\nlast line\n")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let begun = Instant::now();
    let mut child = start(folder.path(), state.path(), port)?;
    let served = tokio::time::timeout(PATIENCE, serve(&listener, kind, steps)).await;
    let (first, steps) = match served {
        Ok(Ok(served)) => served,
        Ok(Err(error)) => return Err(ended(&mut child, error)),
        Err(_) => return Err(ended(&mut child, anyhow::anyhow!("the partner did not ask for {PATIENCE:?}"))),
    };
    let status = tokio::task::spawn_blocking(move || child.wait()).await??;
    // The scripted model only reads, which for a change that was asked for has an exit code of its own.
    ensure!(matches!(status.code(), Some(0 | 3)), "flint exec ended with {status}");
    Ok(Session { start: first - begun, steps })
}

fn start(folder: &Path, state: &Path, port: u16) -> Result<Child> {
    let mut command = boundary::program::ourselves(folder)?;
    command.args([
        "exec",
        "--json",
        "-m",
        "instant",
        "-c",
        "style=\"agent\"",
        "-c",
        "intent=change",
        "-c",
        "model_provider=\"instant\"",
    ]);
    command.args(["-c", &format!("model_providers.instant.base_url=\"http://127.0.0.1:{port}/v1\"")]);
    command.args(["-c", "model_providers.instant.supports_websockets=true", "Do it."]);
    command.env("XDG_STATE_HOME", state).env("XDG_CONFIG_HOME", state).env_remove("FLINT_HOME");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().context("starting flint exec")
}

/// The error, with what the process said about it.
fn ended(child: &mut Child, error: anyhow::Error) -> anyhow::Error {
    let _ = child.kill();
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
    }
    let _ = child.wait();
    error.context(format!("flint exec said: {}", said.trim_end()))
}

/// Plays the model: a call per step, then a last word. Returns when the first request came and how long each step took.
async fn serve(listener: &TcpListener, kind: &Kind, steps: usize) -> Result<(Instant, Vec<Duration>)> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    #[expect(clippy::result_large_err, reason = "the type of the refusal is the handshake's")]
    let as_flint = |_: &Request, mut response: Response| {
        let version = tokio_tungstenite::tungstenite::http::HeaderValue::from_static("0");
        response.headers_mut().insert("x-flint-version", version);
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(stream, as_flint).await?;
    let mut times = Vec::with_capacity(steps);
    let (mut first, mut answered) = (None, None);
    for step in 0..=steps {
        let request = receive(&mut socket).await?;
        let now = Instant::now();
        first.get_or_insert(now);
        times.extend(answered.map(|before: Instant| now - before));
        check(&request, step)?;
        let item = if step < steps { (kind.call)(step) } else { last_word() };
        answer(&mut socket, &request["stream_id"], step, &item).await?;
        answered = Some(Instant::now());
    }
    // The client closes when it has heard the last word.
    while let Some(Ok(_)) = socket.next().await {}
    Ok((first.context("no request came")?, times))
}

fn last_word() -> Value {
    json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": "Done."}]})
}

async fn receive(socket: &mut WebSocketStream<TcpStream>) -> Result<Value> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text)?),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            other => bail!("the partner left in the middle: {other:?}"),
        }
    }
}

/// A step that failed would be fast and mean nothing.
fn check(request: &Value, step: usize) -> Result<()> {
    let input = request["input"].as_array().context("a request has input")?;
    let output = input.iter().rev().find_map(|item| item["output"].as_str());
    match output {
        None if step == 0 => Ok(()),
        Some(output) if !output.starts_with("error") && !output.contains("[exit code") => Ok(()),
        other => bail!("step {step} did not do its work: {other:?}"),
    }
}

async fn answer(socket: &mut WebSocketStream<TcpStream>, lane: &Value, step: usize, item: &Value) -> Result<()> {
    let id = format!("resp_{step}");
    let usage = json!({"input_tokens": 1, "output_tokens": 1, "total_tokens": 2});
    let events = [
        json!({"type": "response.created", "sequence_number": 0, "response": {"id": id, "status": "in_progress"}}),
        json!({"type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": item}),
        json!({"type": "response.completed", "sequence_number": 2,
            "response": {"id": id, "status": "completed", "output": [item], "usage": usage}}),
    ];
    for mut event in events {
        if !lane.is_null() {
            event["stream_id"] = lane.clone();
        }
        socket.send(Message::text(event.to_string())).await?;
    }
    Ok(())
}

fn print(args: &PartnerBenchArgs, figure: &str, target_ms: f64, times: Vec<Duration>) {
    let times = Times::new(times);
    if args.json {
        let machine = json!({"cpu": load::machine::cpu_name(), "cores": load::cores()});
        outln!("{}", json!({"figure": figure, "times": times.json(), "target_ms": target_ms, "machine": machine}));
    } else {
        let [low, middle, high] = [0.0, 0.5, 1.0].map(|share| round(times.at(share)));
        outln!("{figure:<30} {middle:>8} ms  ({low} to {high}); at most {target_ms} ms is the aim");
    }
}
