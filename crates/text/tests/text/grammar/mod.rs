//! Grammars over a small vocabulary that has what matters: all bytes, tokens that cross the borders of JSON, tags as
//! one token, several ends, and fewer tokens than logits.

mod calls;
mod dialects;
mod errors;
mod lazy;
mod real;
mod schemas;
mod speed;

use std::sync::{Arc, LazyLock};

use model::gguf::{Array, Format, Value};
use testkit::gguf::GgufWriter;
use text::Tokenizer;
use text::grammar::{Grammar, GrammarError, GrammarSource, Grammars, Matcher, ToolGrammar, ToolMode, ToolSpec};

use crate::models::{alphabet, gguf};

/// Logits of the model; more than tokens, and no multiple of 32.
pub const ROWS: usize = 401;

/// Tokens of more than a byte. Some hold the end of one thing and the beginning of the next.
const PIECES: [&str; 34] = [
    "{\"",
    "\":",
    "\": ",
    "\": {\"",
    "\": \"",
    "\", \"",
    "\",\n",
    "}}",
    "\"}}",
    "}}\n",
    "}\n",
    "\"}",
    "}\n```",
    "[{",
    "}]",
    "name",
    "arguments",
    "parameters",
    "<tool",
    "_call",
    ">\n",
    "```",
    "json",
    "```json",
    "\n\n",
    "    ",
    "\n  ",
    "true",
    " true",
    "false",
    "get_weather",
    "read_file",
    "*** ",
    "\n*** ",
];

/// A vocabulary with its grammars.
pub struct Lab {
    pub tokenizer: Arc<Tokenizer>,
    pub grammars: Grammars,
}

pub static LAB: LazyLock<Lab> = LazyLock::new(|| {
    let spell = |text: &str| text.bytes().map(alphabet).collect::<String>();
    let mut tokens: Vec<String> = (0..=255).map(|byte| alphabet(byte).to_string()).collect();
    tokens.extend(PIECES.map(spell));
    let normal = tokens.len();
    tokens.extend(["<tool_call>", "</tool_call>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"].map(String::from));
    let kinds = std::iter::repeat_n(1, normal).chain([4, 4, 3, 3, 3]).collect();
    let writer = GgufWriter::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "qwen2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", ["a b"])
        .meta("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))
        .meta("tokenizer.ggml.eos_token_id", Value::U32(normal as u32 + 3))
        .tensor("pad", &[4096], Format::F32, vec![0; 4096 * 4]);
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf(&writer)).unwrap());
    let grammars = Grammars::new(&tokenizer, ROWS).unwrap();
    Lab { tokenizer, grammars }
});

impl Lab {
    pub fn compile(&self, source: GrammarSource) -> Grammar {
        self.grammars.compile(&source).unwrap_or_else(|error| panic!("{error}\n{source:?}"))
    }

    pub fn tools(&self, tools: &[ToolSpec], mode: ToolMode, parallel: bool) -> Result<Grammar, GrammarError> {
        self.grammars.compile(&GrammarSource::Tools(ToolGrammar {
            tools: tools.to_vec(),
            mode,
            parallel,
            dialect: text::Dialect::Hermes,
        }))
    }

