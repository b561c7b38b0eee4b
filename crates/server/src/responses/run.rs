//! One response from request to end, whatever carries it: a state machine that yields events.
//!
//! The transport asks for the next event and may stop the run at any moment. The last event is given out only after the
//! response is kept, so a client that has seen it can rely on it.

use std::collections::VecDeque;
use std::sync::Arc;

use api::responses::{CreateResponse, Event, EventKind, IncompleteDetails, Response, ResponseError, Status, Timings};
use engine::{FinishReason, Finished, Started};
use tokio::time::{Interval, MissedTickBehavior};

use super::emit::Emitter;
use super::prepare::Order;
use super::settings;
use crate::error::ApiError;
use crate::generation::input_tools::input_tool_lists;
use crate::generation::{Generation, Piece};
use crate::guard::owner::Owner;
use crate::lock::lock;
use crate::models::ModelLease;
use crate::sessions::turn::Turn;
use crate::sessions::{self, Stretch};
use crate::shared::Shared;
use crate::telemetry::metrics::Rejection;
use crate::{facts, ids};

/// Who asks, and how.
#[derive(Clone, Debug)]
pub struct Origin {
    /// For whom.
    pub owner: Owner,
    /// `websocket`, `sse` or `http`.
    pub transport: &'static str,
    /// The lane of a connection, when it has a name.
    pub stream_id: Option<Arc<str>>,
    /// False only reads the prompt.
    pub generate: bool,
}

impl Origin {
    /// A request over HTTP.
    pub fn http(owner: Owner, stream: bool) -> Self {
        Self { owner, transport: if stream { "sse" } else { "http" }, stream_id: None, generate: true }
    }
}

/// Why a run is stopped from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// New input came for it.
    Steered,
    /// Its owner no longer wants it.
    Cancelled,
}

/// Refuses a request that says nothing, or too much.
pub fn check(shared: &Shared, request: &CreateResponse, parent: Option<&Arc<Turn>>) -> Result<(), ApiError> {
    if request.input.is_empty() && request.instructions.is_none() && parent.is_none() {
        return Err(ApiError::bad_field("input", "input is required: a text or a list of items"));
    }
    if request.input.len() > shared.limits.input_items {
        let (count, limit) = (request.input.len(), shared.limits.input_items);
        return Err(ApiError::bad_field("input", format!("{count} items, at most {limit} are taken")));
    }
    Ok(())
}

/// A response being made.
pub struct Run {
    shared: Arc<Shared>,
    loaded: ModelLease,
    parent: Option<Arc<Turn>>,
    request: Arc<CreateResponse>,
    emitter: Emitter,
    generation: Option<Generation>,
    events: VecDeque<Event>,
    scratch: Vec<Event>,
    heartbeat: Interval,
    started: bool,
    quiet: bool,
    stop: Option<Stop>,
    /// What was spent when the run was paused.
    paused: Option<engine::Usage>,
    /// Identity of the head of the prompt.
    head: u64,
    /// The conversation that the prompt begins with, where it is held.
    before: Option<Arc<Stretch>>,
    turn: Option<Arc<Turn>>,
    owner: Owner,
    ended: bool,
}

impl Run {
    /// Prepares a response: finds the model, writes the prompt, hands it to the engine. A prompt that does not fit is
    /// an answer too, told in the stream; everything else that is wrong is an error.
    pub async fn start(
        shared: &Arc<Shared>,
        request: Arc<CreateResponse>,
        parent: Option<Arc<Turn>>,
        origin: Origin,
    ) -> Result<Self, ApiError> {
        check(shared, &request, parent.as_ref())?;
        let loaded = shared.models.get(request.model.as_deref()).await?;
        let tools = shared.tool_cache.get(&request, input_tool_lists(&request.input, parent.as_ref()))?;
        tools.set.check(shared.limits.tools)?;
        let mut warnings = settings::warnings(&request, &loaded);
        warnings.extend_from_slice(&tools.warnings);
        let thinking = settings::thinking(&request, &loaded, &mut warnings);
        let head = sessions::head(request.instructions.as_deref(), tools.list, &thinking);
        let order = Order {
            owner: origin.owner,
            loaded: loaded.clone(),
            request: Arc::clone(&request),
            parent: parent.clone(),
            thinking,
        };
        let (before, started) = match order.prepare(&tools, head, origin.generate).await {
            Ok(mut prepared) => {
                warnings.append(&mut prepared.warnings);
                (prepared.before, Generation::start(&loaded, prepared.job))
            }
            Err(error) => (None, Err(error)),
        };
        let mut response = settings::response(&request, &tools, &loaded, parent.as_deref());
        response.flint = Some(Box::new(facts::served(&loaded, origin.transport, warnings)));
        let (generation, failure) = match started {
            Ok(generation) => (Some(generation), None),
            Err(error) if error.code == Some("context_length_exceeded") => (None, Some(error)),
            Err(error) => return Err(error),
        };
        let mut heartbeat = tokio::time::interval(shared.limits.progress_event);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        heartbeat.reset();
        let mut run = Self {
            shared: Arc::clone(shared),
            loaded,
            parent,
            request,
            emitter: Emitter::new(response, tools, origin.stream_id),
            generation,
            events: VecDeque::new(),
            scratch: Vec::new(),
            heartbeat,
            started: false,
            quiet: true,
            stop: None,
            paused: None,
            head,
            before,
            turn: None,
            owner: origin.owner,
            ended: false,
        };
        run.announce();
        if let Some(error) = failure {
            shared.metrics.rejected(Rejection::ContextLength);
            run.fail(error.code.unwrap_or("server_error"), error.message);
        }
        Ok(run)
    }

