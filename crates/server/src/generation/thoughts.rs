//! Thoughts: how many a client wants, and what holds an answer while the model still thinks.

use std::sync::Arc;

use api::ThinkingWish;
use engine::Constraint;
use text::{Dialect, Opening, Thinking, TokenKind, Vocabulary, Wish};

use crate::models::LoadedModel;

/// What a template is told, and in words what the model cannot do of what `field` asks.
pub fn told(loaded: &LoadedModel, wish: &ThinkingWish, field: &str, warnings: &mut Vec<String>) -> Thinking {
    let wanted = Wish { on: wish.on, level: wish.effort.clone() };
    let Some(thoughts) = &loaded.facts.thoughts else { return Thinking::default() };
    let thinking = thoughts.answer(&wanted);
    if let Some(unmet) = &thinking.unmet {
        warnings.push(format!("`{field}`: {} {unmet}", loaded.name));
    }
    if wish.budget.is_some() && !thoughts.thinks && thinking.unmet.is_none() {
        warnings.push(format!("`{field}`: {} answers without reasoning", loaded.name));
    }
    thinking
}

/// How an answer begins, and how long it may think.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerStart {
    /// What the prompt has opened.
    pub opening: Opening,
    /// Most tokens of thoughts.
    pub budget: Option<usize>,
    /// Tokens of the prompt that the next one will begin with.
    pub lasting: usize,
}

/// Most tokens of white space between thoughts and what is held.
const BLANKS_MAX: usize = 4;
/// Bytes of text in which the end of thoughts is looked for.
const TAIL: usize = 32;

/// Lets a model think, for as long as it may, before what holds its answer begins.
pub struct Thoughtful {
    vocabulary: Arc<Vocabulary>,
    dialect: Dialect,
    state: State,
    left: Option<usize>,
    /// What begins thoughts, and what ends them when there were enough.
    begin: Vec<u32>,
    close: Vec<u32>,
    inner: Option<Box<dyn Constraint>>,
    /// What is held is the whole answer, so that it hears nothing of the thoughts.
    whole: bool,
    /// The end of the text so far, with the names of control tokens.
    tail: Vec<u8>,
    blanks: Vec<u32>,
    mask: Vec<u32>,
    words: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Thoughts may begin.
    Before,
    /// At this token of what begins them.
    Beginning(usize),
    Thinking,
    /// At this token of what ends them.
    Closing(usize),
    /// Behind them, where white space may come first.
    Behind(usize),
    Over,
}

impl Thoughtful {
    /// `rows` is the number of logits. `whole` says that `inner` holds the whole answer.
    pub fn new(
        loaded: &LoadedModel,
        rows: usize,
        begins: AnswerStart,
        inner: Option<Box<dyn Constraint>>,
        whole: bool,
    ) -> Self {
        let vocabulary = Arc::clone(loaded.tokenizer.vocabulary());
        let dialect = loaded.facts.dialect;
        let state = match begins.opening {
            Opening::Thoughts => State::Thinking,
            Opening::Free => State::Before,
            Opening::Text => State::Over,
        };
        let close = match dialect {
            Dialect::Harmony => "<|end|><|start|>assistant<|channel|>final<|message|>",
            Dialect::Mistral | Dialect::Gemma => dialect.thoughts_end(),
            Dialect::Hermes | Dialect::Qwen | Dialect::Glm => "\n</think>\n\n",
        };
        let close = loaded.tokenizer.encode(close, text::Special::Parse);
        let begin = loaded.tokenizer.encode(dialect.thoughts_begin(), text::Special::Parse);
        let blanks = ["\n", "\n\n", " "].iter().filter_map(|blank| {
            let ids = loaded.tokenizer.encode(blank, text::Special::Plain);
            <[u32; 1]>::try_from(ids).ok().map(|[id]| id)
        });
        let (blanks, words) = (blanks.collect(), rows.div_ceil(32));
        let (tail, mask, left) = (Vec::new(), Vec::new(), begins.budget);
        Self { vocabulary, dialect, state, left, begin, close, inner, whole, tail, blanks, mask, words }
    }

    /// Whether the text so far ends with what begins or ends thoughts.
    fn says(&self, name: &str) -> bool {
        self.tail.ends_with(name.as_bytes())
    }

    fn note(&mut self, token: u32) {
        let shown = self.vocabulary.kind(token) != TokenKind::Unused;
        self.tail.extend_from_slice(if shown { self.vocabulary.token_bytes(token) } else { &[] });
        let over = self.tail.len().saturating_sub(TAIL.max(self.dialect.thoughts_begin().len()));
        self.tail.drain(..over);
    }

