//! One answer and the grammar it follows, token by token.

use std::sync::Arc;

use llguidance::Matcher as Parser;

use super::compile::{Calls, Compiled, Kind};
use super::environment::{CLOSE, Environment};
use super::error::said;
use super::watcher::{Event, Watcher};
use crate::dialect::Dialect;

const EARLY: &str = "the answer ended before its grammar";

/// The state of one answer. The engine asks what is [`allowed`](Matcher::allowed), samples, and says what it took.
#[derive(Clone)]
pub struct Matcher {
    grammar: Arc<Compiled>,
    phase: Phase,
    watcher: Watcher,
    mask: Vec<u32>,
    violated: bool,
}

#[derive(Clone)]
enum Phase {
    /// One grammar for all that follows.
    Whole(Parser),
    /// Anything goes, until a call begins.
    Free,
    /// The arguments of a call that the model began.
    Held(Parser),
    /// The text of a custom tool.
    Text(Text),
    /// Only the end may follow.
    Done,
}

/// The text of a custom tool, up to and with the closing tag.
///
/// The tag is not part of the tool's grammar, which may well allow it: it is looked for beside it, wherever the grammar
/// may end. So there are two readings, and the text goes on as long as one of them holds.
#[derive(Clone)]
struct Text {
    /// The tool's grammar; none for any text.
    parser: Option<Parser>,
    /// Whether the grammar still holds, or only the closing tag.
    alive: bool,
    /// How much of the closing tag there may be: every reading of it.
    closing: Vec<usize>,
}

impl Matcher {
    pub(super) fn new(grammar: Arc<Compiled>) -> Matcher {
        let phase = match &grammar.kind {
            Kind::Whole(parser) | Kind::Required { first: parser, .. } => Phase::Whole(parser.deep_clone()),
            Kind::Lazy(_) => Phase::Free,
        };
        let dialect = grammar.calls().map_or(Dialect::Hermes, |calls| calls.dialect);
        Matcher { grammar, phase, watcher: Watcher::new(dialect), mask: Vec::new(), violated: false }
    }

    /// Which tokens may come next: bit `t % 32` of word `t / 32`, for every row of logits. None allows all.
    pub fn allowed(&mut self) -> Result<Option<&[u32]>, String> {
        let environment = &self.grammar.environment;
        let calls = self.grammar.calls().is_some();
        match &mut self.phase {
            Phase::Free | Phase::Text(Text { parser: None, .. }) => return Ok(None),
            Phase::Done => environment.only_stops(&mut self.mask),
            Phase::Whole(parser) => {
                let mask = parser.compute_mask_or_eos().map_err(|error| said(&error))?;
                environment.copy_mask(mask.as_slice(), calls, &mut self.mask);
            }
            Phase::Held(parser) => match parser.compute_mask() {
                Ok(mask) => environment.copy_mask(mask.as_slice(), calls, &mut self.mask),
                // The model would have been free to write anything; it is better to go on than to fail.
                Err(_) => {
                    self.let_go();
                    return Ok(None);
                }
            },
            Phase::Text(text) => text.allowed(environment, &mut self.mask)?,
        }
        if self.mask.iter().all(|&word| word == 0) {
            return Err("the grammar allows no token of this model".to_string());
        }
        Ok(Some(&self.mask))
    }

    /// Takes the next token. One that is not allowed is an error, after which the matcher is of no more use.
    pub fn accept(&mut self, token: u32) -> Result<(), String> {
        let grammar = self.grammar.clone();
        let vocabulary = grammar.environment.tokenizer.vocabulary();
        if vocabulary.is_stop(token) {
            return self.end(token);
        }
        let bytes = vocabulary.token_bytes(token);
        match &mut self.phase {
            Phase::Done => return Err("the answer was over".to_string()),
            Phase::Whole(parser) | Phase::Held(parser) => {
                parser.consume_token(token).map_err(|error| said(&error))?;
            }
            Phase::Text(text) if text.parser.is_some() => {
                if text.accept(Some(token), bytes)? {
                    self.after_text();
                }
                return Ok(());
            }
            Phase::Free | Phase::Text(_) => {}
        }
        if let Some(calls) = grammar.calls() {
            match grammar.environment.marker(calls.dialect, token) {
                Some(marker) => {
                    let event = self.watcher.marker(marker, &calls.names);
                    self.react(event, calls);
                }
                None => self.follow(bytes, calls),
            }
        }
        Ok(())
    }

    /// Appends tokens that must come next, at most `max`. Nothing changes: they are still to be accepted.
    pub fn forced(&mut self, max: usize, out: &mut Vec<u32>) {
        if let Phase::Whole(parser) | Phase::Held(parser) = &mut self.phase
            && max > 0
            && !parser.is_stopped()
        {
            out.extend(parser.compute_ff_tokens().into_iter().take(max));
        }
    }

    /// Whether nothing may follow but the end.
    pub fn is_done(&self) -> bool {
        match &self.phase {
            Phase::Done => true,
            Phase::Whole(parser) => parser.is_stopped(),
            Phase::Free | Phase::Held(_) | Phase::Text(_) => false,
        }
    }

    /// Whether a call was begun in a way that contradicts its schema, so that it could not be held to it. This happens
    /// only where the model wrote the first characters of the arguments in the same token as what comes before them.
    pub fn violated(&self) -> bool {
        self.violated
    }

