//! Answers that must be calls.

use serde_json::{Value, json};
use text::grammar::{CustomFormat, Grammar, ToolMode, ToolSpec, ToolSpecKind};

use super::LAB;

/// The format of `apply_patch`: hunks that add, delete, or change files.
pub const APPLY_PATCH: &str = r#"
start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: add | delete | update
add: "*** Add File: " PATH LF ("+" TEXT LF)+
delete: "*** Delete File: " PATH LF
update: "*** Update File: " PATH LF ("*** Move to: " PATH LF)? chunk+
chunk: ("@@" (" " PATH)? LF)? line+ ("*** End of File" LF)?
line: /[ +\-]/ TEXT LF
PATH: /[^\n]+/
TEXT: /[^\n]*/
LF: "\n"
"#;

pub const PATCH: &str = "*** Begin Patch\n*** Add File: a.txt\n+one\n+\n*** Update File: src/b.rs\n*** Move to: c.rs\n@@ fn main\n     let x = 1;\n-old\n+new </tool_call>\n*** End of File\n*** Delete File: d\n*** End Patch";

pub fn weather() -> ToolSpec {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"], "additionalProperties": false});
    ToolSpec { name: "get_weather".into(), kind: ToolSpecKind::Function { parameters, strict: true } }
}

pub fn clock() -> ToolSpec {
    ToolSpec { name: "get".into(), kind: ToolSpecKind::Function { parameters: Value::Null, strict: false } }
}

pub fn custom(name: &str, format: CustomFormat) -> ToolSpec {
    ToolSpec { name: name.into(), kind: ToolSpecKind::Custom { format } }
}

pub fn patch() -> ToolSpec {
    custom("apply_patch", CustomFormat::Lark(APPLY_PATCH.into()))
}

fn all(grammar: &Grammar, expected: bool, texts: &[&str]) {
    for text in texts {
        let outcome = LAB.follow(grammar, text).and_then(|mut matcher| match super::may_end(&mut matcher) {
            true => Ok(()),
            false => Err("no end is allowed".to_string()),
        });
        assert_eq!(outcome.is_ok(), expected, "{text}: {outcome:?}");
    }
}

const TAGS: &str = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>";
const CLOCK: &str = "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"any\": [1]}}\n</tool_call>";
const BARE: &str = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 3}}";

#[test]
fn one_tool_in_every_wrapper() {
    let fence = format!("```json\n{BARE}\n```");
    let array = format!("[{BARE}]");
    let pretty = "```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\": {\n    \"city\": \"Bern\"\n  }\n}\n```";
    let tight = "{\"name\":\"get_weather\",\"parameters\":{\"city\":\"\"}}";
    for (mode, parallel) in [(ToolMode::Required, false), (ToolMode::Required, true), (ToolMode::Named(0), true)] {
        let grammar = LAB.tools(&[weather()], mode, parallel).unwrap();
        all(&grammar, true, &[TAGS, BARE, &fence, &array, pretty, tight]);
        let early = ["", "Hello", "```json\n", &BARE[..BARE.len() - 1], &TAGS[..TAGS.len() - 2], "```python\n"];
        all(&grammar, false, &early);
        let wrong = [
            "{\"name\": \"get_whether\", \"arguments\": {\"city\": \"\"}}",
            "{\"name\": \"get_weather\", \"arguments\": {}}",
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": 1}}",
            "{\"name\": \"get_weather\", \"arguments\": \"{}\"}",
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"\"}, \"more\": 1}",
            "{\"arguments\": {\"city\": \"\"}, \"name\": \"get_weather\"}",
        ];
        all(&grammar, false, &wrong);
        let prose = format!("{TAGS}\nThat was it.");
        all(&grammar, false, &[&prose]);
    }
}

#[test]
fn several_tools_and_several_calls() {
    let both = format!("{TAGS}\n{CLOCK}");
    let lines = format!("```json\n{BARE}\n{BARE}\n```");
    let array = format!("[{BARE}, {{\"name\": \"get\", \"arguments\": {{}}}}]");
    let many = LAB.tools(&[clock(), weather()], ToolMode::Required, true).unwrap();
    let one = LAB.tools(&[clock(), weather()], ToolMode::Required, false).unwrap();
    let named = LAB.tools(&[clock(), weather()], ToolMode::Named(1), true).unwrap();
    all(&many, true, &[TAGS, CLOCK, BARE, &both, &lines, &array]);
    all(&one, true, &[TAGS, CLOCK, BARE]);
    all(&one, false, &[&both, &lines, &array]);
    all(&named, true, &[TAGS, BARE]);
    all(&named, false, &[CLOCK, &both]);
    assert!(LAB.follow(&one, TAGS).unwrap().is_done());
    assert!(LAB.follow(&named, BARE).unwrap().is_done());
    assert!(!LAB.follow(&many, TAGS).unwrap().is_done());
}

/// The calls of an answer, by a reader that knows nothing of grammars.
fn read_calls(text: &str) -> Vec<Value> {
    let body = text.trim_start_matches("```json").trim_end_matches("```");
    let body = body.replace("<tool_call>", " ").replace("</tool_call>", " ");
    let body = body.trim().trim_start_matches('[').trim_end_matches(']');
    let mut calls = Vec::new();
    let mut rest = body.trim_start();
    while !rest.is_empty() {
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        calls.push(stream.next().unwrap().unwrap_or_else(|error| panic!("{error}: {text}")));
        rest = rest[stream.byte_offset()..].trim_start().trim_start_matches(',').trim_start();
    }
    calls
}

