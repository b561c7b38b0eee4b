//! What clients get wrong, and what they must not get away with.

use std::time::Instant;

use serde_json::{Value, json};
use text::grammar::{
    CustomFormat, Grammar, GrammarError, GrammarSource, Grammars, Matcher, ToolMode, ToolSpec, ToolSpecKind,
};

use super::{Chance, LAB, allowed_ids};

fn error(source: GrammarSource) -> String {
    match LAB.grammars.compile(&source) {
        Ok(_) => panic!("compiles: {}", &format!("{source:?}")[..200]),
        Err(error) => error.to_string(),
    }
}

fn function(name: &str, parameters: Value, strict: bool) -> ToolSpec {
    ToolSpec { name: name.into(), kind: ToolSpecKind::Function { parameters, strict } }
}

#[test]
fn errors_say_what_is_wrong() {
    let deep = (0..70).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    let large = json!({"enum": (0..40_000).map(|n| format!("value {n}")).collect::<Vec<_>>()});
    let rules = |count: usize| (0..count).map(|n| format!("r{n}: r{}\n", n + 1)).collect::<String>();
    let cases = [
        (GrammarSource::JsonSchema(json!({"type": "stringy"})), "stringy"),
        (GrammarSource::JsonSchema(json!({"type": "array", "uniqueItems": true})), "uniqueItems"),
        (GrammarSource::JsonSchema(json!({"type": "string", "format": "colour"})), "colour"),
        (GrammarSource::JsonSchema(json!({"$ref": "#/$defs/none"})), "none"),
        (GrammarSource::JsonSchema(json!({"type": "integer", "minimum": 3, "maximum": 2})), "minimum"),
        (GrammarSource::JsonSchema(json!(7)), "schema"),
        (GrammarSource::JsonSchema(json!(false)), "schema is false"),
        (GrammarSource::JsonSchema(json!({"type": "string", "pattern": "("})), "unclosed group"),
        (GrammarSource::JsonSchema(deep), "nested more than 64 deep"),
        (GrammarSource::JsonSchema(large), "more than 262144"),
        (GrammarSource::Lark("begin: \"a\"".into()), "start"),
        (GrammarSource::Lark("start: other".into()), "other"),
        (GrammarSource::Lark("start: <|im_start|>".into()), "special tokens"),
        (GrammarSource::Lark("".into()), "start"),
        (GrammarSource::Lark("x".repeat(70_000)), "more than 65536"),
        (GrammarSource::Lark(format!("start: {}\"a\"{}", "(".repeat(100), ")".repeat(100))), "nested"),
        (GrammarSource::Lark(format!("start: r0\n{}r1001: \"a\"", rules(1001))), "definitions"),
        (GrammarSource::Regex("(".into()), "regular expression"),
        (GrammarSource::Regex("a".repeat(70_000)), "more than 65536"),
    ];
    for (source, part) in cases {
        let text = error(source);
        assert!(text.contains(part), "{text:?} says nothing of {part:?}");
        assert!(!text.contains("non-verbose"), "{text}");
    }
}

#[test]
fn a_chain_of_rules_does_not_end_the_stack() {
    let rules: String = (0..990).map(|n| format!("r{n}: r{}\n", n + 1)).collect();
    let grammar = LAB.compile(GrammarSource::Lark(format!("start: r0\n{rules}r990: \"a\"")));
    assert!(LAB.fits(&grammar, "a"));
    let groups = format!("start: {}\"a\"{}", "(".repeat(20), ")".repeat(20));
    assert!(LAB.fits(&LAB.compile(GrammarSource::Lark(groups)), "a"));
    let deep = (0..30).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    LAB.compile(GrammarSource::JsonSchema(deep));
    let regex = format!("{}a{}", "(".repeat(20_000), ")".repeat(20_000));
    let refused = error(GrammarSource::Regex(regex));
    assert!(refused.contains("nest"), "{refused}");
}

fn properties(count: usize) -> Value {
    let members: serde_json::Map<_, _> = (0..count).map(|n| (format!("p{n}"), json!({"type": "integer"}))).collect();
    json!({"type": "object", "properties": members})
}

