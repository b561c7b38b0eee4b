//! A conversation becomes the tokens of a prompt: exactly, safely, and at the cost of what is new.
//!
//! - What the model wrote itself goes back in as the tokens it wrote ([`Message::raw`](crate::Message)), so that the
//!   prompt repeats what the KV cache holds.
//! - Text from a person, a file or a tool never becomes a control token, whatever it looks like.
//! - The text between two special tokens is encoded once and remembered.
//!
//! [`PromptWriter::write`] runs the template over the whole conversation, since it may look at all of it. Most templates
//! write what follows an answer the same way whatever came before it; where that holds (it is tried out once),
//! [`PromptWriter::write_after_answer`] gives only the tokens to append. The ids are those of encoding the rendered text
//! in one go.

mod adapt;
mod cache;
mod guard;
mod shape;
mod thoughts;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::json;

use crate::chat::{ChatRequest, ChatTemplate, Message};
use crate::dialect::Dialect;
use crate::error::TextError;
use crate::special::Piece;
use crate::tokenizer::{Special, Tokenizer};
use adapt::Form;
use cache::Segments;
use guard::{Guard, Span};
use shape::Shape;

pub use shape::Opening;
pub use thoughts::{Thinking, Thoughts, Wish};

/// Memory for remembered segments, text and ids together. A conversation that fills a context of 128k tokens needs
/// about 1 MiB.
const CACHE_BYTES_MAX: usize = 16 << 20;

/// A prompt that is too long is counted up to so many times what it may have, so that its error can name the number.
const COUNTED: usize = 4;

/// Writes prompts for one model. Share it between threads; the lock inside is never held while text is encoded.
#[derive(Debug)]
pub struct PromptWriter {
    tokenizer: Arc<Tokenizer>,
    template: ChatTemplate,
    segments: Mutex<Segments>,
    /// What follows an answer does not depend on what came before it.
    appends: bool,
    /// How the model writes, and what its template does with what it wrote.
    dialect: Dialect,
    shape: Shape,
    form: Form,
    thoughts: Thoughts,
    /// Most tokens that a prompt is of use with, and the most bytes that can become as many.
    tokens_max: usize,
    bytes_max: usize,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// How many bytes had to be encoded for it; the rest was known.
    pub encoded_bytes: usize,
    /// How the answer begins.
    pub opening: Opening,
    /// Tokens that stand where they are whatever follows. Fewer than all where the template forgets the thoughts of
    /// turns before: there the next prompt parts from this one behind the last question.
    pub lasting: usize,
}

impl PromptWriter {
    /// A writer with nothing remembered yet.
    pub fn new(tokenizer: Arc<Tokenizer>, template: ChatTemplate) -> Self {
        let segments = || Mutex::new(Segments::new(CACHE_BYTES_MAX));
        let dialect = Dialect::of(tokenizer.vocabulary());
        let source = tokenizer.vocabulary().chat_template().unwrap_or_default();
        let thoughts = Thoughts::of(&template, dialect, source);
        let shape = Shape::of(&template, dialect, source, &thoughts);
        let form = Form::of(dialect, source);
        let tried = PromptWriter {
            tokenizer,
            template,
            segments: segments(),
            appends: false,
            dialect,
            shape,
            form,
            thoughts,
            tokens_max: usize::MAX,
            bytes_max: usize::MAX,
        };
        PromptWriter { appends: tried.tries_to_append(), segments: segments(), ..tried }
    }

    /// How the model writes thoughts and calls.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Whether the tokens of every answer can stand in later prompts as they are.
    pub fn always_repeats(&self) -> bool {
        self.shape.repeats && !self.thoughts.forgets
    }

    /// What the model can be told about thinking.
    pub fn thoughts(&self) -> &Thoughts {
        &self.thoughts
    }

    /// The same for a model that reads at most `tokens_max` tokens: a prompt that is far longer is given up early with
    /// [`TextError::TooLong`], so that it costs no more than one that fits.
    pub fn within(self, tokens_max: usize) -> Self {
        let bytes_max = tokens_max.saturating_mul(self.tokenizer.vocabulary().longest().max(1));
        PromptWriter { tokens_max, bytes_max, ..self }
    }

