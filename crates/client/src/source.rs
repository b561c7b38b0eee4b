//! Where an answer's events come from: a lane of a WebSocket, or the body of an HTTP reply. The same to the reader.

use std::time::Duration;

use api::responses::Event;
use tokio::time::timeout;

use crate::chat::ChatReader;
use crate::http::Reply;
use crate::socket::{Lane, LaneLost};
use crate::sse::SseParser;
use crate::wire;

/// How long the end of a stream may be behind its last event for its connection to be kept. The reader waits for a
/// small part of that, so that the next request finds the connection free.
const TAIL: Duration = Duration::from_secs(1);
const TAIL_WAIT: Duration = Duration::from_millis(50);

/// Where events come from.
pub(crate) enum Source {
    /// A WebSocket.
    Lane(Lane),
    /// Server-sent events.
    Sse(Box<SseSource>),
    /// Server-sent events after the last one that matters.
    Tail(Box<SseSource>),
    /// Nowhere: the connection broke, for this reason, and was not replaced yet.
    Broken(String),
    /// Nowhere: all is said.
    Done,
}

/// Why there is no next event.
pub(crate) enum Lost {
    /// All was said.
    Done,
    /// The connection broke.
    Broken(String),
    /// We were cut off for reading too slowly.
    TooSlow,
    /// An event is larger than is accepted.
    TooLarge,
}

impl From<LaneLost> for Lost {
    fn from(lost: LaneLost) -> Self {
        match lost {
            LaneLost::Broken(why) => Self::Broken(why),
            LaneLost::TooSlow => Self::TooSlow,
        }
    }
}

impl Source {
    /// The next event. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> Result<Event, Lost> {
        match self {
            Self::Lane(lane) => Ok(lane.next().await?),
            Self::Sse(sse) => sse.next().await,
            Self::Tail(sse) => {
                let ended = timeout(TAIL_WAIT, sse.skip()).await.is_ok();
                if ended {
                    *self = Self::Done;
                } else {
                    self.let_go();
                }
                Err(Lost::Done)
            }
            Self::Broken(why) => Err(Lost::Broken(why.clone())),
            Self::Done => Err(Lost::Done),
        }
    }

    /// Everything was received: the connection is free for the next answer.
    pub fn finish(&mut self) {
        *self = match std::mem::replace(self, Self::Done) {
            Self::Lane(lane) => {
                lane.finish();
                Self::Done
            }
            Self::Sse(sse) => Self::Tail(sse),
            other => other,
        };
    }

    /// The reader leaves: what only waits for the end of its connection does so alone.
    pub fn let_go(&mut self) {
        if let Self::Tail(mut sse) = std::mem::replace(self, Self::Done)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { timeout(TAIL, sse.skip()).await });
        }
    }
}

/// Server-sent events of one reply.
pub(crate) struct SseSource {
    reply: Reply,
    parser: SseParser,
    /// What the data is, where it is not events of a response.
    chat: Option<ChatReader>,
    idle: Duration,
}

impl SseSource {
    /// Reads events of at most `bytes_max` from `reply`; silence longer than `idle` is a break.
    pub fn new(reply: Reply, bytes_max: usize, idle: Duration) -> Self {
        Self { reply, parser: SseParser::new(bytes_max), chat: None, idle }
    }

    /// The same stream as chunks of a chat completion. `custom` names the tools that take free text.
    pub fn of_chat(self, custom: Vec<String>) -> Self {
        Self { chat: Some(ChatReader::new(custom)), ..self }
    }

    /// The next event of what was received.
    fn ready(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.chat.as_mut().and_then(ChatReader::pop) {
                return Some(event);
            }
            let data = self.parser.pop()?;
            match &mut self.chat {
                Some(chat) => chat.push(&data),
                None => match wire::read_event(&data) {
                    Some(event) => return Some(event),
                    None => continue,
                },
            }
        }
    }

    async fn next(&mut self) -> Result<Event, Lost> {
        loop {
            if let Some(event) = self.ready() {
                return Ok(event);
            }
            let piece = match timeout(self.idle, self.reply.piece()).await {
                Err(_) => return Err(Lost::Broken(format!("nothing came for {:?}", self.idle))),
                Ok(Err(error)) => return Err(Lost::Broken(format!("reading: {error}"))),
                Ok(Ok(None)) if self.chat.as_mut().is_some_and(ChatReader::end_of_stream) => match self.ready() {
                    Some(event) => return Ok(event),
                    None => return Err(Lost::Done),
                },
                Ok(Ok(None)) => return Err(Lost::Broken("the stream ended early".to_owned())),
                Ok(Ok(Some(piece))) => piece,
            };
            self.parser.push(&piece).map_err(|_| Lost::TooLarge)?;
        }
    }

    /// Reads to the end of the body, which gives the connection back.
    async fn skip(&mut self) {
        while let Ok(Some(_)) = self.reply.piece().await {}
    }
}
