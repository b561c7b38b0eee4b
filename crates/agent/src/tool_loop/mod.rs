//! The tool loop: ask the model, run what it calls, tell it what came of that, until it calls nothing more.
//!
//! The person can step in at any moment. A steer reaches a model that talks at its next token; while tools run it ends
//! those that can safely end, and follows their results. A stop ends everything and keeps what there is. Whatever
//! happens, every call in the conversation has its result, so that the next turn can go on from it.

mod calls;
mod conversation;
mod listen;
mod repeats;
mod turn;

use std::sync::Arc;
use std::time::Instant;

use client::Client;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

pub use conversation::Conversation;
pub use turn::turn;

use listen::Heard;
use repeats::Repeats;

use crate::tools::Tools;
use crate::{Event, Outcome, TurnUsage};

/// Requests in one turn unless said otherwise; then the turn ends and says so.
pub const STEPS_MAX: usize = 100;

/// What the agent style adds to the instructions of a project.
pub const INSTRUCTIONS: &str = "You are Flint, a coding partner in a terminal. You work in the user's workspace through \
    tools. Look before you change: search and read what matters, then make the smallest change that does the job, and \
    check it with the project's own tests or compiler where there are any. Never guess what a file contains. Call \
    several tools at once when they do not depend on each other. When a tool fails, read why and do something else. \
    When you are done, say in a few sentences what you changed and what you saw when you checked it.";

/// What the person says while a turn runs.
#[derive(Clone, Debug)]
pub enum Control {
    /// Redirects the turn.
    Steer {
        /// The new words.
        text: String,
        /// When the key was pressed.
        at: Instant,
    },
    /// Ends the turn.
    Stop,
}

/// One session's way to work through tools.
pub struct ToolLoop {
    /// The model's server.
    pub client: Client,
    /// What the model may do.
    pub tools: Arc<Tools>,
    /// Where it says what happens.
    pub events: mpsc::Sender<Event>,
    /// Of every request: model, instructions, sampling; not `input` and `tools`.
    pub settings: Map<String, Value>,
    /// Requests in one turn.
    pub steps_max: usize,
}

/// How a turn ended.
#[derive(Debug)]
pub struct LoopEnd {
    /// How.
    pub outcome: Outcome,
    /// What it cost.
    pub usage: TurnUsage,
    /// The last response, for its facts about model, weights and speed.
    pub last: Option<Box<api::responses::Response>>,
}

/// A turn under way.
struct Turn<'a> {
    of: &'a ToolLoop,
    conversation: &'a mut Conversation,
    control: &'a mut mpsc::Receiver<Control>,
    usage: TurnUsage,
    begun: Instant,
    /// Words of the person that follow the results of tools.
    waiting: Vec<(String, Instant)>,
    /// Steers that no token has answered yet.
    unanswered: Vec<Instant>,
    repeats: Repeats,
    last: Option<Box<api::responses::Response>>,
}

impl ToolLoop {
    /// Runs one turn; what was asked is the end of `conversation` already. `begun` is when the person asked.
    pub async fn run(
        &self,
        conversation: &mut Conversation,
        control: &mut mpsc::Receiver<Control>,
        begun: Instant,
    ) -> LoopEnd {
        let mut turn = Turn {
            of: self,
            conversation,
            control,
            usage: TurnUsage::default(),
            begun,
            waiting: Vec::new(),
            unanswered: Vec::new(),
            repeats: Repeats::default(),
            last: None,
        };
        let outcome = turn.run().await;
        turn.usage.total_ms = begun.elapsed().as_secs_f64() * 1e3;
        LoopEnd { outcome, usage: turn.usage, last: turn.last }
    }
}

impl Turn<'_> {
    async fn run(&mut self) -> Outcome {
        for _ in 0..self.of.steps_max {
            let heard = match self.ask().await {
                Ok(heard) => heard,
                Err(why) => return Outcome::Failed { why },
            };
            let Heard { calls, stopped } = heard;
            if calls.is_empty() && self.waiting.is_empty() {
                return if stopped { Outcome::Stopped } else { Outcome::Done };
            }
            if let Some(outcome) = self.run_calls(calls, stopped).await {
                return outcome;
            }
            for (text, at) in std::mem::take(&mut self.waiting) {
                self.conversation.say(&text);
                self.unanswered.push(at);
            }
        }
        let why = format!(
            "the model took {} steps and did not finish; look at what it did, then ask for a smaller task",
            self.of.steps_max
        );
        Outcome::Failed { why }
    }

    async fn say(&self, event: Event) {
        let _ = self.of.events.send(event).await;
    }
}
