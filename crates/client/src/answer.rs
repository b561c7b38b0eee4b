//! One answer: its events in order, whatever happens to the connection, and the means to steer and to stop it.

use api::responses::{Event, EventKind, Response};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::client::Client;
use crate::error::ClientError;
use crate::options::Transport;
use crate::progress::{Note, Progress};
use crate::source::{Lost, Source};
use crate::wire::{self, Body};

/// Bytes of text, thoughts and arguments of one answer, and its items; no model says as much.
const ANSWER_BYTES_MAX: usize = 16 << 20;
const ANSWER_ITEMS_MAX: usize = 1024;

/// A response as it comes. Dropping it stops the response on the server, unless it runs in the background.
pub struct Answer {
    client: Client,
    source: Source,
    transport: Transport,
    /// The event that was waited for before the caller got this.
    first: Option<Event>,
    progress: Progress,
    store: bool,
    background: bool,
    cancelled: bool,
    /// The stream was taken up again: closing the connection no longer stops the response.
    resumed: bool,
    /// Times it was taken up again without an event in between.
    fruitless: u32,
    /// Bytes of the pieces so far, and items begun.
    heard: (usize, usize),
    _place: OwnedSemaphorePermit,
}

impl Answer {
    pub(crate) fn new(client: Client, body: &Body, source: Source, first: Event, place: OwnedSemaphorePermit) -> Self {
        let transport = if matches!(source, Source::Lane(_)) { Transport::WebSocket } else { Transport::Sse };
        Self {
            client,
            source,
            transport,
            first: Some(first),
            progress: Progress::default(),
            store: body.store,
            background: body.background,
            cancelled: false,
            resumed: false,
            fruitless: 0,
            heard: (0, 0),
            _place: place,
        }
    }

    /// The next event; none after the last one, or after an error.
    ///
    /// The last event is the one that ends the response: completed, incomplete or failed. A steered answer goes on with
    /// the successor. May be dropped, as in a `select!`, and called again without losing an event.
    pub async fn next(&mut self) -> Option<Result<Event, ClientError>> {
        loop {
            let got = match self.first.take() {
                Some(event) => Ok(event),
                None => self.receive().await,
            };
            let lost = match got {
                Ok(event) => match self.within_limits(&event).err().map(Err).or_else(|| self.take(event)) {
                    Some(Err(error)) => {
                        self.source = Source::Done;
                        return Some(Err(error));
                    }
                    Some(result) => return Some(result),
                    None => continue,
                },
                Err(lost) => lost,
            };
            match self.repair(lost).await {
                Ok(true) => {}
                Ok(false) => {
                    self.source = Source::Done;
                    return None;
                }
                Err(error) => {
                    self.source = Source::Done;
                    return Some(Err(error));
                }
            }
        }
    }

    /// A server that never ends its answer must not fill the memory of whoever listens.
    fn within_limits(&mut self, event: &Event) -> Result<(), ClientError> {
        let (bytes, items) = match &event.kind {
            EventKind::TextDelta { delta, .. }
            | EventKind::ReasoningDelta { delta, .. }
            | EventKind::ArgumentsDelta { delta, .. }
            | EventKind::InputDelta { delta, .. } => (delta.len(), 0),
            EventKind::ItemDone { .. } => (0, 1),
            _ => (0, 0),
        };
        self.heard = (self.heard.0.saturating_add(bytes), self.heard.1 + items);
        let message = if self.heard.0 > ANSWER_BYTES_MAX {
            format!("its answer has more than {ANSWER_BYTES_MAX} bytes")
        } else if self.heard.1 > ANSWER_ITEMS_MAX {
            format!("its answer has more than {ANSWER_ITEMS_MAX} items")
        } else {
            return Ok(());
        };
        Err(ClientError::Protocol { message })
    }

    /// Reads to the end and returns the response as a whole. One that failed is an error of the matching kind.
    pub async fn finish(mut self) -> Result<Response, ClientError> {
        let mut last = None;
        while let Some(event) = self.next().await {
            let event = event?;
            last = event.kind.ended().cloned().or(last);
        }
        let response = last.ok_or_else(|| self.interrupted("it ended without its last event".to_owned()))?;
        match ClientError::of_failed(&response) {
            Some(error) => Err(error),
            None => Ok(response),
        }
    }

    /// Waits for an event; not for ever when the server owes us only a last word.
    async fn receive(&mut self) -> Result<Event, Lost> {
        if !self.cancelled && !self.progress.has_ended() {
            return self.source.next().await;
        }
        let patience = self.client.options().timeouts.verdict;
        timeout(patience, self.source.next()).await.unwrap_or(Err(Lost::Done))
    }

