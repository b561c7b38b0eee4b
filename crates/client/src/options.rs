//! What a caller may choose: where the server is, how to reach it, and every limit.

use std::fmt;
use std::time::Duration;

/// How events travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// A WebSocket where the server has one, server-sent events while it refuses.
    #[default]
    Auto,
    /// A WebSocket, or an error.
    WebSocket,
    /// Server-sent events only.
    Sse,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::WebSocket => "websocket",
            Self::Sse => "sse",
        })
    }
}

/// Which API the server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WireApi {
    /// Responses.
    #[default]
    Responses,
    /// Chat Completions, always by server-sent events. What is asked and answered here is the same, see
    /// [`crate::Client::keeps_responses`] for what is not.
    Chat,
}

/// What a client is made from.
#[derive(Clone)]
pub struct ClientOptions {
    /// `http://host[:port]/v1`, `https://...`, or `unix:/path/to.sock` for the private socket of a local server.
    pub base_url: String,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<String>,
    /// Sent with every request and every upgrade.
    pub headers: Vec<(String, String)>,
    /// Added to every address.
    pub query: Vec<(String, String)>,
    /// Which API the server speaks.
    pub wire_api: WireApi,
    /// Which transport to use.
    pub transport: Transport,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// How much of what there may be.
    pub limits: Limits,
    /// A PEM file of certificates to trust instead of the system's.
    pub certificates: Option<std::path::PathBuf>,
}

impl ClientOptions {
    /// The usual choices for a server at `base_url`.
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            api_key: None,
            headers: Vec::new(),
            query: Vec::new(),
            wire_api: WireApi::Responses,
            transport: Transport::Auto,
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            certificates: None,
        }
    }
}

/// Without the key and the values of headers, because options end up in logs.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("base_url", &self.base_url)
            .field("api_key", &self.api_key.as_ref().map(|_| "..."))
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("wire_api", &self.wire_api)
            .field("transport", &self.transport)
            .field("timeouts", &self.timeouts)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// How long to wait for what.
#[derive(Clone, Debug)]
pub struct Timeouts {
    /// For a connection, including TLS, and again for the upgrade to a WebSocket.
    pub connect: Duration,
    /// Silence on a WebSocket after which it is pinged.
    pub ping_after: Duration,
    /// Silence after that ping which means that the peer is dead.
    pub pong_within: Duration,
    /// For one message to leave.
    pub write: Duration,
    /// Silence on server-sent events which means that the peer is dead; also the wait for the head of a reply.
    pub sse_idle: Duration,
    /// For a small call, and for a whole response.
    pub whole: Duration,
    /// For the server's last word after a cancel, or its verdict on a steer once the response has ended.
    pub verdict: Duration,
    /// How long a refused WebSocket is left alone, by refusals in a row; the last one repeats.
    pub websocket_again: [Duration; 3],
    /// First wait before a connection is tried again; it doubles.
    pub retry: Duration,
    /// Longest `Retry-After` that is obeyed; a longer one is an error that names it.
    pub retry_after_max: Duration,
    /// Total time a slow reader may hold up the other answers of its connection before it is cut off.
    pub stall_max: Duration,
    /// Age at which a WebSocket gets no new work; servers close them after an hour.
    pub socket_age_max: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(10),
            ping_after: seconds(15),
            pong_within: seconds(10),
            write: seconds(60),
            sse_idle: seconds(120),
            whole: seconds(600),
            verdict: seconds(10),
            websocket_again: [seconds(5), seconds(30), seconds(120)],
            retry: Duration::from_millis(200),
            retry_after_max: seconds(30),
            stall_max: seconds(5),
            socket_age_max: seconds(55 * 60),
        }
    }
}

/// How much of what there may be.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tries after the first one, for connections and for a server that is busy.
    pub retries: u32,
    /// Answers under way at once; more are [`crate::ClientError::TooMany`].
    pub answers: usize,
    /// WebSockets at once; when all are taken an answer goes by server-sent events.
    pub sockets: usize,
    /// Answers at once on one WebSocket of a Flint server.
    pub lanes: usize,
    /// Events that wait for the caller, per answer; then the connection waits, for at most [`Timeouts::stall_max`].
    pub unread_events: usize,
    /// Bytes of one event or one whole body.
    pub body_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { retries: 3, answers: 64, sockets: 8, lanes: 16, unread_events: 4096, body_bytes: 64 << 20 }
    }
}
