//! Whole turns against a server that each test plays itself, over a real WebSocket, with real tools in a real folder.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use client::{Client, ClientOptions};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use agent::approval::Policy;
use agent::tool_loop::{Control, Conversation, LoopEnd, ToolLoop};
use agent::tools::{Asks, PatchTool, ShellRules, Tools, ToolsOptions};
use agent::{Decision, Event, Outcome, PlanStep};
use workspace::journal::Journal;
use workspace::session::Session;

use crate::commands;

/// The partner's side of a turn.
struct Player {
    looped: ToolLoop,
    conversation: Conversation,
    heard: mpsc::Receiver<Event>,
    asks: Arc<Asks>,
    root: tempfile::TempDir,
}

/// The model's side.
struct Peer {
    socket: WebSocketStream<TcpStream>,
    responses: usize,
    lane: Value,
}

async fn start(policy: Policy) -> (Player, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let root = tempfile::tempdir().unwrap();
    let (events, heard) = mpsc::channel(10_000);
    let asks = Arc::new(Asks::default());
    let tools = Arc::new(Tools::new(ToolsOptions {
        root: root.path().to_owned(),
        events: events.clone(),
        patch: PatchTool::FreeText,
        shell: ShellRules::new(commands(), policy),
        asks: Arc::clone(&asks),
        edit_numbers: Arc::new(AtomicU64::new(1)),
        journal: Arc::new(Journal::ephemeral(root.path(), Session::ephemeral(root.path(), "m"))),
    }));
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let client = Client::new(ClientOptions::new(url)).unwrap();
    let settings = json!({"model": "m"}).as_object().unwrap().clone();
    let mut conversation = Conversation::new(Vec::new(), true);
    conversation.say("Do it.");
    let looped = ToolLoop { client, tools, events, settings, steps_max: 10 };
    (Player { looped, conversation, heard, asks, root }, listener)
}

impl Player {
    /// Everything that was said so far.
    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).collect()
    }

    fn output(&self, call_id: &str) -> String {
        let item =
            self.conversation.items().iter().find(|item| item["call_id"] == call_id && item["output"].is_string());
        item.unwrap_or_else(|| panic!("{call_id} has no result: {:#?}", self.conversation.items()))["output"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

impl Peer {
    async fn accept(listener: &TcpListener) -> Self {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let key = head
            .lines()
            .find_map(|line| line.to_lowercase().starts_with("sec-websocket-key: ").then(|| line[19..].trim()));
        let key = derive_accept_key(key.unwrap().as_bytes());
        let reply = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-accept: {key}\r\nx-flint-version: 0\r\n\r\n"
        );
        stream.write_all(reply.as_bytes()).await.unwrap();
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        Self { socket, responses: 0, lane: Value::Null }
    }

    async fn receive(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.next().await.unwrap().unwrap() {
                let message: Value = serde_json::from_str(&text).unwrap();
                self.lane = message["stream_id"].clone();
                return message;
            }
        }
    }

    async fn say(&mut self, mut event: Value) {
        if !self.lane.is_null() {
            event["stream_id"] = self.lane.clone();
        }
        self.socket.send(Message::text(event.to_string())).await.unwrap();
    }

    async fn created(&mut self) -> String {
        self.responses += 1;
        let id = format!("resp_{}", self.responses);
        self.say(json!({"type": "response.created", "response": {"id": id, "status": "in_progress"}})).await;
        id
    }

    async fn delta(&mut self, text: &str) {
        self.say(json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": text})).await;
    }

    async fn ended(&mut self, id: &str, status: &str) {
        let usage = json!({"input_tokens": 3, "output_tokens": 2, "total_tokens": 5});
        let kind = format!("response.{status}");
        let response = json!({"id": id, "status": status, "usage": usage, "incomplete_details": {"reason": "steered"}});
        self.say(json!({"type": kind, "response": response})).await;
    }

    /// Answers a request with items, and returns the request.
    async fn answer(&mut self, items: &[Value]) -> Value {
        let request = self.receive().await;
        let id = self.created().await;
        for item in items {
            self.say(json!({"type": "response.output_item.done", "output_index": 0, "item": item})).await;
        }
        self.ended(&id, "completed").await;
        request
    }
}

fn call(call_id: &str, name: &str, arguments: Value) -> Value {
    json!({"type": "function_call", "id": "fc", "status": "completed", "call_id": call_id, "name": name,
        "arguments": arguments.to_string()})
}

fn message(text: &str) -> Value {
    json!({"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": text}]})
}

