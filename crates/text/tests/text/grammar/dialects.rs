//! Calls in every dialect: held where the model begins one, and written where it must.

use std::sync::{Arc, LazyLock};

use model::gguf::{Array, Format, Value as Meta};
use serde_json::{Value, json};
use testkit::gguf::GgufWriter;
use text::grammar::{Grammar, GrammarSource, Grammars, Matcher, ToolGrammar, ToolMode, ToolSpec, ToolSpecKind};
use text::{AnswerOptions, AnswerParser, Detokenizer, Dialect, Part, ShowSpecial, Special, Tokenizer, ToolName};

use crate::models::{alphabet, gguf};

const ALL: [Dialect; 5] = [Dialect::Qwen, Dialect::Glm, Dialect::Harmony, Dialect::Mistral, Dialect::Gemma];

/// A vocabulary of bytes and the markers of one dialect.
fn tokenizer(dialect: Dialect) -> Arc<Tokenizer> {
    let end = if dialect == Dialect::Harmony { "<|return|>" } else { "<|im_end|>" };
    let mut tokens: Vec<String> = (0..=255).map(|byte| alphabet(byte).to_string()).collect();
    let bytes = tokens.len();
    let tags = ["<tool_call>", "</tool_call>", end];
    let names = dialect.markers().iter().copied().filter(|name| *name != end).chain(tags);
    tokens.extend(names.map(str::to_owned));
    let kinds = (0..tokens.len()).map(|id| match id {
        _ if id < bytes => 1,
        _ if tokens[id].contains("tool_call>") && dialect.markers().is_empty() => 4,
        _ => 3,
    });
    let kinds: Vec<i32> = kinds.collect();
    let eos = tokens.iter().position(|token| token == end).unwrap() as u32;
    let template = match dialect {
        Dialect::Qwen => "<function=",
        Dialect::Glm => "<arg_key>",
        _ => "",
    };
    let writer = GgufWriter::new()
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "qwen2")
        .strings("tokenizer.ggml.tokens", &tokens)
        .strings("tokenizer.ggml.merges", [] as [&str; 0])
        .meta("tokenizer.ggml.token_type", Meta::Array(Array::I32(kinds)))
        .meta("tokenizer.ggml.eos_token_id", Meta::U32(eos))
        .text("tokenizer.chat_template", template)
        .tensor("pad", &[4096], Format::F32, vec![0; 4096 * 4]);
    Arc::new(Tokenizer::from_gguf(&gguf(&writer)).unwrap())
}

static TOKENIZERS: LazyLock<Vec<Arc<Tokenizer>>> = LazyLock::new(|| ALL.map(tokenizer).to_vec());

fn of(dialect: Dialect) -> Arc<Tokenizer> {
    TOKENIZERS[ALL.iter().position(|other| *other == dialect).unwrap()].clone()
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 99},
        "unit": {"enum": ["C", "F"]}, "all": {"type": "boolean"}, "list": {"type": "array", "items": {"type": "integer"}}},
        "required": ["city", "days"], "additionalProperties": false})
}

fn compile(dialect: Dialect, mode: ToolMode, parallel: bool) -> Grammar {
    let function = |parameters| ToolSpecKind::Function { parameters, strict: true };
    let tools = vec![
        ToolSpec { name: "weather".into(), kind: function(schema()) },
        ToolSpec { name: "clock".into(), kind: function(json!({"type": "object"})) },
    ];
    let tokenizer = of(dialect);
    let rows = tokenizer.vocabulary().len();
    let grammars = Grammars::new(&tokenizer, rows).unwrap();
    grammars.compile(&GrammarSource::Tools(ToolGrammar { tools, mode, parallel, dialect })).unwrap()
}

/// Gives the tokens of a text to a matcher, each of which must be allowed.
fn follow(dialect: Dialect, grammar: &Grammar, text: &str) -> Result<Matcher, String> {
    let mut matcher = grammar.matcher();
    for (at, token) in of(dialect).encode(text, Special::Parse).into_iter().enumerate() {
        let allowed = matcher.allowed()?;
        let fits = allowed.is_none_or(|mask| mask[token as usize / 32] >> (token % 32) & 1 == 1);
        if !fits {
            return Err(format!("token {at} of {text:?} is not allowed"));
        }
        matcher.accept(token)?;
    }
    Ok(matcher)
}

