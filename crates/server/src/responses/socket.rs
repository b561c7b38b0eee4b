//! The Responses API on a persistent WebSocket.
//!
//! One task owns the socket: it reads messages, writes events and keeps the lanes. Every running response is a task of
//! its own that sends its events here through a bounded channel. When the socket goes, all of them are dropped, and the
//! engine is free at its next step.

use std::sync::Arc;
use std::time::Duration;

use api::responses::{ClientMessage, Event, EventKind};
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::error::{Error as WsError, ProtocolError};

use super::lanes::{Lanes, Out};
use crate::endpoints::body;
use crate::error::ApiError;
use crate::guard::owner::Owner;
use crate::listen::Connection;
use crate::shared::Shared;
use crate::telemetry::metrics::{Metrics, Rejection, Transport};
use crate::telemetry::trace;

/// Bytes read at once. The usual 128 KiB for each of hundreds of idle connections would be memory for nothing.
const READ_BUFFER: usize = 8 << 10;

/// Room for the JSON of an event: most are deltas, and those with a whole response need more.
const DELTA_BYTES: usize = 256;
const RESPONSE_BYTES: usize = 2 << 10;

/// Unanswered pings after which a peer is taken for dead.
const PINGS_MAX: u32 = 2;

/// `GET /v1/responses`, upgraded.
pub async fn upgrade(
    State(shared): State<Arc<Shared>>,
    place: Connection,
    owner: Owner,
    headers: &HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let opened_with = trace::kept_headers(headers);
    let bytes = shared.limits.websocket_message_bytes;
    let upgrade = upgrade.max_message_size(bytes).max_frame_size(bytes).read_buffer_size(READ_BUFFER);
    let mut response = upgrade.on_upgrade(move |socket| async move {
        let _counted = shared.metrics.connected(Transport::WebSocket);
        serve(shared, owner, socket, opened_with).await;
        drop(place);
    });
    response.headers_mut().insert("x-flint-version", HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
    response
}

async fn serve(shared: Arc<Shared>, owner: Owner, socket: WebSocket, opened_with: HeaderMap) {
    let (mut sink, mut messages) = socket.split();
    let (sender, mut out) = mpsc::channel(shared.limits.events_queued);
    let mut lanes = Lanes::new(Arc::clone(&shared), owner, sender, opened_with);
    let mut ping = tokio::time::interval(shared.limits.websocket_ping);
    ping.reset();
    let mut unanswered = 0;
    let deadline = Instant::now() + shared.limits.websocket_time;
    let mut closing = false;
    let code = loop {
        let mut replies = Vec::new();
        tokio::select! {
            message = messages.next() => {
                unanswered = 0;
                match message {
                    Some(Ok(Message::Text(text))) => {
                        let expired = Instant::now() >= deadline;
                        receive(&shared, &mut lanes, text.as_bytes(), expired || closing, &mut replies);
                    }
                    Some(Ok(Message::Binary(_))) => {
                        let error = ApiError::bad_request("messages are JSON in text frames, not binary ones");
                        replies.push(refusal(&shared.metrics, &error, None));
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_))) | None => break None,
                    Some(Err(error)) => break code_of(error),
                }
            }
            Some(first) = out.recv() => {
                let mut next = Some(first);
                while let Some(item) = next {
                    match item {
                        Out::Event(json) => {
                            if sink.feed(Message::Text(json)).await.is_err() {
                                return;
                            }
                        }
                        other => lanes.handle(other, &mut replies),
                    }
                    next = out.try_recv().ok();
                }
            }
            _ = ping.tick() => {
                unanswered += 1;
                if unanswered > PINGS_MAX || sink.send(Message::Ping(bytes::Bytes::new())).await.is_err() {
                    return;
                }
            }
            () = tokio::time::sleep_until(deadline), if lanes.is_idle() => {
                let time = lasting(shared.limits.websocket_time);
                let message = format!("this connection has reached its {time}; open a new one and continue there");
                let error = ApiError::bad_request(message).code("websocket_connection_limit_reached");
                replies.push(error_event(&error, None));
                closing = true;
            }
            () = shared.closed(), if !closing => closing = true,
        }
        for event in replies {
            if sink.feed(text(&event)).await.is_err() {
                return;
            }
        }
        if sink.flush().await.is_err() {
            return;
        }
        if closing && lanes.is_idle() {
            break Some(close_code::AWAY);
        }
    };
    if let Some(code) = code {
        let _ = sink.send(Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::from_static("") }))).await;
        // Give the peer a moment to answer, so that it does not see a reset.
        let _ = tokio::time::timeout(Duration::from_secs(1), messages.next()).await;
    }
}