/// Waits until a tool has begun.
async fn tool_began(heard: &mut mpsc::Receiver<Event>) {
    while !matches!(heard.recv().await.unwrap(), Event::ToolStarted { tool, .. } if tool == "shell") {}
}

/// Plays both sides. The limit only turns a hang into a failure.
async fn play<S: Future>(
    player: &mut Player,
    control: &mut mpsc::Receiver<Control>,
    server: S,
) -> (LoopEnd, S::Output) {
    let turn = player.looped.run(&mut player.conversation, control, Instant::now());
    let both = async { tokio::join!(turn, server) };
    tokio::time::timeout(Duration::from_secs(30), both).await.expect("neither side may hang")
}

#[tokio::test]
async fn a_turn_looks_changes_and_checks() {
    let (mut player, listener) = start(Policy::OnRequest).await;
    std::fs::write(player.root.path().join("a.py"), "x = 1\n").unwrap();
    let (_keep, mut control) = mpsc::channel(8);
    let (end, requests) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        let patch = "*** Begin Patch\n*** Add File: b.py\n+y = 3\n*** End Patch\n";
        vec![
            peer.answer(&[call("1", "read", json!({"path": "a.py"})), call("2", "list", json!({}))]).await,
            peer.answer(&[
                call("3", "edit", json!({"path": "a.py", "old": "x = 1", "new": "x = 2"})),
                json!({"type": "custom_tool_call", "id": "c", "status": "completed", "call_id": "4", "name": "apply_patch", "input": patch}),
                call("5", "shell", json!({"command": "cat a.py b.py; exit 3"})),
                call("6", "plan", json!({"steps": [{"text": "look", "done": true}]})),
            ])
            .await,
            peer.answer(&[message("Done.")]).await,
        ]
    })
    .await;
    assert_eq!(end.outcome, Outcome::Done);
    assert_eq!((end.usage.requests, end.usage.output_tokens), (3, 6));
    assert_eq!(player.output("1"), "a.py (1 lines)\n1\tx = 1\n");
    assert_eq!(player.output("2"), "a.py\n");
    assert_eq!(player.output("3"), "changed a.py: 1 lines added, 1 removed\n");
    assert_eq!(player.output("4"), "made b.py (1 lines)\n");
    assert_eq!(player.output("5"), "x = 2\ny = 3\n[exit code 3]\n");
    // The server remembers: only what is new is sent, and results of free-text tools have their own kind.
    assert_eq!(requests[1]["previous_response_id"], "resp_1");
    let kinds = |request: &Value| {
        request["input"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&requests[1]), ["function_call_output", "function_call_output"]);
    assert_eq!(kinds(&requests[2])[1], "custom_tool_call_output");
    assert_eq!(requests[0]["tools"], requests[2]["tools"]);
    let events = player.events();
    let applied = events.iter().filter(|event| matches!(event, Event::EditApplied { .. })).count();
    assert_eq!(applied, 2);
    let plan = vec![PlanStep { text: "look".to_owned(), done: true }];
    assert!(events.iter().any(|event| matches!(event, Event::Plan(steps) if *steps == plan)));
    let ended = events.iter().filter(|event| matches!(event, Event::ToolEnded { .. })).count();
    assert_eq!(ended, 6);
}

