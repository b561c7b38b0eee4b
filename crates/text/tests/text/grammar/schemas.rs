//! JSON by schema: what is written by chance fits, and what does not fit cannot be written.

use serde_json::{Value, json};
use text::grammar::GrammarSource;

use super::LAB;

/// A schema, what else must hold for its values, and texts that fit and do not.
struct Case {
    name: &'static str,
    schema: Value,
    check: fn(&Value) -> bool,
    fits: &'static [&'static str],
    not: &'static [&'static str],
}

/// The value of a text; none where it is JSON, but with a number that Rust has no room for.
fn parse(text: &str) -> Option<Value> {
    match serde_json::from_str(text) {
        Ok(value) => Some(value),
        Err(error) if error.to_string().contains("number out of range") => None,
        Err(error) => panic!("{error}: {text}"),
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|members| members.keys().map(String::as_str).collect()).unwrap_or_default()
}

fn cases() -> Vec<Case> {
    let nested = json!({"type": "object", "properties": {"user": {"type": "object", "properties": {
        "name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["name", "tags"], "additionalProperties": false}}, "required": ["user"], "additionalProperties": false});
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {
        "value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
        "required": ["value", "children"], "additionalProperties": false}}});
    vec![
        Case {
            name: "nested objects",
            schema: nested,
            check: |v| {
                v["user"]["name"].is_string() && v["user"]["tags"].as_array().unwrap().iter().all(Value::is_string)
            },
            fits: &[
                "{\"user\":{\"name\":\"é\",\"tags\":[]}}",
                "{\n  \"user\": {\n    \"name\": \"a\",\n    \"tags\": [\"x\", \"y\"]\n  }\n}",
            ],
            not: &[
                "{}",
                "{\"user\":{\"name\":1,\"tags\":[]}}",
                "{\"user\":{\"name\":\"\",\"tags\":[]},\"x\":1}",
                "{   \"user\"",
                " {",
                "{\n\n\"user\"",
            ],
        },
        Case {
            name: "any object",
            schema: json!({"type": "object"}),
            check: Value::is_object,
            fits: &["{}", "{\"a\": [1, -2.5e3, null, true, {\"b\": \"\\u00e9\"}]}"],
            not: &["[]", "1", "{\"a\"}", "{a: 1}", "{\"a\": 01}"],
        },
        Case {
            name: "enum",
            schema: json!({"enum": ["red", "green", 7, null]}),
            check: |v| ["\"red\"", "\"green\"", "7", "null"].contains(&v.to_string().as_str()),
            fits: &["\"red\"", "7", "null"],
            not: &["\"blue\"", "8"],
        },
        Case {
            name: "const",
            schema: json!({"type": "object", "properties": {"kind": {"const": "circle"}, "v": {"const": 3}}, "required": ["kind", "v"], "additionalProperties": false}),
            check: |v| *v == json!({"kind": "circle", "v": 3}),
            fits: &["{\"kind\": \"circle\", \"v\": 3}"],
            not: &["{\"kind\": \"square\", \"v\": 3}", "{\"kind\": \"circle\"}"],
        },
        Case {
            name: "pattern",
            schema: json!({"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,5}$"}),
            check: |v| {
                let s = v.as_str().unwrap();
                s.len() >= 6 && s.len() <= 8 && s.as_bytes()[2] == b'-'
            },
            fits: &["\"AB-123\"", "\"ZZ-99999\""],
            not: &["\"ab-123\"", "\"AB-12\"", "\"AB-123456\""],
        },
        Case {
            name: "string length",
            schema: json!({"type": "string", "minLength": 2, "maxLength": 4}),
            check: |v| (2..=4).contains(&v.as_str().unwrap().chars().count()),
            fits: &["\"ab\"", "\"éééé\""],
            not: &["\"a\"", "\"abcde\""],
        },
        Case {
            name: "integer range",
            schema: json!({"type": "integer", "minimum": -5, "maximum": 120}),
            check: |v| (-5..=120).contains(&v.as_i64().unwrap()),
            fits: &["-5", "0", "120"],
            not: &["-6", "121", "1.5", "007"],
        },
        Case {
            name: "exclusive range",
            schema: json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
            check: |v| v.as_f64().unwrap() > 0.0 && v.as_f64().unwrap() <= 1.0,
            fits: &["0.5", "1", "0.001"],
            not: &["0", "1.5", "-1"],
        },
        Case {
            name: "multiple",
            schema: json!({"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 5}),
            check: |v| v.as_i64().unwrap() % 5 == 0,
            fits: &["0", "95"],
            not: &["7", "101"],
        },
        Case {
            name: "anyOf",
            schema: json!({"type": "object", "properties": {"x": {"anyOf": [{"type": "integer"}, {"type": "null"}, {"type": "array", "items": {"type": "boolean"}}]}}, "required": ["x"], "additionalProperties": false}),
            check: |v| {
                v["x"].is_i64()
                    || v["x"].is_u64()
                    || v["x"].is_number()
                    || v["x"].is_null()
                    || v["x"].as_array().is_some_and(|a| a.iter().all(Value::is_boolean))
            },
            fits: &["{\"x\": null}", "{\"x\": [true, false]}", "{\"x\":12}"],
            not: &["{\"x\": \"1\"}", "{\"x\": [1]}"],
        },
        Case {
            name: "oneOf with a tag",
            schema: json!({"oneOf": [
                {"type": "object", "properties": {"t": {"const": "a"}, "n": {"type": "integer"}}, "required": ["t", "n"], "additionalProperties": false},
                {"type": "object", "properties": {"t": {"const": "b"}, "s": {"type": "string"}}, "required": ["t", "s"], "additionalProperties": false}]}),
            check: |v| (v["t"] == "a" && v["n"].is_number()) || (v["t"] == "b" && v["s"].is_string()),
            fits: &["{\"t\":\"a\",\"n\":1}", "{\"t\":\"b\",\"s\":\"\"}"],
            not: &["{\"t\":\"a\",\"s\":\"\"}", "{\"t\":\"c\"}"],
        },
        Case {
            name: "allOf",
            schema: json!({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"b": {"type": "string"}}, "required": ["b"]}]}),
            check: |v| v["a"].is_number() && v["b"].is_string(),
            fits: &["{\"a\": 1, \"b\": \"x\"}", "{\"a\": 1, \"b\": \"x\", \"c\": 2}"],
            not: &["{\"a\": 1}", "{\"a\": \"1\", \"b\": \"x\"}"],
        },
        Case {
            name: "recursion by $ref",
            schema: tree,
            check: |v| {
                fn ok(v: &Value) -> bool {
                    v["value"].is_number() && v["children"].as_array().is_some_and(|c| c.len() <= 2 && c.iter().all(ok))
                }
                ok(v)
            },
            fits: &["{\"value\": 1, \"children\": [{\"value\": 2, \"children\": []}]}"],
            not: &["{\"value\": 1, \"children\": [1]}", "{\"value\": 1}"],
        },
        Case {
            name: "definitions",
            schema: json!({"type": "object", "definitions": {"id": {"type": "string", "pattern": "^[a-f0-9]{4}$"}}, "properties": {"id": {"$ref": "#/definitions/id"}}, "required": ["id"], "additionalProperties": false}),
            check: |v| v["id"].as_str().unwrap().len() == 4,
            fits: &["{\"id\": \"00ff\"}"],
            not: &["{\"id\": \"00fg\"}"],
        },
        Case {
            name: "additional properties by schema",
            schema: json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "integer"}}),
            check: |v| v.as_object().unwrap().iter().all(|(k, v)| if k == "a" { v.is_string() } else { v.is_number() }),
            fits: &["{}", "{\"a\": \"\", \"b\": 1, \"c\": 2}", "{\"x\": 1}"],
            not: &["{\"b\": \"\"}", "{\"a\": 1}"],
        },
        Case {
            name: "optional properties in order",
            schema: json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "c": {"type": "integer"}}, "required": ["b"], "additionalProperties": false}),
            check: |v| keys(v).contains(&"b") && keys(v).iter().all(|k| ["a", "b", "c"].contains(k)),
            fits: &["{\"b\":1}", "{\"a\":1,\"b\":1}", "{\"b\":1,\"c\":1}"],
            not: &["{}", "{\"a\":1}", "{\"b\":1,\"d\":1}"],
        },
        Case {
            name: "pattern properties",
            schema: json!({"type": "object", "patternProperties": {"^x_": {"type": "boolean"}}, "additionalProperties": false}),
            check: |v| v.as_object().unwrap().iter().all(|(k, v)| k.starts_with("x_") && v.is_boolean()),
            fits: &["{}", "{\"x_1\": true}"],
            not: &["{\"y\": true}", "{\"x_1\": 1}"],
        },
        Case {
            name: "items",
            schema: json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "minItems": 2, "maxItems": 4}),
            check: |v| (2..=4).contains(&v.as_array().unwrap().len()),
            fits: &["[1, 2]", "[1,2,3,4]", "[\n  1,\n  2\n]"],
            not: &["[1]", "[1,2,3,4,5]", "[1,22]"],
        },
        Case {
            name: "prefix items",
            schema: json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false, "minItems": 2}),
            check: |v| v[0].is_string() && v[1].is_number() && v.as_array().unwrap().len() == 2,
            fits: &["[\"a\", 1]"],
            not: &["[1, \"a\"]", "[\"a\", 1, 2]", "[\"a\"]"],
        },
        Case {
            name: "formats",
            schema: json!({"type": "object", "properties": {"d": {"type": "string", "format": "date"}, "u": {"type": "string", "format": "uuid"}, "t": {"type": "string", "format": "date-time"}}, "required": ["d", "u", "t"], "additionalProperties": false}),
            check: |v| {
                v["d"].as_str().unwrap().len() == 10
                    && v["u"].as_str().unwrap().len() == 36
                    && v["t"].as_str().unwrap().len() >= 20
            },
            fits: &[
                "{\"d\": \"2024-02-29\", \"u\": \"123e4567-e89b-12d3-a456-426614174000\", \"t\": \"2024-01-01T00:00:00Z\"}",
            ],
            not: &["{\"d\": \"2024-13-01\"", "{\"d\": \"today\""],
        },
        Case {
            name: "dates that exist",
            schema: json!({"type": "object", "properties": {"format": {"type": "string", "format": "date"}}, "required": ["format"]}),
            check: |v| v["format"].as_str().unwrap().len() == 10,
            fits: &["{\"format\": \"2024-02-29\"}", "{\"format\": \"2000-02-29\"}", "{\"format\": \"1900-02-28\"}"],
            not: &["{\"format\": \"2023-02-29\"}", "{\"format\": \"1900-02-29\"}", "{\"format\": \"0000-01-01\"}"],
        },
        Case {
            name: "times that exist, and a pattern beside the format",
            schema: json!({"type": "array", "prefixItems": [
                {"type": "string", "format": "date-time"},
                {"type": "string", "format": "time", "pattern": "Z$"},
                {"const": {"format": "date"}}], "items": false, "minItems": 3}),
            check: |v| v[1].as_str().unwrap().ends_with('Z') && v[2] == json!({"format": "date"}),
            fits: &["[\"2024-02-29T23:59:59.123456789+01:00\", \"00:00:00Z\", {\"format\":\"date\"}]"],
            not: &[
                "[\"2023-02-29T",
                "[\"2024-02-29T23:59:60",
                "[\"2024-02-29T23:59:59.1234567890",
                "[\"2024-02-29T23:59:59Z\", \"00:00:60",
                "[\"2024-02-29T23:59:59Z\", \"00:00:00+01:00\"",
            ],
        },
        Case {
            name: "types as a list",
            schema: json!({"type": "object", "properties": {"s": {"type": ["string", "null"], "description": "maybe"}}, "required": ["s"], "additionalProperties": false}),
            check: |v| v["s"].is_string() || v["s"].is_null(),
            fits: &["{\"s\": null}", "{\"s\": \"\"}"],
            not: &["{\"s\": 1}", "{}"],
        },
        Case {
            name: "a tool's options, as clients send them",
            schema: json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "title": "exec", "properties": {
                "cmd": {"type": "string", "description": "what to run"}, "timeout_ms": {"type": "integer", "default": 10000},
                "env": {"type": "object", "additionalProperties": {"type": "string"}}, "mode": {"type": "string", "enum": ["fast", "safe"]}},
                "required": ["cmd"], "additionalProperties": false}),
            check: |v| v["cmd"].is_string() && v.get("mode").is_none_or(|m| m == "fast" || m == "safe"),
            fits: &["{\"cmd\": \"ls \\\"x\\\"\\n\", \"env\": {\"A\": \"1\"}, \"mode\": \"safe\"}"],
            not: &["{\"cmd\": \"ls\", \"mode\": \"slow\"}", "{\"timeout_ms\": 1}"],
        },
    ]
}

