//! `POST /infill`, as llama.vim and llama.vscode call llama.cpp: the text in a gap, quickly or not at all.
//!
//! What was typed on the current line stands at the very end of the prompt, so that a key press leaves everything
//! before it cached; its last word is asked for again ([`crate::begins`]). A prompt that is too long loses its far ends,
//! which the answer says in `truncated`.

use std::sync::Arc;

use api::SamplingFields;
use api::infill::InfillRequest;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use engine::{FinishReason, Finished, Priority};
use serde_json::{Map, Value, json};
use text::{ExtraFile, Infill, Special, TextError, write_infill};
use tokio::time::Instant;

use crate::endpoints::body;
use crate::endpoints::completions::no_infill;
use crate::endpoints::sse;
use crate::endpoints::streamed;
use crate::endpoints::streamed::Wire;
use crate::error::ApiError;
use crate::facts;
use crate::generation::Job;
use crate::generation::answers::{Answer, Answers, Delta, Step};
use crate::generation::tools::ToolSet;
use crate::guard::owner::Owner;
use crate::models::{LoadedModel, ModelLease};
use crate::shared::Shared;
use crate::telemetry::trace;

/// Tokens kept free for an answer without a limit of its own.
const ANSWER_ROOM: usize = 256;

/// Longest word that is asked for again.
const WORD_BYTES: usize = 64;

/// `POST /infill`.
pub async fn create(State(shared): State<Arc<Shared>>, owner: Owner, body: Body) -> Result<Response, ApiError> {
    let request = InfillRequest::read(body::fields(body, &shared.limits).await?)?;
    let loaded = shared.models.get(request.model.as_deref()).await?;
    let prepared = {
        let (loaded, request) = (loaded.clone(), request.clone());
        tokio::task::spawn_blocking(move || prepare(&loaded, owner, &request)).await
    };
    let (job, truncated) = prepared.map_err(|error| ApiError::internal(error.to_string()))??;
    let skip = job.begin.len();
    trace::note("transport", if request.stream { "sse" } else { "http" });
    let limited = loaded.clone();
    let mut answers = Answers::start(&loaded, vec![job], &Arc::new(ToolSet::default()), "call")?;
    let mut fill = Fill::new(loaded, request, truncated, skip);
    if fill.request.stream {
        return Ok(limited.rated(streamed::response(answers, fill, shared.limits.progress_event)));
    }
    let mut unsent = String::new();
    while let Some(step) = answers.next().await {
        match step {
            Step::Started(_) => fill.started(&answers.all[0], &mut unsent),
            Step::Grew(_, deltas) => {
                fill.take(deltas);
                if fill.enough() {
                    answers.cancel();
                }
            }
            Step::Ended(_) => fill.content.push_str(&fill.lines.rest()),
        }
    }
    answers.all[0].end()?;
    let content = std::mem::take(&mut fill.content);
    Ok(limited.rated(body::json(&fill.answer(&answers.all[0], content))))
}

/// The job, and whether the prompt had to be cut. Blocking.
fn prepare(loaded: &LoadedModel, owner: Owner, request: &InfillRequest) -> Result<(Job, bool), ApiError> {
    let extra: Vec<ExtraFile<'_>> =
        request.extra.iter().map(|file| ExtraFile { filename: &file.filename, text: &file.text }).collect();
    let (typed, begin) = split_word(&request.prompt);
    // What is asked for again is not taken from what the client wants.
    let again = loaded.tokenizer.encode(begin, Special::Plain).len();
    let max_tokens = request.n_predict.map(|count| if count == 0 { 0 } else { count + again });
    let room = max_tokens.unwrap_or(ANSWER_ROOM).clamp(1, loaded.facts.context / 2);
    let tokens_max = loaded.facts.context.saturating_sub(room + 1);
    // What is too far away to fit is not even read.
    let most = loaded.facts.context.saturating_mul(loaded.facts.token_bytes_max);
    if typed.len() > most {
        return Err(ApiError::far_too_long(loaded.facts.context, tokens_max));
    }
    let prefix = &request.prefix[request.prefix.ceil_char_boundary(request.prefix.len().saturating_sub(most))..];
    let suffix = &request.suffix[..request.suffix.floor_char_boundary(most)];
    let cut = prefix.len() < request.prefix.len() || suffix.len() < request.suffix.len();
    let extra: Vec<ExtraFile<'_>> = extra.into_iter().filter(|file| file.text.len() <= most).collect();
    let gap = Infill { prefix, suffix, prompt: typed, extra: &extra, repo: None, tokens_max: usize::MAX };
    let refused = |error: TextError| match error {
        TextError::InfillTooLong { needed, max } => ApiError::too_long(needed, max),
        other => no_infill(other),
    };
    let mut prompt = write_infill(&loaded.tokenizer, &gap).map_err(refused)?;
    let truncated = cut || prompt.len() > tokens_max;
    if truncated {
        prompt = write_infill(&loaded.tokenizer, &Infill { tokens_max, ..gap }).map_err(refused)?;
    }
    let job = Job {
        max_tokens,
        sampling: facts::sampling(&request.sampling, None),
        stop: request.stop.clone(),
        priority: Priority::Interactive,
        begin: begin.to_owned(),
        ..Job::new(owner, prompt)
    };
    Ok((job, truncated))
}