#[tokio::test]
async fn what_goes_wrong_is_told_to_the_model() {
    let (mut player, listener) = start(Policy::OnRequest).await;
    let (_keep, mut control) = mpsc::channel(8);
    let (end, _) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        let calls = [
            call("1", "read", json!({"path": "../secret"})),
            call("2", "fly", json!({})),
            call("3", "edit", json!({"path": "a.py", "old": "x", "new": "y"})),
            call("4", "shell", json!({"cmd": 3})),
        ];
        peer.answer(&calls).await;
        peer.answer(&[message("I give up.")]).await;
    })
    .await;
    assert_eq!(end.outcome, Outcome::Done);
    for (call, want) in [("1", "outside the workspace"), ("2", "no tool"), ("3", "a.py"), ("4", "cannot be read")] {
        let output = player.output(call);
        assert!(output.starts_with("error: ") && output.contains(want), "{output}");
    }
}

#[tokio::test]
async fn a_steer_turns_a_model_that_talks() {
    let (mut player, listener) = start(Policy::OnRequest).await;
    let (steer, mut control) = mpsc::channel(8);
    let (end, steered) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        peer.receive().await;
        let first = peer.created().await;
        peer.delta("This way").await;
        steer.send(Control::Steer { text: "No, that way.".to_owned(), at: Instant::now() }).await.unwrap();
        let steered = peer.receive().await;
        let state = json!({"id": "steer_1", "previous_response_id": first});
        peer.say(json!({"type": "response.steer.accepted", "steer": state})).await;
        peer.ended(&first, "incomplete").await;
        let second = peer.created().await;
        peer.delta("That way").await;
        let done = json!({"type": "response.output_item.done", "output_index": 0, "item": message("That way")});
        peer.say(done).await;
        peer.ended(&second, "completed").await;
        steered
    })
    .await;
    assert_eq!(end.outcome, Outcome::Done);
    assert_eq!((&steered["type"], &steered["input"]), (&json!("response.steer"), &json!("No, that way.")));
    let roles: Vec<_> = player.conversation.items().iter().map(|item| item["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"], "{:#?}", player.conversation.items());
    let events = player.events();
    assert!(events.iter().any(|event| matches!(event, Event::SteerAccepted { .. })));
    let applied = events.iter().position(|event| matches!(event, Event::SteerApplied { .. })).unwrap();
    let text = |event: &Event| matches!(event, Event::Text { delta } if delta == "That way");
    assert!(events[applied + 1..].iter().any(text), "applied with the first token of the new answer");
}

#[tokio::test]
async fn a_steer_ends_a_command_and_follows_its_result() {
    let (mut player, listener) = start(Policy::OnRequest).await;
    let (steer, mut control) = mpsc::channel(8);
    let mut heard = std::mem::replace(&mut player.heard, mpsc::channel(1).1);
    let (end, second) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        let calls = [
            call("1", "shell", json!({"command": "echo begun; sleep 60; echo never"})),
            call("2", "edit", json!({"path": "b", "old": "", "new": "x"})),
        ];
        peer.answer(&calls).await;
        tool_began(&mut heard).await;
        steer.send(Control::Steer { text: "Leave it.".to_owned(), at: Instant::now() }).await.unwrap();
        peer.answer(&[message("Left.")]).await
    })
    .await;
    assert_eq!(end.outcome, Outcome::Done);
    let output = player.output("1");
    assert!(output.contains("ended early") && !output.contains("never"), "{output}");
    assert!(player.output("2").starts_with("not run"), "{}", player.output("2"));
    assert!(!player.root.path().join("b").exists());
    let input = second["input"].as_array().unwrap();
    assert_eq!(input[input.len() - 1], json!({"type": "message", "role": "user", "content": "Leave it."}));
    assert!(end.usage.total_ms < 20_000.0);
}