/// Whether every end of an answer is allowed.
fn may_end(dialect: Dialect, matcher: &mut Matcher) -> bool {
    let tokenizer = of(dialect);
    let mask = matcher.allowed().unwrap();
    let allowed = |stop: &u32| mask.is_none_or(|mask| mask[*stop as usize / 32] >> (stop % 32) & 1 == 1);
    tokenizer.vocabulary().stops().iter().all(allowed)
}

/// A call of the weather as a model writes it, with these arguments that fit and these that do not.
fn written(dialect: Dialect) -> (&'static str, &'static str, [&'static str; 3]) {
    match dialect {
        Dialect::Qwen => (
            "<tool_call>\n<function=weather>\n",
            "<parameter=city>\nBern <b>\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=unit>\nF\n</parameter>\n<parameter=all>\nTrue\n</parameter>\n<parameter=list>\n[1, 2]\n</parameter>\n</function>\n</tool_call>",
            [
                "<parameter=town>\n",
                "<parameter=city>\nBern\n</parameter>\n<parameter=days>\nmany",
                "<parameter=city>\nBern\n</parameter>\n</function>",
            ],
        ),
        Dialect::Glm => (
            "<tool_call>weather\n",
            "<arg_key>city</arg_key>\n<arg_value>Bern <b></arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n<arg_key>unit</arg_key>\n<arg_value>F</arg_value>\n<arg_key>all</arg_key>\n<arg_value>true</arg_value>\n<arg_key>list</arg_key>\n<arg_value>[1, 2]</arg_value>\n</tool_call>",
            [
                "<arg_key>town",
                "<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n<arg_value>many",
                "<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n</tool_call>",
            ],
        ),
        Dialect::Harmony => (
            "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>",
            "{\"city\": \"Bern <b>\", \"days\": 3, \"unit\": \"F\", \"all\": true, \"list\": [1, 2]}",
            ["{\"town\"", "{\"city\": \"Bern\", \"days\": \"m", "{\"city\": \"Bern\"}"],
        ),
        Dialect::Mistral => (
            "[TOOL_CALLS]weather[ARGS]",
            "{\"city\": \"Bern <b>\", \"days\": 3, \"unit\": \"F\", \"all\": true, \"list\": [1, 2]}",
            ["{\"town\"", "{\"city\": \"Bern\", \"days\": \"m", "{\"city\": \"Bern\"}"],
        ),
        _ => (
            "<|tool_call>call:weather{",
            "all:true,city:<|\"|>Bern <b><|\"|>,days:3,list:[1,2],unit:<|\"|>F<|\"|>}<tool_call|>",
            ["town:", "all:true,city:<|\"|>Bern<|\"|>,days:m", "city:<|\"|>Bern<|\"|>}"],
        ),
    }
}

#[test]
fn a_call_that_the_model_begins_is_held_to_its_schema() {
    for dialect in ALL {
        let grammar = compile(dialect, ToolMode::Lazy, true);
        let (open, good, bad) = written(dialect);
        let prose = match dialect {
            Dialect::Harmony => "<|channel|>analysis<|message|>Look: {\"city\": 1}<|end|><|start|>assistant",
            _ => "Look: {\"city\": 1}.\n",
        };
        for before in ["", prose] {
            let matcher = follow(dialect, &grammar, &format!("{before}{open}{good}")).unwrap();
            assert!(!matcher.violated(), "{dialect:?}");
            for wrong in bad {
                let outcome = follow(dialect, &grammar, &format!("{before}{open}{wrong}"));
                assert!(outcome.is_err(), "{dialect:?} {wrong}");
            }
        }
        // A tool that there is not, and text, are free.
        follow(dialect, &grammar, &open.replace("weather", "nosuch")).unwrap();
        let after = if dialect == Dialect::Harmony { "" } else { "\nDone {\"city\"." };
        follow(dialect, &grammar, &format!("{open}{good}{after}")).unwrap();
    }
}

#[test]
fn an_answer_that_must_be_a_call_is_one() {
    for dialect in ALL {
        let (open, good, bad) = written(dialect);
        for (mode, parallel) in [(ToolMode::Required, true), (ToolMode::Required, false), (ToolMode::Named(0), true)] {
            let grammar = compile(dialect, mode, parallel);
            let mut matcher = follow(dialect, &grammar, &format!("{open}{good}")).unwrap();
            assert!(may_end(dialect, &mut matcher), "{dialect:?} {mode:?}");
            for wrong in bad {
                assert!(follow(dialect, &grammar, &format!("{open}{wrong}")).is_err(), "{dialect:?} {wrong}");
            }
            assert!(follow(dialect, &grammar, "Hello").is_err(), "{dialect:?}");
            let other = open.replace("weather", "nosuch");
            assert!(follow(dialect, &grammar, &other).is_err(), "{dialect:?}");
        }
        let named = compile(dialect, ToolMode::Named(1), true);
        assert!(follow(dialect, &named, open).is_err(), "{dialect:?}");
        let two = match dialect {
            Dialect::Qwen | Dialect::Glm => format!("{open}{good}\n{open}{good}"),
            _ => format!("{open}{good}{open}{good}"),
        };
        let many = compile(dialect, ToolMode::Required, true);
        assert_eq!(follow(dialect, &many, &two).is_ok(), dialect != Dialect::Harmony, "{dialect:?}");
        assert!(follow(dialect, &compile(dialect, ToolMode::Required, false), &two).is_err(), "{dialect:?}");
    }
    let thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
    let (open, good, _) = written(Dialect::Harmony);
    let grammar = compile(Dialect::Harmony, ToolMode::Required, true);
    follow(Dialect::Harmony, &grammar, &format!("{thought}{open}{good}")).unwrap();
}

/// Whatever a grammar lets a model write at random is a call that its parser reads and its schema takes.
#[test]
fn calls_written_by_chance_are_read() {
    for dialect in ALL {
        let tokenizer = of(dialect);
        let grammar = compile(dialect, ToolMode::Named(0), true);
        let mut whole = 0;
        for seed in 0..12u64 {
            let mut state = seed * 2 + 1;
            let mut matcher = grammar.matcher();
            let mut text = Detokenizer::new(tokenizer.vocabulary().clone(), ShowSpecial::Marked(dialect));
            let options = AnswerOptions {
                tools: vec![ToolName::with_schema("weather", &schema())],
                parallel: true,
                dialect,
                ..AnswerOptions::default()
            };
            let (mut parser, mut parts) = (AnswerParser::new(options), Vec::new());
            let mut shown = String::new();
            for step in 0..4000 {
                let mask = matcher.allowed().unwrap().unwrap().to_vec();
                let allowed: Vec<u32> = (0..tokenizer.vocabulary().len() as u32)
                    .filter(|id| mask[*id as usize / 32] >> (id % 32) & 1 == 1)
                    .collect();
                let ends = allowed.iter().find(|id| tokenizer.vocabulary().is_stop(**id)).copied();
                if let Some(end) = ends {
                    matcher.accept(end).unwrap();
                    break;
                }
                // Texts end soon: the first tokens of what closes them are preferred.
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let closing =
                    |id: &&u32| **id >= 256 || b"\n<\"}]/>".contains(&tokenizer.vocabulary().token_bytes(**id)[0]);
                let closers: Vec<&u32> = allowed.iter().filter(closing).collect();
                // What closes a text is more than one token: once begun it goes on.
                let ends = ["\n</parameter>\n", "</arg_value>\n"].map(|end| {
                    let begun = (0..end.len()).rev().find(|length| shown.ends_with(&end[..*length])).unwrap_or(0);
                    (begun, u32::from(end.as_bytes()[begun]))
                });
                let going = ends.into_iter().max().filter(|(begun, byte)| {
                    (*begun > 0 || step % 5 == 0) && allowed.contains(byte) && dialect.markers().is_empty()
                });
                let token = match (closers.is_empty(), step % 7 != 0) {
                    _ if going.is_some() => going.map_or(0, |(_, byte)| byte),
                    (false, true) => *closers[(state >> 33) as usize % closers.len()],
                    _ => allowed[(state >> 33) as usize % allowed.len()],
                };
                matcher.accept(token).unwrap();
                let piece = text.push(token);
                shown.push_str(piece);
                parser.push(piece, &mut parts);
            }
            parser.finish(&mut parts);
            if !matcher.is_done() {
                continue;
            }
            whole += 1;
            let arguments: String = parts
                .iter()
                .filter_map(|part| if let Part::CallDelta(text) = part { Some(text.as_str()) } else { None })
                .collect();
            let read: Value = serde_json::from_str(&arguments).unwrap_or_else(|error| panic!("{error}: {shown}"));
            assert!(read["city"].is_string() && read["days"].is_i64(), "{dialect:?} {shown}\n{arguments}");
        }
        assert!(whole > 3, "{dialect:?}: {whole} answers came to an end");
    }
}