/// Definitions that each use the next one four times.
fn doubling(levels: usize) -> Value {
    let define = |n: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        (format!("d{n}"), json!({"allOf": [{"anyOf": [next, next]}, {"anyOf": [next, next]}]}))
    };
    let last = (format!("d{levels}"), json!({"type": "object", "properties": {"a": {"type": "string"}}}));
    let defs: serde_json::Map<_, _> = (0..levels).map(define).chain([last]).collect();
    json!({"$ref": "#/$defs/d0", "$defs": defs})
}

/// Grammars that ask for too much end in an error.
#[test]
fn explosions_end_in_errors() {
    let sources = [
        GrammarSource::Lark("start: a{100000}\na: b{100000}\nb: \"x\"{100000}\n".into()),
        GrammarSource::JsonSchema(properties(1001)),
        GrammarSource::JsonSchema(properties(990)),
        GrammarSource::JsonSchema(doubling(20)),
    ];
    for source in sources {
        let started = Instant::now();
        let text = error(source);
        println!("{:.0} ms: {text}", started.elapsed().as_secs_f64() * 1e3);
        assert!(["Too many", "max is", "more than", "too large"].iter().any(|part| text.contains(part)), "{text}");
    }
}

/// Grammars that are hard on a parser work, or end in an error. How long each takes is shown; one that took minutes would
/// be noticed.
#[test]
fn hard_grammars_do_not_hang() {
    let numbers: Vec<usize> = (0..30_000).collect();
    let branches: Vec<Value> = (0..2000).map(|n| json!({"type": "object", "properties": {format!("k{n}"): {"type": "string"}}, "required": [format!("k{n}")]})).collect();
    let objects: serde_json::Map<_, _> = (0..100).map(|n| (format!("o{n}"), properties(90))).collect();
    let patterns: serde_json::Map<_, _> =
        (0..200).map(|n| (format!("^x{n}.*y$"), json!({"type": "integer"}))).collect();
    let sources = [
        GrammarSource::Regex("(a|b|ab)*c{1,50000}(d?){5000}".into()),
        GrammarSource::Regex("(.{1,3000}x){2000}".into()),
        GrammarSource::Regex("(?:[ab]*a[ab]{60}){3}".into()),
        GrammarSource::Regex("(?:(?:a?){40}(?:b|a)+){400}".into()),
        GrammarSource::Lark(
            "start: a a a a a a a a\na: b b b b b b b b\nb: c c c c c c c c\nc: /x*/ /x*/ /x*/\n".into(),
        ),
        GrammarSource::Lark("start: start start | \"x\" | \n".into()),
        GrammarSource::JsonSchema(
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1_000_000_000, "maxItems": 2_000_000_000}),
        ),
        GrammarSource::JsonSchema(json!({"type": "string", "minLength": 1_000_000, "maxLength": 2_000_000})),
        GrammarSource::JsonSchema(json!({"type": "string", "pattern": "^(.*a.{200}){20}$"})),
        GrammarSource::JsonSchema(json!({"enum": numbers})),
        GrammarSource::JsonSchema(json!({"anyOf": branches})),
        GrammarSource::JsonSchema(json!({"type": "object", "properties": objects})),
        GrammarSource::JsonSchema(json!({"type": "object", "patternProperties": patterns})),
    ];
    for source in sources {
        let label: String = format!("{source:?}").chars().take(70).collect();
        let started = Instant::now();
        let outcome = LAB.grammars.compile(&source).map_err(|error| error.to_string()).and_then(|grammar| {
            let mut matcher = grammar.matcher();
            let mut chance = Chance(1);
            for token in 0..60 {
                if matcher.is_done() {
                    return Ok(token);
                }
                matcher.allowed()?;
                let ids = allowed_ids(&mut matcher);
                let id = ids[chance.below(ids.len())];
                matcher.accept(id)?;
            }
            Ok(60)
        });
        println!("{:.0} ms, {outcome:.100?}: {label}", started.elapsed().as_secs_f64() * 1e3);
        assert!(outcome.as_ref().is_ok_and(|&tokens| tokens > 0) || outcome.is_err_and(|error| !error.is_empty()));
    }
}