    /// Appends the tokens of a text.
    fn append(&self, text: &[u8], tokens: &mut Vec<u32>) -> Result<(), TextError> {
        if text.len() > self.bytes_max {
            return Err(TextError::TooLong { more_than: self.tokens_max });
        }
        let more_than = self.tokens_max.saturating_mul(COUNTED);
        if self.tokenizer.encode_within(text, Special::Plain, tokens, more_than) {
            Ok(())
        } else {
            Err(TextError::TooLong { more_than })
        }
    }

    /// What to append to a prompt and its answer so that the conversation goes on with these messages; `None` for a
    /// template that may change what it wrote before.
    pub fn write_after_answer(&self, messages: &[Message], thinking: &Thinking) -> Result<Option<Written>, TextError> {
        let asks = messages.iter().any(|message| message.role == "user");
        if !self.appends || (self.thoughts.forgets && asks) {
            return Ok(None);
        }
        let mut whole = vec![Message::user("."), answer()];
        whole.extend_from_slice(messages);
        let mut request = ChatRequest::new(&whole);
        request.variables.clone_from(&thinking.variables);
        self.write_after(&request).map(Some)
    }

    /// The tokens after the last message that comes as tokens.
    fn write_after(&self, request: &ChatRequest<'_>) -> Result<Written, TextError> {
        let (guard, rendered) = self.render(request)?;
        let spans = guard.spans(&rendered, request.messages);
        let last = spans.iter().rposition(|span| matches!(span, Span::Raw(_))).ok_or(TextError::NoMarker)?;
        let mut written = Written::at(self.shape.opening(&rendered));
        for span in &spans[last + 1..] {
            if let Span::Text(text) = span {
                self.write_text(text, &guard, &mut written)?;
            }
        }
        written.lasting = written.tokens.len();
        Ok(written)
    }

    /// Compares what follows an answer in a bare conversation and in one with an operator, tools and a longer past.
    fn tries_to_append(&self) -> bool {
        if !self.shape.repeats {
            return false;
        }
        let tool = json!({"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}});
        let tools = [tool];
        let past = [Message::system("s"), Message::user("a"), answer(), Message::user("b"), answer()];
        let next: [&[Message]; 4] = [
            &[Message::user("q")],
            &[Message::tool("r")],
            &[Message::tool("r"), Message::tool("t"), Message::user("q")],
            &[Message::system("o"), Message::user("q")],
        ];
        next.iter().all(|next| {
            let long: Vec<Message> = past.iter().chain(*next).cloned().collect();
            let short: Vec<Message> = [Message::user("."), answer()].iter().chain(*next).cloned().collect();
            let long = self.write_after(&ChatRequest::new(&long).with_tools(&tools));
            let short = self.write_after(&ChatRequest::new(&short));
            matches!((long, short), (Ok(long), Ok(short)) if long.tokens == short.tokens && !long.tokens.is_empty())
        })
    }

    /// The prompt for a conversation. It starts with the token for the start of a text where the model wants one.
    pub fn write(&self, request: &ChatRequest<'_>) -> Result<Written, TextError> {
        let messages = self.form.adapt(request.messages);
        let messages = self.fitting(&messages);
        let request = ChatRequest { messages: &messages, ..request.clone() };
        let (guard, rendered) = self.render(&request)?;
        let mut written = Written::at(self.shape.opening(&rendered));
        written.tokens.reserve(rendered.len() / 3);
        let spans = guard.spans(&rendered, request.messages);
        for (index, span) in spans.iter().enumerate() {
            match (span, spans.get(index + 1)) {
                (Span::Raw(tokens), _) => written.tokens.extend_from_slice(tokens),
                (Span::Text(text), Some(Span::Raw(answer))) => {
                    // What opened the answer, in place of what the template writes before the text of one.
                    let text = self.shape.opened(text, || self.thought(answer));
                    self.write_text(&text, &guard, &mut written)?;
                }
                (Span::Text(text), _) => self.write_text(text, &guard, &mut written)?,
            }
        }
        let vocabulary = self.tokenizer.vocabulary();
        if let Some(bos) = vocabulary.special().bos.filter(|_| vocabulary.add_bos())
            && written.tokens.first() != Some(&bos)
        {
            written.tokens.insert(0, bos);
        }
        written.lasting = if self.thoughts.forgets { self.lasting(&request, &written)? } else { written.tokens.len() };
        Ok(written)
    }

    /// The messages, with the tokens of answers where the template leaves room for them as they are.
    fn fitting<'a>(&self, messages: &'a [Message]) -> Cow<'a, [Message]> {
        let asked = messages.iter().rposition(|message| message.role == "user").unwrap_or(0);
        let fits = |index: usize, tokens: &[u32]| {
            self.shape.repeats && !(self.thoughts.forgets && index < asked && self.thought(tokens))
        };
        let misfit = |(index, message): (usize, &Message)| {
            message.raw.as_ref().is_some_and(|tokens| !fits(index, tokens) && !message.is_bare())
        };
        if !messages.iter().enumerate().any(misfit) {
            return Cow::Borrowed(messages);
        }
        let mut messages = messages.to_vec();
        for (index, message) in messages.iter_mut().enumerate() {
            if misfit((index, message)) {
                message.raw = None;
            }
        }
        Cow::Owned(messages)
    }

