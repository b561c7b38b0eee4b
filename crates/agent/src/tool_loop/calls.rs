//! Running what the model called: what only looks runs together, what changes something runs alone and in order.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Control, Turn};
use crate::tools::{Interrupt, ToolCall, ToolResult, Tools};
use crate::{Decision, Outcome};

/// Calls of one response that are run; more are refused.
pub const CALLS_MAX: usize = 32;

/// Calls that look at the same time.
const TOGETHER_MAX: usize = 8;

/// A call, and its work where that began while the model was still talking.
pub struct Pending {
    /// The call.
    pub call: ToolCall,
    /// Begun early.
    pub early: Option<JoinHandle<ToolResult>>,
}

impl Pending {
    /// A call as it is read off the stream. It begins at once when it only looks and nothing before it changes anything.
    pub fn new(call: ToolCall, before: &[Self], tools: &Arc<Tools>) -> Self {
        let begins = before.len() < TOGETHER_MAX && before.iter().all(|other| other.early.is_some());
        let early =
            (begins && Tools::only_looks(&call)).then(|| start(tools, &call, watch::channel(Interrupt::None).1));
        Self { call, early }
    }
}

impl Turn<'_> {
    /// Runs calls and puts their results into the conversation. Some when the turn is over.
    pub(super) async fn run_calls(&mut self, calls: Vec<Pending>, stopped: bool) -> Option<Outcome> {
        // Who steered while the model was talking does not want the calls it had made before.
        let begin = match (stopped, self.waiting.is_empty()) {
            (true, _) => Interrupt::Stopped,
            (false, false) => Interrupt::Steered,
            (false, true) => Interrupt::None,
        };
        let (interrupt, interrupted) = watch::channel(begin);
        let tools = Arc::clone(&self.of.tools);
        let mut work = std::pin::pin!(run_all(&tools, calls, interrupted));
        let done = loop {
            tokio::select! {
                biased;
                control = self.control.recv() => match control {
                    Some(Control::Steer { text, at }) => {
                        self.waiting.push((text, at));
                        tools.asks().decide_all(Decision::No);
                        interrupt.send_if_modified(|now| {
                            let first = *now == Interrupt::None;
                            if first { *now = Interrupt::Steered }
                            first
                        });
                    }
                    Some(Control::Stop) | None => {
                        interrupt.send_replace(Interrupt::Stopped);
                        tools.asks().decide_all(Decision::Stop);
                    }
                },
                done = &mut work => break done,
            }
        };
        let mut outcome = (*interrupt.borrow() == Interrupt::Stopped).then_some(Outcome::Stopped);
        for (call, mut result) in done {
            if result.ends_turn {
                outcome.get_or_insert(Outcome::Stopped);
            }
            if !self.repeats.note(&call, &mut result) {
                let why = "the model repeats the same call; ask again in other words, or with another model".to_owned();
                outcome.get_or_insert(Outcome::Failed { why });
            }
            self.conversation.answer(&call.call_id, call.custom, &result.output);
        }
        outcome
    }
}

async fn run_all(
    tools: &Arc<Tools>,
    calls: Vec<Pending>,
    interrupted: watch::Receiver<Interrupt>,
) -> Vec<(ToolCall, ToolResult)> {
    let mut done = Vec::with_capacity(calls.len());
    // Looking calls that run at the moment, oldest first; a call that changes something waits for all of them.
    let mut running: Vec<(ToolCall, JoinHandle<ToolResult>)> = Vec::new();
    for (index, Pending { call, early }) in calls.into_iter().enumerate() {
        let looks = Tools::only_looks(&call);
        if let Some(handle) = early {
            running.push((call, handle));
            continue;
        }
        if !looks || running.len() >= TOGETHER_MAX {
            finish(&mut running, &mut done, &interrupted).await;
        }
        let ended = done.iter().any(|(_, result)| result.ends_turn);
        let refused = match *interrupted.borrow() {
            _ if ended => Some("not run: the user stopped the turn"),
            _ if index >= CALLS_MAX => Some("not run: too many calls at once; call fewer"),
            Interrupt::Stopped => Some("not run: the user stopped the turn"),
            Interrupt::Steered if !looks => Some("not run: the user has something to say first"),
            _ => None,
        };
        match refused {
            Some(why) => {
                finish(&mut running, &mut done, &interrupted).await;
                done.push((call, ToolResult { output: why.to_owned(), ..ToolResult::default() }));
            }
            None => {
                let handle = start(tools, &call, interrupted.clone());
                running.push((call, handle));
                if !looks {
                    finish(&mut running, &mut done, &interrupted).await;
                }
            }
        }
    }
    finish(&mut running, &mut done, &interrupted).await;
    done
}

fn start(tools: &Arc<Tools>, call: &ToolCall, interrupted: watch::Receiver<Interrupt>) -> JoinHandle<ToolResult> {
    let (tools, call) = (Arc::clone(tools), call.clone());
    tokio::spawn(async move { tools.call(call, interrupted).await })
}

async fn finish(
    running: &mut Vec<(ToolCall, JoinHandle<ToolResult>)>,
    done: &mut Vec<(ToolCall, ToolResult)>,
    interrupted: &watch::Receiver<Interrupt>,
) {
    for (call, mut handle) in running.drain(..) {
        let broke = |error| ToolResult { output: format!("error: the tool broke: {error}"), ..ToolResult::default() };
        // What only looks can be left where it stands: nobody waits for a disk after a stop. The rest ends by itself.
        let looks = Tools::only_looks(&call);
        let mut interrupted = interrupted.clone();
        let result = tokio::select! {
            biased;
            result = &mut handle => result.unwrap_or_else(broke),
            Ok(_) = interrupted.wait_for(|now| looks && *now == Interrupt::Stopped) => {
                handle.abort();
                ToolResult { output: "not finished: the user stopped the turn".to_owned(), ..ToolResult::default() }
            }
        };
        done.push((call, result));
    }
}
