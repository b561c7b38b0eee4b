//! The lanes of one WebSocket: who runs, who waits, and which responses later ones may continue.
//!
//! A lane is a queue with at most one running response; lanes run beside each other. The default lane has no name. A
//! response made on this connection can be continued here whether it is stored or not; a continuation that fails makes
//! its own lane forget what it referred to.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use api::responses::socket::Create;
use api::responses::{ClientMessage, CreateResponse, Event, OutputItem, Status};
use axum::extract::ws::Utf8Bytes;
use axum::http::{HeaderMap, StatusCode};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::Instrument;

use super::run::{Origin, Run, Stop};
use super::socket::refusal;
use super::steer::Steers;
use super::watched::Watched;
use crate::error::ApiError;
use crate::guard::owner::Owner;
use crate::lru::Lru;
use crate::models::rate::Rate;
use crate::sessions::turn::Turn;
use crate::sessions::turn::find_parent;
use crate::shared::Shared;
use crate::telemetry::metrics::{Rejection, SteerOutcome};
use crate::telemetry::trace;

/// Requests waiting on one lane; more are answered 429.
const WAITING_MAX: usize = 16;

/// Responses of this connection that can be continued; the one unused longest is forgotten.
const TURNS_MAX: usize = 256;

/// The name of a lane; the default one has none.
pub type LaneId = Option<Arc<str>>;

/// What the task of a response tells the connection.
pub enum Out {
    /// An event for the client, as JSON.
    Event(Utf8Bytes),
    /// A response has an id now.
    Begun(LaneId, String),
    /// A response is over, or never began.
    Ended(LaneId, Box<Ended>),
}

/// How a response ended.
pub struct Ended {
    request: Arc<CreateResponse>,
    turn: Result<Arc<Turn>, ApiError>,
}

/// A response of this connection and the request that made it, for those that inherit its settings.
#[derive(Clone)]
pub struct Local {
    /// The response.
    pub turn: Arc<Turn>,
    /// Its request.
    pub request: Arc<CreateResponse>,
    /// Where it was made.
    pub lane: LaneId,
}

/// All lanes of one connection.
pub struct Lanes {
    shared: Arc<Shared>,
    owner: Owner,
    lanes: HashMap<LaneId, Lane>,
    local: Lru<String, Local>,
    /// Responses that have ended here, however they did, as many as can be continued.
    over: VecDeque<String>,
    out: mpsc::Sender<Out>,
    opened_with: HeaderMap,
    tasks: JoinSet<()>,
    running: usize,
    /// Requests that came, ever.
    arrivals: u64,
}

#[derive(Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    running: Option<Running>,
    steers: Steers,
}

struct Waiting {
    /// Where a limit is met who came first starts first, whatever lane it is in.
    arrival: u64,
    create: Create,
    /// Ours, not the client's: the successor of a response that was steered.
    successor: bool,
}

struct Running {
    /// There once the response has begun.
    id: Option<String>,
    successor: bool,
    stop: watch::Sender<Option<Stop>>,
}

impl Lanes {
    /// No lanes yet. Events and news of responses go to `out`; `opened_with` names the client's trace.
    pub fn new(shared: Arc<Shared>, owner: Owner, out: mpsc::Sender<Out>, opened_with: HeaderMap) -> Self {
        Self {
            shared,
            owner,
            lanes: HashMap::new(),
            local: Lru::default(),
            over: VecDeque::new(),
            out,
            opened_with,
            tasks: JoinSet::new(),
            running: 0,
            arrivals: 0,
        }
    }