#[test]
fn strict_tools_need_a_schema_that_can_be_followed() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": true, "items": {"type": "integer"}}}, "required": ["a"]});
    for mode in [ToolMode::Lazy, ToolMode::Required, ToolMode::Named(0)] {
        let refused = LAB.tools(&[function("sort", schema.clone(), true)], mode, true).err().unwrap().to_string();
        assert!(refused.contains("\"sort\"") && refused.contains("uniqueItems"), "{refused}");
        // Without strict, what can be followed of it is.
        let grammar = LAB.tools(&[function("sort", schema.clone(), false)], mode, true).unwrap();
        assert!(
            LAB.follow(&grammar, "<tool_call>\n{\"name\": \"sort\", \"arguments\": {\"a\": [1, 1]}}\n</tool_call>")
                .is_ok()
        );
        assert!(LAB.follow(&grammar, "<tool_call>\n{\"name\": \"sort\", \"arguments\": {\"a\": \"1\"}}").is_err());
        // And where nothing can be followed, any object goes.
        let grammar = LAB.tools(&[function("sort", json!({"type": "string"}), false)], mode, true).unwrap();
        assert!(
            LAB.follow(&grammar, "<tool_call>\n{\"name\": \"sort\", \"arguments\": {\"x\": [1]}}\n</tool_call>")
                .is_ok()
        );
        assert!(LAB.follow(&grammar, "<tool_call>\n{\"name\": \"sort\", \"arguments\": [").is_err());
    }
}

#[test]
fn tools_have_limits() {
    let many: Vec<ToolSpec> = (0..513).map(|n| function(&format!("t{n}"), json!({}), false)).collect();
    assert_eq!(LAB.tools(&many, ToolMode::Lazy, true).err(), Some(GrammarError::TooManyTools { found: 513, max: 512 }));
    assert!(LAB.tools(&many[..512], ToolMode::Lazy, true).is_ok());
    let grammar = LAB.tools(&many[..512], ToolMode::Required, true).unwrap();
    assert!(LAB.fits(&grammar, "{\"name\": \"t511\", \"arguments\": {}}"));
    assert_eq!(LAB.tools(&[], ToolMode::Required, true).err(), Some(GrammarError::NoTool));
    assert_eq!(LAB.tools(&many[..2], ToolMode::Named(2), true).err(), Some(GrammarError::NoTool));
    let large: Vec<ToolSpec> = (0..6)
        .map(|n| function(&format!("t{n}"), json!({"type": "object", "description": "x".repeat(200_000)}), false))
        .collect();
    let refused = LAB.tools(&large, ToolMode::Lazy, true).err().unwrap().to_string();
    assert!(refused.contains("all tools"), "{refused}");
    let format = CustomFormat::Lark("nonsense".into());
    let custom = ToolSpec { name: "patch".into(), kind: ToolSpecKind::Custom { format } };
    let refused = LAB.tools(&[custom], ToolMode::Lazy, true).err().unwrap().to_string();
    assert!(refused.contains("\"patch\""), "{refused}");
}

#[test]
fn grammars_are_kept_and_told_apart_by_order() {
    let schema = |a: &str, b: &str| json!({"type": "object", "properties": {a: {"type": "null"}, b: {"type": "null"}}, "required": ["x", "y"], "additionalProperties": false});
    let (xy, yx) = (schema("x", "y"), schema("y", "x"));
    assert_eq!(xy, yx);
    for _ in 0..2 {
        assert!(LAB.fits(&LAB.compile(GrammarSource::JsonSchema(xy.clone())), "{\"x\":null,\"y\":null}"));
        assert!(LAB.fits(&LAB.compile(GrammarSource::JsonSchema(yx.clone())), "{\"y\":null,\"x\":null}"));
    }
}

#[test]
fn control_tokens_cannot_be_asked_for_by_number() {
    let start = LAB.tokenizer.vocabulary().special_token("<|im_start|>").unwrap();
    let outcome = LAB.grammars.compile(&GrammarSource::Lark(format!("start: \"a\" <[{start}]>")));
    if let Ok(grammar) = outcome {
        let mut matcher = grammar.matcher();
        matcher.accept(LAB.longest(b"a")[0]).unwrap();
        assert!(matcher.allowed().is_err());
    }
}

#[test]
fn requests_share_grammars_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    shared::<Grammars>();
    shared::<Grammar>();
    sent::<Matcher>();
    assert!(Grammars::new(&LAB.tokenizer, 0).is_ok(), "fewer rows than tokens count as tokens");
}
