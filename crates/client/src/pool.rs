//! The WebSockets of a client: which to use for the next answer, when to open one, and when not to try.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hyper::header::HeaderMap;
use tokio::time::timeout;

use crate::backoff::Fallback;
use crate::dial::Target;
use crate::error::ClientError;
use crate::options::{ClientOptions, Transport};
use crate::socket::{Lane, OpenError, Socket};

/// The WebSockets of a client.
pub(crate) struct Pool {
    sockets: Mutex<Vec<Arc<Socket>>>,
    /// Held while one is opened, so that answers that start together share it where the server has lanes.
    opening: tokio::sync::Mutex<()>,
    fallback: Mutex<Fallback>,
}

/// What an answer gets.
pub(crate) enum Found {
    /// A lane of an open WebSocket.
    Lane(Lane),
    /// Use HTTP this time.
    UseHttp,
}

impl Pool {
    /// No connections yet.
    pub fn new() -> Self {
        Self { sockets: Mutex::default(), opening: tokio::sync::Mutex::default(), fallback: Mutex::default() }
    }

    /// A lane for an answer, preferably the one that produced the response `after` which it continues.
    pub async fn lane(
        &self,
        target: &Target,
        headers: &HeaderMap,
        options: &ClientOptions,
        after: Option<&str>,
    ) -> Result<Found, ClientError> {
        if let Some(lane) = self.claim(options, after) {
            return Ok(Found::Lane(lane));
        }
        let insists = options.transport == Transport::WebSocket;
        if !insists && !self.may_try() {
            return Ok(Found::UseHttp);
        }
        // Whoever opens one needs at most this: for the connection, and for the upgrade.
        let limit = options.timeouts.connect * 2;
        let late = |_| ClientError::Timeout { what: "connection", after: limit };
        let _one_at_a_time = timeout(limit, self.opening.lock()).await.map_err(late)?;
        if let Some(lane) = self.claim(options, after) {
            return Ok(Found::Lane(lane));
        }
        if !insists && !self.may_try() {
            return Ok(Found::UseHttp);
        }
        if self.sockets().len() >= options.limits.sockets {
            let full = ClientError::TooMany { limit: options.limits.sockets };
            return if insists { Err(full) } else { Ok(Found::UseHttp) };
        }
        let patience = self.fallback().patience(options.timeouts.connect);
        match Socket::open(target, headers, options, patience).await {
            Ok(socket) => {
                self.fallback().worked();
                let lane = socket.claim(None);
                self.sockets().push(socket);
                let gone =
                    || ClientError::Protocol { message: "the WebSocket closed as soon as it was open".to_owned() };
                Ok(Found::Lane(lane.ok_or_else(gone)?))
            }
            Err(OpenError::Failed(error)) => Err(error),
            Err(OpenError::Refused(why)) if insists => Err(ClientError::WebSocketRefused { why }),
            Err(OpenError::Refused(why)) => {
                tracing::info!(%why, "the WebSocket is refused; using server-sent events for now");
                self.fallback().refused(Instant::now(), &options.timeouts.websocket_again);
                Ok(Found::UseHttp)
            }
        }
    }

    fn claim(&self, options: &ClientOptions, after: Option<&str>) -> Option<Lane> {
        let mut sockets = self.sockets();
        sockets.retain(|socket| socket.is_kept(&options.timeouts));
        let same = after.and_then(|id| sockets.iter().find_map(|socket| socket.claim(Some(id))));
        same.or_else(|| sockets.iter().find_map(|socket| socket.claim(None)))
    }

    fn may_try(&self) -> bool {
        self.fallback().may_try(Instant::now())
    }

    fn sockets(&self) -> MutexGuard<'_, Vec<Arc<Socket>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fallback(&self) -> MutexGuard<'_, Fallback> {
        self.fallback.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