#[test]
fn what_fits_can_be_written_and_nothing_else() {
    for case in cases() {
        let grammar = LAB.compile(GrammarSource::JsonSchema(case.schema));
        for text in case.fits {
            let mut matcher =
                LAB.follow(&grammar, text).unwrap_or_else(|error| panic!("{}: {text}: {error}", case.name));
            assert!(super::may_end(&mut matcher), "{}: {text}", case.name);
        }
        for text in case.not {
            assert!(!LAB.fits(&grammar, text), "{}: {text}", case.name);
        }
    }
}

#[test]
fn what_is_written_by_chance_fits() {
    for case in cases() {
        let grammar = LAB.compile(GrammarSource::JsonSchema(case.schema.clone()));
        for seed in 0..12 {
            let text = LAB.random(&grammar, seed, 20 + 20 * seed as usize);
            let Some(value) = parse(&text) else { continue };
            assert!((case.check)(&value), "{} (seed {seed}): {text}", case.name);
        }
    }
    let grammar = LAB.compile(GrammarSource::JsonObject);
    for seed in 0..30 {
        let text = LAB.random(&grammar, seed, 100);
        assert!(parse(&text).is_none_or(|value| value.is_object()), "{text}");
    }
}

#[test]
fn an_object_is_done_with_its_last_brace() {
    let grammar = LAB.compile(GrammarSource::JsonObject);
    let mut matcher = LAB.follow(&grammar, "{\"a\": 1}").unwrap();
    assert!(matcher.is_done());
    assert_eq!(super::allowed_ids(&mut matcher), LAB.tokenizer.vocabulary().stops());
    assert!(matcher.accept(LAB.longest(b"}")[0]).is_err());
}

