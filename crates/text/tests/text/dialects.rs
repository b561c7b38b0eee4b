//! Answers of each family in the very form in which its models write them, read in every cut.

use proptest::prelude::*;
use serde_json::json;
use text::{AnswerOptions, Dialect, MARK, Reasoning, ToolName};

use crate::answer::{pieces, read};

fn options(dialect: Dialect, reasoning: Reasoning) -> AnswerOptions {
    let weather = json!({"type": "object", "properties": {"location": {"type": "string"}, "days": {"type": "integer"},
        "metric": {"type": "boolean"}, "tags": {"type": "array"}}});
    let write = json!({"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}});
    let tools = vec![
        ToolName::with_schema("get_weather", &weather),
        ToolName::with_schema("write_file", &write),
        ToolName::custom("apply_patch"),
    ];
    AnswerOptions { tools, reasoning, parallel: true, dialect }
}

/// The text as a detokeniser shows it: a mark before every marker.
fn marked(dialect: Dialect, text: &str) -> String {
    dialect.markers().iter().fold(text.to_owned(), |text, marker| text.replace(marker, &format!("{MARK}{marker}")))
}

/// Read whole, by characters, by threes and in every cut in two, the answer is the same.
fn check_with(options: &AnswerOptions, text: &str, expected: &str) {
    let text = marked(options.dialect, text);
    assert_eq!(read(options, [text.as_str()]), expected, "{text}");
    assert_eq!(read(options, pieces(&text, || 1)), expected, "by character: {text}");
    assert_eq!(read(options, pieces(&text, || 3)), expected, "by threes: {text}");
    for (at, _) in text.char_indices() {
        assert_eq!(read(options, [&text[..at], &text[at..]]), expected, "cut at {at}: {text}");
    }
}

fn check(dialect: Dialect, text: &str, expected: &str) {
    check_with(&options(dialect, Reasoning::ThinkTags), text, expected);
}

#[test]
fn harmony() {
    let check = |text: &str, expected: &str| check(Dialect::Harmony, text, expected);
    check("<|channel|>final<|message|>Hello\n\nworld.", "‹Hello\n\nworld.›");
    check(
        "<|channel|>analysis<|message|>We need 2+2.\nIt is 4.<|end|><|start|>assistant<|channel|>final<|message|>4.<|return|>",
        "«We need 2+2.\nIt is 4.»‹4.›",
    );
    // The recipient in the header of the channel, with and without the type of the text.
    let call = "get_weather({\"location\": \"Zürich\", \"days\": 2})";
    for header in [
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather<|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.get_weather<|message|>",
        "<|channel|>commentary to=get_weather code<|message|>",
        "<|channel|>analysis to=functions.get_weather code<|message|>",
        " to=functions.get_weather<|channel|>commentary<|constrain|>json<|message|>",
        " to=functions.get_weather<|channel|>commentary json<|message|>",
    ] {
        let text = "<|channel|>analysis<|message|>Look it up.<|end|><|start|>assistant";
        check(
            &format!("{text}{header}{{\"location\": \"Zürich\", \"days\": 2}}<|call|>"),
            &format!("«Look it up.»{call}"),
        );
        check(&format!("{header}{{\"location\": \"Zürich\", \"days\": 2}}"), call);
    }
    // A preamble, then the call; and two messages of text.
    check(
        "<|channel|>commentary<|message|>I will check the weather.<|end|><|start|>assistant<|channel|>commentary \
         to=functions.get_weather <|constrain|>json<|message|>{\"location\":\"Bern\"}<|call|>",
        "‹I will check the weather.›get_weather({\"location\":\"Bern\"})",
    );
    check(
        "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>Second.",
        "‹First.\n\nSecond.›",
    );
    // The text of a custom tool, in JSON and as it is.
    check(
        "<|channel|>commentary to=functions.apply_patch <|constrain|>json<|message|>{\"input\": \"*** Begin\\n+\\\"x\\\"\"}<|call|>",
        "apply_patch(*** Begin\n+\"x\")",
    );
    check(
        "<|channel|>commentary to=functions.apply_patch<|message|>*** Begin Patch\n+x\n*** End Patch<|call|>",
        "apply_patch(*** Begin Patch\n+x\n*** End Patch)",
    );
    check("<|channel|>commentary to=functions.get_weather<|message|><|call|>", "get_weather({})");
    check(
        "<|channel|>commentary to=functions.get_weather<|message|>{\"location\": \"Be",
        "get_weather({\"location\": \"Be)!",
    );
    // Another channel behind a call, as some write it.
    check(
        "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"days\":1}<|call|>commentary<|channel|>analysis<|message|>Empty.<|end|>",
        "get_weather({\"days\":1})«Empty.»",
    );
    // A tool that there is not says what it says as text; no structure at all is text.
    check("<|channel|>commentary to=functions.nosuch<|message|>{}<|call|>", "‹{}›");
    check("Just text.", "‹Just text.›");
}

#[test]
fn what_looks_like_a_marker_is_text() {
    let options = options(Dialect::Harmony, Reasoning::ThinkTags);
    let quoted = "The form is <|start|>assistant<|channel|>commentary to=functions.get_weather<|message|>{}<|call|>.";
    let text = format!("{}{quoted}", marked(Dialect::Harmony, "<|channel|>final<|message|>"));
    assert_eq!(read(&options, [text.as_str()]), format!("‹{quoted}›"));
}

#[test]
fn mistral() {
    let check = |text: &str, expected: &str| check(Dialect::Mistral, text, expected);
    check("Hello.", "‹Hello.›");
    let weather = "get_weather({\"location\": \"San Francisco\", \"days\": 3})";
    check("[TOOL_CALLS]get_weather[ARGS]{\"location\": \"San Francisco\", \"days\": 3}", weather);
    check(
        "Let me look.\n[TOOL_CALLS]get_weather[ARGS]{\"location\": \"San Francisco\", \"days\": 3}[TOOL_CALLS]write_file[ARGS]{\"path\": \"a\"}",
        &format!("‹Let me look.›{weather}write_file({{\"path\": \"a\"}})"),
    );
    check("[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"days\": 1}", "get_weather({\"days\": 1})");
    check("[THINK]Which city?\nBern.[/THINK]It rains.", "«Which city?\nBern.»‹It rains.›");
    // A call ends thoughts that were left open.
    check("[THINK]I look.\n[TOOL_CALLS]get_weather[ARGS]{}", "«I look.»get_weather({})");
    // The mark left out, and the older list.
    check("[TOOL_CALLS]get_weather{\"days\": 1}", "get_weather({\"days\": 1})");
    check(
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"days\": 1}}, {\"name\": \"write_file\", \"arguments\": {}}]",
        "get_weather({\"days\": 1})write_file({})",
    );
    check("[TOOL_CALLS]apply_patch[ARGS]{\"input\": \"+a\\n+b\"}", "apply_patch(+a\n+b)");
    check("[TOOL_CALLS]nosuch[ARGS]{\"a\": 1}", "‹nosuch{\"a\": 1}›");
    check("[TOOL_CALLS]get_weather[ARGS]{\"location\": \"S", "get_weather({\"location\": \"S)!");
}

#[test]
fn gemma() {
    let check = |text: &str, expected: &str| check(Dialect::Gemma, text, expected);
    check("Hello.", "‹Hello.›");
    check("<|channel>thought\nWhich city?<channel|>It rains.", "«Which city?»‹It rains.›");
    check("<|channel>thought\n<channel|>It rains.", "‹It rains.›");
    check(
        "<|tool_call>call:get_weather{location:<|\"|>New \"York\"\n<|\"|>,days:2,metric:true}<tool_call|>",
        "get_weather({\"location\": \"New \\\"York\\\"\\n\", \"days\": 2, \"metric\": true})",
    );
    check(
        "<|channel>thought\nI call it.<channel|><|tool_call>call:get_weather{days:1}<tool_call|><|tool_call>call:write_file{path:<|\"|>a{b},c:[d]<|\"|>,content:<|\"|><|\"|>}<tool_call|>",
        "«I call it.»get_weather({\"days\": 1})write_file({\"path\": \"a{b},c:[d]\", \"content\": \"\"})",
    );
    check(
        "<|tool_call>call:get_weather{tags:[<|\"|>a<|\"|>,{k:null,<|\"|>l<|\"|>:-1.5e3},[]],location:Bern}<tool_call|>",
        "get_weather({\"tags\": [\"a\", {\"k\": null, \"l\": -1.5e3}, []], \"location\": \"Bern\"})",
    );
    check("<|tool_call>call:get_weather{}<tool_call|>", "get_weather({})");
    check(
        "<|tool_call>call:get_weather{\"location\":\"a\\\"b\"}<tool_call|>",
        "get_weather({\"location\": \"a\\\"b\"})",
    );
    check("<|channel>thought\nSo.<|tool_call>call:get_weather{}<tool_call|>", "«So.»get_weather({})");
    check("<|tool_call>call:apply_patch{input:<|\"|>+a\n+\"b\"<|\"|>}<tool_call|>", "apply_patch(+a\n+\"b\")");
    check("<|tool_call>call:get_weather{location:<|\"|>Be", "get_weather({\"location\": \"Be)!");
    check("<|tool_call>call:nosuch{a:1}<tool_call|>Yes.", "‹call:nosuch{a:1}Yes.›");
}

#[test]
fn glm() {
    let check = |text: &str, expected: &str| check(Dialect::Glm, text, expected);
    check("\n<think>Which?</think>\nHello.", "«Which?»‹Hello.›");
    check("\n<think></think>\nHello.", "‹Hello.›");
    let call = "<tool_call>get_weather\n<arg_key>location</arg_key>\n<arg_value>12</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n<arg_key>metric</arg_key>\n<arg_value>true</arg_value>\n</tool_call>";
    let read = "get_weather({\"location\": \"12\", \"days\": 2, \"metric\": true})";
    check(&format!("\n<think>I look.</think>\n{call}"), &format!("«I look.»{read}"));
    check(&format!("I look.\n{call}\n{call}"), &format!("‹I look.›{read}{read}"));
    // On one line, with text that has lines and tags.
    check(
        "<tool_call>write_file<arg_key>path</arg_key><arg_value>a</arg_value><arg_key>content</arg_key><arg_value>\n<b>\n</arg_value></tool_call>",
        "write_file({\"path\": \"a\", \"content\": \"\\n<b>\\n\"})",
    );
    check("<tool_call>get_weather\n</tool_call>", "get_weather({})");
    check("<tool_call>get_weather</tool_call>", "get_weather({})");
    check("\n<think>Now.<tool_call>get_weather</tool_call>", "«Now.»get_weather({})");
    check("<tool_call>nosuch\n</tool_call>", "‹<tool_call>nosuch\n</tool_call>›");
    check(
        "<tool_call>apply_patch\n<arg_key>input</arg_key>\n<arg_value>+a\n+b</arg_value>\n</tool_call>",
        "apply_patch(+a\n+b)",
    );
}

#[test]
fn qwen() {
    let dialect = Dialect::Qwen;
    let opened = options(dialect, Reasoning::ThinkTagsOpened);
    let call = "<tool_call>\n<function=get_weather>\n<parameter=location>\n12\n</parameter>\n<parameter=days>\n2\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=tags>\n[\"a\", 1]\n</parameter>\n</function>\n</tool_call>";
    let read = "get_weather({\"location\": \"12\", \"days\": 2, \"metric\": true, \"tags\": [\"a\", 1]})";
    check(dialect, call, read);
    check_with(&opened, &format!("I look it up.\n</think>\n\n{call}"), &format!("«I look it up.»{read}"));
    check_with(&opened, "Easy.\n</think>\n\nFour.", "«Easy.»‹Four.›");
    check(
        dialect,
        &format!("<think>\nHm.\n</think>\n\nI look.\n\n{call}\n{call}"),
        &format!("«Hm.»‹I look.›{read}{read}"),
    );
    // The call ends thoughts that were left open; a tag that is only named does not.
    check_with(&opened, &format!("I look it up.\n\n{call}"), &format!("«I look it up.»{read}"));
    check_with(&opened, "I write `<tool_call>` next.\n</think>\n\nOk.", "«I write `<tool_call>` next.»‹Ok.›");
    // The first tag left out, as it happens.
    let bare = call.trim_start_matches("<tool_call>\n");
    check(dialect, bare, read);
    check_with(&opened, &format!("So.\n</think>\n\n{bare}"), &format!("«So.»{read}"));
    check(
        dialect,
        "<tool_call>\n<function=apply_patch>\n<parameter=input>\n*** Begin Patch\n+x\n*** End Patch\n</parameter>\n</function>\n</tool_call>",
        "apply_patch(*** Begin Patch\n+x\n*** End Patch)",
    );
    // Thoughts again behind a call.
    check(dialect, &format!("{call}\n<think>\nAnd now?\n</think>\n\nDone."), &format!("{read}«And now?»‹Done.›"));
}

#[test]
fn hermes() {
    let opened = options(Dialect::Hermes, Reasoning::ThinkTagsOpened);
    let call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Bern\"}}\n</tool_call>";
    let read = "get_weather({\"location\": \"Bern\"})";
    check(Dialect::Hermes, &format!("<think>\nHm.\n</think>\n\n{call}"), &format!("«Hm.»{read}"));
    check_with(&opened, &format!("Hm.\n{call}"), &format!("«Hm.»{read}"));
}

proptest! {
    /// Whatever a model writes, in whatever pieces: nothing panics, and the parts are the same.
    #[test]
    fn any_text_in_any_pieces(dialect in prop::sample::select(vec![Dialect::Harmony, Dialect::Mistral, Dialect::Gemma,
        Dialect::Glm, Dialect::Qwen]), picks in prop::collection::vec(0usize..32, 0..24), cuts in prop::collection::vec(1usize..9, 1..40))
    {
        let words = ["get_weather", "apply_patch", "{\"days\": 1}", "{\"input\": \"a\\u00e9\"}", "<think>", "</think>", " ", "\n",
            "<tool_call>", "</tool_call>", "<function=get_weather>", "<parameter=days>", "</parameter>", "</function>",
            "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "final", "analysis", "commentary to=functions.get_weather",
            "call:get_weather{", "days:2,", "}", "text é", "```json"];
        let all: Vec<String> =
            words.iter().map(ToString::to_string).chain(dialect.markers().iter().map(|m| format!("{MARK}{m}"))).collect();
        let text: String = picks.iter().map(|pick| all[pick % all.len()].as_str()).collect();
        let options = options(dialect, Reasoning::ThinkTags);
        let mut lengths = cuts.iter().cycle();
        let whole = read(&options, [text.as_str()]);
        prop_assert_eq!(read(&options, pieces(&text, || *lengths.next().unwrap())), whole, "{}", text);
    }
}