    /// The model ended its answer.
    fn end(&mut self, token: u32) -> Result<(), String> {
        match &mut self.phase {
            Phase::Free | Phase::Done | Phase::Text(Text { parser: None, .. }) => {}
            Phase::Whole(parser) => {
                if !parser.is_stopped() {
                    if !parser.is_accepting().unwrap_or(false) {
                        return Err(EARLY.to_string());
                    }
                    parser.consume_token(token).map_err(|error| said(&error))?;
                }
            }
            Phase::Held(_) | Phase::Text(_) => return Err(EARLY.to_string()),
        }
        self.phase = Phase::Done;
        Ok(())
    }

    /// Looks for calls in the text of a token that the phase has taken.
    fn follow(&mut self, bytes: &[u8], calls: &Calls) {
        let lazy = matches!(self.grammar.kind, Kind::Lazy(_));
        // Whether the phase began within this token, and so has yet to take the rest of it.
        let mut behind = false;
        for &byte in bytes {
            let token = self.grammar.environment.byte(byte);
            if let Phase::Text(text) = &mut self.phase {
                match text.accept(token, &[byte]) {
                    Ok(true) => self.after_text(),
                    Ok(false) => {}
                    Err(_) => self.let_go(),
                }
                continue;
            }
            let event = self.watcher.push(byte, &calls.names);
            if let Phase::Held(parser) = &mut self.phase
                && behind
                && !takes(parser, token)
            {
                self.let_go();
                continue;
            }
            behind |= matches!(event, Event::Arguments(_)) && lazy;
            self.react(event, calls);
        }
    }

    fn react(&mut self, event: Event, calls: &Calls) {
        let lazy = matches!(self.grammar.kind, Kind::Lazy(_));
        match event {
            Event::Arguments(tool) if lazy => self.phase = calls.parser(tool).map_or(Phase::Free, Phase::Held),
            // A call ends the answer there.
            Event::ArgumentsEnd if lazy && calls.dialect == Dialect::Harmony => self.phase = Phase::Done,
            Event::ArgumentsEnd if lazy => self.phase = Phase::Free,
            Event::Text(tool) => {
                let parser = calls.parser(tool);
                self.phase = Phase::Text(Text { parser, alive: true, closing: Vec::new() });
            }
            Event::None | Event::Arguments(_) | Event::ArgumentsEnd => {}
        }
    }

    /// Gives up on holding the model to this call.
    fn let_go(&mut self) {
        self.violated = true;
        self.phase = Phase::Free;
        self.watcher.reset();
    }

    fn after_text(&mut self) {
        self.phase = match &self.grammar.kind {
            Kind::Required { more: Some(parser), .. } => Phase::Whole(parser.deep_clone()),
            Kind::Required { .. } => Phase::Done,
            Kind::Whole(_) | Kind::Lazy(_) => Phase::Free,
        };
        self.watcher.reset();
    }
}

impl Compiled {
    fn calls(&self) -> Option<&Calls> {
        match &self.kind {
            Kind::Whole(_) => None,
            Kind::Lazy(calls) | Kind::Required { calls, .. } => Some(calls),
        }
    }
}

impl Calls {
    /// A parser for what a call of this tool holds.
    ///
    /// Like all parsers of a new matcher this is a deep clone. A plain one would share its lexer with all others of the
    /// grammar, which grows up to a limit: one answer could use it up for all that follow.
    fn parser(&self, tool: usize) -> Option<Parser> {
        self.parts[tool].as_ref().map(Parser::deep_clone)
    }
}

impl Text {
    fn allowed(&mut self, environment: &Environment, mask: &mut Vec<u32>) -> Result<(), String> {
        mask.clear();
        mask.resize(environment.words, 0);
        let accepting = self.accepting();
        if let Some(parser) = self.parser.as_mut().filter(|parser| self.alive && !parser.is_stopped()) {
            match parser.compute_mask() {
                Ok(allowed) => environment.copy_mask(allowed.as_slice(), false, mask),
                Err(_) if accepting || !self.closing.is_empty() => self.alive = false,
                Err(error) => return Err(said(&error)),
            }
            environment.no_stops(mask);
        }
        let fresh = [0, 1].into_iter().filter(|_| accepting);
        fresh.chain(self.closing.iter().copied()).for_each(|from| environment.allow_closers(from, mask));
        Ok(())
    }

    /// Takes a token, if there is one for these bytes; `true` when it ends the closing tag.
    fn accept(&mut self, token: Option<u32>, bytes: &[u8]) -> Result<bool, String> {
        if self.accepting() {
            self.closing.extend([0, 1]);
        }
        let closing = std::mem::take(&mut self.closing);
        let ends = closing.into_iter().filter(|&from| CLOSE[from..].starts_with(bytes));
        self.closing = ends.map(|from| from + bytes.len()).collect();
        if self.closing.contains(&CLOSE.len()) {
            return Ok(true);
        }
        if let Some(parser) = self.parser.as_mut().filter(|_| self.alive) {
            self.alive = takes(parser, token);
        }
        if self.alive || !self.closing.is_empty() {
            Ok(false)
        } else {
            Err("the text of the tool does not fit its format".to_string())
        }
    }

    /// Whether the grammar may end here.
    fn accepting(&mut self) -> bool {
        match &mut self.parser {
            Some(parser) => self.alive && parser.is_accepting().unwrap_or(false),
            None => true,
        }
    }
}

/// Gives a token to a parser, unless it does not fit.
fn takes(parser: &mut Parser, token: Option<u32>) -> bool {
    let Some(token) = token.filter(|_| !parser.is_stopped()) else {
        return false;
    };
    parser.try_consume_tokens(&[token]).is_ok_and(|taken| taken == 1)
}