    /// Whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.lanes.values().all(|lane| lane.waiting.is_empty())
    }

    /// Takes a message of the client.
    pub fn receive(&mut self, message: ClientMessage, replies: &mut Vec<Event>) {
        match message {
            ClientMessage::Create(create) => self.create(*create, replies),
            ClientMessage::Cancel { response_id, stream_id } => {
                self.cancel(response_id.as_deref(), &stream_id.map(Arc::from), replies);
            }
            ClientMessage::Steer(steer) => self.steer(&steer, replies),
        }
    }

    /// Takes news of a response.
    pub fn handle(&mut self, out: Out, replies: &mut Vec<Event>) {
        match out {
            Out::Event(_) => {}
            Out::Begun(lane, id) => {
                if let Some(Lane { running: Some(running), steers, .. }) = self.lanes.get_mut(&lane) {
                    running.id = Some(id);
                    steers.applied();
                }
            }
            Out::Ended(lane, ended) => self.ended(&lane, *ended, replies),
        }
    }

    fn create(&mut self, create: Create, replies: &mut Vec<Event>) {
        let id: LaneId = create.stream_id.as_deref().map(Arc::from);
        let named = self.lanes.keys().filter(|id| id.is_some()).count();
        let limit = self.shared.limits.lanes_per_socket;
        if id.is_some() && !self.lanes.contains_key(&id) && named >= limit {
            let message = format!("this connection has {limit} lanes, which is all it may have; use one of them");
            let error = ApiError::bad_field("stream_id", message).code("websocket_stream_limit_reached");
            return replies.push(refusal(&self.shared.metrics, &error.because(Rejection::SocketLimit), id));
        }
        let lane = self.lanes.entry(id.clone()).or_default();
        if lane.waiting.len() >= WAITING_MAX {
            let message = "this lane has too many requests waiting; wait for one to end";
            let error = ApiError::overloaded(message, 1, Rate::queue(WAITING_MAX, 0));
            let error = error.code("websocket_queue_full").because(Rejection::SocketLimit);
            return replies.push(refusal(&self.shared.metrics, &error, id));
        }
        self.arrivals += 1;
        lane.waiting.push_back(Waiting { arrival: self.arrivals, create, successor: false });
        self.advance();
    }

    /// Stops a response by its id, or everything on a lane: what runs and what waits.
    fn cancel(&mut self, response_id: Option<&str>, lane: &LaneId, replies: &mut Vec<Event>) {
        if response_id.is_none()
            && let Some(waiting) = self.lanes.get_mut(lane)
        {
            for _ in waiting.waiting.drain(..) {
                let error = ApiError::bad_request("cancelled before it began").code("response_cancelled");
                // Its owner wanted it so.
                let error = ApiError { reason: None, ..error };
                replies.push(refusal(&self.shared.metrics, &error, lane.clone()));
            }
        }
        if let Some(response) = response_id
            && !self.knows(response)
        {
            let message = format!("response {response:?} is not known on this connection; cancel it where it was made");
            let error = ApiError::not_found("response_not_found", message);
            return replies.push(refusal(&self.shared.metrics, &error, lane.clone()));
        }
        let wanted = |id: &LaneId, running: &Running| match response_id {
            Some(response) => running.id.as_deref() == Some(response),
            None => id == lane,
        };
        for (id, lane) in &self.lanes {
            if let Some(running) = lane.running.as_ref().filter(|running| wanted(id, running)) {
                self.shared.metrics.interrupted();
                running.stop.send_replace(Some(Stop::Cancelled));
            }
        }
    }

    /// Whether a response runs here, or ran.
    fn knows(&self, response: &str) -> bool {
        let mut running = self.lanes.values().filter_map(|lane| lane.running.as_ref()?.id.as_deref());
        running.any(|id| id == response) || self.over.iter().any(|id| id == response)
    }

    fn steer(&mut self, steer: &api::responses::Steer, replies: &mut Vec<Event>) {
        let previous = steer.previous_response_id.as_str();
        let runs = |lane: &Lane| lane.running.as_ref().is_some_and(|run| run.id.as_deref() == Some(previous));
        let running = self.lanes.iter().find(|(_, lane)| runs(lane)).map(|(id, _)| id.clone());
        let local = self.local.get(previous).cloned();
        let id = running.clone().or_else(|| local.as_ref().map(|local| local.lane.clone()));
        let Some(id) = id else {
            self.shared.metrics.steered(SteerOutcome::Failed);
            let message = format!("response {previous:?} is not running on this connection");
            return replies.push(Steers::refuse(steer, "response_not_found", message, None));
        };
        let limit = self.shared.limits.steers_pending;
        let lane = self.lanes.entry(id.clone()).or_default();
        let accepted = lane.steers.accept(steer, limit, id.clone(), replies);
        let outcome = if accepted { SteerOutcome::Accepted } else { SteerOutcome::Failed };
        self.shared.metrics.steered(outcome);
        if !accepted {
            return;
        }
        match (&lane.running, local) {
            (Some(running), _) if running.id.as_deref() == Some(previous) => {
                running.stop.send_replace(Some(Stop::Steered));
            }
            (_, Some(local)) => self.follow_up(&local, replies),
            _ => {}
        }
    }

    fn ended(&mut self, id: &LaneId, ended: Ended, replies: &mut Vec<Event>) {
        self.running -= 1;
        let lane = self.lanes.entry(id.clone()).or_default();
        let running = lane.running.take();
        let successor = running.as_ref().is_some_and(|running| running.successor);
        let response = running.and_then(|running| running.id);
        self.over.extend(response.clone());
        if self.over.len() > TURNS_MAX {
            self.over.pop_front();
        }
        let failed = match &ended.turn {
            Ok(turn) => turn.response.status == Status::Failed,
            Err(error) => {
                lane.steers.give_back(error, id.clone(), replies);
                if !successor {
                    replies.push(refusal(&self.shared.metrics, error, id.clone()));
                }
                !successor
            }
        };
        if failed {
            lane.steers.fail(response.as_deref(), id.clone(), replies);
            self.evict(&ended.request, id);
        } else if let Ok(turn) = ended.turn {
            let local = Local { turn, request: ended.request, lane: id.clone() };
            self.remember(local.clone());
            self.follow_up(&local, replies);
        }
        self.advance();
    }

    /// Starts the successor of a response that was steered, or tells what it waits for.
    fn follow_up(&mut self, local: &Local, replies: &mut Vec<Event>) {
        let previous = local.turn.response.id.as_str();
        let Some(lane) = self.lanes.get_mut(&local.lane) else { return };
        if !lane.steers.has(previous) {
            return;
        }
        let done = |item: &&OutputItem| match item {
            OutputItem::FunctionCall { status, .. } | OutputItem::CustomToolCall { status, .. } => {
                *status == Status::Completed
            }
            _ => false,
        };
        let calls: Vec<&OutputItem> = local.turn.response.output.iter().filter(done).collect();
        if calls.is_empty() {
            let input = lane.steers.take(previous);
            let mut request = CreateResponse::clone(&local.request);
            request.input = input;
            request.previous_response_id = Some(previous.to_owned());
            let stream_id = local.lane.as_deref().map(str::to_owned);
            let create = Create { request, generate: true, stream_id };
            self.arrivals += 1;
            lane.waiting.push_front(Waiting { arrival: self.arrivals, create, successor: true });
            self.advance();
        } else {
            self.shared.metrics.steered(SteerOutcome::Pending);
            lane.steers.wait(previous, &calls, local.lane.clone(), replies);
        }
    }

    /// A response of this connection that is continued, which keeps it from being forgotten.
    fn used(&mut self, id: &str) -> Option<Arc<Turn>> {
        self.local.get(id).map(|local| Arc::clone(&local.turn))
    }

    fn remember(&mut self, local: Local) {
        self.local.insert(local.turn.response.id.clone(), local);
        if self.local.len() > TURNS_MAX {
            self.local.pop();
        }
    }

    fn evict(&mut self, request: &CreateResponse, lane: &LaneId) {
        if let Some(previous) = &request.previous_response_id
            && self.local.get(previous).is_some_and(|local| local.lane == *lane)
        {
            self.local.remove(previous);
        }
    }

    /// Starts whatever can start.
    fn advance(&mut self) {
        while self.running < self.shared.limits.responses_per_socket {
            let idle = self.lanes.iter_mut().filter(|(_, lane)| lane.running.is_none() && !lane.waiting.is_empty());
            let Some((id, lane)) = idle.min_by_key(|(_, lane)| lane.waiting.front().map(|waiting| waiting.arrival))
            else {
                break;
            };
            let (id, waiting) = (id.clone(), lane.waiting.pop_front());
            waiting.into_iter().for_each(|waiting| self.start(id.clone(), waiting));
        }
        while self.tasks.try_join_next().is_some() {}
    }

    fn start(&mut self, id: LaneId, waiting: Waiting) {
        let Waiting { mut create, successor, .. } = waiting;
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let previous = create.request.previous_response_id.clone();
        if let Some(previous) = &previous {
            // What was said while tools ran comes after their results.
            create.request.input.append(&mut lane.steers.take(previous));
        }
        let (stop, stopped) = watch::channel(None);
        lane.running = Some(Running { id: None, successor, stop });
        self.running += 1;
        let parent = previous.and_then(|id| self.used(&id));
        let span = trace::on_socket(id.as_deref(), &self.opened_with);
        let task =
            Task { shared: Arc::clone(&self.shared), owner: self.owner, lane: id, out: self.out.clone(), stopped };
        self.tasks.spawn(task.run(create, parent).instrument(span));
    }
}

