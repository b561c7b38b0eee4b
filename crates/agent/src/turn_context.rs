//! What every turn works with: the configuration, the connection to the model, the conversation, and the line to the
//! person.
//!
//! A turn is a plain sequence of awaits. Whatever it waits for, it waits through [`TurnContext::during`], which at the same time
//! listens to the person: a stop or a steer comes back at once, what can be answered on the side is answered, and what
//! has to wait is put off with a word. That is the one `select!` of the partner.

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use api::responses::Usage;
use client::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use workspace::edit::Written;
use workspace::session::Replay;

use crate::candidates::{LastTry, Refused};
use crate::command::{Command, Decision, Prompt, Style};
use crate::commit::Pending;
use crate::config::Config;
use crate::conversation::Conversation;
use crate::event::{Approval, ApprovalAsk, Event, Status, TurnUsage};
use crate::history::History;
use crate::intent::{Intent, Leanings};
use crate::local;
use crate::names::Libraries;
use crate::partner::PartnerOptions;
use crate::shared_index::SharedIndex;
use crate::tools::Tools;
use crate::{idle_commands, pinned};

/// Prompts that may wait for the running turn; more are given back.
const WAITING_MAX: usize = 32;

/// A local server that takes longer than this to answer is being started, and the person is told.
const START_PATIENCE: Duration = Duration::from_millis(300);

/// Everything a turn works with.
pub struct TurnContext {
    /// What the partner was started with.
    pub options: PartnerOptions,
    /// What was said and shown.
    pub conversation: Conversation,
    /// The session's file, its turns and their checkpoints.
    pub history: History,
    /// Number of the running turn, or of the last one.
    pub turn: u32,
    /// What the running turn has cost.
    pub usage: TurnUsage,
    /// What is known of the server and how the last turn went.
    pub status: Status,
    /// Prompts that wait for the running turn.
    pub waiting: VecDeque<Prompt>,
    /// Steers that came before the answer they turn had begun, and when.
    early: VecDeque<(Prompt, Instant)>,
    /// The person wants to leave.
    pub closing: bool,
    /// When the command that is being worked on came in.
    pub begun: Instant,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Command>,
    connected: Option<(String, Client)>,
    warned: Vec<String>,
    edits: Arc<AtomicU64>,
    asks: Arc<AtomicU64>,
    /// The tools of the agent style, once used.
    pub tools: Option<Arc<Tools>>,
    /// The candidates a person may choose from.
    pub last_try: Option<LastTry>,
    /// What the running turn wrote, or the last one.
    pub written: Vec<Written>,
    /// Answers to the last question that did not pass its check.
    pub refused: Refused,
    /// How much models lean to a change.
    pub leanings: Leanings,
    /// What the workspace holds.
    pub index: SharedIndex,
    /// What is installed beside it.
    pub libraries: Libraries,
    /// The last message and what it was taken for.
    pub asked: Option<(Prompt, Intent)>,
    /// What the last turn asked instead of changing files.
    pub open: Option<Open>,
    /// The person says that it was taken for the wrong thing.
    overruled: bool,
    /// Files that stay before the model.
    pub pinned: Vec<PathBuf>,
    /// What turns changed since the last commit that Flint made, oldest first.
    pub uncommitted: Vec<Pending>,
}

/// A question to the person that their next message may answer.
#[derive(Clone, Debug)]
pub struct Open {
    /// What they asked for.
    pub prompt: Prompt,
    /// Answers that the question offered.
    pub offered: Vec<String>,
    /// The word of the message that the answer stands for.
    pub instead_of: Option<String>,
}

/// What may stand around a name in an answer.
const QUOTES: &[char] = &['`', '"', '\'', '.', '!'];

impl Open {
    /// Whether a message is one of the answers that were offered, and nothing else.
    pub fn offers(&self, text: &str) -> bool {
        let said = text.trim().trim_matches(QUOTES);
        self.offered.iter().any(|offered| offered == said)
    }

    /// What was asked for, with the answer.
    pub fn answered(&self, prompt: &Prompt) -> Prompt {
        let mut asked = self.prompt.clone();
        let answer = prompt.text.trim();
        asked.text = match self.instead_of.as_deref().filter(|word| asked.text.contains(word)) {
            Some(word) => asked.text.replacen(word, answer.trim_matches(QUOTES), 1),
            None => format!("{}\n{answer}", asked.text.trim_end()),
        };
        asked.failing = None;
        asked.intent = None;
        asked
    }
}

