//! From what a client asked for to grammars that matchers can start from.

use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher as Parser, ParserFactory};
use serde_json::{Value, json};
use toktrie::ApproximateTokEnv;

use super::cache::Cache;
use super::dialects::{self, Marks};
use super::environment::{self, Environment};
use super::error::{GrammarError, said};
use super::gate::{Gate, SLOTS};
use super::tools::{self, CallPosition, Callable, Fidelity};
use super::watcher::Name;
use super::{CustomFormat, Grammar, GrammarSource, ToolGrammar, ToolMode, ToolSpec, ToolSpecKind, limits};
use crate::confined::{Confined, ConfinedError, Job, Purpose, Reply, Wanted, step_back};
use crate::dialect::Dialect;
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
    /// How they are written.
    pub dialect: Dialect,
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
        self.compile_for(source, 0, &Wanted::default())
    }

    /// The same for one of several owners, none of whom can keep the others waiting, and as long as somebody wants it.
    pub fn compile_for(&self, source: &GrammarSource, owner: u64, wanted: &Wanted) -> Result<Grammar, GrammarError> {
        let key = format!("{source:?}");
        if let Some(grammar) = self.cache.get(&key) {
            return Ok(grammar);
        }
        check(source)?;
        let place = GATE.enter(owner, wanted)?;
        // Whoever waited behind the same grammar finds it made.
        if let Some(grammar) = self.cache.get(&key) {
            return Ok(grammar);
        }
        let (bytes, slow) = tried_apart(place.index, source, wanted)?;
        let kind = thread::scope(|scope| {
            let thread = thread::Builder::new().name("grammar".to_string()).stack_size(limits::STACK_BYTES);
            let compiling = thread.spawn_scoped(scope, || {
                if slow {
                    step_back(rustix::thread::gettid());
                }
                compile(&self.environment.factory, source, &|marker| self.environment.mark(marker))
            });
            let failed = |reason: &str| invalid("the grammar", reason);
            compiling.map_err(|error| failed(&error.to_string()))?.join().map_err(|_| failed("the compiler failed"))?
        })?;
        let weight = (kind.parsers() + key.len() / 1024).max(bytes / limits::WEIGHT_BYTES);
        let grammar = Grammar(Arc::new(Compiled { environment: self.environment.clone(), kind }));
        self.cache.insert(key, weight, grammar.clone());
        Ok(grammar)
    }
}

/// Compiling is one trade for the whole process, whatever the model.
static GATE: LazyLock<Gate> = LazyLock::new(Gate::default);
/// A process for each place.
static TRIALS: LazyLock<[Option<Confined>; SLOTS]> =
    LazyLock::new(|| std::array::from_fn(|_| Confined::new(Purpose::Grammar, None)));

/// Compiles a grammar in a process that can be ended, to see what it takes: the bytes, and whether it is slow. Nothing
/// can stop the compiler once it has begun here.
fn tried_apart(place: usize, source: &GrammarSource, wanted: &Wanted) -> Result<(usize, bool), GrammarError> {
    let Some(trial) = &TRIALS[place] else { return Ok((0, false)) };
    let too_much = |reason: String| GrammarError::TooMuch { what: what(source), reason };
    match trial.ask(&Job::Grammar(source.clone()), wanted) {
        Ok(Reply::Compiled { bytes, .. }) if bytes > limits::COMPILED_BYTES => {
            Err(too_much(format!("takes more than {} MB of memory", limits::COMPILED_BYTES >> 20)))
        }
        Ok(Reply::Compiled { bytes, cpu_ms }) => Ok((bytes, cpu_ms > limits::SLOW_MS)),
        Ok(Reply::Grammar(error)) => Err(error),
        Ok(_) => Err(too_much("got no answer".to_string())),
        Err(ConfinedError::Left) => Err(GrammarError::Left),
        Err(ConfinedError::Busy) => Err(GrammarError::Busy),
        Err(ConfinedError::Time(seconds)) => Err(too_much(format!("takes more than {seconds} s to compile"))),
        Err(error) => Err(too_much(error.to_string())),
    }
}

/// Compiles a grammar over the 256 bytes instead of a vocabulary: what a trial does.
pub(crate) fn tried(source: &GrammarSource) -> Result<impl Sized, GrammarError> {
    static BYTES: LazyLock<Result<ParserFactory, GrammarError>> =
        LazyLock::new(|| environment::factory(&ApproximateTokEnv::single_byte_env()));
    // There are no markers among the bytes: their texts stand for them.
    compile(BYTES.as_ref().map_err(Clone::clone)?, source, &|marker| Value::from(marker).to_string())
}