#[test]
fn a_model_cannot_go_on_with_blanks() {
    let grammar = LAB.compile(GrammarSource::JsonObject);
    let mut matcher = LAB.follow(&grammar, "{").unwrap();
    let blanks: Vec<u32> =
        [" ", "\n", "    ", "\n\n", "\n  "].iter().map(|text| LAB.longest(text.as_bytes())[0]).collect();
    let mut count = 0;
    while let Some(&blank) = blanks.iter().find(|&&id| super::is_allowed(&mut matcher, id)) {
        matcher.accept(blank).unwrap();
        count += 1;
        assert!(count < 100);
    }
    assert!(count > 0);
}

#[test]
fn regex_and_lark() {
    let date = LAB.compile(GrammarSource::Regex("^[0-9]{4}/[0-9]{2}$".into()));
    assert!(LAB.fits(&date, "2024/11"));
    assert!(!LAB.fits(&date, "2024-11"));
    assert!(!LAB.fits(&date, "2024/1"));
    assert!(LAB.follow(&date, "2024/11").unwrap().is_done());
    let either = LAB.compile(GrammarSource::Regex("yes|no".into()));
    assert!(LAB.fits(&either, "yes") && LAB.fits(&either, "no") && !LAB.fits(&either, "yesno"));
    let sum = LAB.compile(GrammarSource::Lark("start: N (\" + \" N)*\nN: /[0-9]+/\n".into()));
    assert!(LAB.fits(&sum, "1 + 22 + 3"));
    assert!(!LAB.fits(&sum, "1 + "));
    for seed in 0..20 {
        let text = LAB.random(&sum, seed, 30);
        assert!(text.split(" + ").all(|n| n.parse::<f64>().is_ok()), "{text}");
    }
}

