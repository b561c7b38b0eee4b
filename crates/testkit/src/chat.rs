//! A model to talk with that needs no weights: bytes and ChatML for a vocabulary, and an actor that does what it is told.
//!
//! The last message says what the answer will be (see [`act`]), so a test of whatever serves a model can say which answer
//! it wants, hold it in the middle ([`Gate`]) and know every token of it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use model::gguf::{Array, Format, Value};
use model::{Backend, BackendError, Chunk, ModelInfo};

use crate::gguf::GgufWriter;
use crate::toy::{ToyBackend, ToyOptions};

/// Ids below are bytes.
const IM_START: u32 = 256;
/// Ends every message.
const IM_END: u32 = 257;
/// Tokens after the bytes: what they are called, and their kind in the file (control, or text like any other).
const NAMED: [(&str, i32); 4] = [("<|im_start|>", 3), ("<|im_end|>", 3), ("<tool_call>", 4), ("</tool_call>", 4)];
/// Number of token ids.
pub const VOCAB: usize = 256 + NAMED.len();

/// The vocabulary, as a file without a model: one token for each byte, and those of ChatML.
pub fn vocabulary() -> GgufWriter {
    let bytes = (0..=255).map(|byte| spelling(byte).to_string());
    let tokens: Vec<String> = bytes.chain(NAMED.map(|(name, _)| name.to_owned())).collect();
    let kinds = std::iter::repeat_n(1, 256).chain(NAMED.map(|(_, kind)| kind)).collect();
    GgufWriter::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "qwen2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", [] as [&str; 0])
        .meta("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))
        .meta("tokenizer.ggml.eos_token_id", Value::U32(IM_END))
        .tensor("pad", &[4096], Format::F32, vec![0; 4096 * 4])
}

