//! From what a client asked for to grammars that matchers can start from.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use llguidance::Matcher as Parser;
use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::cache::Cache;
use super::environment::Environment;
use super::error::{GrammarError, said};
use super::tools::{self, Callable, Fidelity, Place};
use super::watcher::Name;
use super::{CustomFormat, Grammar, GrammarSource, ToolGrammar, ToolMode, ToolSpec, ToolSpecKind, limits};
use crate::tokenizer::Tokenizer;

/// Compiles grammars for one vocabulary. Built once per model, which takes a moment, and shared by all requests.
pub struct Grammars {
    environment: Arc<Environment>,
    /// The grammars used last, by the text of what they were compiled from: the order of properties matters.
    cache: Cache<Grammar>,
}

/// A grammar, ready to be followed.
pub(super) struct Compiled {
    pub environment: Arc<Environment>,
    pub kind: Kind,
}

pub(super) enum Kind {
    /// The whole answer.
    Whole(Box<Parser>),
    /// Calls where the model makes them.
    Lazy(Calls),
    /// Nothing but calls: the answer, and what may follow a custom tool's text.
    Required { first: Box<Parser>, more: Option<Box<Parser>>, calls: Calls },
}

/// The tools that may be called; both lists have the same order.
pub(super) struct Calls {
    pub names: Vec<Name>,
    /// What a call holds: the arguments of a function, the text of a custom tool. None where anything goes, and for
    /// arguments that the grammar of the answer holds already.
    pub parts: Vec<Option<Parser>>,
}

impl Kind {
    fn parsers(&self) -> usize {
        let parts = |calls: &Calls| calls.parts.iter().flatten().count();
        match self {
            Kind::Whole(_) => 1,
            Kind::Lazy(calls) => parts(calls),
            // The grammar of all tools takes about as much as those of each.
            Kind::Required { calls, .. } => parts(calls) + 2 * calls.names.len(),
        }
    }
}

impl Grammars {
    /// `rows` is the number of logits of the model, which may be more than there are tokens. Masks have a bit for each.
    pub fn new(tokenizer: &Arc<Tokenizer>, rows: usize) -> Result<Grammars, GrammarError> {
        let environment = Arc::new(Environment::new(tokenizer, rows)?);
        Ok(Grammars { environment, cache: Cache::new(limits::CACHE) })
    }

    /// Compiles a grammar, or finds it among those used last. Takes milliseconds, for large schemas more: not for
    /// threads that others wait for.
    pub fn compile(&self, source: &GrammarSource) -> Result<Grammar, GrammarError> {
        let key = format!("{source:?}");
        if let Some(grammar) = self.cache.get(&key) {
            return Ok(grammar);
        }
        check(source)?;
        let kind = thread::scope(|scope| {
            let thread = thread::Builder::new().name("grammar".to_string()).stack_size(limits::STACK_BYTES);
            let compiling = thread.spawn_scoped(scope, || compile(&self.environment, source));
            let failed = |reason: &str| invalid("the grammar", reason);
            compiling.map_err(|error| failed(&error.to_string()))?.join().map_err(|_| failed("the compiler failed"))?
        })?;
        let weight = kind.parsers() + key.len() / 1024;
        let grammar = Grammar(Arc::new(Compiled { environment: self.environment.clone(), kind }));
        self.cache.insert(key, weight, grammar.clone());
        Ok(grammar)
    }
}

/// An error with what llguidance says.
fn invalid(what: &str, reason: &str) -> GrammarError {
    GrammarError::Invalid { what: what.to_string(), reason: said(&reason) }
}

/// Whether the source is within its limits.
fn check(source: &GrammarSource) -> Result<(), GrammarError> {
    match source {
        GrammarSource::JsonObject => Ok(()),
        GrammarSource::JsonSchema(schema) => limits::schema(SCHEMA, schema, &mut 0),
        GrammarSource::Lark(text) => limits::lark(LARK, text),
        GrammarSource::Regex(text) => limits::regex(REGEX, text),
        GrammarSource::Tools(grammar) => {
            limits::tools(grammar.tools.len())?;
            let mut total = 0;
            grammar.tools.iter().try_for_each(|tool| match &tool.kind {
                ToolSpecKind::Function { parameters, .. } => limits::schema(&schema_of(tool), parameters, &mut total),
                ToolSpecKind::Custom { format: CustomFormat::Text } => Ok(()),
                ToolSpecKind::Custom { format: CustomFormat::Lark(text) } => limits::lark(&format_of(tool), text),
                ToolSpecKind::Custom { format: CustomFormat::Regex(text) } => limits::regex(&format_of(tool), text),
            })
        }
    }
}

/// Tokens that a new grammar is tried with.
const PROBE_TOKENS: usize = 3;

const SCHEMA: &str = "the JSON schema";
const LARK: &str = "the Lark grammar";
const REGEX: &str = "the regular expression";

fn schema_of(tool: &ToolSpec) -> String {
    format!("the schema of tool {:?}", tool.name)
}

fn format_of(tool: &ToolSpec) -> String {
    format!("the format of tool {:?}", tool.name)
}