/// What ended a wait.
#[derive(Debug)]
pub enum During<T> {
    /// What was waited for.
    Done(T),
    /// The person redirects the turn; when they said so.
    Steer(Prompt, Instant),
    /// The person answers a request for approval.
    Decide {
        /// Which.
        ask: u64,
        /// What.
        decision: Decision,
    },
    /// The person wants the turn to end.
    Stop,
}

impl TurnContext {
    pub(crate) fn new(
        options: PartnerOptions,
        events: mpsc::Sender<Event>,
        inbox: mpsc::Receiver<Command>,
        history: History,
    ) -> Self {
        let leanings = Leanings::in_state(&options.state);
        let index = SharedIndex::new(&options.root, (!options.ephemeral).then_some(options.state.as_path()));
        Self {
            options,
            leanings,
            index,
            libraries: Libraries::default(),
            conversation: Conversation::default(),
            history,
            turn: 0,
            usage: TurnUsage::default(),
            status: Status::default(),
            waiting: VecDeque::new(),
            early: VecDeque::new(),
            closing: false,
            begun: Instant::now(),
            events,
            inbox,
            connected: None,
            warned: Vec::new(),
            edits: Arc::new(AtomicU64::new(1)),
            asks: Arc::new(AtomicU64::new(1)),
            tools: None,
            last_try: None,
            written: Vec::new(),
            refused: Refused::default(),
            asked: None,
            open: None,
            overruled: false,
            pinned: Vec::new(),
            uncommitted: Vec::new(),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> &Config {
        &self.options.config.config
    }

    /// The workspace.
    pub fn root(&self) -> PathBuf {
        self.options.root.clone()
    }

    /// Tells the person. One who no longer listens has left.
    pub async fn emit(&mut self, event: Event) {
        if self.events.send(event).await.is_err() {
            self.closing = true;
        }
    }

    /// A line worth reading.
    pub async fn notice(&mut self, text: impl Into<String>) {
        self.emit(Event::Notice { text: text.into() }).await;
    }

    /// Something that did not work outside a turn.
    pub async fn trouble(&mut self, text: impl Into<String>) {
        self.emit(Event::Trouble { text: text.into() }).await;
    }

    /// The next command when nothing is under way; none when the person has left.
    pub(crate) async fn next_command(&mut self) -> Option<Command> {
        if std::mem::take(&mut self.overruled) {
            return Some(Command::Overrule);
        }
        if let Some(prompt) = self.waiting.pop_front() {
            return Some(Command::Ask(prompt));
        }
        self.inbox.recv().await
    }

    /// Waits for `work` and listens to the person meanwhile. `work` is dropped when the person comes first.
    pub async fn during<T>(&mut self, work: impl Future<Output = T>) -> During<T> {
        tokio::pin!(work);
        loop {
            let command = tokio::select! {
                biased;
                command = self.inbox.recv() => command,
                value = &mut work => return During::Done(value),
            };
            let now = Instant::now();
            match command {
                None | Some(Command::Shutdown) => {
                    self.closing = true;
                    return During::Stop;
                }
                Some(Command::Stop) => return During::Stop,
                Some(Command::Overrule) if self.asked.is_some() => {
                    self.overruled = true;
                    return During::Stop;
                }
                Some(Command::Steer(prompt)) => return During::Steer(prompt, now),
                Some(Command::Decide { ask, decision }) => return During::Decide { ask, decision },
                Some(Command::Ask(prompt) | Command::Queue(prompt)) => self.queue(prompt).await,
                Some(command) => self.aside(command).await,
            }
        }
    }

    /// Puts a prompt behind the running turn.
    pub async fn queue(&mut self, prompt: Prompt) {
        if self.waiting.len() == WAITING_MAX {
            let text =
                format!("{WAITING_MAX} messages are waiting already, so this one was not queued: {}", prompt.text);
            return self.trouble(text).await;
        }
        let text = prompt.text.clone();
        self.waiting.push_back(prompt);
        self.emit(Event::Queued { text, waiting: self.waiting.len() }).await;
    }

    /// Keeps a steer for the answer that is about to begin.
    pub async fn steer_early(&mut self, prompt: Prompt, at: Instant) {
        if self.early.len() == WAITING_MAX {
            return self.queue(prompt).await;
        }
        self.early.push_back((prompt, at));
    }

    /// A steer that came too early, for the answer that has begun.
    pub fn next_early(&mut self) -> Option<(Prompt, Instant)> {
        self.early.pop_front()
    }

    /// Gives back the steers of a turn that ended before it could be turned.
    pub async fn give_back_early(&mut self) {
        while let Some((prompt, _)) = self.early.pop_front() {
            let why = "the turn ended before the model began to answer".to_owned();
            self.emit(Event::SteerFailed { text: prompt.text, why }).await;
        }
    }

    /// Answers what can be answered while a turn runs.
    async fn aside(&mut self, command: Command) {
        match command {
            Command::Status => self.emit_status().await,
            Command::Turns => {
                let turns = self.history.turn_lines();
                self.emit(Event::Turns(turns)).await;
            }
            Command::Sessions { query } => match self.history.sessions(&query) {
                Ok(found) => self.emit(Event::Sessions(found)).await,
                Err(why) => self.trouble(why).await,
            },
            Command::Where { question } => idle_commands::places(self, question).await,
            // Both hold from the next turn on.
            Command::Add { path } => pinned::add(self, &path).await,
            Command::Drop { path } => pinned::drop(self, &path).await,
            _ => self.trouble("a turn is running; stop it first (Esc), or wait until it has ended").await,
        }
    }

    /// The line to the person, for work that runs beside the turn.
    pub fn events(&self) -> mpsc::Sender<Event> {
        self.events.clone()
    }

    /// Where numbers of edits come from.
    pub fn edit_numbers(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.edits)
    }

    /// Where numbers of questions come from.
    pub fn ask_numbers(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.asks)
    }