/// A tiny model of random weights with this vocabulary and any chat template: a whole file that can be run.
pub fn tiny_model(template: &str) -> GgufWriter {
    let bytes = (0..=255).map(|byte| spelling(byte).to_string());
    let named = NAMED.map(|(name, _)| name.to_owned());
    let padding = (VOCAB..crate::models::VOCAB).map(|id| format!("<|unused_{id}|>"));
    let tokens: Vec<String> = bytes.chain(named).chain(padding).collect();
    let kinds = std::iter::repeat_n(1, 256).chain(NAMED.map(|(_, kind)| kind));
    let kinds: Vec<i32> = kinds.chain(std::iter::repeat(3)).take(tokens.len()).collect();
    crate::models::Tiny::default()
        .writer()
        .set("tokenizer.ggml.model", Value::String("gpt2".into()))
        .text("tokenizer.ggml.pre", "qwen2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", [] as [&str; 0])
        .meta("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))
        .meta("tokenizer.ggml.eos_token_id", Value::U32(IM_END))
        .text("tokenizer.chat_template", template)
}

/// How a file spells a byte: as itself where it prints, else as one of the characters from U+0100 on.
pub(crate) fn spelling(byte: u8) -> char {
    let prints = |byte: u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let before = (0..byte).filter(|&byte| !prints(byte)).count() as u32;
    if prints(byte) { char::from(byte) } else { char::from_u32(256 + before).unwrap_or_default() }
}

/// The next token of an answer, told by the last message before it:
///
/// - `say TEXT`: that text.
/// - `count N`: ` 1 2 3` up to N; without N, for ever.
/// - `call TEXT`: that text between the tags of a tool call.
/// - `recite`: every message before the answer, as `role=text` joined by `|`.
/// - the result of a tool: `got` and the result.
/// - anything else: `ok`.
pub fn act(history: &[u32]) -> u32 {
    let messages: Vec<&[u32]> = history.split(|&token| token == IM_START).skip(1).collect();
    let Some((&answer, before)) = messages.split_last() else { return IM_END };
    let written = answer.len().saturating_sub("assistant\n".len());
    let last = before.last().map(|message| message_parts(message)).unwrap_or_default();
    let (order, rest) = last.1.split_once(' ').unwrap_or((&last.1, ""));
    let tokens = |text: &str| text.bytes().map(u32::from).collect::<Vec<u32>>();
    let wanted = match (last.0.as_str(), order) {
        ("tool", _) => tokens(&format!("got {}", last.1)),
        (_, "say") => tokens(rest),
        (_, "count") => return count(written, rest.parse().unwrap_or(usize::MAX)),
        (_, "call") => [&[258], &tokens(&format!("\n{rest}\n"))[..], &[259]].concat(),
        (_, "recite") => {
            let shown = before.iter().map(|message| message_parts(message));
            let lines: Vec<String> = shown.map(|(role, text)| format!("{role}={text}")).collect();
            tokens(&lines.join("|"))
        }
        _ => tokens("ok"),
    };
    wanted.get(written).copied().unwrap_or(IM_END)
}

/// Role and text of a message.
fn message_parts(message: &[u32]) -> (String, String) {
    let end = message.iter().position(|&token| token == IM_END).unwrap_or(message.len());
    let mut bytes = Vec::new();
    for &token in &message[..end] {
        match usize::try_from(token).unwrap_or(usize::MAX).checked_sub(256) {
            None => bytes.push(token as u8),
            Some(index) => bytes.extend_from_slice(NAMED[index].0.as_bytes()),
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (role, text) = text.split_once('\n').unwrap_or((&text, ""));
    (role.to_owned(), text.to_owned())
}

/// The byte at `index` of ` 1 2 3 ...`, or the end after the last number.
fn count(index: usize, last: usize) -> u32 {
    let mut left = index;
    for number in 1..=last {
        let text = format!(" {number}");
        if let Some(&byte) = text.as_bytes().get(left) {
            return u32::from(byte);
        }
        left -= text.len();
    }
    IM_END
}

/// Stops a backend before each step until it is let through.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    /// Steps that may pass while closed.
    allowed: usize,
    waiting: bool,
}

impl Gate {
    /// Lets no more steps through.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    /// Lets all steps through.
    pub fn open(&self) {
        *self.lock() = GateState::default();
        self.changed.notify_all();
    }

    /// Lets `steps` more through.
    pub fn allow(&self, steps: usize) {
        self.lock().allowed += steps;
        self.changed.notify_all();
    }

    /// Whether a step stands before the closed gate: everything before it has been done.
    pub fn is_held(&self) -> bool {
        let state = self.lock();
        state.waiting && state.closed && state.allowed == 0
    }

    pub(crate) fn pass(&self) {
        let mut state = self.lock();
        state.waiting = true;
        while state.closed && state.allowed == 0 {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting = false;
        state.allowed = state.allowed.saturating_sub(1);
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A toy that speaks as [`act`] says, behind a gate.
#[derive(Debug)]
pub struct ChatBackend {
    toy: ToyBackend,
    gate: Arc<Gate>,
}

impl ChatBackend {
    /// A toy with this vocabulary and these limits.
    pub fn new(options: ToyOptions, gate: Arc<Gate>) -> Self {
        Self { toy: ToyBackend::new(ToyOptions { vocab: VOCAB, speaker: Some(act), ..options }), gate }
    }
}

impl Backend for ChatBackend {
    fn info(&self) -> &ModelInfo {
        self.toy.info()
    }

    fn forward(&mut self, batch: &[Chunk<'_>], logits: &mut Vec<f32>) -> Result<(), BackendError> {
        self.gate.pass();
        self.toy.forward(batch, logits)
    }

    fn copy_block(&mut self, from: u32, to: u32) -> Result<(), BackendError> {
        self.toy.copy_block(from, to)
    }

    fn export_block(&self, block: u32, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        self.toy.export_block(block, bytes)
    }

    fn import_block(&mut self, block: u32, bytes: &[u8]) -> Result<(), BackendError> {
        self.toy.import_block(block, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(prompt: &str) -> String {
        let mut history: Vec<u32> = Vec::new();
        for (index, part) in prompt.split('#').enumerate() {
            history.extend((index > 0).then_some(IM_START));
            history.extend(part.bytes().map(u32::from));
            history.extend((!part.is_empty() && !part.starts_with("assistant\n")).then_some(IM_END));
        }
        let start = history.len();
        while history.len() < start + 100 && history.last() != Some(&IM_END) {
            history.push(act(&history));
        }
        message_parts(&history[start..]).1 + &message_parts(&history[start..]).0
    }

    #[test]
    fn the_actor_does_what_it_is_told() {
        assert_eq!(answer("#user\nsay hello#assistant\n"), "hello");
        assert_eq!(answer("#user\ncount 3#assistant\n"), " 1 2 3");
        assert_eq!(answer("#user\nhm#assistant\n"), "ok");
        assert_eq!(answer("#user\ncall x#tool\n42#assistant\n"), "got 42");
        assert_eq!(answer("#system\na#user\nrecite#assistant\n"), "system=a|user=recite");
        assert_eq!(answer("#user\ncount#assistant\n").len(), 100);
    }

    #[test]
    fn a_gate_lets_through_what_was_allowed() {
        let gate = Arc::new(Gate::default());
        gate.close();
        gate.allow(2);
        let other = Arc::clone(&gate);
        let thread = std::thread::spawn(move || (0..3).for_each(|_| other.pass()));
        while !gate.is_held() {
            std::thread::yield_now();
        }
        assert!(!thread.is_finished());
        gate.open();
        thread.join().unwrap();
    }
}