fn compile(environment: &Environment, source: &GrammarSource) -> Result<Kind, GrammarError> {
    let whole = |what: &str, grammar| Ok(Kind::Whole(Box::new(parser(environment, what, grammar)?)));
    match source {
        GrammarSource::JsonObject => whole(SCHEMA, tools::json(&any_object(), Fidelity::Full)),
        GrammarSource::JsonSchema(schema) => whole(SCHEMA, tools::json(schema, Fidelity::Full)),
        GrammarSource::Lark(text) => whole(LARK, TopLevelGrammar::from_lark(text.clone())),
        GrammarSource::Regex(text) => whole(REGEX, tools::regex(text)),
        GrammarSource::Tools(grammar) => compile_tools(environment, grammar),
    }
}

fn parser(environment: &Environment, what: &str, grammar: TopLevelGrammar) -> Result<Parser, GrammarError> {
    let parser = environment.factory.create_parser(grammar).map_err(|error| invalid(what, &error.to_string()))?;
    let parser = Parser::new(Ok(parser));
    // What allows nothing at all, or takes too much work, is found here and not with the first tokens of an answer.
    let mut probe = parser.clone();
    for _ in 0..PROBE_TOKENS {
        if probe.is_stopped() {
            break;
        }
        let mask = probe.compute_mask().map_err(|error| invalid(what, &error.to_string()))?;
        let Some(token) = mask.first_bit_set() else { break };
        probe.consume_token(token as u32).map_err(|error| invalid(what, &error.to_string()))?;
    }
    match probe.get_error() {
        Some(error) => Err(invalid(what, &error)),
        None => Ok(parser),
    }
}

fn any_object() -> Value {
    json!({ "type": "object" })
}

fn compile_tools(environment: &Environment, grammar: &ToolGrammar) -> Result<Kind, GrammarError> {
    let tools: Vec<&ToolSpec> = match grammar.mode {
        ToolMode::Lazy => grammar.tools.iter().collect(),
        ToolMode::Required if grammar.tools.is_empty() => return Err(GrammarError::NoTool),
        ToolMode::Required => grammar.tools.iter().collect(),
        ToolMode::Named(index) => vec![grammar.tools.get(index).ok_or(GrammarError::NoTool)?],
    };
    let lazy = grammar.mode == ToolMode::Lazy;
    let started = Instant::now();
    let mut calls = Calls { names: Vec::new(), parts: Vec::new() };
    let mut schemas = Vec::new();
    for tool in &tools {
        if started.elapsed() > Duration::from_secs(limits::COMPILE_SECONDS) {
            return Err(GrammarError::TooSlow { seconds: limits::COMPILE_SECONDS });
        }
        let quoted = Value::from(tool.name.as_str()).to_string().into_bytes();
        let (part, schema) = match &tool.kind {
            ToolSpecKind::Function { parameters, strict } => {
                let (part, schema, fidelity) = arguments(environment, tool, parameters, *strict)?;
                (Some(part).filter(|_| lazy), Some((schema, fidelity)))
            }
            ToolSpecKind::Custom { format } => (custom(environment, tool, format, lazy)?, None),
        };
        calls.names.push(Name { quoted, custom: schema.is_none() });
        calls.parts.push(part);
        schemas.push(schema);
    }
    if lazy {
        return Ok(Kind::Lazy(calls));
    }
    let callable: Vec<Callable> = calls
        .names
        .iter()
        .zip(&schemas)
        .map(|(name, schema)| Callable {
            quoted: &name.quoted,
            arguments: schema.as_ref().map(|(schema, fidelity)| (schema, *fidelity)),
        })
        .collect();
    let many = grammar.parallel && grammar.mode == ToolMode::Required;
    let place = if many { Place::Many } else { Place::One };
    let what = "the grammar of all tools";
    let first = Box::new(parser(environment, what, tools::calls(&callable, place))?);
    let after_text = many && schemas.contains(&None);
    let more = after_text.then(|| parser(environment, what, tools::calls(&callable, Place::More))).transpose()?;
    Ok(Kind::Required { first, more: more.map(Box::new), calls })
}

/// The grammar of a function's arguments and the schema that it follows: the given one as far as possible.
fn arguments(
    environment: &Environment,
    tool: &ToolSpec,
    parameters: &Value,
    strict: bool,
) -> Result<(Parser, Value, Fidelity), GrammarError> {
    let what = schema_of(tool);
    let held = |schema: Value, fidelity| {
        Ok((parser(environment, &what, tools::held_arguments(&schema, fidelity))?, schema, fidelity))
    };
    let schema = tools::arguments_schema(parameters).map_err(|reason| invalid(&what, &reason));
    let full = schema.clone().and_then(|schema| held(schema, Fidelity::Full));
    if strict || full.is_ok() {
        return full;
    }
    let lenient = schema.and_then(|schema| held(schema, Fidelity::Lenient));
    lenient.or_else(|_: GrammarError| held(any_object(), Fidelity::Full))
}

/// The grammar of a custom tool's text. Where the model may just talk, any text needs none.
fn custom(
    environment: &Environment,
    tool: &ToolSpec,
    format: &CustomFormat,
    lazy: bool,
) -> Result<Option<Parser>, GrammarError> {
    let grammar = match format {
        CustomFormat::Text if lazy => return Ok(None),
        CustomFormat::Text => tools::regex("(?s:.*)"),
        CustomFormat::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
        CustomFormat::Regex(text) => tools::regex(text),
    };
    parser(environment, &format_of(tool), grammar).map(Some)
}
