//! Every number that bounds what a client can take, with the answer it gets there.

use std::time::Duration;

/// The limits of one server. The defaults suit one machine with a handful of people and their tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request body. More: 413 without reading the rest.
    pub body_bytes: usize,
    /// Nesting of a JSON body or message. More: 400 `invalid_request_error`, before it is parsed.
    pub json_depth: usize,
    /// Items of `input` or `messages` in one request. More: 400 naming the count.
    pub input_items: usize,
    /// Tools in one request, those inside namespaces counted. More: 400 naming the count.
    pub tools: usize,
    /// Answers to one request: `n`, times the number of prompts. More: 400.
    pub choices: usize,
    /// Open connections of all kinds. More: a 503 with `Retry-After`, then closed.
    pub connections: usize,
    /// Open connections of one address. More: a 503 with `Retry-After`, then closed. Loopback and Unix sockets are not
    /// counted: there every client has the same address.
    pub connections_per_address: usize,
    /// Time for the head of a request to arrive, the first byte of a new connection included. More: closed.
    pub header_read: Duration,
    /// Time for the body of a request to arrive. More: 408, then closed.
    pub body_read: Duration,
    /// Bytes of one WebSocket message. More: closed with status 1009.
    pub websocket_message_bytes: usize,
    /// Life of a WebSocket. Afterwards, when no response runs: an error event `websocket_connection_limit_reached`,
    /// then closed.
    pub websocket_time: Duration,
    /// Between pings on a WebSocket. Two unanswered: closed, and its responses cancelled.
    pub websocket_ping: Duration,
    /// Between signs of life on a stream while nothing is generated, since clients' idle timers ignore pings.
    pub progress_event: Duration,
    /// Responses running on one WebSocket. More are queued until one of them ends.
    pub responses_per_socket: usize,
    /// Lanes (`stream_id`) named on one WebSocket. More: an error event with status 400.
    pub lanes_per_socket: usize,
    /// Steers waiting for one response. More: `response.steer.failed`; the response goes on.
    pub steers_pending: usize,
    /// Events waiting for one slow reader. More: its response is cancelled and the connection closed.
    pub events_queued: usize,
    /// How long running responses may go on after a request to stop. Afterwards they fail with `server_shutdown`.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 16 << 20,
            json_depth: 64,
            input_items: 10_000,
            tools: 512,
            choices: 16,
            connections: 1024,
            connections_per_address: 256,
            header_read: Duration::from_secs(10),
            body_read: Duration::from_secs(60),
            websocket_message_bytes: 16 << 20,
            websocket_time: Duration::from_secs(60 * 60),
            websocket_ping: Duration::from_secs(20),
            progress_event: Duration::from_secs(5),
            responses_per_socket: 16,
            lanes_per_socket: 32,
            steers_pending: 8,
            events_queued: 1024,
            shutdown_grace: Duration::from_secs(20),
        }
    }
}