    fn follow(&mut self, token: u32) {
        self.note(token);
        self.state = match self.state {
            State::Before if self.says(self.dialect.thoughts_begin()) => State::Thinking,
            State::Before if self.whole && self.dialect != Dialect::Harmony && self.begin.first() == Some(&token) => {
                State::Beginning(1)
            }
            State::Beginning(at) if at + 1 < self.begin.len() => State::Beginning(at + 1),
            State::Beginning(_) => State::Thinking,
            // Harmony says on which channel it speaks; elsewhere thoughts come first or not at all.
            State::Before if self.dialect == Dialect::Harmony => match self.says("<|message|>") {
                true => State::Over,
                false => State::Before,
            },
            State::Before if self.dialect.thoughts_begin().as_bytes().starts_with(self.tail.trim_ascii()) => {
                State::Before
            }
            State::Before => State::Over,
            State::Thinking if self.says(self.dialect.thoughts_end()) => match self.dialect {
                // The next message says where it belongs.
                Dialect::Harmony => State::Before,
                _ => State::Behind(0),
            },
            State::Thinking => match self.left.as_mut() {
                None => State::Thinking,
                Some(0) => State::Closing(0),
                Some(left) => {
                    *left -= 1;
                    if *left == 0 { State::Closing(0) } else { State::Thinking }
                }
            },
            State::Closing(at) if at + 1 < self.close.len() => State::Closing(at + 1),
            State::Closing(_) => State::Over,
            State::Behind(_) | State::Over => State::Over,
        };
        if self.state == State::Closing(0) && self.close.is_empty() {
            self.state = State::Over;
        }
    }

    /// Allows these tokens beside those of the mask.
    fn allow(&mut self, tokens: impl Iterator<Item = u32>) {
        for token in tokens {
            if let Some(word) = self.mask.get_mut(token as usize / 32) {
                *word |= 1 << (token % 32);
            }
        }
    }

    /// The mask of what is held, and these tokens beside it.
    fn inner_and(&mut self, more: Vec<u32>) -> Result<Option<&[u32]>, String> {
        let Some(inner) = &mut self.inner else { return Ok(None) };
        match inner.allowed()? {
            None => return Ok(None),
            Some(mask) => self.mask = mask.to_vec(),
        }
        self.allow(more.into_iter());
        Ok(Some(&self.mask))
    }
}

impl Constraint for Thoughtful {
    fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        let must = match self.state {
            State::Closing(at) => self.close.get(at).copied(),
            State::Beginning(at) => self.begin.get(at).copied(),
            _ => None,
        };
        if let Some(token) = must {
            self.mask = vec![0; self.words];
            self.allow(std::iter::once(token));
            return Ok(Some(&self.mask));
        }
        match self.state {
            _ if !self.whole => match &mut self.inner {
                Some(inner) => inner.allowed(),
                None => Ok(None),
            },
            State::Before if self.dialect == Dialect::Harmony => Ok(None),
            State::Before => {
                // Only a token of its own can be told from the beginning of an answer.
                let begin = self.begin.first().filter(|id| self.vocabulary.kind(**id) != TokenKind::Normal);
                self.inner_and(begin.copied().into_iter().chain(self.blanks.clone()).collect())
            }
            State::Behind(_) => self.inner_and(self.blanks.clone()),
            State::Thinking => Ok(None),
            State::Over | State::Closing(_) | State::Beginning(_) => match &mut self.inner {
                Some(inner) => inner.allowed(),
                None => Ok(None),
            },
        }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        let before = self.state;
        let blank = self.blanks.contains(&token);
        if let State::Behind(count) | State::Closing(count) = before
            && self.whole
            && blank
            && matches!(before, State::Behind(_))
            && count < BLANKS_MAX
        {
            self.state = State::Behind(count + 1);
            return Ok(());
        }
        self.follow(token);
        let heard = match before {
            _ if !self.whole => true,
            State::Over | State::Behind(_) => true,
            // It answers without thoughts.
            State::Before => self.state == State::Over && self.dialect != Dialect::Harmony,
            State::Thinking | State::Closing(_) | State::Beginning(_) => false,
        };
        match &mut self.inner {
            Some(inner) if heard => inner.accept(token),
            _ => Ok(()),
        }
    }

    fn forced(&mut self, max: usize, out: &mut Vec<u32>) {
        match self.state {
            State::Closing(at) => out.extend(self.close[at..].iter().take(max)),
            State::Over | State::Behind(_) => {
                if let Some(inner) = &mut self.inner {
                    inner.forced(max, out);
                }
            }
            State::Beginning(at) => out.extend(self.begin[at..].iter().take(max)),
            State::Before | State::Thinking => {}
        }
    }
}
