//! From a request to what the engine is asked: the prompt, and what the answer is held to.
//!
//! A request that continues a conversation whose tokens are at hand only adds to them. Templates and grammars are the
//! work of strangers, so all of it goes to blocking threads.

use std::sync::Arc;

use api::responses::{CreateResponse, InputItem, Role};
use serde_json::Value;
use text::{Special, Thinking, Written};

use super::settings;
use crate::error::ApiError;
use crate::generation::aside;
use crate::generation::conversation::Conversation;
use crate::generation::drafts;
use crate::generation::thoughts::AnswerStart;
use crate::generation::tool_cache::Declared;
use crate::generation::{self, Job, ROOM};
use crate::guard::owner::Owner;
use crate::lock::lock;
use crate::models::ModelLease;
use crate::sessions::Stretch;
use crate::sessions::turn::Turn;

/// What a response is to be made of.
#[derive(Clone)]
pub struct Order {
    /// Who asks.
    pub owner: Owner,
    /// The model.
    pub loaded: ModelLease,
    /// The request.
    pub request: Arc<CreateResponse>,
    /// The turn it continues.
    pub parent: Option<Arc<Turn>>,
    /// What the template is told about thinking.
    pub thinking: Thinking,
}

/// What came of an order.
pub struct Prepared {
    /// What the engine is asked.
    pub job: Job,
    /// The conversation that the prompt begins with, where it is held.
    pub before: Option<Arc<Stretch>>,
    /// What was left out of the input.
    pub warnings: Vec<String>,
}

impl Order {
    /// What the engine is to be asked. `head` is the identity of the prompt's beginning.
    pub async fn prepare(self, tools: &Arc<Declared>, head: u64, generate: bool) -> Result<Prepared, ApiError> {
        let held = self.held(head).filter(|_| generate && !self.request.continue_final_message);
        let tools = Arc::clone(tools);
        aside::run(move || self.write(&tools, held, generate)).await
    }

    /// How many tokens the prompt has.
    pub async fn count(self, tools: Arc<Declared>) -> Result<usize, ApiError> {
        aside::run(move || self.whole(&tools, true, &mut Vec::new()).map(|written| written.tokens.len())).await
    }

    fn write(&self, tools: &Declared, held: Option<Arc<Stretch>>, generate: bool) -> Result<Prepared, ApiError> {
        let (loaded, request) = (&self.loaded, &self.request);
        let mut warnings = Vec::new();
        let appended = match &held {
            Some(held) => self.append(held, tools, &mut warnings)?,
            None => None,
        };
        let (written, before) = match appended {
            Some(written) => (written, held),
            None => (self.whole(tools, generate, &mut warnings)?, None),
        };
        let format = generation::source(&request.format, &tools.set);
        let formatted = format.is_some();
        if formatted && request.continue_final_message {
            let message = "cannot be used with a format: it holds an answer from its beginning";
            return Err(ApiError::bad_field("continue_final_message", message));
        }
        let grammar = match generate {
            false => None,
            true if formatted => generation::grammar(loaded, format, &tools.set)?,
            true => tools.grammar(loaded)?,
        };
        let job = Job {
            max_tokens: if generate { request.max_output_tokens } else { Some(0) },
            sampling: settings::sampling(request),
            priority: settings::priority(request),
            grammar,
            answer: generation::answer_options(loaded, &tools.set, formatted, written.opening),
            begins: AnswerStart {
                opening: written.opening,
                budget: request.reasoning.as_ref().and_then(|reasoning| reasoning.max_tokens),
                lasting: written.lasting,
            },
            prediction: drafts::prediction(loaded, request.prediction.as_deref().filter(|_| generate), &mut warnings),
            stored: request.store,
            ..Job::new(self.owner, written.tokens)
        };
        Ok(Prepared { job, before, warnings })
    }

    /// The whole conversation, written from its beginning, and how its answer begins.
    fn whole(&self, tools: &Declared, generate: bool, warnings: &mut Vec<String>) -> Result<Written, ApiError> {
        warnings.clear();
        let mut conversation = Conversation::of(self.owner);
        if let Some(instructions) = &self.request.instructions {
            conversation.system(instructions);
        }
        conversation.turns(self.parent.as_ref(), &self.loaded, &tools.set)?;
        let (input, begun) = self.begun()?;
        conversation.items(input, &self.loaded, &tools.set, warnings)?;
        let mut written = conversation.write(&self.loaded, &tools.set, &self.thinking, generate)?;
        self.loaded.encode(begun.as_bytes(), Special::Plain, &mut written.tokens)?;
        Ok(written)
    }

    /// The input, and how the answer begins where the client has written its beginning.
    fn begun(&self) -> Result<(&[Value], String), ApiError> {
        let input = self.request.input.as_slice();
        let Some((last, before)) = input.split_last().filter(|_| self.request.continue_final_message) else {
            return Ok((input, String::new()));
        };
        match InputItem::read_list("input", std::slice::from_ref(last))?.pop() {
            Some(InputItem::Message { role: Role::Assistant, content }) => Ok((before, content.text)),
            _ => {
                let message = "the last item of input must be a message of the assistant, to go on with";
                Err(ApiError::bad_field("continue_final_message", message))
            }
        }
    }

    /// The tokens up to the end of the turn before, where they are known and can be added to.
    fn held(&self, head: u64) -> Option<Arc<Stretch>> {
        let parent = self.parent.as_ref()?;
        let known = !parent.tokens.is_empty() && parent.fingerprint == self.loaded.facts.fingerprint;
        known.then(|| lock(&self.loaded.sessions).find(&parent.response.id, head)).flatten()
    }

    /// The prompt of a request that only adds to a conversation whose tokens are known; `None` when the template must
    /// see all of it.
    fn append(
        &self,
        held: &Stretch,
        tools: &Declared,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Written>, ApiError> {
        let mut conversation = Conversation::of(self.owner);
        if let Some(parent) = &self.parent {
            conversation.follow(parent);
        }
        conversation.items(&self.request.input, &self.loaded, &tools.set, warnings)?;
        let Some(after) = conversation.write_after_answer(&self.loaded, &self.thinking)? else { return Ok(None) };
        let tokens = held.with(&after.tokens, ROOM);
        Ok(Some(Written { lasting: tokens.len(), tokens, ..after }))
    }
}
