//! `flint run`: a prompt in, text out as it is made, and a last line of figures.
//!
//! Text goes to stdout, everything about it to stderr. With `--json` all of it goes to stdout as JSON lines.
//!
//! A conversation of several turns is rendered afresh for every turn and tokenised as a whole; the engine's prefix cache
//! finds what it has seen before. That costs a few milliseconds and is right for every template, also for those that
//! rewrite earlier turns, which token ids kept from before would not be.

mod interrupt;
mod output;
mod reply;

use std::io::{BufRead, IsTerminal};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use engine::{Event, FinishReason, Finished, Request, Sampling};
use load::{Loaded, ModelOptions};
use text::{ChatRequest, Message, Special};

use interrupt::Interrupt;
use output::Output;
use reply::Reply;

/// Exit code of a program that was interrupted, as shells have it: 128 + SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// Arguments of `flint run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The prompt; text from a pipe is added after it
    prompt: Vec<String>,
    #[command(flatten)]
    load: ModelOptions,
    /// What the model should be told before the prompt
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Give the model the prompt as it is, without a chat template
    #[arg(long, conflicts_with = "system")]
    raw: bool,
    /// Most tokens to generate
    #[arg(long, value_name = "N", default_value = "1024")]
    max_tokens: NonZeroUsize,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// End when this text is generated; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Print JSON lines: started, delta, finished
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct SamplingArgs {
    /// How freely to pick the next token; 0 always takes the most likely one
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    temperature: f32,
    /// Pick among the K most likely tokens; 0 is off
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Pick among the most likely tokens that have this probability together
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,
    /// Pick among tokens at least this share as likely as the most likely one
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f32,
    /// Make recent tokens less likely by this factor; 1 is off
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repetition_penalty: f32,
    /// Make tokens that were generated before less likely
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// The same, once for each time a token was generated
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Same seed, same answer [default: a new one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// Report log-probabilities of each token and of N alternatives
    #[arg(long, value_name = "N", requires = "json")]
    logprobs: Option<usize>,
}

/// Runs `flint run`.
pub fn run(args: RunArgs) -> anyhow::Result<ExitCode> {
    let prompt = prompt(&args.prompt)?;
    if prompt.is_none() && args.raw {
        bail!("--raw needs a prompt; give it as an argument or through a pipe");
    }
    let interrupt = Interrupt::install()?;
    let loaded = load::load(&args.load)?;
    let mut session = Session { output: Output::new(args.json), args, loaded, interrupt };
    let interrupted = match prompt {
        Some(prompt) if session.args.raw => session.answer(session.raw(&prompt))?.interrupted,
        Some(prompt) => {
            let mut messages = session.opening();
            messages.push(Message::user(prompt));
            session.answer(session.chat(&messages)?)?.interrupted
        }
        None => {
            session.converse()?;
            false
        }
    };
    Ok(if interrupted { ExitCode::from(EXIT_INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The prompt from the arguments and from what is piped in; none when there is neither.
fn prompt(arguments: &[String]) -> anyhow::Result<Option<String>> {
    let mut prompt = arguments.join(" ");
    if std::io::stdin().is_terminal() {
        return Ok((!prompt.is_empty()).then_some(prompt));
    }
    let bytes = crate::exec::piped()?;
    let piped = String::from_utf8_lossy(&bytes);
    if !prompt.is_empty() && !piped.is_empty() {
        prompt.push_str("\n\n");
    }
    prompt.push_str(&piped);
    if prompt.is_empty() {
        bail!("there is no prompt; give it as an argument or through a pipe");
    }
    Ok(Some(prompt))
}

/// Everything one answer needs.
struct Session {
    args: RunArgs,
    loaded: Loaded,
    output: Output,
    interrupt: Interrupt,
}

struct Answer {
    text: String,
    interrupted: bool,
}

impl Session {
    /// The messages before the first of the user.
    fn opening(&self) -> Vec<Message> {
        self.args.system.iter().map(Message::system).collect()
    }

    /// Turns on a terminal until `/exit` or Ctrl-D. Ctrl-C stops an answer here, and the program between answers.
    fn converse(&mut self) -> anyhow::Result<()> {
        errln!("{} · /exit or Ctrl-D ends, Ctrl-C stops an answer", self.loaded.facts.name);
        let mut messages = self.opening();
        let mut line = String::new();
        loop {
            err!("> ");
            line.clear();
            if std::io::stdin().lock().read_line(&mut line).context("cannot read from the terminal")? == 0 {
                errln!();
                return Ok(());
            }
            match line.trim() {
                "" => continue,
                "/exit" => return Ok(()),
                text => messages.push(Message::user(text)),
            }
            // An answer that was stopped stays in the conversation as far as it came.
            let answer = self.answer(self.chat(&messages)?)?;
            messages.push(Message::assistant(answer.text));
        }
    }

    /// Token ids of a conversation.
    fn chat(&self, messages: &[Message]) -> anyhow::Result<Vec<u32>> {
        let hint = "--raw sends the prompt without one";
        let template = self.loaded.template.as_ref();
        let template = template.map_err(|error| anyhow!("no usable chat template: {error}; {hint}"))?;
        let text = template.render(&ChatRequest::new(messages)).with_context(|| format!("chat template ({hint})"))?;
        Ok(self.raw(&text))
    }

    /// Token ids of a text in which special tokens mean themselves.
    fn raw(&self, text: &str) -> Vec<u32> {
        let vocabulary = self.loaded.tokenizer.vocabulary();
        let mut ids = self.loaded.tokenizer.encode(text, Special::Parse);
        if let Some(bos) = vocabulary.special().bos
            && vocabulary.add_bos()
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// Has the model continue `prompt` and shows what comes.
    fn answer(&mut self, prompt: Vec<u32>) -> anyhow::Result<Answer> {
        let request = self.request(prompt);
        let stream = self.loaded.engine.submit(request).map_err(explained)?;
        let _watch = self.interrupt.watch(&self.loaded.engine, stream.id());
        let mut reply = Reply::new(self.loaded.tokenizer.vocabulary());
        while let Some(event) = stream.recv() {
            match event {
                Event::Started(started) => self.output.started(&started)?,
                Event::Tokens(tokens) => {
                    let text = reply.push(&tokens);
                    self.output.delta(&text, &tokens, &self.loaded.tokenizer)?;
                }
                Event::Finished(finished) => {
                    let text = reply.finish(&finished.tail);
                    if !text.is_empty() {
                        self.output.delta(&text, &[], &self.loaded.tokenizer)?;
                    }
                    return self.ended(*finished, reply.into_text());
                }
            }
        }
        bail!("the engine ended without an answer; this is a bug in Flint")
    }

    fn ended(&mut self, finished: Finished, text: String) -> anyhow::Result<Answer> {
        self.output.finished(&finished, &self.loaded.facts, self.args.max_tokens)?;
        match finished.reason {
            FinishReason::Error { text, .. } => bail!("the model stopped: {text}"),
            FinishReason::SlowReader => {
                bail!("the answer was not read in time; read from the pipe without long pauses")
            }
            FinishReason::Cancelled => Ok(Answer { text, interrupted: true }),
            _ => Ok(Answer { text, interrupted: false }),
        }
    }

    fn request(&self, prompt: Vec<u32>) -> Request {
        let args = &self.args.sampling;
        let sampling = Sampling {
            temperature: args.temperature,
            top_k: args.top_k,
            top_p: args.top_p,
            min_p: args.min_p,
            repetition_penalty: args.repetition_penalty,
            presence_penalty: args.presence_penalty,
            frequency_penalty: args.frequency_penalty,
            seed: Some(args.seed.unwrap_or_else(seed_of_now)),
            logprobs: args.logprobs,
            ..Sampling::default()
        };
        let mut request = Request::new(prompt, self.args.max_tokens.get());
        request.sampling = sampling;
        request.stop_tokens = self.loaded.tokenizer.vocabulary().stops().to_vec();
        request.stop_strings = self.args.stop.iter().map(|stop| stop.clone().into_bytes()).collect();
        request
    }
}

/// What to do about a request that was refused.
fn explained(error: engine::SubmitError) -> anyhow::Error {
    match error {
        engine::SubmitError::TooLong { .. } => {
            anyhow!("{error}; shorten it, or make room with --context or, where the model allows, --yarn")
        }
        engine::SubmitError::EmptyPrompt => anyhow!("the prompt is empty; give some text"),
        other => anyhow!("{other}; `flint run --help` shows the settings"),
    }
}

/// Another seed each time. `started` and `finished` lines of `--json` say which it was.
fn seed_of_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