#[tokio::test]
async fn a_stop_keeps_what_there_is_and_answers_every_call() {
    let (mut player, listener) = start(Policy::OnRequest).await;
    let (stop, mut control) = mpsc::channel(8);
    let mut heard = std::mem::replace(&mut player.heard, mpsc::channel(1).1);
    let (end, ()) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        peer.answer(&[
            message("Running."),
            call("1", "shell", json!({"command": "sleep 60"})),
            call("2", "list", json!({})),
        ])
        .await;
        tool_began(&mut heard).await;
        stop.send(Control::Stop).await.unwrap();
    })
    .await;
    assert_eq!(end.outcome, Outcome::Stopped);
    assert!(end.usage.total_ms < 20_000.0);
    assert!(player.output("1").contains("ended early"), "{}", player.output("1"));
    assert!(player.output("2").starts_with("not run"));

    // And in the middle of a sentence.
    player.conversation.say("Go on.");
    let (end, ()) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        peer.receive().await;
        let id = peer.created().await;
        peer.delta("Half a sen").await;
        stop.send(Control::Stop).await.unwrap();
        assert_eq!(peer.receive().await["type"], "response.cancel");
        peer.ended(&id, "incomplete").await;
    })
    .await;
    assert_eq!(end.outcome, Outcome::Stopped);
    let last = player.conversation.items().last().unwrap();
    assert_eq!(last["content"][0]["text"], "Half a sen");
    assert!(!player.conversation.leaves_out(), "the next request sends everything");
}

#[tokio::test]
async fn a_command_waits_for_permission() {
    let (mut player, listener) = start(Policy::Untrusted).await;
    let asks = Arc::clone(&player.asks);
    let (_keep, mut control) = mpsc::channel(8);
    let mut heard = std::mem::replace(&mut player.heard, mpsc::channel(1).1);
    let person = tokio::spawn(async move {
        let mut decisions = [Decision::No, Decision::Always, Decision::Stop].into_iter();
        while let Some(event) = heard.recv().await {
            if let Event::ApprovalAsked(approval) = event {
                let Some(decision) = decisions.next() else { panic!("asked too often") };
                assert!(asks.decide(approval.ask, decision));
            }
        }
        decisions.count()
    });
    let (end, ()) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        peer.answer(&[call("1", "shell", json!({"command": "touch one"}))]).await;
        peer.answer(&[call("2", "shell", json!({"command": "touch two"}))]).await;
        peer.answer(&[call("3", "shell", json!({"command": "touch three"}))]).await;
        peer.answer(&[call("4", "shell", json!({"command": "mkdir four"})), call("5", "list", json!({}))]).await;
    })
    .await;
    assert_eq!(end.outcome, Outcome::Stopped);
    let made: Vec<bool> =
        ["one", "two", "three", "four"].iter().map(|name| player.root.path().join(name).exists()).collect();
    assert_eq!(made, [false, true, true, false], "no, always, remembered, stop");
    drop(player.looped);
    assert_eq!(person.await.unwrap(), 0, "every question was asked");
}

#[tokio::test]
async fn a_server_that_forgot_is_told_everything() {
    let (mut player, listener) = start(Policy::OnRequest).await;
    let (_keep, mut control) = mpsc::channel(8);
    let (end, again) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        peer.answer(&[call("1", "list", json!({}))]).await;
        assert_eq!(peer.receive().await["previous_response_id"], "resp_1");
        let error = json!({"code": "previous_response_not_found", "message": "gone", "type": "invalid_request_error"});
        peer.say(json!({"type": "error", "status": 400, "error": error})).await;
        peer.answer(&[message("Done.")]).await
    })
    .await;
    assert_eq!(end.outcome, Outcome::Done);
    assert!(again.get("previous_response_id").is_none());
    assert_eq!(again["input"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_model_that_never_ends_is_ended() {
    let (mut player, listener) = start(Policy::OnRequest).await;
    let (_keep, mut control) = mpsc::channel(8);
    let (end, ()) = play(&mut player, &mut control, async {
        let mut peer = Peer::accept(&listener).await;
        for step in 0..10 {
            peer.answer(&[call("1", "search", json!({"pattern": format!("p{step}")}))]).await;
        }
    })
    .await;
    assert!(matches!(end.outcome, Outcome::Failed { why } if why.contains("10 steps")));
}
