//! The smallest clients that can be strict: HTTP, server-sent events, WebSocket.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message, protocol::CloseFrame};

use crate::support::soon;

/// One HTTP connection.
pub struct Http {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body, which must be JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not JSON: {:?}", self.body))
    }

    /// The body of a success.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{:?}", self.body);
        self.json()
    }

    /// The error of a refusal with this status, checked to be whole.
    pub fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{:?}", self.body);
        let error = self.json()["error"].clone();
        assert!(error["type"].is_string() && !error["message"].as_str().unwrap().is_empty(), "{error}");
        for name in ["code", "param"] {
            assert!(error.get(name).is_some(), "{name} is missing: {error}");
        }
        error
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

impl Http {
    pub async fn connect(address: &str) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), address).await
    }

    /// HTTP over any stream.
    pub async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, host: &str) -> Self {
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender, host: host.to_owned() }
    }

    /// Sends a request and gives its answer as soon as the head is there.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", &self.host);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        soon("the connection is free", self.sender.ready()).await.unwrap();
        soon("an answer", self.sender.send_request(request)).await.unwrap()
    }

    /// Sends a request and reads the whole answer.
    pub async fn ask(&mut self, method: Method, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let (head, body) = self.send(method, path, headers, body).await.into_parts();
        let body = soon("the whole body", body.collect()).await.unwrap().to_bytes();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub async fn get(&mut self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[], b"").await
    }

    pub async fn delete(&mut self, path: &str) -> Answer {
        self.ask(Method::DELETE, path, &[], b"").await
    }

    pub async fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.ask(Method::POST, path, &[], body.to_string().as_bytes()).await
    }

    /// A response, whole.
    pub async fn create(&mut self, body: Value) -> Answer {
        self.post("/v1/responses", &body).await
    }

    /// A response of one user message, which must be served.
    pub async fn say(&mut self, input: &str) -> Value {
        self.create(json!({"input": input})).await.ok()
    }

    /// A response as a stream.
    pub async fn stream(&mut self, mut body: Value) -> Events {
        body["stream"] = json!(true);
        let response = self.send(Method::POST, "/v1/responses", &[], body.to_string().as_bytes()).await;
        Events::new(response)
    }

    /// The stream behind a path.
    pub async fn follow(&mut self, path: &str) -> Events {
        Events::new(self.send(Method::GET, path, &[], b"").await)
    }
}

/// A stream of server-sent events.
pub struct Events {
    body: Incoming,
    text: String,
    done: bool,
}

impl Events {
    fn new(response: Response<Incoming>) -> Self {
        assert_eq!(response.status(), 200);
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        Self { body: response.into_body(), text: String::new(), done: false }
    }

    /// The next event; `None` after `[DONE]`, which must be the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                assert!(!self.done, "after [DONE]: {event}");
                if event == "data: [DONE]" {
                    self.done = true;
                    continue;
                }
                let (name, data) = event.split_once('\n').expect("a name and its data");
                let data = data.strip_prefix("data: ").expect("data");
                let value: Value = serde_json::from_str(data).unwrap();
                assert_eq!(name.strip_prefix("event: "), value["type"].as_str());
                return Some(value);
            }
            match soon("more of the stream", self.body.frame()).await {
                Some(frame) => {
                    let bytes = frame.unwrap().into_data().unwrap_or_default();
                    self.text.push_str(str::from_utf8(&bytes).expect("events are whole characters"));
                }
                None => {
                    assert!(self.text.is_empty() && self.done, "the stream broke off: {:?}", self.text);
                    return None;
                }
            }
        }
    }

    /// All events to the end.
    pub async fn all(mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    /// Reads on to an event of this kind.
    pub async fn find(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the stream ended without {kind}"));
            if event["type"] == kind {
                return event;
            }
        }
    }
}

/// A WebSocket.
pub struct Socket {
    stream: WebSocketStream<TcpStream>,
    /// Events that were read while looking for others.
    skipped: VecDeque<Value>,
}

impl Socket {
    pub async fn connect(address: &str) -> Self {
        Self::try_connect(address, &[]).await.unwrap()
    }