    /// The ids of a text, always the longest token that fits: more of them cross borders than with merges.
    pub fn longest(&self, text: &[u8]) -> Vec<u32> {
        let vocabulary = self.tokenizer.vocabulary();
        let mut ids = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let fits =
                |&id: &u32| !vocabulary.token_bytes(id).is_empty() && rest.starts_with(vocabulary.token_bytes(id));
            let id =
                (0..vocabulary.len() as u32).filter(fits).max_by_key(|&id| vocabulary.token_bytes(id).len()).unwrap();
            ids.push(id);
            rest = &rest[vocabulary.token_bytes(id).len()..];
        }
        ids
    }

    pub fn bytes(&self, text: &[u8]) -> Vec<u32> {
        text.iter().flat_map(|byte| self.longest(&[*byte])).collect()
    }

    /// Accepts a text, as bytes and as long tokens. The matcher of the bytes goes on from there.
    pub fn follow(&self, grammar: &Grammar, text: &str) -> Result<Matcher, String> {
        let mut by_bytes = grammar.matcher();
        self.walk(&mut by_bytes, &self.bytes(text.as_bytes()))?;
        // A token that the grammar has no place for may hold the end of one thing and the beginning of the next; a model
        // has others for it.
        let mut by_tokens = grammar.matcher();
        for id in self.longest(text.as_bytes()) {
            let mut next = by_tokens.clone();
            if self.walk(&mut next, &[id]).is_err() {
                next = by_tokens.clone();
                self.walk(&mut next, &self.bytes(&self.tokenizer.decode(&[id])))?;
            }
            by_tokens = next;
        }
        assert_eq!(may_end(&mut by_bytes), may_end(&mut by_tokens), "{text}");
        Ok(by_bytes)
    }

    fn walk(&self, matcher: &mut Matcher, ids: &[u32]) -> Result<(), String> {
        for (index, &id) in ids.iter().enumerate() {
            let text = |ids: &[u32]| String::from_utf8_lossy(&self.tokenizer.decode(ids)).into_owned();
            if !is_allowed(matcher, id) && !self.is_forced(matcher, id) {
                return Err(format!("{:?} is not allowed after {:?}", text(&[id]), text(&ids[..index])));
            }
            matcher.accept(id).map_err(|error| format!("{error} after {:?}", text(&ids[..index])))?;
        }
        Ok(())
    }

    /// Whether the text of a token must come next, though not in this token: masks ask for the tokeniser's own then.
    fn is_forced(&self, matcher: &mut Matcher, id: u32) -> bool {
        let mut forced = Vec::new();
        matcher.forced(usize::MAX, &mut forced);
        let (forced, text) = (self.tokenizer.decode(&forced), self.tokenizer.decode(&[id]));
        !forced.is_empty() && (forced.starts_with(&text) || text.starts_with(&forced))
    }

    /// Whether the whole text fits, with an end after it.
    pub fn fits(&self, grammar: &Grammar, text: &str) -> bool {
        match self.follow(grammar, text) {
            Ok(mut matcher) => may_end(&mut matcher),
            Err(_) => false,
        }
    }

    /// Writes JSON, or calls with JSON, of allowed tokens.
    pub fn random(&self, grammar: &Grammar, seed: u64, steps: usize) -> String {
        self.random_until(grammar, seed, steps, &["}", "]", "\"", "</tool_call>", "\n", "0"])
    }

    /// Writes an answer of allowed tokens, chosen by chance, for `steps`; then mostly `closers`, first ones first.
    pub fn random_until(&self, grammar: &Grammar, seed: u64, steps: usize, closers: &[&str]) -> String {
        let mut chance = Chance(seed);
        let mut matcher = grammar.matcher();
        let mut out = Vec::new();
        let closers: Vec<u32> = closers.iter().map(|text| self.longest(text.as_bytes())[0]).collect();
        for step in 0.. {
            let text = String::from_utf8_lossy(&out).into_owned();
            assert!(step < steps + 3000, "seed {seed}: no end: {text}");
            let allowed = allowed_ids(&mut matcher);
            let ends: Vec<u32> =
                allowed.iter().copied().filter(|&id| self.tokenizer.vocabulary().is_stop(id)).collect();
            assert!(ends.is_empty() || ends.len() == self.tokenizer.vocabulary().stops().len(), "all ends or none");
            if !ends.is_empty() && (step >= steps || matcher.is_done() || chance.below(4) == 0) {
                matcher.accept(ends[chance.below(ends.len())]).unwrap();
                assert!(matcher.is_done());
                return String::from_utf8(out).unwrap_or_else(|_| panic!("seed {seed}: no UTF-8: {text:?}"));
            }
            assert!(!matcher.is_done(), "seed {seed}: nothing but an end may follow: {text}");
            let texts: Vec<u32> = allowed.into_iter().filter(|id| !ends.contains(id)).collect();
            let ascii = |&&id: &&u32| {
                self.tokenizer.vocabulary().token_bytes(id).iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n'))
            };
            let plain: Vec<u32> = texts.iter().filter(ascii).copied().collect();
            let closer =
                closers.iter().copied().find(|id| texts.contains(id)).filter(|_| step >= steps && chance.below(8) > 0);
            let id = match closer {
                Some(id) => id,
                None if plain.is_empty() || chance.below(20) == 0 => texts[chance.below(texts.len())],
                None => plain[chance.below(plain.len())],
            };
            let mut forced = Vec::new();
            matcher.forced(4, &mut forced);
            let id = forced.first().copied().unwrap_or(id);
            matcher.accept(id).unwrap_or_else(|error| panic!("seed {seed}: {error} after {text}"));
            out.extend_from_slice(self.tokenizer.vocabulary().token_bytes(id));
        }
        unreachable!()
    }
}

pub fn is_allowed(matcher: &mut Matcher, id: u32) -> bool {
    match matcher.allowed().unwrap() {
        Some(mask) => mask[id as usize / 32] >> (id % 32) & 1 == 1,
        None => true,
    }
}

/// The allowed tokens. Also checks that the mask has its length, and no bits beyond the vocabulary or for control tokens.
pub fn allowed_ids(matcher: &mut Matcher) -> Vec<u32> {
    let vocabulary = LAB.tokenizer.vocabulary();
    let mask = matcher.allowed().unwrap().expect("a mask");
    assert_eq!(mask.len(), ROWS.div_ceil(32));
    let ids: Vec<u32> =
        (0..mask.len() as u32 * 32).filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1).collect();
    let known = |&id: &u32| {
        vocabulary.is_stop(id) || matches!(vocabulary.kind(id), text::TokenKind::Normal | text::TokenKind::UserDefined)
    };
    assert!(ids.iter().all(known), "{ids:?}");
    ids
}

pub fn may_end(matcher: &mut Matcher) -> bool {
    let stops = LAB.tokenizer.vocabulary().stops();
    assert!(stops.len() > 1);
    let allowed: Vec<bool> = stops.iter().map(|&stop| is_allowed(matcher, stop)).collect();
    assert!(allowed.iter().all(|&bit| bit == allowed[0]), "all ends or none");
    allowed[0]
}

/// Numbers by chance (splitmix64), the same for the same seed.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }
}