    /// Whether an answer holds thoughts.
    fn thought(&self, answer: &[u32]) -> bool {
        let end = self.dialect.thoughts_end();
        match self.tokenizer.vocabulary().special_token(end) {
            Some(id) => answer.contains(&id),
            None => String::from_utf8_lossy(&self.tokenizer.decode(answer)).contains(end),
        }
    }

    /// How many tokens stay whatever is asked next: those up to the end of the last question.
    fn lasting(&self, request: &ChatRequest<'_>, written: &Written) -> Result<usize, TextError> {
        let Some(asked) = request.messages.iter().rposition(|message| message.role == "user") else { return Ok(0) };
        let mut until = ChatRequest { messages: &request.messages[..=asked], ..request.clone() };
        until.add_generation_prompt = false;
        let mut before = Written::at(Opening::Free);
        let (guard, rendered) = self.render(&until)?;
        for span in guard.spans(&rendered, until.messages) {
            match span {
                Span::Raw(tokens) => before.tokens.extend_from_slice(tokens),
                Span::Text(text) => self.write_text(text, &guard, &mut before)?,
            }
        }
        let common = before.tokens.iter().zip(&written.tokens).take_while(|(a, b)| a == b).count();
        Ok(common)
    }

    fn render(&self, request: &ChatRequest<'_>) -> Result<(Guard, String), TextError> {
        // Before the template sees it: what cannot fit need not be rendered.
        if request.messages.iter().map(size).sum::<usize>() > self.bytes_max {
            return Err(TextError::TooLong { more_than: self.tokens_max });
        }
        let guard = Guard::new(self.tokenizer.control(), request)?;
        let rendered = match guard.guarded() {
            Some(guarded) => self.template.render(&guarded.request(request))?,
            None => self.template.render(request)?,
        };
        let rendered = guard.markers_decoded(rendered);
        Ok((guard, rendered))
    }

    /// Appends text of the template with the texts in it. Special tokens are the template's: those of others are broken.
    fn write_text(&self, text: &str, guard: &Guard, written: &mut Written) -> Result<(), TextError> {
        for piece in self.tokenizer.pieces(text) {
            match piece {
                Piece::Token(id) => written.tokens.push(id),
                Piece::Text(text) => self.write_segment(&guard.unmarked(text), written)?,
            }
            let more_than = self.tokens_max.saturating_mul(COUNTED);
            if written.tokens.len() > more_than {
                return Err(TextError::TooLong { more_than });
            }
        }
        Ok(())
    }

    fn write_segment(&self, text: &[u8], written: &mut Written) -> Result<(), TextError> {
        if let Some(ids) = self.segments().get(text) {
            written.tokens.extend_from_slice(&ids);
            return Ok(());
        }
        let mut ids = Vec::with_capacity((text.len() / 3).min(self.tokens_max));
        self.append(text, &mut ids)?;
        written.tokens.extend_from_slice(&ids);
        written.encoded_bytes += text.len();
        self.segments().put(text, &ids);
        Ok(())
    }

    fn segments(&self) -> MutexGuard<'_, Segments> {
        // A panic while the lock is held can at worst leave a segment out of its books; the ids stay right.
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Written {
    /// Nothing yet.
    fn at(opening: Opening) -> Written {
        Written { tokens: Vec::new(), encoded_bytes: 0, opening, lasting: 0 }
    }
}

/// Bytes of a message that become tokens of the prompt, at least: templates leave out much of what the assistant said.
fn size(message: &Message) -> usize {
    if message.role == "assistant" { 0 } else { message.content.len() }
}

/// An answer that comes as tokens; which ones does not matter where only what follows is used.
fn answer() -> Message {
    Message { raw: Some(Arc::from([])), ..Message::assistant("") }
}
