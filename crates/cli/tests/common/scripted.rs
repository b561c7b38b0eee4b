//! A model that says what the test wrote down, as a Responses provider on a loopback socket.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

/// Characters of one event of an answer: small enough that a screen sees it grow.
const PIECE: usize = 24;

/// What the model does: the word for a message when it sorts it, and the answer to the request with this number, from 0.
#[derive(Clone, Copy)]
pub struct Script {
    /// `chat`, `answer`, `edit`, `run` or `unclear`, by the words of the person.
    pub sorts: fn(&str) -> &'static str,
    /// The answers; the last one is repeated.
    pub answers: &'static [&'static str],
}

/// The model.
pub struct Scripted {
    pub url: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Scripted {
    /// Sorts every message as `word` and gives the answers in order.
    pub fn start(sorts: fn(&str) -> &'static str, answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, script) = (Arc::clone(&requests), Script { sorts, answers });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || serve(stream, &seen, script));
            }
        });
        Self { url, requests }
    }

    /// The last message of each request for an answer.
    pub fn asked(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter().map(last_message).collect()
    }
}

/// The words of the last message of a request.
fn last_message(request: &Value) -> String {
    let last = request["input"].as_array().and_then(|items| items.last()).cloned().unwrap_or_default();
    last["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn serve(mut stream: TcpStream, requests: &Mutex<Vec<Value>>, script: Script) -> Option<()> {
    let request: Value = serde_json::from_slice(&body(&mut stream)?).ok()?;
    let instructions = request["instructions"].as_str().unwrap_or_default();
    let (id, text) = if instructions.starts_with("You decide what a coding assistant does") {
        ("resp_sorts".to_owned(), (script.sorts)(&last_message(&request)))
    } else {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        let number = requests.len();
        requests.push(request);
        let answer = script.answers.get(number).or(script.answers.last()).copied().unwrap_or_default();
        (format!("resp_{number}"), answer)
    };
    let mut sequence = 0;
    let mut send = |mut event: Value| {
        event["sequence_number"] = json!(sequence);
        sequence += 1;
        let text = format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        stream.write_all(text.as_bytes()).ok()
    };
    let item = json!({"type": "message", "id": "m", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}]});
    send(json!({"type": "response.created", "response": {"id": id, "status": "in_progress"}}))?;
    send(json!({"type": "response.output_item.added", "output_index": 0, "item": item}))?;
    let letters: Vec<char> = text.chars().collect();
    for piece in letters.chunks(PIECE) {
        let delta: String = piece.iter().collect();
        send(json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0,
            "delta": delta}))?;
    }
    send(json!({"type": "response.output_item.done", "output_index": 0, "item": item}))?;
    let usage = json!({"input_tokens": 840, "input_tokens_details": {"cached_tokens": 790}, "output_tokens": 96,
        "total_tokens": 936});
    send(json!({"type": "response.completed",
        "response": {"id": id, "status": "completed", "output": [item], "usage": usage}}))
}

/// Reads a request, answers its head, and gives its body.
fn body(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 65536]);
    loop {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        if head.starts_with("get ") {
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
            return None;
        }
        if bytes.len() - end - 4 >= length.unwrap_or(0) {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).ok()?;
            return Some(bytes[end + 4..].to_vec());
        }
    }
}