fn what(source: &GrammarSource) -> String {
    match source {
        GrammarSource::JsonObject | GrammarSource::JsonSchema(_) => SCHEMA,
        GrammarSource::Lark(_) => LARK,
        GrammarSource::Regex(_) => REGEX,
        GrammarSource::Tools(_) => "the grammar of all tools",
    }
    .to_string()
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

fn compile(factory: &ParserFactory, source: &GrammarSource, marks: Marks) -> Result<Kind, GrammarError> {
    let whole = |what: &str, grammar| Ok(Kind::Whole(Box::new(parser(factory, what, grammar)?)));
    match source {
        GrammarSource::JsonObject => whole(SCHEMA, tools::json(&any_object(), Fidelity::Full)),
        GrammarSource::JsonSchema(schema) => whole(SCHEMA, tools::json(schema, Fidelity::Full)),
        GrammarSource::Lark(text) => whole(LARK, TopLevelGrammar::from_lark(text.clone())),
        GrammarSource::Regex(text) => whole(REGEX, tools::regex(text)),
        GrammarSource::Tools(grammar) => compile_tools(factory, grammar, marks),
    }
}

fn parser(factory: &ParserFactory, what: &str, grammar: TopLevelGrammar) -> Result<Parser, GrammarError> {
    let parser = factory.create_parser(grammar).map_err(|error| invalid(what, &error.to_string()))?;
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

fn compile_tools(factory: &ParserFactory, grammar: &ToolGrammar, marks: Marks) -> Result<Kind, GrammarError> {
    let tools: Vec<&ToolSpec> = match grammar.mode {
        ToolMode::Lazy => grammar.tools.iter().collect(),
        ToolMode::Required if grammar.tools.is_empty() => return Err(GrammarError::NoTool),
        ToolMode::Required => grammar.tools.iter().collect(),
        ToolMode::Named(index) => vec![grammar.tools.get(index).ok_or(GrammarError::NoTool)?],
    };
    let lazy = grammar.mode == ToolMode::Lazy;
    let started = Instant::now();
    let dialect = grammar.dialect;
    let mut calls = Calls { names: Vec::new(), parts: Vec::new(), dialect };
    let mut schemas = Vec::new();
    for tool in &tools {
        if started.elapsed() > Duration::from_secs(limits::COMPILE_SECONDS) {
            return Err(GrammarError::TooSlow { seconds: limits::COMPILE_SECONDS });
        }
        let quoted = Value::from(tool.name.as_str()).to_string().into_bytes();
        let (part, schema) = match &tool.kind {
            ToolSpecKind::Function { parameters, strict } => {
                let (part, schema, fidelity) = arguments(factory, tool, parameters, *strict, dialect, marks)?;
                (Some(part).filter(|_| lazy), Some((schema, fidelity)))
            }
            ToolSpecKind::Custom { format } => (custom(factory, tool, format, lazy)?, None),
        };
        calls.names.push(Name { quoted, plain: tool.name.clone().into_bytes(), custom: schema.is_none() });
        calls.parts.push(part);
        schemas.push(schema);
    }
    if lazy {
        return Ok(Kind::Lazy(calls));
    }
    let many = grammar.parallel && grammar.mode == ToolMode::Required;
    if dialect != Dialect::Hermes {
        let named = tools.iter().zip(&schemas).filter_map(|(tool, schema)| {
            let (schema, fidelity) = schema.as_ref()?;
            Some((tool.name.as_str(), schema, *fidelity))
        });
        let named: Vec<(&str, &Value, Fidelity)> = named.collect();
        let first = parser(factory, "the grammar of all tools", dialects::calls(dialect, &named, many, marks))?;
        return Ok(Kind::Required { first: Box::new(first), more: None, calls });
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
    let place = if many { CallPosition::Many } else { CallPosition::One };
    let what = "the grammar of all tools";
    let first = Box::new(parser(factory, what, tools::calls(&callable, place))?);
    let after_text = many && schemas.contains(&None);
    let more = after_text.then(|| parser(factory, what, tools::calls(&callable, CallPosition::More))).transpose()?;
    Ok(Kind::Required { first, more: more.map(Box::new), calls })
}

/// The grammar of a function's arguments and the schema that it follows: the given one as far as possible.
fn arguments(
    factory: &ParserFactory,
    tool: &ToolSpec,
    parameters: &Value,
    strict: bool,
    dialect: Dialect,
    marks: Marks,
) -> Result<(Parser, Value, Fidelity), GrammarError> {
    let what = schema_of(tool);
    let held = |schema: Value, fidelity| {
        let grammar = dialects::held_arguments(dialect, &schema, fidelity, marks);
        Ok((parser(factory, &what, grammar)?, schema, fidelity))
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
    factory: &ParserFactory,
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
    parser(factory, &format_of(tool), grammar).map(Some)
}