    /// A number for the next edit.
    pub fn next_edit(&mut self) -> u64 {
        self.edits.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks the person and waits. A partner without anybody to ask is told no.
    pub async fn ask(&mut self, what: ApprovalAsk, why: String) -> Decision {
        let ask = self.asks.fetch_add(1, Ordering::Relaxed);
        self.emit(Event::ApprovalAsked(Approval { ask, what, why })).await;
        let decision = loop {
            match self.during(std::future::pending::<()>()).await {
                During::Decide { ask: answered, decision } if answered == ask => break decision,
                During::Stop => break Decision::Stop,
                During::Steer(prompt, _) => self.queue(prompt).await,
                During::Decide { .. } | During::Done(()) => {}
            }
        };
        self.emit(Event::ApprovalSettled { ask }).await;
        decision
    }

    /// What commands and edits may touch. The partner's own files and the configuration are protected.
    pub fn sandbox_policy(&self) -> sandbox::Policy {
        let config = self.config();
        let mut protect = self.options.config.files.clone();
        protect.push(self.options.state.clone());
        sandbox::Policy::new(config.sandbox_mode, &config.sandbox_workspace_write, &self.options.root, &protect)
    }

    /// The model in use.
    pub fn model(&self) -> String {
        self.config().model.clone().unwrap_or_else(|| self.options.default_model.clone())
    }

    /// The working style in use: as configured, else as the catalogue says; unknown models are large.
    pub fn style(&self) -> Style {
        let model = self.model();
        let known = self.options.known_models.iter().find(|(name, _)| *name == model).map(|(_, style)| *style);
        let local = self.config().is_local();
        self.config().style.or(known).unwrap_or(if local { Style::Pair } else { Style::Agent })
    }

    /// The client of the provider in use. The private server is started when it is not there.
    pub async fn client(&mut self) -> Result<Client, String> {
        let provider = self.config().model_provider.clone();
        if let Some((name, client)) = &self.connected
            && *name == provider
        {
            return Ok(client.clone());
        }
        let mut url = None;
        if self.config().is_local() {
            url = Some(local::ensure(&self.options.server, &self.model()).await.map_err(|error| error.to_string())?);
        }
        let options = self.config().client_options(url.as_deref(), &self.options.sources.env);
        let options = options.map_err(|error| error.to_string())?;
        self.status.provider = options.base_url.clone();
        let client = Client::new(options).map_err(|error| error.to_string())?;
        self.connected = Some((provider, client.clone()));
        Ok(client)
    }

    /// The same while listening to the person, because a server that starts takes seconds. None when they stopped it.
    pub async fn reach(&mut self) -> Result<Option<Client>, String> {
        if self.connected.is_none() && self.config().is_local() {
            let (how, model) = (self.options.server.clone(), self.model());
            let work = async move { local::ensure(&how, &model).await };
            tokio::pin!(work);
            let mut said = false;
            loop {
                let patience = if said { START_PATIENCE * 1000 } else { START_PATIENCE };
                match self.during(tokio::time::timeout(patience, &mut work)).await {
                    During::Done(Ok(Ok(_))) => break,
                    During::Done(Ok(Err(error))) => return Err(error.to_string()),
                    During::Done(Err(_)) if said => {}
                    During::Done(Err(_)) => {
                        said = true;
                        self.notice(
                            "Starting the local server and loading the model; it stays ready for the next time.",
                        )
                        .await;
                    }
                    During::Steer(prompt, at) => self.steer_early(prompt, at).await,
                    During::Decide { .. } => {}
                    During::Stop => return Ok(None),
                }
            }
        }
        self.client().await.map(Some)
    }

    /// Forgets the connection, because another provider is used or the server is gone.
    pub fn disconnect(&mut self) {
        self.connected = None;
    }

    /// A request made of the usual fields, the conversation, and `more`.
    pub fn body(&self, instructions: &str, more: Value) -> Value {
        let config = self.config();
        let mut body = json!({
            "model": self.model(),
            "instructions": instructions,
            "input": self.conversation.items(),
            "store": false,
            "prompt_cache_key": self.history.session_id(),
        });
        if let Some(temperature) = config.temperature {
            body["temperature"] = json!(temperature);
        }
        if let Some(limit) = config.max_output_tokens {
            body["max_output_tokens"] = json!(limit);
        }
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        body
    }

    /// Counts what an answer cost that was read as a whole.
    pub fn spend(&mut self, usage: &Usage) {
        self.usage.requests += 1;
        self.usage.input_tokens += usage.input_tokens;
        self.usage.cached_tokens += usage.input_tokens_details.cached_tokens;
        self.usage.output_tokens += usage.output_tokens;
    }

    /// The conversation becomes what a session says.
    pub fn take_up(&mut self, replay: &Replay) {
        self.conversation.replace(replay.items.iter().map(|item| Value::clone(item)).collect());
        self.turn = replay.turns.last().map_or(0, |turn| turn.turn);
        self.status.context_used = 0;
        (self.last_try, self.open) = (None, None);
        self.pinned.clone_from(&replay.pinned);
    }

    /// The conversation becomes what it was before the last turn.
    pub fn forget_turn(&mut self) -> Result<(), String> {
        let replay = self.history.rewind_conversation(self.turn, false)?;
        self.take_up(&replay);
        Ok(())
    }

    /// Adds what the person said to the conversation and to the session.
    pub async fn say(&mut self, text: &str) {
        let item = self.conversation.push_user(text);
        self.history.item(&item);
    }

    /// Adds what a response cost, remembers what served it, and passes its warnings on, each once.
    pub async fn account(&mut self, response: &api::responses::Response) {
        if let Some(used) = &response.usage {
            self.usage.input_tokens += used.input_tokens;
            self.usage.cached_tokens += used.input_tokens_details.cached_tokens;
            self.usage.output_tokens += used.output_tokens;
            self.usage.accepted_prediction_tokens += used.output_tokens_details.accepted_prediction_tokens;
            self.usage.rejected_prediction_tokens += used.output_tokens_details.rejected_prediction_tokens;
            self.status.context_used = used.total_tokens;
        }
        self.status.lane = Some(response.service_tier.clone()).filter(|tier| !tier.is_empty());
        let Some(flint) = &response.flint else { return };
        self.status.served_model = Some(flint.served_model.clone());
        self.status.weights = Some(flint.weights.clone());
        self.status.quantisation = Some(flint.quantisation.clone());
        self.status.context = flint.context;
        self.usage.decode_rate = flint.timings.as_ref().map(|timings| timings.decode_rate);
        for warning in &flint.warnings {
            if !self.warned.contains(warning) {
                self.warned.push(warning.clone());
                self.notice(warning.clone()).await;
            }
        }
    }

    /// Milliseconds since the command came in.
    pub fn elapsed_ms(&self) -> f64 {
        self.begun.elapsed().as_micros() as f64 / 1000.0
    }

    /// Says how things stand.
    pub async fn emit_status(&mut self) {
        let style = match self.style() {
            Style::Pair => "pair",
            Style::Agent => "agent",
        };
        let config = self.config();
        let provider = match (&self.status.provider, &config.provider().base_url) {
            (known, _) if !known.is_empty() => known.clone(),
            (_, Some(url)) => url.clone(),
            (_, None) => "the private server of this machine".to_owned(),
        };
        let status = Status {
            provider,
            session: self.history.session_id(),
            model: self.model(),
            style,
            profile: config.profile.clone(),
            sandbox: self.options.sandbox_words(),
            approvals: word(&config.approval_policy),
            context: config.model_context_window.unwrap_or(self.status.context),
            instructions: self.options.instruction_files.clone(),
            pinned: self.pinned.clone(),
            ..self.status.clone()
        };
        self.emit(Event::Status(Box::new(status))).await;
    }
}

/// The name that a setting has in the configuration.
pub fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
