//! What a client may ask for. Each limit has an error of its own, found before any work is done.

use llguidance::api::ParserLimits;
use serde_json::Value;

use super::cache;
use super::error::GrammarError;

/// Bytes of a schema, written compactly.
const SCHEMA_BYTES: usize = 256 << 10;
/// Bytes of all schemas of a request.
const SCHEMA_BYTES_ALL: usize = 1 << 20;
/// Bytes of a Lark grammar or regular expression.
const TEXT_BYTES: usize = 64 << 10;
/// Rules and terminals of a Lark grammar. llguidance follows them recursively; see [`STACK_BYTES`].
const LARK_DEFINITIONS: usize = 1000;
/// Members of one object in a schema. llguidance takes time that grows with their square, and gives up at a few hundred
/// optional properties.
const MEMBERS: usize = 1000;
/// Levels of nesting, in schemas and in Lark groups.
const DEPTH: usize = 64;
/// Tools of a request.
const TOOLS: usize = 512;

/// Stack of the thread that compiles. A chain of [`LARK_DEFINITIONS`] rules must fit, which a test makes sure of.
pub(super) const STACK_BYTES: usize = 64 << 20;
/// Compiled grammars to keep. A unit of weight is a parser (165 kB for the arguments of a usual tool) or 1 KiB of source.
pub(super) const CACHE: cache::Limits = cache::Limits { entries: 64, weight: 2048 };
/// A unit of weight in bytes, for grammars whose size is known.
pub(super) const WEIGHT_BYTES: usize = 165 << 10;
/// Memory of one compiled grammar.
pub(super) const COMPILED_BYTES: usize = 96 << 20;
/// What takes longer than this to compile yields to all other work.
pub(super) const SLOW_MS: u64 = 5;
/// Time for all tools of a request, checked between tools.
pub(super) const COMPILE_SECONDS: u64 = 10;

/// The limits of llguidance, all stated: a default that changes with a version is no limit of ours. The times are its own
/// figures.
pub(super) fn parser() -> ParserLimits {
    ParserLimits {
        // Alternatives alive at one place.
        max_items_in_row: 2000,
        // About 20 ms of building regular expressions.
        initial_lexer_fuel: 1_000_000,
        // About 15 ms for one mask.
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        // 1 to 2 kB each, so at most 100 MB for an answer whose grammar means harm.
        max_lexer_states: 50_000,
        max_grammar_size: 500_000,
        precompute_large_lexemes: true,
        // Errors go to clients, who have no use for the state of the parser.
        verbose_errors: false,
    }
}

/// Checks one schema and adds its size to `total`.
pub(super) fn schema(what: &str, schema: &Value, total: &mut usize) -> Result<(), GrammarError> {
    if depth(schema) > DEPTH {
        return Err(GrammarError::TooDeep { what: what.to_string(), max: DEPTH });
    }
    let found = schema.to_string().len();
    too_large(what, found, SCHEMA_BYTES)?;
    if members(schema) > MEMBERS {
        let reason = format!("an object in it has more than {MEMBERS} members");
        return Err(GrammarError::Invalid { what: what.to_string(), reason });
    }
    *total += found;
    too_large("the schemas of all tools", *total, SCHEMA_BYTES_ALL)
}

/// Checks a regular expression.
pub(super) fn regex(what: &str, text: &str) -> Result<(), GrammarError> {
    too_large(what, text.len(), TEXT_BYTES)
}

/// Checks a Lark grammar.
pub(super) fn lark(what: &str, text: &str) -> Result<(), GrammarError> {
    too_large(what, text.len(), TEXT_BYTES)?;
    if lark_depth(text) > DEPTH {
        return Err(GrammarError::TooDeep { what: what.to_string(), max: DEPTH });
    }
    // Every definition has a colon; those in strings and templates count too, which only real grammars of this size
    // would notice.
    let found = text.lines().filter(|line| line.contains(':')).count();
    if found > LARK_DEFINITIONS {
        let reason = format!("it has {found} definitions, more than {LARK_DEFINITIONS}");
        return Err(GrammarError::Invalid { what: what.to_string(), reason });
    }
    Ok(())
}

/// Checks the number of tools.
pub(super) fn tools(found: usize) -> Result<(), GrammarError> {
    if found > TOOLS { Err(GrammarError::TooManyTools { found, max: TOOLS }) } else { Ok(()) }
}

fn too_large(what: &str, found: usize, max: usize) -> Result<(), GrammarError> {
    if found > max { Err(GrammarError::TooLarge { what: what.to_string(), found, max }) } else { Ok(()) }
}

/// Levels of arrays and objects. Stops counting just above the limit, so that the check itself cannot go too deep.
fn depth(value: &Value) -> usize {
    fn below(value: &Value, left: usize) -> usize {
        let inner = |value: &Value| if left == 0 { 0 } else { below(value, left - 1) };
        match value {
            Value::Array(items) => 1 + items.iter().map(inner).max().unwrap_or(0),
            Value::Object(members) => 1 + members.values().map(inner).max().unwrap_or(0),
            _ => 0,
        }
    }
    below(value, DEPTH + 1)
}

/// The most members of an object. The depth has been checked before.
fn members(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(members).max().unwrap_or(0),
        Value::Object(found) => found.values().map(members).max().unwrap_or(0).max(found.len()),
        _ => 0,
    }
}

/// Levels of brackets outside strings. Those of regular expressions and comments count too.
fn lark_depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let mut quoted = false;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'\n' => quoted = false,
            b'"' => quoted = !quoted,
            b'(' | b'[' | b'{' if !quoted => depth += 1,
            b')' | b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}