/// What a peer is told that broke the protocol (RFC 6455, section 7.4.1); nothing when it is gone.
fn code_of(error: axum::Error) -> Option<u16> {
    match error.into_inner().downcast_ref()? {
        WsError::Capacity(_) => Some(close_code::SIZE),
        WsError::Utf8(_) => Some(close_code::INVALID),
        WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake | ProtocolError::ReceivedAfterClosing) => None,
        WsError::Protocol(_) => Some(close_code::PROTOCOL),
        _ => None,
    }
}

fn receive(shared: &Shared, lanes: &mut Lanes, bytes: &[u8], refused: bool, replies: &mut Vec<Event>) {
    let fields = match body::object(bytes, &shared.limits) {
        Ok(fields) => fields,
        Err(error) => return replies.push(refusal(&shared.metrics, &error, None)),
    };
    let lane: Option<Arc<str>> = fields.text("stream_id").map(Arc::from);
    if refused && fields.text("type") == Some("response.create") {
        let message = "this connection takes no more requests; open a new one and send the whole input";
        let error = ApiError::bad_request(message).code("websocket_connection_limit_reached");
        let error = error.because(if shared.is_closing() { Rejection::Shutdown } else { Rejection::SocketLimit });
        return replies.push(refusal(&shared.metrics, &error, lane));
    }
    match ClientMessage::read(fields) {
        Ok(message) => lanes.receive(message, replies),
        Err(error) => {
            let code = if error.param == "stream_id" { Some("invalid_stream_id") } else { None };
            let error = ApiError { code, ..ApiError::from(error) };
            replies.push(refusal(&shared.metrics, &error, lane.filter(|_| code.is_none())));
        }
    }
}

/// An error that is the answer to a message, counted.
pub fn refusal(metrics: &Metrics, error: &ApiError, stream_id: Option<Arc<str>>) -> Event {
    if let Some(reason) = error.reason {
        metrics.rejected(reason);
    }
    error_event(error, stream_id)
}

/// An error as an event: the status and headers it would have over HTTP, and the lane it belongs to.
fn error_event(error: &ApiError, stream_id: Option<Arc<str>>) -> Event {
    let mut headers = Map::new();
    if let Some(seconds) = error.retry_after {
        headers.insert("retry-after".to_owned(), Value::from(seconds.to_string()));
    }
    for (name, value) in error.rate.iter().flat_map(|rate| rate.headers()) {
        headers.insert(name.to_owned(), Value::from(value));
    }
    let kind = EventKind::Error { status: error.status.as_u16(), error: error.payload(), headers };
    Event { kind, sequence_number: 0, stream_id }
}

/// A time as people say it.
fn lasting(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 120 && seconds % 60 == 0 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} seconds"),
    }
}

/// An event as a message.
pub fn text(event: &Event) -> Message {
    Message::Text(json(event))
}

/// An event as JSON.
pub fn json(event: &Event) -> Utf8Bytes {
    // Tools that a response repeats are most of it; a text that grows to them would be copied again and again.
    let room = event.kind.response().map_or(DELTA_BYTES, |response| response.tools.text().len() + RESPONSE_BYTES);
    let mut text = Vec::with_capacity(room);
    // Our own types always have a JSON form.
    let written = serde_json::to_writer(&mut text, event);
    written.ok().and_then(|()| Utf8Bytes::try_from(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_their_own_unit() {
        for (seconds, said) in [(3600, "60 minutes"), (120, "2 minutes"), (90, "90 seconds"), (0, "0 seconds")] {
            assert_eq!(lasting(Duration::from_secs(seconds)), said);
        }
    }
}
