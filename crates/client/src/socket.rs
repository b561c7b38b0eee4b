//! One WebSocket: a task that reads and hands events to their lanes, a task that writes, and pings between them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use api::responses::{Event, EventKind};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::header::{HeaderMap, HeaderValue};
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, Receiver, Sender, WeakSender};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};

use crate::dial::{Io, Target};
use crate::error::{ClientError, retry_after_of};
use crate::lanes::{Claim, Lanes, Leave};
use crate::options::{ClientOptions, Timeouts};
use crate::wire;

/// A Flint server says its version in the reply to the upgrade; only then are lanes and cancel used.
const FLINT_HEADER: &str = "x-flint-version";

/// Messages that wait to be written.
const OUTGOING_MAX: usize = 64;

/// Codes of errors that concern the connection and not the request.
const WORN_OUT: [&str; 2] = ["websocket_connection_limit_reached", "websocket_stream_limit_reached"];

type Stream = WebSocketStream<Box<dyn Io>>;

/// Why there is no WebSocket.
pub(crate) enum OpenError {
    /// The server, or something before it, does not offer one; HTTP may work.
    Refused(String),
    /// HTTP would not do better.
    Failed(ClientError),
}

/// An open WebSocket. It closes when the last owner, client or answer, lets go of it.
pub(crate) struct Socket {
    shared: Arc<Shared>,
    out: Sender<Message>,
    reader: AbortHandle,
    opened: Instant,
    /// Whether the server is Flint.
    flint: bool,
    unread_max: usize,
}

struct Shared {
    lanes: Mutex<Lanes>,
    /// Why it is closed, once it is.
    why: OnceLock<String>,
    /// It gets no new answers.
    retired: AtomicBool,
    /// A message is on its way out, so silence means nothing yet.
    writing: AtomicBool,
    /// Wakes the writer when it is closed.
    ended: Notify,
}

impl Shared {
    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self, why: String) {
        tracing::debug!(%why, "a WebSocket ended");
        // The reason is set first: whoever finds the lane closed looks for it.
        let _ = self.why.set(why);
        self.retired.store(true, Ordering::Release);
        self.lanes().close();
        self.ended.notify_one();
    }
}

impl Socket {
    /// Connects, and upgrades within `patience`.
    pub async fn open(
        target: &Target,
        headers: &HeaderMap,
        options: &ClientOptions,
        patience: Duration,
    ) -> Result<Arc<Self>, OpenError> {
        let stream = target.dial().await.map_err(OpenError::Failed)?;
        let url = format!("ws://{}{}", target.host, target.path("/responses"));
        let wrong = |error: WsError| OpenError::Failed(ClientError::Options { message: format!("{url}: {error}") });
        let mut request = url.as_str().into_client_request().map_err(wrong)?;
        request.headers_mut().extend(headers.clone());
        request.headers_mut().insert("openai-beta", HeaderValue::from_static("responses_websockets=2026-02-06"));
        let bytes_max = Some(options.limits.body_bytes);
        let config = WebSocketConfig::default().max_message_size(bytes_max).max_frame_size(bytes_max);
        let upgrade = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
        let (stream, reply) = match timeout(patience, upgrade).await {
            Ok(done) => done.map_err(|error| refusal(&error))?,
            Err(_) => return Err(OpenError::Refused(format!("no reply within {patience:?}"))),
        };
        let flint = reply.headers().contains_key(FLINT_HEADER);
        Ok(Self::start(stream, flint, options))
    }

    fn start(stream: Stream, flint: bool, options: &ClientOptions) -> Arc<Self> {
        let lanes = Mutex::new(Lanes::new(if flint { options.limits.lanes } else { 1 }));
        let (why, retired, writing) = (OnceLock::new(), AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { lanes, why, retired, writing, ended: Notify::new() });
        let (out, outgoing) = mpsc::channel(OUTGOING_MAX);
        let (sink, stream) = stream.split();
        tokio::spawn(write(sink, outgoing, shared.clone(), options.timeouts.clone()));
        let reader =
            Reader { shared: shared.clone(), out: out.downgrade(), timeouts: options.timeouts.clone(), cancels: flint };
        let reader = tokio::spawn(reader.run(stream)).abort_handle();
        let unread_max = options.limits.unread_events;
        Arc::new(Self { shared, out, reader, opened: Instant::now(), flint, unread_max })
    }

