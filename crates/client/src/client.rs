//! The client: which transport an answer takes, what is tried again, and the small calls beside it.

use std::sync::Arc;
use std::time::Duration;

use api::responses::{Event, Response};
use bytes::Bytes;
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::backoff;
use crate::dial::{Target, escape};
use crate::error::ClientError;
use crate::http::{Call, Http, Reply};
use crate::options::{ClientOptions, Transport, WireApi};
use crate::pool::{Found, Pool};
use crate::socket::is_worn_out;
use crate::source::{Lost, Source, SseSource};
use crate::wire::Body;

const EVENT_STREAM: &str = "text/event-stream";
const JSON: &str = "application/json";

/// A client of one server. Cheap to clone; clones share its connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    options: ClientOptions,
    target: Arc<Target>,
    headers: HeaderMap,
    http: Http,
    pool: Pool,
    answers: Arc<Semaphore>,
}

impl Client {
    /// A client for the server in the options. Nothing is connected yet.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let target = Arc::new(Target::new(&options)?);
        let headers = headers(&options)?;
        let http = Http::new(target.clone(), headers.clone());
        let answers = Arc::new(Semaphore::new(options.limits.answers));
        Ok(Self { inner: Arc::new(Inner { options, target, headers, http, pool: Pool::new(), answers }) })
    }

    /// Opens a connection ahead of time and says which kind it is.
    pub async fn connect(&self) -> Result<Transport, ClientError> {
        let mut tried = 0;
        loop {
            match self.connect_once().await {
                Ok(transport) => return Ok(transport),
                Err(error) => self.wait_or_give_up(error, &mut tried).await?,
            }
        }
    }

    async fn connect_once(&self) -> Result<Transport, ClientError> {
        if self.may_use_socket()
            && let Found::Lane(lane) = self.lane(None).await?
        {
            lane.finish();
            return Ok(Transport::WebSocket);
        }
        self.inner.http.connect().await?;
        Ok(Transport::Sse)
    }

    /// Whether the server can keep responses, so that `previous_response_id` may continue them. Where it cannot, the whole
    /// conversation goes into `input` each time.
    pub fn keeps_responses(&self) -> bool {
        self.inner.options.wire_api == WireApi::Responses
    }

    fn may_use_socket(&self) -> bool {
        self.inner.options.transport != Transport::Sse && self.keeps_responses()
    }

    /// Asks for a response, given the body of `response.create`, and waits for its first event.
    ///
    /// Whatever breaks before that event is tried again within the limits. A `background` response always goes by
    /// server-sent events, because it outlives its connection.
    pub async fn respond(&self, request: Value) -> Result<Answer, ClientError> {
        let body = Body::new(request, self.inner.options.wire_api)?;
        let limit = self.inner.options.limits.answers;
        let place = self.inner.answers.clone().try_acquire_owned().map_err(|_| ClientError::TooMany { limit })?;
        let mut tried = 0;
        loop {
            match self.start(&body).await {
                Ok((source, first)) => return Ok(Answer::new(self.clone(), &body, source, first, place)),
                Err(error) => self.wait_or_give_up(error, &mut tried).await?,
            }
        }
    }

    async fn start(&self, body: &Body) -> Result<(Source, Event), ClientError> {
        let mut source = self.send(body).await?;
        let unstarted = |why| ClientError::Interrupted { response_id: None, events_seen: 0, why };
        let first = match source.next().await {
            Ok(event) => event,
            Err(Lost::Broken(why)) => return Err(unstarted(why)),
            Err(Lost::TooLarge) => return Err(ClientError::TooLarge { limit: self.inner.options.limits.body_bytes }),
            Err(Lost::Done | Lost::TooSlow) => return Err(unstarted("nothing was said".to_owned())),
        };
        let Some(error) = ClientError::of_event(&first) else {
            return Ok((source, first));
        };
        source.finish();
        source.let_go();
        if is_worn_out(&first) { Err(unstarted(error.to_string())) } else { Err(error) }
    }

    async fn send(&self, body: &Body) -> Result<Source, ClientError> {
        let post = |path: &str, body: Bytes| Call {
            method: Method::POST,
            path: path.to_owned(),
            body: Some(body),
            accept: EVENT_STREAM,
        };
        if let Some(chat) = &body.chat {
            let source = self.events(&post("/chat/completions", chat.json.clone().into())).await?;
            return Ok(Source::Sse(Box::new(source.of_chat(chat.custom.clone()))));
        }
        if self.may_use_socket()
            && !body.background
            && let Found::Lane(lane) = self.lane(body.previous.as_deref()).await?
        {
            let message = body.for_socket(lane.name());
            // A closed connection shows when the first event is waited for.
            let _ = lane.send(message).await;
            return Ok(Source::Lane(lane));
        }
        if !body.generate {
            let message = "`generate: false` needs a WebSocket, and there is none just now; leave the warm-up out";
            return Err(ClientError::Options { message: message.to_owned() });
        }
        Ok(Source::Sse(Box::new(self.events(&post("/responses", body.for_sse().into())).await?)))
    }

    async fn lane(&self, after: Option<&str>) -> Result<Found, ClientError> {
        let inner = &self.inner;
        inner.pool.lane(&inner.target, &inner.headers, &inner.options, after).await
    }

    /// The stream a call is answered with.
    async fn events(&self, call: &Call) -> Result<SseSource, ClientError> {
        let options = &self.inner.options;
        let reply = self.reply(call, options.timeouts.sse_idle).await?;
        if !reply.is_event_stream() {
            let message = "the reply is not a stream of events".to_owned();
            return Err(ClientError::Protocol { message });
        }
        Ok(SseSource::new(reply, options.limits.body_bytes, options.timeouts.sse_idle))
    }

    /// A reply that is no error.
    async fn reply(&self, call: &Call, wait: Duration) -> Result<Reply, ClientError> {
        let late = ClientError::Timeout { what: "reply", after: wait };
        let reply = timeout(wait, self.inner.http.send(call)).await.map_err(|_| late)??;
        if (200..300).contains(&reply.status) {
            return Ok(reply);
        }
        let late = ClientError::Timeout { what: "end of the reply", after: wait };
        Err(timeout(wait, reply.into_error(self.inner.options.limits.body_bytes)).await.unwrap_or(late))
    }

    /// The rest of a stored response, after the event with number `after`.
    ///
    /// Not found is tried again as well: the server may not have noticed yet that the old connection is gone.
    pub(crate) async fn resume(&self, id: &str, after: u64) -> Result<SseSource, ClientError> {
        let path = format!("/responses/{}?stream=true&starting_after={after}", escape(id));
        let call = Call { method: Method::GET, path, body: None, accept: EVENT_STREAM };
        let mut tried = 0;
        loop {
            match self.events(&call).await {
                Ok(source) => return Ok(source),
                Err(ClientError::NotFound { .. }) if tried < self.inner.options.limits.retries => {
                    tokio::time::sleep(backoff::wait(self.inner.options.timeouts.retry, tried)).await;
                    tried += 1;
                }
                Err(error) => self.wait_or_give_up(error, &mut tried).await?,
            }
        }
    }

    /// Waits before the next try, or returns the error when there should be none.
    async fn wait_or_give_up(&self, error: ClientError, tried: &mut u32) -> Result<(), ClientError> {
        let options = &self.inner.options;
        let usual = backoff::wait(options.timeouts.retry, *tried);
        let wait = match &error {
            ClientError::Connect { .. } | ClientError::Interrupted { .. } => usual,
            ClientError::Server { status: 502..=504, .. } => usual,
            ClientError::RateLimited { retry_after: Some(after), .. } => (*after).max(usual),
            _ => return Err(error),
        };
        if *tried >= options.limits.retries || wait > options.timeouts.retry_after_max {
            return Err(error);
        }
        *tried += 1;
        tracing::debug!(%error, ?wait, tried, "trying again");
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// Asks for a response and waits until it is whole.
    pub async fn whole(&self, request: Value) -> Result<Response, ClientError> {
        if !self.keeps_responses() {
            return self.respond(request).await?.finish().await;
        }
        let body = Body::new(request, WireApi::Responses)?.whole();
        read(&self.json(Method::POST, "/responses", Some(body)).await?)
    }

    /// A stored response.
    pub async fn get(&self, id: &str) -> Result<Response, ClientError> {
        read(&self.json(Method::GET, &format!("/responses/{}", escape(id)), None).await?)
    }

    /// Forgets a stored response.
    pub async fn delete(&self, id: &str) -> Result<(), ClientError> {
        self.json(Method::DELETE, &format!("/responses/{}", escape(id)), None).await.map(drop)
    }

    /// Stops a response that runs without a reader.
    pub async fn cancel(&self, id: &str) -> Result<(), ClientError> {
        self.json(Method::POST, &format!("/responses/{}/cancel", escape(id)), Some("{}".to_owned())).await.map(drop)
    }

    /// The server's models, as it describes them.
    pub async fn models(&self) -> Result<Value, ClientError> {
        read(&self.json(Method::GET, "/models", None).await?)
    }

    async fn json(&self, method: Method, path: &str, body: Option<String>) -> Result<Vec<u8>, ClientError> {
        let call = Call { method, path: path.to_owned(), body: body.map(Bytes::from), accept: JSON };
        let after = self.inner.options.timeouts.whole;
        let mut tried = 0;
        let tries = async {
            loop {
                let done = match self.reply(&call, after).await {
                    Ok(reply) => reply.whole(self.inner.options.limits.body_bytes).await,
                    Err(error) => Err(error),
                };
                match done {
                    Ok(bytes) => return Ok(bytes),
                    Err(error) => self.wait_or_give_up(error, &mut tried).await?,
                }
            }
        };
        timeout(after, tries).await.map_err(|_| ClientError::Timeout { what: "reply", after })?
    }

    pub(crate) fn options(&self) -> &ClientOptions {
        &self.inner.options
    }
}

