//! HTTP/1.1 over connections that are kept: for server-sent events, small calls, and whole responses.
//!
//! A connection returns to the idle list when its reply was read to the end, and is closed when it was not: that is how
//! dropping a stream tells the server to stop.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::task::AbortHandle;

use crate::dial::Target;
use crate::error::{ClientError, retry_after_of};

/// Idle connections that are kept.
const IDLE_MAX: usize = 4;

/// How long an idle connection is kept; servers commonly close theirs after a minute or more.
const IDLE_AGE_MAX: Duration = Duration::from_secs(50);

/// The HTTP side of a client.
pub(crate) struct Http {
    target: Arc<Target>,
    headers: HeaderMap,
    idle: Idle,
}

type Idle = Arc<Mutex<Vec<Warm>>>;

/// What to ask for.
pub(crate) struct Call {
    /// The verb.
    pub method: Method,
    /// After the prefix, with its query.
    pub path: String,
    /// JSON; none when absent.
    pub body: Option<Bytes>,
    /// The form of reply wanted.
    pub accept: &'static str,
}

struct Warm {
    sender: SendRequest<Full<Bytes>>,
    connection: AbortHandle,
    since: Instant,
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Http {
    /// Sends `headers` with everything.
    pub fn new(target: Arc<Target>, headers: HeaderMap) -> Self {
        Self { target, headers, idle: Arc::default() }
    }

    /// Opens a connection ahead of time, unless one is there.
    pub async fn connect(&self) -> Result<(), ClientError> {
        if let Some(warm) = self.take_idle().await {
            put(&self.idle, warm);
            return Ok(());
        }
        let warm = self.open().await?;
        put(&self.idle, warm);
        Ok(())
    }

    /// Sends a request and waits for the head of the reply. A kept connection that turns out to be closed is replaced.
    pub async fn send(&self, call: &Call) -> Result<Reply, ClientError> {
        while let Some(warm) = self.take_idle().await {
            match self.send_on(warm, call).await {
                Ok(reply) => return Ok(reply),
                Err(error) => tracing::debug!(%error, "a kept connection was closed"),
            }
        }
        self.send_on(self.open().await?, call).await
    }

    async fn send_on(&self, mut warm: Warm, call: &Call) -> Result<Reply, ClientError> {
        let request = self.request(call)?;
        let reply = warm.sender.send_request(request).await.map_err(|error| ClientError::Connect {
            address: self.target.host.clone(),
            message: format!("the connection closed before a reply: {error}"),
            hint: "see the server's log",
        })?;
        let (head, body) = reply.into_parts();
        Ok(Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body,
            warm: Some(warm),
            idle: self.idle.clone(),
        })
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, ClientError> {
        let wrong = |error: hyper::http::Error| ClientError::Options { message: format!("{}: {error}", call.path) };
        let builder = Request::builder().method(&call.method).uri(self.target.path(&call.path));
        let mut request = builder.body(Full::new(call.body.clone().unwrap_or_default())).map_err(wrong)?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        let host = HeaderValue::from_str(&self.target.host).map_err(|error| wrong(error.into()))?;
        headers.insert(header::HOST, host);
        headers.insert(header::ACCEPT, HeaderValue::from_static(call.accept));
        if call.body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Ok(request)
    }

    async fn take_idle(&self) -> Option<Warm> {
        loop {
            let mut warm = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if warm.since.elapsed() < IDLE_AGE_MAX && warm.sender.ready().await.is_ok() {
                return Some(warm);
            }
        }
    }

    async fn open(&self) -> Result<Warm, ClientError> {
        let stream = TokioIo::new(self.target.dial().await?);
        let opened = http1::handshake::<_, Full<Bytes>>(stream).await;
        let (sender, connection) =
            opened.map_err(|error| ClientError::Protocol { message: format!("HTTP handshake: {error}") })?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP connection ended");
            }
        });
        Ok(Warm { sender, connection: task.abort_handle(), since: Instant::now() })
    }
}

fn put(idle: &Idle, mut warm: Warm) {
    warm.since = Instant::now();
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() < IDLE_MAX && !warm.sender.is_closed() {
        idle.push(warm);
    }
}

/// A reply whose body is still to be read.
pub(crate) struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    warm: Option<Warm>,
    idle: Idle,
}

impl Reply {
    /// The next piece of the body; none at its end, after which the connection is free for the next request.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, hyper::Error> {
        loop {
            match self.body.frame().await {
                None => {
                    if let Some(warm) = self.warm.take() {
                        put(&self.idle, warm);
                    }
                    return Ok(None);
                }
                Some(Err(error)) => return Err(error),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The whole body, of at most `limit` bytes.
    pub async fn whole(mut self, limit: usize) -> Result<Vec<u8>, ClientError> {
        let mut all = Vec::new();
        let cut = |error: hyper::Error| ClientError::Protocol { message: format!("the reply was cut off: {error}") };
        while let Some(piece) = self.piece().await.map_err(cut)? {
            if all.len() + piece.len() > limit {
                return Err(ClientError::TooLarge { limit });
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// The error this reply stands for.
    pub async fn into_error(self, limit: usize) -> ClientError {
        let (status, retry_after) = (self.status, self.retry_after());
        match self.whole(limit).await {
            Ok(body) => ClientError::of_reply(status, &body, retry_after),
            Err(_) => ClientError::of_reply(status, b"", retry_after),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        retry_after_of(self.headers.get(header::RETRY_AFTER)?.to_str().ok()?)
    }

    /// Whether the body is a stream of events.
    pub fn is_event_stream(&self) -> bool {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
    }
}
