//! Answers in which the model decides whether to call: real transcripts in all forms, cut at every position.

use serde_json::json;
use text::grammar::{CustomFormat, Grammar, Matcher, ToolMode, ToolSpec, ToolSpecKind};

use super::calls::{PATCH, clock, custom, patch, weather};
use super::{LAB, is_allowed};

fn tools() -> Vec<ToolSpec> {
    let file = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": false});
    let file = ToolSpec { name: "read_file".into(), kind: ToolSpecKind::Function { parameters: file, strict: false } };
    vec![clock(), weather(), file, patch(), custom("note", CustomFormat::Text)]
}

fn lazy() -> Grammar {
    LAB.tools(&tools(), ToolMode::Lazy, true).unwrap()
}

fn is_free(matcher: &mut Matcher) -> bool {
    matcher.allowed().unwrap().is_none()
}

/// Transcripts with the held parts between ⟦ and ⟧.
const TRANSCRIPTS: [&str; 16] = [
    "Let me look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\":⟦ {\"city\": \"Bern\", \"days\": 2}⟧}\n</tool_call>",
    "<tool_call>\n{\"name\": \"read_file\", \"arguments\":⟦ {\"path\": \"a }\\\" b\"}⟧}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\":⟦ {\"city\": \"\"}⟧}\n</tool_call>",
    "I'll do it:\n\n```json\n{\n  \"name\": \"get_weather\",\n  \"arguments\":⟦ {\n    \"city\": \"Bern\"\n  }⟧\n}\n```",
    "```json\n[\n  {\"name\": \"read_file\", \"arguments\":⟦ {\"path\": \"x\"}⟧},\n  {\"name\": \"read_file\", \"parameters\":⟦ {\"path\": \"y\"}⟧}\n]\n```\nDone.",
    "{\"name\":\"get\",\"arguments\":⟦{\"a\":{\"b\":[{}]}}⟧}",
    "{\"name\": \"read_file\", \"arguments\":⟦ {\"path\": \"x\"}⟧}\n{\"name\": \"get_weather\", \"arguments\":⟦ {\"city\": \"é\"}⟧}",
    "<think>\nWhich tool?\n</think>\n\n{\"name\": \"get_weather\", \"arguments\":⟦ {\"city\": \"B\"}⟧}",
    "<tools>\n{\"name\": \"read_file\", \"arguments\":⟦ {\"path\": \"x\"}⟧}\n</tools>\nDone.",
    "I will read it.\n\n{\"name\": \"read_file\", \"arguments\":⟦ {\"path\": \"x\"}⟧}\nand\n{\"a\": 1}",
    "```py\nx\n```\n{\"name\": \"read_file\", \"arguments\":⟦ {\"path\": \"x\"}⟧}",
    // No calls.
    "```py\n{\"name\": \"read_file\", \"arguments\": 7}\n",
    "{\"name\": \"unknown\", \"arguments\": [1, 2}",
    "Use {\"name\": \"get_weather\", \"arguments\": 7} like this, or `{\"name\": \"get\"` so.",
    "```json\n{\"name\": \"Bern\", \"country\": \"CH\"}\n```\nand {\"arguments\": {}, \"name\": \"get\"}",
    "```python\n{\"name\": \"get_weather\", \"arguments\": []}\n```\n",
    "<tool_call>\n{\"name\": \"note\"}\nfree <|im text {\"name\": \"get\", \"arguments\": 1}\n</tool_call>\nand on {",
];

/// The text, and for each of its bytes whether a mask stands before it.
fn marked(transcript: &str) -> (String, Vec<bool>) {
    let (mut text, mut held, mut now) = (String::new(), Vec::new(), false);
    for char in transcript.chars() {
        match char {
            '⟦' => now = true,
            '⟧' => now = false,
            _ => {
                text.push(char);
                held.resize(text.len(), now);
            }
        }
    }
    (text, held)
}

#[test]
fn only_arguments_are_held() {
    let grammar = lazy();
    for transcript in TRANSCRIPTS {
        let (text, held) = marked(transcript);
        let mut matcher = grammar.matcher();
        for (at, id) in LAB.bytes(text.as_bytes()).into_iter().enumerate() {
            assert_eq!(
                !is_free(&mut matcher),
                held[at],
                "{:?} in {text}",
                String::from_utf8_lossy(&text.as_bytes()[..at])
            );
            assert!(!held[at] || is_allowed(&mut matcher, id) || LAB.is_forced(&mut matcher, id), "{at} in {text}");
            matcher.accept(id).unwrap();
        }
        assert!(is_free(&mut matcher) && !matcher.violated(), "{text}");
        matcher.accept(LAB.tokenizer.vocabulary().stops()[0]).unwrap();
        assert!(matcher.is_done());
    }
}