/// One response of a lane.
struct Task {
    shared: Arc<Shared>,
    owner: Owner,
    lane: LaneId,
    out: mpsc::Sender<Out>,
    stopped: watch::Receiver<Option<Stop>>,
}

impl Task {
    async fn run(mut self, create: Create, parent: Option<Arc<Turn>>) {
        let request = Arc::new(create.request);
        let turn = self.respond(&request, create.generate, parent).await;
        trace::note("status", turn.as_ref().map_or_else(|error| error.status, |_| StatusCode::OK).as_u16());
        let ended = Ended { request, turn };
        // When the connection is gone nobody needs to know.
        let _ = self.out.send(Out::Ended(self.lane, Box::new(ended))).await;
    }

    async fn respond(
        &mut self,
        request: &Arc<CreateResponse>,
        generate: bool,
        parent: Option<Arc<Turn>>,
    ) -> Result<Arc<Turn>, ApiError> {
        let parent = match parent {
            Some(parent) => Some(parent),
            None => find_parent(&self.shared, self.owner, request.previous_response_id.as_deref()).await?,
        };
        let origin = Origin { owner: self.owner, transport: "websocket", stream_id: self.lane.clone(), generate };
        let run = Run::start(&self.shared, Arc::clone(request), parent, origin).await?;
        trace::note("id", run.response().id.as_str());
        self.tell(Out::Begun(self.lane.clone(), run.response().id.clone())).await?;
        let mut run = Watched::new(&self.shared, run);
        let mut stopping = false;
        loop {
            tokio::select! {
                biased;
                why = stopped(&mut self.stopped), if !stopping => {
                    stopping = true;
                    run.stop(why);
                }
                event = run.next() => match event {
                    Some(event) => self.tell(Out::Event(event)).await?,
                    None => break,
                },
            }
        }
        run.turn().cloned().ok_or_else(|| ApiError::internal("the response ended without a trace"))
    }

    async fn tell(&self, out: Out) -> Result<(), ApiError> {
        self.out.send(out).await.map_err(|_| ApiError::closing())
    }
}

/// Resolves when the response is to stop.
async fn stopped(stop: &mut watch::Receiver<Option<Stop>>) -> Stop {
    let why = stop.wait_for(Option::is_some).await.map(|why| *why);
    match why {
        Ok(Some(why)) => why,
        // The connection is gone, and this task with it.
        _ => std::future::pending().await,
    }
}
