//! From a request's settings to what the engine takes and what the response repeats.

use api::responses::request::Reasoning;
use api::responses::{CreateResponse, Response};
use engine::{Priority, Sampling};
use serde_json::Value;
use text::Thinking;

use crate::facts::priority_of;
use crate::generation::thoughts;
use crate::generation::tool_cache::Declared;
use crate::ids;
use crate::models::LoadedModel;
use crate::sessions::turn::Turn;

/// Names what the request asks for and this model cannot do.
pub fn warnings(request: &CreateResponse, loaded: &LoadedModel) -> Vec<String> {
    let mut warnings = request.warnings.clone();
    if request.reasoning.as_ref().is_some_and(|reasoning| reasoning.summary.is_some()) {
        let model = &loaded.name;
        warnings.push(match loaded.facts.reasons {
            true => format!("`reasoning.summary` was ignored: the thoughts of {model} come whole"),
            false => format!("`reasoning.summary` was ignored: {model} answers without reasoning"),
        });
    }
    if request.text.verbosity.is_some() {
        warnings.push("`text.verbosity` was ignored: this model has no such setting".to_owned());
    }
    let tier = request.service_tier.as_deref();
    if let Some(other) = tier.filter(|tier| !["auto", "default", "priority", "fast", "flex"].contains(tier)) {
        warnings.push(format!("`service_tier: {other}` is not known here; priority was used"));
    }
    warnings
}

/// What the template is told about thinking. An answer whose beginning the client wrote thinks no more.
pub fn thinking(request: &CreateResponse, loaded: &LoadedModel, warnings: &mut Vec<String>) -> Thinking {
    let mut wish = request.reasoning.as_ref().map(Reasoning::wish).unwrap_or_default();
    if request.continue_final_message {
        (wish.on, wish.effort) = (Some(false), None);
    }
    thoughts::told(loaded, &wish, "reasoning.effort", warnings)
}

/// How tokens are picked. Greedy unless asked otherwise: the same question gets the same answer.
pub fn sampling(request: &CreateResponse) -> Sampling {
    Sampling {
        temperature: request.temperature.unwrap_or(0.0),
        top_p: request.top_p.unwrap_or(1.0),
        top_k: request.top_k.unwrap_or(0),
        presence_penalty: request.presence_penalty.unwrap_or(0.0),
        frequency_penalty: request.frequency_penalty.unwrap_or(0.0),
        seed: request.seed,
        logprobs: request.logprobs.then_some(request.top_logprobs),
        ..Sampling::default()
    }
}

/// The scheduling class.
pub fn priority(request: &CreateResponse) -> Priority {
    priority_of(request.service_tier.as_deref(), request.background)
}

/// The response before anything happened.
pub fn response(request: &CreateResponse, tools: &Declared, loaded: &LoadedModel, parent: Option<&Turn>) -> Response {
    let sampling = sampling(request);
    Response {
        id: ids::new("resp"),
        created_at: ids::now(),
        model: request.model.clone().unwrap_or_else(|| loaded.name.clone()),
        previous_response_id: parent.map(|turn| turn.response.id.clone()),
        instructions: request.instructions.clone().map(Value::from),
        tools: tools.echo.clone(),
        tool_choice: request.tool_choice_raw.clone().unwrap_or_else(|| Value::from("auto")),
        parallel_tool_calls: request.parallel_tool_calls,
        text: request.text.clone(),
        top_p: sampling.top_p,
        presence_penalty: sampling.presence_penalty,
        frequency_penalty: sampling.frequency_penalty,
        top_logprobs: request.top_logprobs,
        temperature: sampling.temperature,
        reasoning: Some(request.reasoning.clone().unwrap_or_default()),
        max_output_tokens: request.max_output_tokens,
        max_tool_calls: request.max_tool_calls,
        store: request.store,
        background: request.background,
        service_tier: match priority(request) {
            Priority::Interactive => "priority".to_owned(),
            Priority::Background => "flex".to_owned(),
        },
        metadata: request.metadata.clone(),
        safety_identifier: request.safety_identifier.clone(),
        prompt_cache_key: request.prompt_cache_key.clone(),
        ..Response::default()
    }
}
