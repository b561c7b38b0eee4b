//! A server that a test plays itself: it accepts a connection, looks at the request, and answers as the test says.
//!
//! Nothing happens on a timer. The test and the client run side by side and wait for each other's messages.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use api::responses::{Event, EventKind};
use client::{Answer, Client, ClientError, ClientOptions};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}
pub type Stream = Box<dyn Io>;

/// What the reply to an upgrade says about the server.
#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Flint,
    Other,
}

pub enum Server {
    Tcp(TcpListener),
    Unix(UnixListener, tempfile::TempDir),
}

impl Server {
    pub async fn tcp() -> Self {
        Self::Tcp(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn unix() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::Unix(UnixListener::bind(folder.path().join("s")).unwrap(), folder)
    }

    pub fn url(&self) -> String {
        match self {
            Self::Tcp(listener) => format!("http://{}/v1", listener.local_addr().unwrap()),
            Self::Unix(_, folder) => format!("unix:{}", folder.path().join("s").display()),
        }
    }

    /// Options with short waits, where a test has to sit them out.
    pub fn options(&self) -> ClientOptions {
        let mut options = ClientOptions::new(self.url());
        options.timeouts.retry = Duration::from_millis(1);
        options
    }

    pub fn client(&self) -> Client {
        Client::new(self.options()).unwrap()
    }

    pub async fn stream(&self) -> Stream {
        match self {
            Self::Tcp(listener) => Box::new(listener.accept().await.unwrap().0),
            Self::Unix(listener, _) => Box::new(listener.accept().await.unwrap().0),
        }
    }

    /// The first request on the next connection.
    pub async fn accept(&self) -> Exchange {
        Exchange::read(self.stream().await).await.expect("a request")
    }

    /// The next connection, upgraded.
    pub async fn socket(&self, kind: Kind) -> Peer {
        self.accept().await.upgrade(kind).await
    }

    /// The next connection, upgraded, on which `resp_1` has begun.
    pub async fn begun(&self, kind: Kind) -> Peer {
        let mut peer = self.socket(kind).await;
        peer.receive().await.unwrap();
        peer.say(created("resp_1")).await;
        peer
    }
}

/// A server and its only client.
pub async fn alone() -> (Server, Client) {
    let server = Server::tcp().await;
    let client = server.client();
    (server, client)
}

/// A request and the connection to answer it on.
pub struct Exchange {
    pub line: String,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
    stream: Stream,
}

impl Exchange {
    pub async fn read(mut stream: Stream) -> Option<Self> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).await.ok()? == 0 {
                return None;
            }
            head.push(byte[0]);
        }
        let text = String::from_utf8(head).unwrap();
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap().to_owned();
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        Some(Self { line, headers, body, stream })
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub async fn upgrade(mut self, kind: Kind) -> Peer {
        assert!(self.line.starts_with("GET /v1/responses "), "{}", self.line);
        let key = derive_accept_key(self.headers["sec-websocket-key"].as_bytes());
        let flint = if kind == Kind::Flint { "x-flint-version: 0\r\n" } else { "" };
        let reply = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-accept: {key}\r\n{flint}\r\n"
        );
        self.stream.write_all(reply.as_bytes()).await.unwrap();
        Peer { socket: WebSocketStream::from_raw_socket(self.stream, Role::Server, None).await }
    }

    /// Answers whole; the connection stays.
    pub async fn reply(&mut self, status: u16, headers: &str, body: &str) {
        let text = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len());
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Begins a stream of events, sent in chunks.
    pub async fn begin_events(&mut self) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        self.stream.write_all(head.as_bytes()).await.unwrap();
    }

    /// Bytes of a stream of events, as one chunk.
    pub async fn chunk(&mut self, bytes: &[u8]) {
        let mut out = format!("{:x}\r\n", bytes.len()).into_bytes();
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
        self.stream.write_all(&out).await.unwrap();
    }

    pub async fn event(&mut self, event: Value) {
        self.chunk(format!("data: {event}\n\n").as_bytes()).await;
    }

    pub async fn end_events(&mut self) {
        self.stream.write_all(b"0\r\n\r\n").await.unwrap();
    }

    /// A whole stream in one go.
    pub async fn events(&mut self, events: impl IntoIterator<Item = Value>) {
        self.begin_events().await;
        for event in events {
            self.event(event).await;
        }
        self.end_events().await;
    }

    /// The next request on the same connection; none when the client closed it.
    pub async fn again(self) -> Option<Self> {
        Self::read(self.stream).await
    }
}

/// The server's end of a WebSocket.
pub struct Peer {
    pub socket: WebSocketStream<Stream>,
}

impl Peer {
    /// The next message of the client; none when it closed the connection.
    pub async fn receive(&mut self) -> Option<Value> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return None,
            }
        }
    }

    pub async fn say(&mut self, event: Value) {
        self.socket.send(Message::text(event.to_string())).await.unwrap();
    }

    /// Says `event` on a lane.
    pub async fn say_on(&mut self, lane: &Value, mut event: Value) {
        if !lane.is_null() {
            event["stream_id"] = lane.clone();
        }
        self.say(event).await;
    }

    /// A whole answer to the next request.
    pub async fn answer(&mut self, id: &str, words: &[&str]) -> Value {
        let create = self.receive().await.expect("a request");
        for event in whole(id, words) {
            self.say_on(&create["stream_id"], event).await;
        }
        create
    }
}

pub fn created(id: &str) -> Value {
    json!({"type": "response.created", "sequence_number": 0, "response": {"id": id, "status": "in_progress"}})
}

pub fn delta(number: usize, text: &str) -> Value {
    json!({"type": "response.output_text.delta", "sequence_number": number, "item_id": "msg", "output_index": 0,
           "content_index": 0, "delta": text})
}

/// The end of a response, as `completed`, `incomplete` or `failed`.
pub fn ended(id: &str, number: usize, how: &str) -> Value {
    json!({"type": format!("response.{how}"), "sequence_number": number,
           "response": {"id": id, "status": how, "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}}})
}

/// A whole response.
pub fn whole(id: &str, words: &[&str]) -> Vec<Value> {
    let mut events = vec![created(id)];
    events.extend(words.iter().enumerate().map(|(index, word)| delta(index + 1, word)));
    events.push(ended(id, words.len() + 1, "completed"));
    events
}

/// The text of an answer, read to its end.
pub async fn text(answer: &mut Answer) -> Result<String, ClientError> {
    let mut text = String::new();
    while let Some(event) = answer.next().await {
        if let EventKind::TextDelta { delta, .. } = event?.kind {
            text.push_str(&delta);
        }
    }
    Ok(text)
}

pub async fn next(answer: &mut Answer) -> Event {
    answer.next().await.expect("an event").unwrap()
}

pub fn ask(text: &str) -> Value {
    json!({"model": "m", "input": text})
}

/// Plays the server and the user side by side. The limit only turns a hang into a failure.
pub async fn play<S, U>(server: S, user: U) -> (S::Output, U::Output)
where
    S: Future,
    U: Future,
{
    let both = async { tokio::join!(server, user) };
    tokio::time::timeout(Duration::from_secs(30), both).await.expect("neither side may hang")
}