/// Tokens that cross the borders of the held parts, and cuts anywhere, end in the same state as bytes do.
#[test]
fn tokens_may_cross_the_borders() {
    let grammar = lazy();
    for transcript in TRANSCRIPTS {
        let (text, held) = marked(transcript);
        for cut in 0..=text.len() {
            let (before, after) = text.as_bytes().split_at(cut);
            let mut matcher = grammar.matcher();
            let mut at = 0;
            for id in LAB.longest(before).into_iter().chain(LAB.longest(after)) {
                assert_eq!(!is_free(&mut matcher), held[at], "cut {cut}, {at} in {text}");
                assert!(is_allowed(&mut matcher, id) || LAB.is_forced(&mut matcher, id), "cut {cut}, {at} in {text}");
                matcher.accept(id).unwrap_or_else(|error| panic!("cut {cut}, {at} in {text}: {error}"));
                at += LAB.tokenizer.decode(&[id]).len();
            }
            assert!(is_free(&mut matcher) && !matcher.violated(), "cut {cut} in {text}");
        }
    }
}

#[test]
fn a_begun_call_cannot_leave_its_schema() {
    let grammar = lazy();
    let head = "Sure.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\":";
    for (text, not) in [
        ("", "["),
        ("", "\""),
        (" ", "7"),
        (" {", "}"),
        (" {\"", "d"),
        (" {\"city\":", "1"),
        (" {\"city\": \"x\"", "]"),
        (" {\"city\": \"x\", \"", "x"),
        (" {\"city\": \"x\", \"days\": ", "\""),
    ] {
        let mut matcher = LAB.follow(&grammar, &format!("{head}{text}")).unwrap();
        assert!(!is_allowed(&mut matcher, LAB.longest(not.as_bytes())[0]), "{not} after {text}");
        assert!(!super::may_end(&mut matcher), "{text}");
        assert!(matcher.accept(LAB.longest(not.as_bytes())[0]).is_err(), "{not} after {text}");
    }
    let mut matcher = LAB.follow(&grammar, head).unwrap();
    assert!(matcher.accept(LAB.tokenizer.vocabulary().stops()[0]).is_err());
}

#[test]
fn arguments_begun_wrongly_in_one_token_are_let_go() {
    let grammar = lazy();
    let mut matcher = LAB.follow(&grammar, "{\"name\": \"get_weather\", \"arguments").unwrap();
    let crossing = LAB.longest(b"\": \"")[0];
    assert_eq!(LAB.tokenizer.decode(&[crossing]), b"\": \"");
    matcher.accept(crossing).unwrap();
    assert!(matcher.violated() && is_free(&mut matcher));
    let next = LAB.longest(b"{}\"}\n<tool_call>\n{\"name\": \"get\", \"arguments\":");
    next.into_iter().for_each(|id| matcher.accept(id).unwrap());
    assert!(!is_free(&mut matcher), "later calls are held as ever");
    // The same token before a good start is fine.
    let mut matcher = LAB.follow(&grammar, "{\"name\": \"get_weather\", \"arguments").unwrap();
    matcher.accept(LAB.longest(b"\": {\"")[0]).unwrap();
    assert!(!matcher.violated() && !is_free(&mut matcher));
    assert!(!is_allowed(&mut matcher, LAB.longest(b"x")[0]));
}

#[test]
fn custom_text_is_held_to_its_format_and_to_the_tag() {
    let grammar = lazy();
    let head = "Patching.\n<tool_call>\n{\"name\": \"apply_patch\"}\n";
    let mut matcher = LAB.follow(&grammar, head).unwrap();
    assert!(!is_free(&mut matcher));
    assert!(!is_allowed(&mut matcher, LAB.longest(b"d")[0]));
    let whole = format!("{head}{PATCH}\n</tool_call>\nDone.");
    for cut in 0..whole.len() {
        let mut matcher = grammar.matcher();
        for id in LAB.longest(&whole.as_bytes()[..cut]).into_iter().chain(LAB.longest(&whole.as_bytes()[cut..])) {
            let ok = is_allowed(&mut matcher, id) || LAB.is_forced(&mut matcher, id);
            // A token may not hold the end of the format and more; a model has others for it.
            if !ok {
                for id in LAB.bytes(&LAB.tokenizer.decode(&[id])) {
                    assert!(is_allowed(&mut matcher, id), "cut {cut}");
                    matcher.accept(id).unwrap();
                }
                continue;
            }
            matcher.accept(id).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        }
        assert!(is_free(&mut matcher) && !matcher.violated());
    }
}

#[test]
fn forced_text_is_given_inside_a_call() {
    let only = json!({"type": "object", "properties": {"confirmed_by_user": {"const": true}}, "required": ["confirmed_by_user"], "additionalProperties": false});
    let tool = ToolSpec { name: "go".into(), kind: ToolSpecKind::Function { parameters: only, strict: true } };
    let grammar = LAB.tools(&[tool], ToolMode::Lazy, true).unwrap();
    let mut matcher = LAB.follow(&grammar, "Well: ").unwrap();
    let mut forced = Vec::new();
    matcher.forced(8, &mut forced);
    assert!(forced.is_empty());
    let mut matcher = LAB.follow(&grammar, "{\"name\": \"go\", \"arguments\": {\"").unwrap();
    matcher.forced(8, &mut forced);
    assert_eq!(LAB.tokenizer.decode(&forced), b"confirme");
}