fn headers(options: &ClientOptions) -> Result<HeaderMap, ClientError> {
    let wrong = |name: &str| ClientError::Options { message: format!("the header {name:?} cannot be sent") };
    let mut headers = HeaderMap::new();
    let agent = HeaderValue::from_static(concat!("flint/", env!("CARGO_PKG_VERSION")));
    headers.insert(USER_AGENT, agent);
    for (name, value) in &options.headers {
        let key = HeaderName::try_from(name).map_err(|_| wrong(name))?;
        headers.insert(key, HeaderValue::try_from(value).map_err(|_| wrong(name))?);
    }
    if let Some(key) = &options.api_key {
        let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| wrong("authorization"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ClientError::Protocol { message: format!("the reply's JSON: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_stays_one_part_of_the_path() {
        assert_eq!(escape("resp_1a-B.~"), "resp_1a-B.~");
        assert_eq!(escape("a/../b?c d\u{e9}"), "a%2F..%2Fb%3Fc%20d%C3%A9");
    }

    #[test]
    fn the_key_is_not_shown() {
        let mut options = ClientOptions::new("http://localhost/v1");
        options.api_key = Some("hunter2".to_owned());
        options.headers = vec![("x-secret".to_owned(), "hunter3".to_owned())];
        assert!(!format!("{options:?}").contains("hunter"));
        options.headers = vec![("bad name".to_owned(), String::new())];
        assert!(Client::new(options).is_err());
    }
}