    /// A free lane; with `after`, only the one whose last response that was.
    pub fn claim(self: &Arc<Self>, after: Option<&str>) -> Option<Lane> {
        if self.shared.retired.load(Ordering::Acquire) {
            return None;
        }
        let claim = self.shared.lanes().claim(after, self.unread_max)?;
        Some(Lane { socket: self.clone(), claim, leave: Leave::Dropped })
    }

    /// Whether to keep it: not closed, and young enough or still in use.
    pub fn is_kept(&self, timeouts: &Timeouts) -> bool {
        if self.opened.elapsed() > timeouts.socket_age_max {
            self.shared.retired.store(true, Ordering::Release);
        }
        !self.shared.retired.load(Ordering::Acquire)
            || (self.shared.why.get().is_none() && self.shared.lanes().is_busy())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn refusal(error: &WsError) -> OpenError {
    let WsError::Http(reply) = error else {
        return OpenError::Refused(format!("the upgrade failed: {error}"));
    };
    let status = reply.status().as_u16();
    if !matches!(status, 401 | 403 | 429 | 503) {
        return OpenError::Refused(format!("status {status}"));
    }
    let after = reply.headers().get("retry-after").and_then(|value| value.to_str().ok()).and_then(retry_after_of);
    OpenError::Failed(ClientError::of_reply(status, reply.body().as_deref().unwrap_or_default(), after))
}

/// Writes until there is nobody left who could want to, then closes.
async fn write(
    mut sink: SplitSink<Stream, Message>,
    mut outgoing: Receiver<Message>,
    shared: Arc<Shared>,
    timeouts: Timeouts,
) {
    loop {
        let message = tokio::select! {
            message = outgoing.recv() => message,
            () = shared.ended.notified() => None,
        };
        let Some(message) = message else {
            break;
        };
        shared.writing.store(true, Ordering::Release);
        let sent = timeout(timeouts.write, sink.send(message)).await;
        shared.writing.store(false, Ordering::Release);
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return shared.close(format!("writing: {error}")),
            Err(_) => return shared.close(format!("a message could not be written within {:?}", timeouts.write)),
        }
    }
    let _ = timeout(timeouts.pong_within, sink.close()).await;
}

struct Reader {
    shared: Arc<Shared>,
    /// Weak, so that reading does not keep the connection open.
    out: WeakSender<Message>,
    timeouts: Timeouts,
    cancels: bool,
}

impl Reader {
    async fn run(self, mut stream: SplitStream<Stream>) {
        let mut pinged = false;
        let why = loop {
            let patience = if pinged { self.timeouts.pong_within } else { self.timeouts.ping_after };
            let message = match timeout(patience, stream.next()).await {
                Err(_) if self.shared.writing.load(Ordering::Acquire) => continue,
                Err(_) if pinged => break format!("the peer is dead: no pong within {patience:?}"),
                Err(_) => {
                    pinged = true;
                    self.post(Message::Ping(Bytes::new()));
                    continue;
                }
                Ok(None) => break "the peer closed the connection".to_owned(),
                Ok(Some(Err(error))) => break format!("reading: {error}"),
                Ok(Some(Ok(message))) => message,
            };
            pinged = false;
            match message {
                Message::Text(text) => self.deliver(text.as_str()).await,
                Message::Close(frame) => {
                    let reason = frame.map(|frame| format!(": {} {}", frame.code, frame.reason)).unwrap_or_default();
                    break format!("the peer closed the connection{reason}");
                }
                Message::Binary(_) => break "the peer sent a binary message".to_owned(),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        };
        self.shared.close(why);
    }

    /// Dropped when the queue is full: something is being written, then, and a ping or cancel would not be sooner.
    fn post(&self, message: Message) {
        if let Some(out) = self.out.upgrade() {
            let _ = out.try_send(message);
        }
    }

    async fn deliver(&self, text: &str) {
        let Some(event) = wire::read_event(text) else {
            return;
        };
        if is_worn_out(&event) {
            self.shared.retired.store(true, Ordering::Release);
        }
        let Some((index, sender)) = self.shared.lanes().route(&event) else {
            return;
        };
        if let Err(TrySendError::Full(event)) = sender.try_send(event) {
            self.deliver_slowly(index, sender, event).await;
        }
    }

    /// The reader of this lane is behind: all lanes wait for it, but not for long.
    async fn deliver_slowly(&self, index: usize, sender: Sender<Event>, event: Event) {
        let left = self.shared.lanes().stall_left(index, self.timeouts.stall_max);
        let began = Instant::now();
        let sent = timeout(left, sender.send(event)).await;
        let mut lanes = self.shared.lanes();
        lanes.stalled(index, began.elapsed());
        if sent.is_err() && lanes.cut(index) {
            let name = lanes.name(index);
            drop(lanes);
            let cancel = || Message::text(wire::cancel(name.as_deref()));
            self.post(if self.cancels { cancel() } else { Message::Close(None) });
        }
    }
}

/// Whether an event says that the connection, and not the request, is at fault.
pub(crate) fn is_worn_out(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Error { error, .. } if error.code.as_deref().is_some_and(|code| WORN_OUT.contains(&code)))
}

/// One answer's share of a WebSocket. Dropping it early stops the response on the server.
pub(crate) struct Lane {
    socket: Arc<Socket>,
    claim: Claim,
    leave: Leave,
}

/// How a lane ends without an end of its response.
pub(crate) enum LaneLost {
    /// The connection is gone.
    Broken(String),
    /// We were cut off.
    TooSlow,
}

impl Lane {
    /// Its name on the wire.
    pub fn name(&self) -> Option<&str> {
        self.claim.name.as_deref()
    }