/// Cuts off the last word, with the character before it, which often belongs to the same token.
fn split_word(text: &str) -> (&str, &str) {
    let word = text.trim_end_matches(|letter: char| letter.is_alphanumeric() || letter == '_').len();
    let before = text[..word].chars().next_back().filter(|letter| *letter != '\n').map_or(0, char::len_utf8);
    let cut = word - before;
    if text.len() - cut > WORD_BYTES { (text, "") } else { text.split_at(cut) }
}

/// Holds back the start of a line until it is clear how far it is indented.
#[derive(Debug, Default)]
struct Lines {
    indent: usize,
    held: String,
    newline: bool,
    over: bool,
}

impl Lines {
    /// What may be shown of more text; sets `over` at a line that is indented too little.
    fn push(&mut self, text: &str) -> String {
        self.newline |= text.contains('\n');
        if self.indent == 0 {
            return text.to_owned();
        }
        let mut shown = String::new();
        for letter in text.chars() {
            if self.over {
                break;
            }
            match letter {
                '\n' => self.held.push('\n'),
                ' ' | '\t' if !self.held.is_empty() => self.held.push(letter),
                _ => {
                    let indent = self.held.rsplit_once('\n').map(|(_, line)| line.chars().count());
                    if indent.is_some_and(|indent| indent < self.indent) {
                        self.over = true;
                        self.held.clear();
                    } else {
                        shown.push_str(&std::mem::take(&mut self.held));
                        shown.push(letter);
                    }
                }
            }
        }
        shown
    }