    /// Takes note of an event. None when it was seen before.
    fn take(&mut self, event: Event) -> Option<Result<Event, ClientError>> {
        if let Some(error) = ClientError::of_event(&event) {
            if self.progress.error_is_of_steer() {
                return Some(Ok(event));
            }
            if self.progress.events_seen == 0 || self.progress.has_ended() {
                self.source.finish();
            } else {
                // The server may not be done with the response: leaving it tells it to be.
                self.source = Source::Done;
            }
            return Some(Err(error));
        }
        match self.progress.note(&event) {
            Note::Duplicate => return None,
            Note::Gap => {
                self.source = Source::Done;
                return Some(Err(self.interrupted("events are missing from the resumed stream".to_owned())));
            }
            Note::Deliver => self.fruitless = 0,
            Note::Last => self.source.finish(),
        }
        Some(Ok(event))
    }

    /// Replaces a broken connection. False when there is nothing more to expect.
    async fn repair(&mut self, lost: Lost) -> Result<bool, ClientError> {
        let limits = &self.client.options().limits;
        let why = match lost {
            Lost::Done => return Ok(false),
            Lost::Broken(_) if self.cancelled => return Ok(false),
            Lost::TooSlow => return Err(ClientError::TooSlow { limit: limits.unread_events }),
            Lost::TooLarge => return Err(ClientError::TooLarge { limit: limits.body_bytes }),
            Lost::Broken(why) => why,
        };
        let Some((id, after)) = self.progress.resume_point().filter(|_| self.store) else {
            return Err(self.interrupted(why));
        };
        if self.fruitless >= limits.retries {
            return Err(self.interrupted(format!("{why}, and again each time it was resumed")));
        }
        // Should the caller stop waiting here, the next call comes back to this place.
        self.source = Source::Broken(why.clone());
        match self.client.resume(id, after).await {
            Ok(source) => {
                tracing::info!(%why, response = id, after, "resumed a response");
                self.source = Source::Sse(Box::new(source));
                self.transport = Transport::Sse;
                self.progress.resume();
                self.resumed = true;
                self.fruitless += 1;
                Ok(true)
            }
            Err(error) => Err(self.interrupted(format!("{why}, and it cannot be resumed: {error}"))),
        }
    }

    fn interrupted(&self, why: String) -> ClientError {
        let (response_id, events_seen) = (self.progress.response_id.clone(), self.progress.events_seen);
        ClientError::Interrupted { response_id, events_seen, why }
    }

    /// Redirects the running response: `input` is a text or items. What the server makes of it comes as events.
    pub async fn steer(&mut self, input: Value) -> Result<(), ClientError> {
        let not = |why| ClientError::NotSteerable { why };
        let id = match (&self.first, &self.progress.response_id) {
            (Some(first), None) => wire::response_id(&first.kind).map(str::to_owned),
            (_, id) => id.clone(),
        };
        let id = id.ok_or_else(|| not("it has no identity yet"))?;
        if self.progress.has_ended() {
            return Err(not("it has ended"));
        }
        let lane = match &mut self.source {
            Source::Lane(lane) if lane.is_flint() => lane,
            Source::Lane(_) => return Err(not("the server does not say that it is Flint")),
            Source::Sse(_) | Source::Broken(_) => return Err(not("it does not come over a WebSocket")),
            Source::Tail(_) | Source::Done => return Err(not("it has ended")),
        };
        lane.steered();
        let message = wire::steer(lane.name(), &id, input);
        lane.send(message).await.map_err(|_| not("the connection has just been lost"))?;
        self.progress.steered();
        Ok(())
    }

    /// Stops the response. Over a WebSocket of a Flint server its last events follow; elsewhere nothing does.
    pub async fn cancel(&mut self) {
        self.cancelled = true;
        if let Source::Lane(lane) = &self.source
            && lane.is_flint()
            && lane.cancel().await.is_ok()
        {
            return;
        }
        if self.background || self.resumed {
            self.cancel_by_name();
        }
        self.source = Source::Done;
        self.first = None;
    }

    /// Tells the server without waiting: what it says to that changes nothing here.
    fn cancel_by_name(&self) {
        let first = self.first.as_ref().and_then(|event| wire::response_id(&event.kind));
        let Some(id) = self.progress.response_id.clone().or(first.map(str::to_owned)) else {
            return;
        };
        let client = self.client.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = client.cancel(&id).await {
                    tracing::debug!(%error, response = id, "a response could not be cancelled");
                }
            });
        }
    }

    /// How its events travel, or travelled last.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The response under way, once known.
    pub fn response_id(&self) -> Option<&str> {
        self.progress.response_id.as_deref()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let unread = matches!(self.source, Source::Sse(_) | Source::Broken(_));
        if self.resumed && unread && !self.background {
            self.cancel_by_name();
        }
        self.source.let_go();
    }
}