#[test]
fn forced_tokens_are_the_tokenizers_and_are_accepted() {
    let schema = json!({"type": "object", "properties": {"temperature_celsius": {"type": "integer"}}, "required": ["temperature_celsius"], "additionalProperties": false});
    let grammar = LAB.compile(GrammarSource::JsonSchema(schema));
    let mut matcher = LAB.follow(&grammar, "{\"").unwrap();
    let mut forced = Vec::new();
    matcher.forced(1000, &mut forced);
    assert!(LAB.tokenizer.decode(&forced).starts_with(b"temperature_"), "{forced:?}");
    let mut few = Vec::new();
    matcher.forced(2, &mut few);
    assert_eq!(few, forced[..2]);
    for id in forced {
        assert!(super::is_allowed(&mut matcher, id));
        matcher.accept(id).unwrap();
    }
}

#[test]
fn grammars_in_the_notation_of_llama_cpp_and_choices() {
    let gbnf = "# words\nroot ::= \"yes\" | no\nno ::= \"no\" [0-9]{1,2} ( \"\\n\" | [ ] )?\n";
    for (source, right, wrong) in [
        (GrammarSource::grammar(gbnf), ["yes", "no1", "no12\n"], ["Y", "nox", "yes1"]),
        (GrammarSource::grammar("start: \"yes\" | /no[0-9]?\\n?/"), ["yes", "no1", "no\n"], ["Y", "nox", "yes1"]),
        (
            GrammarSource::choice(&["yes".into(), "no \"1\"".into(), "a|b\n".into()]),
            ["yes", "no \"1\"", "a|b\n"],
            ["b", "no 2", "yesno"],
        ),
    ] {
        let grammar = LAB.compile(source);
        for text in right {
            let mut matcher = LAB.follow(&grammar, text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert!(super::may_end(&mut matcher), "{text}");
        }
        wrong.iter().for_each(|text| assert!(LAB.follow(&grammar, text).is_err(), "{text}"));
    }
}
