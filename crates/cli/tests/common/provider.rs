//! The wire of a Responses provider on a loopback socket: one request, answered by server-sent events.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

/// Reads a request. What is not JSON, such as the try for a WebSocket, is answered that there is nothing.
pub fn request(stream: &mut TcpStream) -> Option<Value> {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 65536]);
    loop {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
        if bytes.len() - end - 4 >= length.unwrap_or(0) {
            let request = serde_json::from_slice(&bytes[end + 4..]).ok();
            if request.is_none() {
                let nothing = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                let _ = stream.write_all(nothing);
            }
            return request;
        }
    }
}

/// The events of an answer, numbered.
pub struct Events {
    stream: TcpStream,
    sequence: u64,
}

impl Events {
    /// Answers a request with events.
    pub fn begin(mut stream: TcpStream) -> Option<Self> {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).ok()?;
        Some(Self { stream, sequence: 0 })
    }

    /// The next one; nothing when the client has left.
    pub fn send(&mut self, mut event: Value) -> Option<()> {
        event["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        let text = format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        self.stream.write_all(text.as_bytes()).ok()
    }
}