    /// The response as it stands.
    pub fn response(&self) -> &Response {
        &self.emitter.response
    }

    /// Whose it is.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The model that makes it.
    pub fn loaded(&self) -> &ModelLease {
        &self.loaded
    }

    /// The link for later requests; there once [`Run::next`] has given out the last event.
    pub fn turn(&self) -> Option<&Arc<Turn>> {
        self.turn.as_ref()
    }

    /// An event that is there already.
    pub fn ready(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the run at the next token; what was generated stays.
    pub fn stop(&mut self, why: Stop) {
        if self.stop.is_none() {
            self.stop = Some(why);
            if let Some(generation) = &mut self.generation {
                generation.cancel();
            }
        }
    }

    /// Frees the engine and waits: the reader is gone and may come back. What it said so far is kept as a response of
    /// its own right, which [`Run::resume`] makes whole.
    pub async fn pause(&mut self) {
        if let Some(generation) = &mut self.generation {
            generation.pause();
            let mut last = None;
            while let Some(piece) = generation.next().await {
                match piece {
                    Piece::Started(_) => {}
                    Piece::Parts { parts, logprobs } => self.emitter.parts(parts, logprobs, &mut self.scratch),
                    Piece::Finished(finished) => last = Some(finished),
                }
            }
            self.events.extend(self.scratch.drain(..));
            match last {
                Some(finished) if finished.reason == FinishReason::Cancelled => self.paused = Some(finished.usage),
                // It ended by itself before the engine heard of the pause.
                Some(finished) => self.end(&finished),
                None => {}
            }
        }
        if self.turn.is_some() {
            if !self.ended {
                self.keep().await;
            }
            return;
        }
        let mut response = self.emitter.response.clone();
        response.status = Status::Incomplete;
        response.incomplete_details = Some(IncompleteDetails { reason: "disconnected".to_owned() });
        let turn = self.link(response);
        if let Err(error) = self.shared.turns.keep(Arc::new(turn)).await {
            tracing::error!(%error, "an interrupted response was not stored");
        }
    }

    /// Goes on after [`Run::pause`].
    pub fn resume(&mut self) -> Result<(), ApiError> {
        match (self.paused.take(), &mut self.generation) {
            (Some(usage), Some(generation)) => generation.resume(usage),
            _ => Ok(()),
        }
    }

    /// Ends a run that cannot go on.
    pub fn give_up(&mut self, error: &ApiError) {
        self.generation = None;
        self.fail(error.code.unwrap_or("server_error"), error.message.clone());
    }

    /// Whether the last event has been given out.
    pub fn is_ended(&self) -> bool {
        self.ended && self.events.is_empty()
    }

    /// The next event; `None` after the last. Can be dropped and called again without losing anything.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            if self.turn.is_some() {
                self.keep().await;
                continue;
            }
            let Some(generation) = &mut self.generation else {
                self.fail("server_error", "the engine ended the stream".to_owned());
                continue;
            };
            tokio::select! {
                biased;
                piece = generation.next() => match piece {
                    Some(piece) => self.take(piece),
                    None => self.generation = None,
                },
                _ = self.heartbeat.tick() => self.beat(),
            }
        }
    }

    fn announce(&mut self) {
        let place = self.generation.as_ref().and_then(Generation::place).filter(|place| *place > 0);
        if place.is_some() {
            self.emitter.response.status = Status::Queued;
        }
        self.set_queue_position(place);
        let created = self.emitter.status(|response| EventKind::Created { response });
        self.events.push_back(created);
        self.tell_queue_position(place);
    }

    /// Says that it still lives, and where in the queue.
    fn beat(&mut self) {
        if !std::mem::replace(&mut self.quiet, true) {
            return;
        }
        let place = self.generation.as_ref().and_then(Generation::place).filter(|_| !self.started);
        self.set_queue_position(place);
        self.tell_queue_position(place);
    }

    fn tell_queue_position(&mut self, place: Option<usize>) {
        let event = match place {
            Some(_) => self.emitter.status(|response| EventKind::Queued { response }),
            None => self.emitter.status(|response| EventKind::InProgress { response }),
        };
        self.events.push_back(event);
    }

    fn set_queue_position(&mut self, place: Option<usize>) {
        if let Some(flint) = &mut self.emitter.response.flint {
            flint.queue_position = place;
        }
    }

    fn take(&mut self, piece: Piece) {
        self.quiet = false;
        match piece {
            Piece::Started(started) => self.begin(&started),
            Piece::Parts { parts, logprobs } => {
                self.emitter.parts(parts, logprobs, &mut self.scratch);
                self.events.extend(self.scratch.drain(..));
                if self.request.max_tool_calls.is_some_and(|most| self.emitter.calls() >= most)
                    && let Some(generation) = &mut self.generation
                {
                    generation.cancel();
                }
            }
            Piece::Finished(finished) => self.end(&finished),
        }
    }

    fn begin(&mut self, started: &Started) {
        self.started = true;
        self.set_queue_position(None);
        if let Some(flint) = &mut self.emitter.response.flint {
            flint.cache_miss = started.miss.map(facts::describe);
            flint.timings = Some(Timings { restored_tokens: started.restored_tokens, ..Timings::default() });
        }
        if self.emitter.response.status == Status::Queued {
            self.emitter.response.status = Status::InProgress;
            let event = self.emitter.status(|response| EventKind::InProgress { response });
            self.events.push_back(event);
        }
    }

    /// The engine is done: settle how the response ended.
    fn end(&mut self, finished: &Finished) {
        let (status, reason) = match (&finished.reason, self.stop) {
            (FinishReason::Stop | FinishReason::StopToken(_), _) => (Status::Completed, None),
            (FinishReason::Cancelled, Some(Stop::Steered)) => (Status::Incomplete, Some("steered")),
            (FinishReason::Cancelled, Some(Stop::Cancelled)) => (Status::Cancelled, Some("cancelled")),
            // Ended by ourselves: a call more than was asked for.
            (FinishReason::Cancelled, None) => (Status::Completed, None),
            (FinishReason::Length, _) if finished.usage.generated == 0 => (Status::Completed, None),
            (FinishReason::Length | FinishReason::ContextFull, _) => (Status::Incomplete, Some("max_output_tokens")),
            (reason, _) => {
                self.account(finished);
                let (code, message) = facts::failure(reason);
                return self.fail(code, message);
            }
        };
        self.account(finished);
        let item_status = if status == Status::Completed { status } else { Status::Incomplete };
        self.emitter.finish(item_status, &mut self.scratch);
        self.events.extend(self.scratch.drain(..));
        self.emitter.response.incomplete_details = reason.map(|reason| IncompleteDetails { reason: reason.to_owned() });
        self.close(status);
    }

    /// Ends the response with an error.
    fn fail(&mut self, code: &str, message: String) {
        self.emitter.finish(Status::Incomplete, &mut self.scratch);
        self.events.extend(self.scratch.drain(..));
        self.emitter.response.error = Some(ResponseError { code: code.to_owned(), message });
        self.close(Status::Failed);
    }

    fn close(&mut self, status: Status) {
        let response = &mut self.emitter.response;
        response.status = status;
        response.completed_at = (status == Status::Completed).then(ids::now);
        let mut tokens: Arc<[u32]> = Arc::default();
        if let Some(generation) = self.generation.take() {
            tokens = generation.tokens().into();
            if let Some(whole) = generation.into_tokens() {
                lock(&self.loaded.sessions).hold(&response.id, self.head, self.before.take(), &whole);
            }
        }
        self.set_queue_position(None);
        if status == Status::Completed {
            lock(&self.loaded.answer_tokens).remember(self.owner, self.emitter.shown(), &tokens);
        }
        let mut turn = self.link(self.emitter.response.clone());
        turn.tokens = tokens;
        self.turn = Some(Arc::new(turn));
    }

    /// The link of a chain that this run makes, with what it has said so far.
    fn link(&self, response: Response) -> Turn {
        Turn {
            parent: self.parent.clone(),
            input: self.request.input.clone(),
            response,
            tokens: self.generation.as_ref().map_or_else(Arc::default, |generation| generation.tokens().into()),
            fingerprint: self.loaded.facts.fingerprint,
            owner: self.owner,
        }
    }

    /// Keeps the finished response, then tells of its end.
    async fn keep(&mut self) {
        if let Some(turn) = &self.turn
            && turn.response.store
            && let Err(error) = self.shared.turns.keep(Arc::clone(turn)).await
        {
            tracing::error!(response = turn.response.id, %error, "response not stored");
            if let Some(flint) = &mut self.emitter.response.flint {
                flint.warnings.push(format!("the response could not be stored: {error}"));
            }
        }
        let end = match self.emitter.response.status {
            Status::Completed => self.emitter.status(|response| EventKind::Completed { response }),
            Status::Failed => self.emitter.status(|response| EventKind::Failed { response }),
            _ => self.emitter.status(|response| EventKind::Incomplete { response }),
        };
        self.events.push_back(end);
        self.ended = true;
    }

    fn account(&mut self, finished: &Finished) {
        let used = finished.usage;
        let thought = self.generation.as_ref().map_or(0, Generation::thought_tokens);
        self.emitter.response.usage = Some(facts::usage(used, thought));
        if let Some(flint) = &mut self.emitter.response.flint {
            let restored = flint.timings.as_ref().map_or(0, |timings| timings.restored_tokens);
            flint.timings = Some(facts::timings(finished, restored));
        }
    }
}