    /// Whether the server knows steering and cancelling.
    pub fn is_flint(&self) -> bool {
        self.socket.flint
    }

    /// Sends a message.
    pub async fn send(&self, text: String) -> Result<(), LaneLost> {
        let sent = self.socket.out.send(Message::text(text)).await;
        sent.map_err(|_| self.lost())
    }

    /// The next event. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> Result<Event, LaneLost> {
        match self.claim.receiver.recv().await {
            Some(event) => Ok(event),
            None => Err(self.lost()),
        }
    }

    fn lost(&self) -> LaneLost {
        if self.claim.too_slow.load(Ordering::Acquire) {
            return LaneLost::TooSlow;
        }
        LaneLost::Broken(self.socket.shared.why.get().cloned().unwrap_or_else(|| "the connection closed".to_owned()))
    }

    /// Asks the server to stop.
    pub async fn cancel(&self) -> Result<(), LaneLost> {
        self.socket.shared.lanes().cancel_sent(self.claim.index);
        self.send(wire::cancel(self.name())).await
    }

    /// Everything was received: the lane is free again.
    pub fn finish(mut self) {
        self.leave = Leave::Finished;
    }

    /// From now on nobody can tell where the responses on this lane end, unless all is received.
    pub fn steered(&mut self) {
        self.leave = Leave::DroppedSteered;
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.socket.shared.lanes().leave(self.claim.index, self.leave) {
            return;
        }
        let told = self.socket.flint && {
            let cancel = wire::cancel(self.name());
            self.socket.out.try_send(Message::text(cancel)).is_ok()
        };
        if !told {
            // Other servers know no cancel; they stop when the connection closes.
            self.socket.shared.close("an answer was dropped".to_owned());
            self.socket.reader.abort();
        }
    }
}
