//! A model that says what the test wrote down: a Responses provider on a loopback socket that answers by server-sent
//! events and keeps every request it got.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One answer.
#[derive(Clone, Debug)]
pub struct Say {
    text: String,
    /// After the text nothing follows until the client leaves.
    hangs: bool,
    /// Tokens the context holds afterwards, as the usage says.
    tokens: usize,
}

impl Say {
    pub fn all(text: &str) -> Self {
        Self { text: text.to_owned(), hangs: false, tokens: 100 }
    }

    pub fn and_hang(text: &str) -> Self {
        Self { hangs: true, ..Self::all(text) }
    }

    pub fn with_tokens(self, tokens: usize) -> Self {
        Self { tokens, ..self }
    }
}

/// The provider.
pub struct Script {
    pub url: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Script {
    pub async fn start(answers: impl IntoIterator<Item = Say>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<Say>>()));
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, seen.clone(), answers.clone()));
            }
        });
        Self { url, requests }
    }

    /// Bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }

    /// Role and text of every message of a request.
    pub fn messages(&self, request: usize) -> Vec<(String, String)> {
        let body = &self.requests()[request];
        let text = |item: &Value| item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        let items = body["input"].as_array().unwrap();
        items.iter().map(|item| (item["role"].as_str().unwrap().to_owned(), text(item))).collect()
    }
}

async fn serve(mut stream: TcpStream, requests: Arc<Mutex<Vec<Value>>>, answers: Arc<Mutex<VecDeque<Say>>>) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let body = loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break body.to_owned();
        }
    };
    requests.lock().unwrap().push(serde_json::from_str(&body).unwrap());
    let number = requests.lock().unwrap().len();
    let say = answers.lock().unwrap().pop_front().unwrap_or_else(|| Say::all("There is nothing more to say."));
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(head.as_bytes()).await;
    let id = format!("resp_{number}");
    let mut sent = 0;
    let mut event = async |stream: &mut TcpStream, mut event: Value| {
        event["sequence_number"] = json!(sent);
        sent += 1;
        let line = format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
        let _ = stream.write_all(line.as_bytes()).await;
    };
    event(&mut stream, json!({"type": "response.created", "response": {"id": id, "status": "in_progress"}})).await;
    // Small odd pieces, so that fences and characters are cut.
    let letters: Vec<char> = say.text.chars().collect();
    for piece in letters.chunks(7) {
        let delta: String = piece.iter().collect();
        let kind = "response.output_text.delta";
        event(
            &mut stream,
            json!({"type": kind, "item_id": "m", "output_index": 0, "content_index": 0, "delta": delta}),
        )
        .await;
    }
    if say.hangs {
        let _ = stream.read(&mut buffer).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        return;
    }
    let usage = json!({"input_tokens": say.tokens, "output_tokens": 0, "total_tokens": say.tokens});
    let done = json!({"id": id, "status": "completed", "usage": usage});
    event(&mut stream, json!({"type": "response.completed", "response": done})).await;
}
