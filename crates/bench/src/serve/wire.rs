//! The two clients that are compared: a WebSocket that stays, and HTTP connections that do not.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

/// A WebSocket to `/v1/responses`.
pub struct Socket(WebSocketStream<TcpStream>);

impl Socket {
    /// Connects.
    pub async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let url = format!("ws://127.0.0.1:{port}/v1/responses");
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await?;
        Ok(Self(socket))
    }

    /// Sends a message.
    pub async fn send(&mut self, message: &Value) -> Result<()> {
        Ok(self.0.send(Message::Text(message.to_string().into())).await?)
    }

    /// The next event as it came.
    pub async fn raw(&mut self) -> Result<String> {
        loop {
            match self.0.next().await.context("the server closed the socket")?? {
                Message::Text(text) => return Ok(text.to_string()),
                Message::Close(_) => bail!("the server closed the socket"),
                _ => {}
            }
        }
    }

    /// The next event.
    pub async fn event(&mut self) -> Result<Value> {
        let event: Value = serde_json::from_str(&self.raw().await?)?;
        if event["type"] == "error" {
            bail!("the server answered {event}");
        }
        Ok(event)
    }

    /// Asks for a response and reads it to its end: the time to its first text, and the response.
    pub async fn first_token(&mut self, request: &Value) -> Result<(Duration, Value)> {
        let begun = Instant::now();
        self.send(request).await?;
        let mut first = None;
        loop {
            let mut event = self.event().await?;
            if event["type"] == "response.output_text.delta" {
                first.get_or_insert_with(|| begun.elapsed());
            } else if is_end(&event) {
                let first = first.context("the response has no text")?;
                return Ok((first, event["response"].take()));
            }
        }
    }

    /// Reads to the end of the response and gives it.
    pub async fn end(&mut self) -> Result<Value> {
        loop {
            let event = self.raw().await?;
            if event.starts_with(r#"{"type":"error""#) {
                bail!("the server answered {event}");
            }
            if ENDS.iter().any(|end| event.starts_with(end)) {
                return response(&event);
            }
        }
    }
}

/// How the last events of a response begin; others need not be parsed to be passed over.
const ENDS: [&str; 3] =
    [r#"{"type":"response.completed""#, r#"{"type":"response.incomplete""#, r#"{"type":"response.failed""#];

/// Whether an event ends its response; a failure is an error of the benchmark.
pub fn is_end(event: &Value) -> bool {
    matches!(event["type"].as_str(), Some("response.completed" | "response.incomplete" | "response.failed"))
}

/// Posts a streamed request on a new connection and gives the final response.
pub async fn post(port: u16, body: &Value) -> Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let body = body.to_string();
    let head = format!(
        "POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n\
         accept: text/event-stream\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer)?;
    let mut data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
    let last = data.rfind(|json| ENDS.iter().any(|end| json.starts_with(end)));
    let last = last.with_context(|| format!("no final event in {answer}"))?;
    response(last)
}

/// What is looked at in the event that ends a response. The rest, such as the tools that came with the request, is passed
/// over, as a client does that wants to be fast.
fn response(event: &str) -> Result<Value> {
    #[derive(Deserialize)]
    struct End {
        response: Response,
    }
    #[derive(Deserialize, Serialize)]
    struct Response {
        id: Value,
        #[serde(default)]
        previous_response_id: Value,
        output: Value,
        usage: Value,
        flint: Value,
    }
    let end: End = serde_json::from_str(event)?;
    Ok(serde_json::to_value(end.response)?)
}
