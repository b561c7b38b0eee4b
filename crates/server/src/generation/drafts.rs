//! Drafting as clients see it: what they expect in an answer goes in, what came of it goes out.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::responses::resource::DraftFigures;
use engine::{DraftCount, DraftCounts, DraftKind, PREDICTION_TOKENS_MAX, Prediction};
use text::Special;

use crate::models::LoadedModel;

/// What came of drafting, by drafter.
pub fn figures(drafts: &DraftCounts) -> BTreeMap<String, DraftFigures> {
    let counts = DraftKind::ALL.map(|kind| (kind, drafts.of(kind)));
    let of = |(kind, count): (DraftKind, DraftCount)| {
        let acceptance = count.accepted as f64 / count.tokens as f64;
        let figures = DraftFigures {
            drafts: count.drafts,
            drafted_tokens: count.tokens,
            accepted_tokens: count.accepted,
            acceptance: (acceptance * 1000.0).round() / 1000.0,
        };
        (kind.name().to_owned(), figures)
    };
    counts.into_iter().filter(|(_, count)| count.tokens > 0).map(of).collect()
}

/// Predicted tokens that were right, and those that were wrong: drafted from the prediction and verified. Tokens of it
/// that were never drafted count as neither.
pub fn predicted(used: &engine::Usage) -> (usize, usize) {
    let count = used.drafts.of(DraftKind::Prediction);
    (count.accepted as usize, (count.tokens - count.accepted) as usize)
}

/// Most bytes of a prediction that are used; what follows could not be said in any context served here.
const PREDICTION_BYTES_MAX: usize = 256 << 10;

/// Makes a prediction ready. Blocking: up to some ten milliseconds. What is left out of a huge one is told of.
pub fn prediction(loaded: &LoadedModel, text: Option<&str>, warnings: &mut Vec<String>) -> Option<Arc<Prediction>> {
    let text = text.filter(|text| !text.is_empty())?;
    let used = &text[..text.floor_char_boundary(PREDICTION_BYTES_MAX)];
    let tokens = loaded.tokenizer.encode(used, Special::Plain);
    if used.len() < text.len() || tokens.len() > PREDICTION_TOKENS_MAX {
        let limit = format!("{PREDICTION_BYTES_MAX} bytes or {PREDICTION_TOKENS_MAX} tokens");
        warnings.push(format!("`prediction` was used up to its first {limit}; the answer is the same, only slower"));
    }
    Some(Arc::new(Prediction::new(tokens)))
}
