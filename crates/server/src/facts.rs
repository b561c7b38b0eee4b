//! What every endpoint tells its clients alike: what served them, how long it took, why it failed; and the lane of a tier.

use std::time::Duration;

use api::SamplingFields;
use api::responses::resource::{InputDetails, OutputDetails};
use api::responses::{Flint, Timings, Usage};
use engine::{FinishReason, Finished, Miss, Priority, Sampling};

use crate::generation::drafts;
use crate::models::LoadedModel;
use crate::telemetry::trace;

/// What a client is told about the model that serves it.
pub fn served(loaded: &LoadedModel, transport: &str, warnings: Vec<String>) -> Flint {
    trace::note("transport", transport);
    Flint {
        served_model: loaded.facts.served_model.clone(),
        weights: format!("{:016x}", loaded.facts.fingerprint),
        quantisation: loaded.facts.quantisation.clone(),
        context: loaded.facts.context,
        transport: transport.to_owned(),
        warnings,
        ..Flint::default()
    }
}

/// How long an answer took that began with `restored_tokens` from disk.
pub fn timings(finished: &Finished, restored_tokens: usize) -> Timings {
    let (used, time) = (finished.usage, finished.timings);
    let ms = |time: Duration| time.as_micros() as f64 / 1000.0;
    let decode_rate = match time.decode.as_secs_f64() {
        seconds if seconds > 0.0 && used.generated > 1 => (used.generated - 1) as f64 / seconds,
        _ => 0.0,
    };
    Timings {
        queue_ms: ms(time.queued),
        prefill_ms: ms(time.prefill),
        first_token_ms: ms(time.first_token),
        decode_ms: ms(time.decode),
        decode_rate: (decode_rate * 100.0).round() / 100.0,
        restored_tokens,
        drafted_tokens: used.drafts.total().tokens as usize,
        accepted_tokens: used.drafts.total().accepted as usize,
        drafters: drafts::figures(&used.drafts),
    }
}

/// What an answer cost, as the Responses API tells it.
pub fn usage(used: engine::Usage, reasoning_tokens: usize) -> Usage {
    let (accepted_prediction_tokens, rejected_prediction_tokens) = drafts::predicted(&used);
    Usage {
        input_tokens: used.prompt,
        input_tokens_details: InputDetails { cached_tokens: used.cached },
        output_tokens: used.generated,
        output_tokens_details: OutputDetails {
            reasoning_tokens,
            accepted_prediction_tokens,
            rejected_prediction_tokens,
        },
        total_tokens: used.prompt + used.generated,
    }
}

/// Why a prompt was not cached whole, in words.
///
/// Positions only: what stands in the cache may not be the reader's to see.
pub fn describe(miss: Miss) -> String {
    match miss {
        Miss::Uncached { position } => format!("nothing that starts this way was cached beyond token {position}"),
        Miss::Different { position, .. } => format!("the closest cached prompt differs at token {position}"),
        Miss::NoState { position, cached } => {
            format!("keys and values were cached up to token {cached}, but no recurrent state after token {position}")
        }
    }
}

/// What a client is told when the engine could not go on.
pub fn failure(reason: &FinishReason) -> (&'static str, String) {
    match reason {
        FinishReason::Shutdown => ("server_error", "the server is shutting down; try again when it is back".to_owned()),
        FinishReason::SlowReader => {
            ("slow_reader", "the reader fell too far behind and the answer was ended; read faster".to_owned())
        }
        FinishReason::Error { text, .. } => ("server_error", format!("the engine failed: {text}")),
        other => ("server_error", format!("the answer ended unexpectedly: {other:?}")),
    }
}

/// The lane of a service tier.
pub fn priority_of(tier: Option<&str>, background: bool) -> Priority {
    match tier {
        Some("flex") => Priority::Background,
        None | Some("auto") if background => Priority::Background,
        _ => Priority::Interactive,
    }
}

/// How tokens are picked. Greedy unless asked otherwise: the same question gets the same answer.
pub fn sampling(fields: &SamplingFields, logprobs: Option<usize>) -> Sampling {
    Sampling {
        temperature: fields.temperature.unwrap_or(0.0),
        top_k: fields.top_k.unwrap_or(0),
        top_p: fields.top_p.unwrap_or(1.0),
        min_p: fields.min_p.unwrap_or(0.0),
        presence_penalty: fields.presence_penalty.unwrap_or(0.0),
        frequency_penalty: fields.frequency_penalty.unwrap_or(0.0),
        logit_bias: fields.logit_bias.clone(),
        seed: fields.seed,
        logprobs,
        ..Sampling::default()
    }
}
