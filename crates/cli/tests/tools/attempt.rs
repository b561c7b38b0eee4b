//! `flint try` as a person runs it: the real binary, a folder, and a model with an answer ready for each candidate.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::socket::answer;

pub const OLD: &str = "def double(a):\n    return a\n";
pub const RIGHT: &str = "def double(a):\n    return 2 * a\n";
pub const LONG: &str = "def double(a):\n    b = a\n    b += a\n    return b\n";
pub const WRONG: &str = "def double(a):\n    return 3 * a\n";
pub const CHECK: &str = "python3 -c 'from a import double; assert double(4) == 8'";

/// A model that gives each request the next text, and begins anew after the last.
pub async fn model(texts: &'static [&'static str]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let next = Arc::new(AtomicUsize::new(0));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(connection(stream, texts, Arc::clone(&next)));
        }
    });
    port
}

async fn connection(stream: TcpStream, texts: &'static [&'static str], next: Arc<AtomicUsize>) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else { continue };
        let request: Value = serde_json::from_str(&text).unwrap();
        assert!(request.get("seed").is_none(), "only Flint takes a seed");
        let number = next.fetch_add(1, Ordering::Relaxed);
        let asked = request["input"].to_string();
        assert!(asked.contains("Fix it"), "{asked}");
        assert!(asked.contains("AssertionError"), "what the check says stands in the question: {asked}");
        assert!(!asked.contains("3 * a"), "nobody sees an answer that was wrong: {asked}");
        let text = match texts[number % texts.len()] {
            "" => "I would rather not.".to_owned(),
            code => format!("Here it is.\n\n```python\n{code}```\n"),
        };
        if answer(&mut socket, &request, &format!("resp_{number}"), &text).await.is_none() {
            return;
        }
    }
}

async fn flint(folder: &Path, state: &Path, port: u16, arguments: &[&str]) -> Output {
    run("try", folder, state, port, arguments).await
}

/// `flint` with a task for that model.
pub async fn run(kind: &str, folder: &Path, state: &Path, port: u16, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
    command
        .args([kind, "-m", "m", "-c", "model_provider=\"scripted\"", "-c", "style=\"pair\"", "-c", "intent=change"])
        .args(arguments);
    command.args(["-c", &format!("model_providers.scripted.base_url=\"http://127.0.0.1:{port}/v1\"")]);
    command.args(["-c", "model_providers.scripted.supports_websockets=true", "--check", CHECK]);
    command.arg("Fix it, so that @a.py really doubles.");
    command.env("XDG_STATE_HOME", state).env("XDG_CONFIG_HOME", state).env_remove("FLINT_HOME");
    command.current_dir(folder).stdin(std::process::Stdio::null());
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_smallest_candidate_that_passes_is_offered_and_applied() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("a.py");
    std::fs::write(&file, OLD).unwrap();
    let port = model(&[WRONG, LONG, RIGHT, ""]).await;
    let offered = flint(folder.path(), state.path(), port, &["-n", "4"]).await;
    let (table, said) = (String::from_utf8_lossy(&offered.stdout), String::from_utf8_lossy(&offered.stderr));
    assert_eq!(offered.status.code(), Some(0), "{table}{said}");
    let rows = |words: &str| table.lines().filter(|line| line.contains(words)).count();
    let counts = (rows("check failed: AssertionError"), rows("passed"), rows("not applied"));
    assert_eq!(counts, (1, 2, 1), "{table}");
    let best = table.lines().find(|line| line.starts_with('*')).unwrap_or_else(|| panic!("none offered: {table}"));
    assert!(best.contains("+1 -1") && best.ends_with("passed"), "{table}");
    assert!(said.contains("--apply"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), OLD, "nothing is written before it is chosen");
    let applied = flint(folder.path(), state.path(), port, &["-n", "4", "--apply"]).await;
    assert_eq!(applied.status.code(), Some(0), "{}", String::from_utf8_lossy(&applied.stderr));
    assert!(String::from_utf8_lossy(&applied.stdout).contains("+    return 2 * a"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), RIGHT);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "only the file");
}

#[tokio::test]
async fn candidates_are_different_answers() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("a.py"), OLD).unwrap();
    // Whoever comes second with the wrong answer gets the old code when it asks again, and then the right one.
    let port = model(&[WRONG, WRONG, OLD, RIGHT]).await;
    let output = flint(folder.path(), state.path(), port, &["-n", "2"]).await;
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}{}", String::from_utf8_lossy(&output.stderr));
    let rows = |words: &str| table.lines().filter(|line| line.contains(words)).count();
    assert_eq!((rows("check failed: AssertionError"), rows("passed")), (1, 1), "{table}");
}

#[tokio::test]
async fn when_none_passes_the_person_is_told_where_the_evidence_is() {
    let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("a.py"), OLD).unwrap();
    let port = model(&[WRONG, "def double(a)\n"]).await;
    let output = flint(folder.path(), state.path(), port, &["-n", "2", "--json", "--apply"]).await;
    let lines: Vec<Value> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(output.status.code(), Some(4), "{lines:#?}");
    let why = lines.last().unwrap()["error"]["message"].as_str().unwrap().to_owned();
    assert!(why.starts_with("none of 2 candidates passed"), "{why}");
    let evidence = Path::new(why.split(" is in ").nth(1).unwrap());
    let said =
        |number: usize| std::fs::read_to_string(evidence.join(format!("candidate-{number}/checks.txt"))).unwrap();
    assert!((said(1) + &said(2)).contains("AssertionError"));
    assert_eq!(std::fs::read_to_string(folder.path().join("a.py")).unwrap(), OLD);
}