    pub async fn try_connect(address: &str, headers: &[(&'static str, &str)]) -> Result<Self, Error> {
        let mut request = format!("ws://{address}/v1/responses").into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let tcp = TcpStream::connect(address).await.unwrap();
        let (stream, _) = soon("an upgrade", tokio_tungstenite::client_async(request, tcp)).await?;
        Ok(Self { stream, skipped: VecDeque::new() })
    }

    pub async fn send(&mut self, message: Value) {
        self.raw(Message::text(message.to_string())).await;
    }

    pub async fn raw(&mut self, message: Message) {
        self.stream.send(message).await.unwrap();
    }

    /// Asks for a response.
    pub async fn create(&mut self, mut body: Value) {
        body["type"] = json!("response.create");
        self.send(body).await;
    }

    /// The next event in the order of the wire, or how the socket was closed.
    async fn wire(&mut self) -> Result<Value, Option<CloseFrame>> {
        loop {
            match soon("an event", self.stream.next()).await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(frame))) => return Err(frame),
                Some(Ok(other)) => panic!("an unexpected frame: {other:?}"),
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Events of one lane up to the end of its response (or an error).
    pub async fn response(&mut self, lane: Option<&str>) -> Vec<Value> {
        let ends = ["response.completed", "response.incomplete", "response.failed", "error"];
        let mut events = Vec::new();
        loop {
            let event = self.of(lane).await;
            let ended = ends.iter().any(|kind| event["type"] == *kind);
            events.push(event);
            if ended {
                return events;
            }
        }
    }

    /// The response that ends next on a lane.
    pub async fn ended(&mut self, lane: Option<&str>) -> Value {
        let last = self.response(lane).await.pop().unwrap();
        assert!(last["response"].is_object(), "{last}");
        last["response"].clone()
    }

    /// The next event of this kind on a lane, reading over others of the lane.
    pub async fn find(&mut self, lane: Option<&str>, kind: &str) -> Value {
        loop {
            let event = self.of(lane).await;
            assert!(kind == "error" || event["type"] != "error", "{event}");
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// The next event of a lane; those of others are kept.
    pub async fn of(&mut self, lane: Option<&str>) -> Value {
        let fits = |event: &Value| event.get("stream_id").and_then(Value::as_str) == lane;
        if let Some(index) = self.skipped.iter().position(fits) {
            return self.skipped.remove(index).unwrap();
        }
        loop {
            let event = self.wire().await.unwrap_or_else(|close| panic!("the socket closed: {close:?}"));
            if fits(&event) {
                return event;
            }
            self.skipped.push_back(event);
        }
    }

    /// Takes out an event that has been read over.
    pub fn peek(&mut self, fits: impl FnMut(&Value) -> bool) -> Option<Value> {
        let index = self.skipped.iter().position(fits)?;
        self.skipped.remove(index)
    }

    /// One response of one user message, which must end well.
    pub async fn say(&mut self, input: &str) -> Value {
        self.create(json!({"input": input})).await;
        self.ended(None).await
    }

    /// Reads on to the close frame and gives its code.
    pub async fn closed(&mut self) -> Option<u16> {
        loop {
            match self.wire().await {
                Ok(event) => self.skipped.push_back(event),
                Err(frame) => return frame.map(|frame| frame.code.into()),
            }
        }
    }
}

/// All text of a response.
pub fn text(response: &Value) -> String {
    let items = response["output"].as_array().expect("output").iter();
    let parts = items.filter(|item| item["type"] == "message").flat_map(|item| item["content"].as_array().unwrap());
    parts.map(|part| part["text"].as_str().unwrap()).collect()
}

/// The warnings of a response.
pub fn warnings(response: &Value) -> String {
    response["flint"]["warnings"].to_string()
}

pub fn cached(response: &Value) -> u64 {
    response["usage"]["input_tokens_details"]["cached_tokens"].as_u64().unwrap()
}

pub fn tokens(response: &Value, which: &str) -> u64 {
    response["usage"][which].as_u64().unwrap()
}