#[test]
fn calls_written_by_chance_are_calls() {
    let number = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"], "additionalProperties": false});
    let count =
        ToolSpec { name: "count \"é\"".into(), kind: ToolSpecKind::Function { parameters: number, strict: true } };
    let flag = json!({"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": false});
    let flag = ToolSpec { name: "flag".into(), kind: ToolSpecKind::Function { parameters: flag, strict: true } };
    for (parallel, mode) in [(true, ToolMode::Required), (false, ToolMode::Required), (true, ToolMode::Named(1))] {
        let grammar = LAB.tools(&[count.clone(), flag.clone()], mode, parallel).unwrap();
        for seed in 0..60 {
            let text = LAB.random(&grammar, seed, 150);
            let calls = read_calls(&text);
            assert!(!calls.is_empty(), "{text}");
            assert!(calls.len() == 1 || (parallel && mode == ToolMode::Required), "{text}");
            for call in calls {
                let members = call.as_object().unwrap();
                assert_eq!(members.len(), 2, "{text}");
                let arguments = members.get("arguments").or(members.get("parameters")).unwrap();
                match call["name"].as_str().unwrap() {
                    "flag" => assert!(arguments["on"].is_boolean(), "{text}"),
                    "count \"é\"" if mode == ToolMode::Required => {
                        assert!(arguments["n"].as_u64().unwrap() < 100, "{text}")
                    }
                    other => panic!("{other}: {text}"),
                }
            }
        }
    }
}

#[test]
fn custom_tools_come_in_tags() {
    let call = format!("<tool_call>\n{{\"name\": \"apply_patch\"}}\n{PATCH}\n</tool_call>");
    let both = format!("{call}\n{TAGS}");
    let twice = format!("{TAGS}\n{call}\n{call}");
    let newline = format!("<tool_call>\n{{\"name\": \"apply_patch\"}}\n{PATCH}\n\n</tool_call>");
    let alone = LAB.tools(&[patch()], ToolMode::Required, false).unwrap();
    all(&alone, true, &[&call, &newline]);
    assert!(LAB.follow(&alone, &call).unwrap().is_done());
    let wrong = call.replace("*** Add", "*** Put");
    let open = call.replace("\n*** End Patch", "");
    all(
        &alone,
        false,
        &[&wrong, &open, &both, &call[..call.len() - 1], PATCH, "```json\n", "{\"name\": \"apply_patch\"}\n"],
    );
    let many = LAB.tools(&[weather(), patch()], ToolMode::Required, true).unwrap();
    all(&many, true, &[&call, TAGS, BARE, &both, &twice]);
    all(&many, false, &[&wrong, &open]);
    let named = LAB.tools(&[weather(), patch()], ToolMode::Named(1), true).unwrap();
    all(&named, true, &[&call]);
    all(&named, false, &[TAGS, &both]);
}

#[test]
fn custom_text_ends_at_the_tag_even_where_its_format_would_swallow_it() {
    let formats =
        [CustomFormat::Text, CustomFormat::Regex("(?s:.*)".into()), CustomFormat::Lark("start: /(?s:.)*/".into())];
    for format in formats {
        let grammar = LAB.tools(&[custom("note", format.clone())], ToolMode::Required, false).unwrap();
        for body in ["", "x", "two\nlines\n", "a </tool_cal b"] {
            let call = format!("<tool_call>\n{{\"name\": \"note\"}}\n{body}\n</tool_call>");
            let mut matcher = LAB.follow(&grammar, &call).unwrap_or_else(|error| panic!("{format:?}: {error}"));
            assert!(matcher.is_done() && super::may_end(&mut matcher), "{format:?}: {call}");
        }
        assert!(!LAB.fits(&grammar, "<tool_call>\n{\"name\": \"note\"}\nno end"));
    }
    let digits = LAB.tools(&[custom("pin", CustomFormat::Regex("[0-9]{4}".into()))], ToolMode::Required, true).unwrap();
    all(&digits, true, &["<tool_call>\n{\"name\": \"pin\"}\n1234\n</tool_call>"]);
    all(
        &digits,
        false,
        &[
            "<tool_call>\n{\"name\": \"pin\"}\n123\n</tool_call>",
            "<tool_call>\n{\"name\": \"pin\"}\n12345\n</tool_call>",
        ],
    );
}

#[test]
fn patches_written_by_chance_are_patches() {
    let grammar = LAB.tools(&[patch()], ToolMode::Required, false).unwrap();
    let starts = [
        "+",
        "-",
        " ",
        "@@",
        "*** Add File: ",
        "*** Delete File: ",
        "*** Update File: ",
        "*** Move to: ",
        "*** End of File",
    ];
    for seed in 0..20 {
        let text = LAB.random_until(&grammar, seed, 200, &["\n", "E", "</tool_call>"]);
        let body = text.strip_suffix("</tool_call>").unwrap().split_once("}\n*** Begin Patch\n").unwrap().1;
        let lines = body.trim_end().strip_suffix("\n*** End Patch").unwrap_or_else(|| panic!("{text}"));
        let wrong = lines.split('\n').find(|line| !starts.iter().any(|start| line.starts_with(start)));
        assert_eq!(wrong, None, "{text}");
    }
}