    /// What is still held back when the answer is over.
    fn rest(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

/// A gap being filled.
struct Fill {
    loaded: ModelLease,
    request: InfillRequest,
    truncated: bool,
    content: String,
    lines: Lines,
    reading_since: Option<Instant>,
    writing_since: Option<Instant>,
    late: bool,
    /// Bytes at the start of the answer that the client has already.
    skip: usize,
}

impl Fill {
    fn new(loaded: ModelLease, request: InfillRequest, truncated: bool, skip: usize) -> Self {
        let lines = Lines { indent: request.n_indent, ..Lines::default() };
        let content = String::new();
        Self { loaded, request, truncated, content, lines, reading_since: None, writing_since: None, late: false, skip }
    }

    /// Takes in text and gives what may be shown of it.
    fn take(&mut self, deltas: Vec<Delta>) -> String {
        if self.writing_since.is_none() {
            self.writing_since = Some(Instant::now());
            let read = self.reading_since.map(|since| since.elapsed());
            self.late = read.zip(self.request.t_max_prompt).is_some_and(|(took, most)| took > most);
        }
        let mut shown = String::new();
        for delta in deltas {
            if let Delta::Text { text, .. } = delta {
                // Texts come in whole characters, and what is skipped is whole characters too.
                let known = self.skip.min(text.len());
                self.skip -= known;
                shown.push_str(&self.lines.push(&text[known..]));
            }
        }
        self.content.push_str(&shown);
        shown
    }

    /// The last word, with everything an editor wants to know.
    fn answer(&self, answer: &Answer, content: String) -> Value {
        let Some(finished) = &answer.finished else { return json!({"content": content, "stop": true}) };
        let (used, asked) = (finished.usage, &self.request);
        let (stop_type, word) = self.stopped(finished);
        let whole = json!({
            "content": content,
            "model": self.loaded.name,
            "stop": true,
            "stop_type": stop_type,
            "stopping_word": word,
            "tokens_predicted": used.generated,
            "tokens_evaluated": used.prompt,
            "tokens_cached": used.prompt + used.generated,
            "truncated": self.truncated || finished.reason == FinishReason::ContextFull,
            "has_new_line": self.lines.newline,
            "generation_settings": settings(&self.loaded, &asked.sampling, asked.n_predict, &asked.stop, asked.stream),
            "timings": timings(finished),
        });
        self.wanted(whole)
    }

    /// Only the fields that were asked for, each under its path, as llama.cpp gives them.
    fn wanted(&self, whole: Value) -> Value {
        if self.request.response_fields.is_empty() {
            return whole;
        }
        let found = self.request.response_fields.iter().filter_map(|path| {
            let value = path.split('/').try_fold(&whole, |value, key| value.get(key))?;
            Some((path.clone(), value.clone()))
        });
        Value::Object(found.collect::<Map<String, Value>>())
    }

    fn stopped(&self, finished: &Finished) -> (&'static str, &str) {
        match (&finished.reason, self.request.stop.as_slice()) {
            (FinishReason::StopToken(_), _) => ("eos", ""),
            // With several the engine does not say which it was.
            (FinishReason::Stop, [word]) => ("word", word),
            (FinishReason::Stop, _) => ("word", ""),
            _ => ("limit", ""),
        }
    }
}

/// How an answer is made, under the names that llama.cpp uses.
pub fn settings(
    loaded: &LoadedModel,
    sampling: &SamplingFields,
    n_predict: Option<usize>,
    stop: &[String],
    stream: bool,
) -> Value {
    let sampling = facts::sampling(sampling, None);
    json!({
        "n_predict": n_predict.map_or(-1, |count| count as i64),
        "n_ctx": loaded.facts.context,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
        "min_p": sampling.min_p,
        "stop": stop,
        "stream": stream,
    })
}

/// Times under the names that llama.cpp uses.
fn timings(finished: &Finished) -> Value {
    let (used, took) = (finished.usage, facts::timings(finished, 0));
    let read = used.prompt - used.cached;
    let rate = |count: usize, millis: f64| if millis > 0.0 { count as f64 * 1000.0 / millis } else { 0.0 };
    json!({
        "cache_n": used.cached,
        "prompt_n": read,
        "prompt_ms": took.prefill_ms,
        "prompt_per_second": rate(read, took.prefill_ms),
        "predicted_n": used.generated,
        "predicted_ms": took.decode_ms,
        "predicted_per_second": rate(used.generated, took.decode_ms),
    })
}

impl Wire for Fill {
    fn begin(&mut self, _answers: &[Answer], _out: &mut String) {}

    fn started(&mut self, _answer: &Answer, _out: &mut String) {
        self.reading_since = Some(Instant::now());
    }

    fn grew(&mut self, _index: usize, answer: &Answer, deltas: Vec<Delta>, out: &mut String) {
        let content = self.take(deltas);
        if !content.is_empty() {
            let piece = json!({"content": content, "stop": false, "tokens_evaluated": answer.prompt_tokens});
            sse::write(&piece.to_string(), out);
        }
    }

    /// A line too many, or a line at a time when there should be none.
    fn enough(&self) -> bool {
        let too_long = self.writing_since.zip(self.request.t_max_predict);
        let overdue = self.late || too_long.is_some_and(|(since, most)| since.elapsed() > most);
        self.lines.over || self.lines.newline && overdue
    }

    fn ended(&mut self, _index: usize, answer: &Answer, out: &mut String) {
        let rest = self.lines.rest();
        sse::write(&self.answer(answer, rest).to_string(), out);
    }

    fn end(&mut self, _answers: &[Answer], _out: &mut String) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_cut_off_with_what_stands_before_it() {
        for (text, want) in [
            ("", ("", "")),
            ("    retu", ("   ", " retu")),
            ("x", ("", "x")),
            ("a.b_c1", ("a", ".b_c1")),
            ("f(", ("f", "(")),
            ("    ", ("   ", " ")),
            ("a\nb", ("a\n", "b")),
            ("\tdéj", ("", "\tdéj")),
        ] {
            assert_eq!(split_word(text), want);
        }
        let long = "x".repeat(WORD_BYTES + 1);
        assert_eq!(split_word(&long), (long.as_str(), ""));
    }

    #[test]
    fn lines_end_where_the_indent_does() {
        for (indent, text, want, over) in [
            (0, "a\nb", "a\nb", false),
            (4, "a {\n    b\n}\n", "a {\n    b", true),
            (4, "a\n\n    b\n", "a\n\n    b\n", false),
            (2, "a\n\tb", "a", true),
            (4, "  a\n      b", "  a\n      b", false),
        ] {
            for size in 1..=text.len() {
                let mut lines = Lines { indent, ..Lines::default() };
                let letters: Vec<char> = text.chars().collect();
                let pieces = letters.chunks(size).map(String::from_iter);
                let mut shown: String = pieces.map(|piece: String| lines.push(&piece)).collect();
                shown.push_str(&lines.rest());
                assert_eq!((shown.as_str(), lines.over, lines.newline), (want, over, true), "{text:?} by {size}");
            }
        }
    }
}
