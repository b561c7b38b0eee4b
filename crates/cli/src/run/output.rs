//! How an answer is shown: as text with a last line of figures, or as JSON lines.

use std::io::Write;
use std::num::NonZeroUsize;

use engine::{FinishReason, Finished, Started, Timings, TokenOut, Usage};
use load::{Facts, milliseconds};
use serde_json::{Value, json};
use text::Tokenizer;

/// Where events of an answer go. Everything is flushed at once: a token that waits in a buffer is a token not shown.
pub struct Output {
    json: bool,
    /// Where text goes: cleaned on a terminal, as the model wrote it in a file or a pipe.
    stdout: boundary::print::Stream,
    /// The last text shown did not end its line.
    inside_line: bool,
    /// The load time belongs to the first answer only.
    answers: usize,
}

impl Output {
    /// Text, or JSON lines.
    pub fn new(json: bool) -> Output {
        let stdout = boundary::print::stdout().exact_unless_terminal();
        Output { json, stdout, inside_line: false, answers: 0 }
    }

    /// The answer has begun.
    pub fn started(&mut self, started: &Started) -> anyhow::Result<()> {
        if self.json {
            line(&json!({
                "type": "started",
                "prompt_tokens": started.prompt_tokens,
                "cached_tokens": started.cached_tokens,
                "seed": started.seed,
            }))?;
        }
        Ok(())
    }

    /// The answer goes on.
    pub fn delta(&mut self, text: &str, tokens: &[TokenOut], tokenizer: &Tokenizer) -> anyhow::Result<()> {
        if self.json {
            return line(&delta(text, tokens, tokenizer));
        }
        if !text.is_empty() {
            let stdout = &mut self.stdout;
            stdout.write_all(text.as_bytes())?;
            stdout.flush()?;
            self.inside_line = !text.ends_with('\n');
        }
        Ok(())
    }

    /// The answer is over.
    pub fn finished(&mut self, finished: &Finished, facts: &Facts, max_tokens: NonZeroUsize) -> anyhow::Result<()> {
        self.answers += 1;
        if self.json {
            return line(&summary(finished, facts));
        }
        if std::mem::take(&mut self.inside_line) {
            writeln!(self.stdout)?;
        }
        let mut figures = figures(&finished.usage, &finished.timings);
        if self.answers == 1 {
            figures += &format!(" · loaded in {:.2} s", facts.load_time.as_secs_f64());
        }
        match &finished.reason {
            FinishReason::Length => figures += &format!(" · ended by --max-tokens {max_tokens}"),
            FinishReason::ContextFull => figures += " · the context is full (--context)",
            FinishReason::Cancelled => figures += " · interrupted",
            _ => {}
        }
        errln!("{figures}");
        Ok(())
    }
}

/// `first token 312 ms · prompt 38 tokens, 171 tok/s · 212 tokens, 46.3 tok/s · cached 0`.
fn figures(usage: &Usage, timings: &Timings) -> String {
    let rate = |rate: Option<f64>| rate.map(|rate| format!(", {rate:.1} tok/s")).unwrap_or_default();
    format!(
        "first token {:.0} ms · prompt {} tokens{} · {} tokens{} · cached {}",
        timings.first_token.as_secs_f64() * 1000.0,
        usage.prompt,
        rate(prompt_rate(usage, timings)),
        usage.generated,
        rate(decode_rate(usage, timings)),
        usage.cached,
    )
}

/// Prompt tokens computed per second; what the cache held was not computed.
fn prompt_rate(usage: &Usage, timings: &Timings) -> Option<f64> {
    per_second(usage.prompt.saturating_sub(usage.cached), timings.prefill.as_secs_f64())
}

/// Tokens per second after the first, which belongs to the prompt's time.
fn decode_rate(usage: &Usage, timings: &Timings) -> Option<f64> {
    per_second(usage.generated.saturating_sub(1), timings.decode.as_secs_f64())
}

fn per_second(count: usize, seconds: f64) -> Option<f64> {
    (count > 0 && seconds > 0.0).then(|| count as f64 / seconds)
}

fn delta(text: &str, tokens: &[TokenOut], tokenizer: &Tokenizer) -> Value {
    let mut delta = json!({
        "type": "delta",
        "text": text,
        "tokens": tokens.iter().map(|token| token.id).collect::<Vec<_>>(),
    });
    if tokens.iter().any(|token| token.logprob.is_some()) {
        let piece = |id: u32, logprob: Option<f32>| json!({ "id": id, "text": String::from_utf8_lossy(&tokenizer.decode(&[id])), "logprob": logprob });
        let logprobs = tokens.iter().map(|token| {
            let mut entry = piece(token.id, token.logprob);
            entry["top"] = token.top.iter().map(|&(id, logprob)| piece(id, Some(logprob))).collect();
            entry
        });
        delta["logprobs"] = logprobs.collect();
    }
    delta
}

fn summary(finished: &Finished, facts: &Facts) -> Value {
    let (usage, timings) = (&finished.usage, &finished.timings);
    let (reason, stop_token) = match &finished.reason {
        FinishReason::Stop => ("stop_string", None),
        FinishReason::StopToken(token) => ("stop_token", Some(*token)),
        FinishReason::Length => ("max_tokens", None),
        FinishReason::Cancelled => ("interrupted", None),
        FinishReason::SlowReader => ("slow_reader", None),
        FinishReason::ContextFull => ("context_full", None),
        FinishReason::Shutdown => ("shutdown", None),
        FinishReason::Error { .. } => ("error", None),
    };
    json!({
        "type": "finished",
        "reason": reason,
        "stop_token": stop_token,
        "usage": {
            "prompt": usage.prompt,
            "cached": usage.cached,
            "generated": usage.generated,
            "drafted": usage.drafts.total().tokens,
            "accepted": usage.drafts.total().accepted,
        },
        "timings": {
            "queued_ms": milliseconds(timings.queued),
            "prefill_ms": milliseconds(timings.prefill),
            "first_token_ms": milliseconds(timings.first_token),
            "decode_ms": milliseconds(timings.decode),
            "prompt_tokens_per_s": prompt_rate(usage, timings),
            "decode_tokens_per_s": decode_rate(usage, timings),
        },
        "model": facts.json(),
    })
}

fn line(value: &Value) -> anyhow::Result<()> {
    Ok(boundary::print::json_line(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn figures_leave_out_what_was_not_reached() {
        let usage = Usage { prompt: 38, cached: 0, generated: 213, ..Usage::default() };
        let timings = Timings {
            prefill: Duration::from_millis(200),
            first_token: Duration::from_millis(312),
            decode: Duration::from_secs(4),
            ..Timings::default()
        };
        let want = "first token 312 ms · prompt 38 tokens, 190.0 tok/s · 213 tokens, 53.0 tok/s · cached 0";
        assert_eq!(figures(&usage, &timings), want);
        let want = "first token 0 ms · prompt 38 tokens · 0 tokens · cached 0";
        assert_eq!(figures(&Usage { prompt: 38, ..Usage::default() }, &Timings::default()), want);
    }
}
