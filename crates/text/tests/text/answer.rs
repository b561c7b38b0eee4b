//! Answers as models write them, whole and in pieces.

use proptest::prelude::*;
use text::{AnswerOptions, AnswerParser, Part, Reasoning, ToolName};

fn options() -> AnswerOptions {
    let coder = ToolName { string_parameters: vec!["code".into()], ..ToolName::function("write") };
    let tools =
        vec![ToolName::function("run"), ToolName::function("get_weather"), coder, ToolName::custom("apply_patch")];
    AnswerOptions { tools, reasoning: Reasoning::None, parallel: true, ..AnswerOptions::default() }
}

/// Feeds pieces and joins the parts: `‹text›`, `«thoughts»`, `run(arguments)`, with `!` behind a call that was cut off.
pub fn read<'a>(options: &AnswerOptions, pieces: impl IntoIterator<Item = &'a str>) -> String {
    let mut parser = AnswerParser::new(options.clone());
    let mut parts = Vec::new();
    for piece in pieces {
        parser.push(piece, &mut parts);
    }
    parser.finish(&mut parts);
    let show = |part: Part| match part {
        Part::Text(text) => format!("‹{text}›"),
        Part::Reasoning(text) => format!("«{text}»"),
        Part::CallStart { tool } => format!("{}(", options.tools[tool].name),
        Part::CallDelta(text) => text,
        Part::CallEnd { complete } => if complete { ")" } else { ")!" }.into(),
    };
    parts.into_iter().map(show).collect::<String>().replace("›‹", "").replace("»«", "")
}

pub fn pieces(text: &str, mut length: impl FnMut() -> usize) -> Vec<&str> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let mut end = length().clamp(1, rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// The whole text, one character at a time, and in threes give the same.
fn check_with(options: &AnswerOptions, text: &str, expected: &str) {
    assert_eq!(read(options, [text]), expected, "{text}");
    assert_eq!(read(options, pieces(text, || 1)), expected, "by character: {text}");
    assert_eq!(read(options, pieces(text, || 3)), expected, "by threes: {text}");
}

fn check(text: &str, expected: &str) {
    check_with(&options(), text, expected);
}

fn check_text(text: &str) {
    check(text, &format!("‹{text}›"));
}

#[test]
fn calls_in_tags() {
    check("<tool_call>\n{\"name\": \"run\", \"arguments\": {\"a\": 1}}\n</tool_call>", "run({\"a\": 1})");
    check("<tool_call>{\"name\":\"run\",\"arguments\":{}}</tool_call>", "run({})");
    check("<tool_call>\n{{\"name\": \"run\", \"arguments\": {\"a\": 1}}}\n</tool_call>", "run({\"a\": 1})");
    check("{{\"name\": \"run\", \"arguments\": {\"a\": {}}}}", "run({\"a\": {}})");
    check("\n\n<tool_call>\n{\"name\": \"run\", \"arguments\": {\"a\": 1}}", "run({\"a\": 1})");
    check(
        "Let me look.\n\n<tool_call>\n{\"name\": \"run\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n\
         {\"name\": \"get_weather\", \"arguments\": {\"place\": \"Köln\"}}\n</tool_call>\n\nDone.\n",
        "‹Let me look.›run({\"a\": 1})get_weather({\"place\": \"Köln\"})‹Done.\n›",
    );
    // One brace too few, one too many, and no tag between two.
    check("<tool_call>\n{\"name\": \"run\", \"arguments\": {\"a\": 1}\n</tool_call>", "run({\"a\": 1})");
    check("<tool_call>\n{\"name\": \"run\", \"arguments\": {\"a\": 1}}}\n</tool_call>", "run({\"a\": 1})");
    check(
        "<tool_call>{\"name\": \"run\", \"arguments\": {}}\n{\"name\": \"run\", \"arguments\": {\"b\": 2}}</tool_call>",
        "run({})run({\"b\": 2})",
    );
}

#[test]
fn calls_in_other_tags() {
    // What qwen2.5-coder-1.5b writes when its prompt lists the tools in `<tools>`.
    for (open, close) in [
        ("<tools>", "</tools>"),
        ("<tool>", "</tool>"),
        ("<tool_calls>", "</tool_calls>"),
        ("<function_call>", "</function_call>"),
        ("<function_calls>", "</function_calls>"),
        ("<tools>", "</tool_call>"),
    ] {
        let call = "{\"name\": \"run\", \"arguments\": {\"a\": 1}}";
        check(&format!("{open}\n{call}\n{close}"), "run({\"a\": 1})");
        check(&format!("I will look.\n\n{open}{call}{close}\nok"), "‹I will look.›run({\"a\": 1})‹ok›");
        check(&format!("{open}[{call}, {call}]{close}"), "run({\"a\": 1})run({\"a\": 1})");
        check(&format!("```xml\n{open}\n{call}\n{close}\n```"), "run({\"a\": 1})");
        check(&format!("{open}\n{{\"name\": \"apply_patch\"}}\n+x\n{open}\n{}", &open.replace('<', "</")), &{
            format!("apply_patch(+x\n{open})")
        });
    }
    check("```tools\n{\"name\": \"run\", \"arguments\": {}}\n```", "run({})");
}

#[test]
fn bare_calls_at_the_start_of_a_line() {
    let call = "{\"name\": \"run\", \"arguments\": {\"a\": 1}}";
    check(&format!("I will run it.\n\n{call}"), "‹I will run it.›run({\"a\": 1})");
    check(&format!("Two:\n  {call}\n{call}\nDone."), "‹Two:›run({\"a\": 1})run({\"a\": 1})‹Done.›");
    check(&format!("As a list:\n[{call}]"), "‹As a list:›run({\"a\": 1})");
    check(&format!("```python\nx\n```\n{call}\n"), "‹```python\nx\n```›run({\"a\": 1})");
    let indent = " ".repeat(33);
    check_text(&format!("Far in:\n{indent}{call}"));
    check_with(&AnswerOptions::default(), &format!("x\n{call}"), &format!("‹x\n{call}›"));
}

#[test]
fn calls_in_fences() {
    // What qwen2.5-coder-1.5b writes.
    let call = "{\n  \"name\": \"run\",\n  \"arguments\": {\n    \"cmd\": \"ls -la\"\n  }\n}";
    let expected = "run({\n    \"cmd\": \"ls -la\"\n  })";
    check(&format!("```json\n{call}\n```"), expected);
    check(&format!("```\n{call}\n```\n"), expected);
    check(&format!("```tool_call\n{call}\n```"), expected);
    check(&format!("````json\n{call}\n````"), expected);
    check(&format!("```json\n{call}"), expected);
    check(&format!("```xml\n<tool_call>\n{call}\n</tool_call>\n```"), expected);
    check(
        &format!("Sure: ```json\n{call}\n```\nThis lists the files.\n```json\n{call}\n```"),
        &format!("‹Sure:›{expected}‹This lists the files.›{expected}"),
    );
    check(&format!("```json\n{call}\n{call}\n```\n"), &format!("{expected}{expected}"));
    check(&format!("```json\n[{call},\n{call}]\n```\n"), &format!("{expected}{expected}"));
    check(&format!("```json\n{call}\n// done\n```\nx"), &format!("{expected}‹// done\n```\nx›"));
    // Behind a fence of code the next one is opened anew.
    check(&format!("```python\nprint(1)\n```\n```json\n{call}\n```"), &format!("‹```python\nprint(1)\n```›{expected}"));
}

#[test]
fn bare_calls() {
    check("{\"name\": \"run\", \"arguments\": {\"a\": [1, {}]}}", "run({\"a\": [1, {}]})");
    check(" \n{\"name\": \"run\", \"parameters\": {}}\n{\"name\": \"run\"}", "run({})run({})");
    check("[{\"name\": \"run\", \"arguments\": {}}, {\"name\": \"get_weather\"}]", "run({})get_weather({})");
    check("{\"type\": \"function\", \"name\": \"run\", \"parameters\": {\"a\": 1}}", "run({\"a\": 1})");
    check(
        "{\"id\": \"x\\\"\", \"type\": \"function\", \"function\": {\"name\": \"run\", \"arguments\": {\"a\": 1}}}\n",
        "run({\"a\": 1})",
    );
    check("{\"function\": {\"name\": \"run\"}, \"arguments\": {\"a\": 1}}", "run({\"a\": 1})");
    check("{\"function\": \"run\", \"arguments\": {\"a\": 1}, \"id\": \"}\"} ok", "run({\"a\": 1})‹ok›");
    check("{\"name\": \"run\", \"arguments\": \"{\\\"a\\\": \\\"\\\\n\\u00e9\\\"}\"}", "run({\"a\": \"\\né\"})");
    check("{\"name\": \"run\", \"arguments\": \"\"}", "run({})");
    check("{\"name\": \"run\", \"arguments\": null}", "run({})");
    check("{\"name\": \"run\", \"arguments\": 12}", "run(12)");
    check("{\"name\": \"run\", \"arguments\": -null", "run(-null)!");
    check("Here: {\"name\": \"run\", \"arguments\": {}}", "‹Here: {\"name\": \"run\", \"arguments\": {}}›");
}

#[test]
fn arguments_come_as_they_were_written() {
    for arguments in [
        r#"{"q":"a \"quoted\" } ] \\ \u00e9 é 😀","n": -1.50e3,"o" : {"x":[[],{}]} }"#,
        r#"{"code": "fn main() {\n    println!(\"{}\", 1);\n}\n```\n</tool_call>"}"#,
        "{\n\t\"a\":\t\"line\nbreak\"\n}",
        "{}",
    ] {
        let expected = format!("run({arguments})");
        check(&format!("<tool_call>\n{{\"name\": \"run\", \"arguments\": {arguments}}}\n</tool_call>"), &expected);
        check(&format!("```json\n{{\"name\": \"run\", \"arguments\": {arguments}}}\n```"), &expected);
        check(&format!("{{\"name\": \"run\", \"arguments\": {arguments}}}"), &expected);
    }
}

#[test]
fn text_that_is_no_call() {
    for text in [
        "Plain text, a < b && c > d, `code`, ``x`` and <b>html</b>.",
        "  leading and trailing \n\n",
        " \n",
        "{\"name\": \"flint\", \"version\": \"1.0\", \"arguments\": {}}",
        "{\"name\": \"unknown_tool\", \"arguments\": {\"a\": 1}}",
        "{\"name\": \"run\", \"version\": 1}",
        "{\"arguments\": {}}",
        "{\"a\": 1}\n[1, 2, {\"name\": \"run\", \"arguments\": {}}]",
        "[[1], 2]",
        "{",
        "{}",
        "{\"name\": \"run\"",
        "{\"name\": \"run\", ",
        "```json\n{\"name\": \"runner\", \"arguments\": {}}\n```\nand ```rust\nfn run() {}\n```\n",
        "```json\n{\n  \"dependencies\": {\"a\": \"^1\"}\n}\n```\n\nThen:\n\n```sh\nnpm i\n```",
        "```rust\nlet s = \"<tool_call>{\\\"name\\\": \\\"run\\\", \\\"arguments\\\": {}}\";\n```",
        "```python\nx\n{\"name\": \"run\", \"arguments\": {}}\n```\n",
        "The packages:\n{\"name\": \"run\"}\n[{\"name\": \"run\"}]\n",
        "An item:\n- {\"name\": \"run\", \"arguments\": {}}\n\nx {\"name\": \"run\", \"arguments\": {}}",
        "<tools>\n{\"name\": \"other\", \"arguments\": {}}\n</tools>",
        "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"run\", \"description\": \"Runs\"}}\n</tools>",
        "```markdown\n```json\n{\"name\": \"run\", \"arguments\": {}}\n```\n",
        "````md\n```\n{\"name\": \"run\", \"arguments\": {}}\n```\n````",
        "Inline ```code``` and ```json",
        "The tag `<tool_call>` opens a call, `</tool_call>` closes it; <function=nothing> too.",
        "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>",
        "<tool_call><function=ru></function></tool_call>",
        "<tool_call>",
        "<tool_c",
        "<",
        "```",
        "日本語 `é` 😀 <é>",
        "<think>no thoughts</think>",
    ] {
        check_text(text);
        check_with(&AnswerOptions { parallel: true, ..AnswerOptions::default() }, text, &format!("‹{text}›"));
    }
    check(
        "<tool_call>\n{\"name\": \"other\"}\n</tool_call>\n<tool_call>{\"name\": \"run\"}</tool_call>",
        "‹<tool_call>\n{\"name\": \"other\"}\n</tool_call>›run({})",
    );
    let all = "```json\n{\"name\": \"run\", \"arguments\": {}}\n```";
    check_with(&AnswerOptions::default(), all, &format!("‹{all}›"));
}

#[test]
fn calls_in_xml() {
    check("<tool_call>\n<function=run>\n</function>\n</tool_call>", "run({})");
    check(
        "I'll do it.\n<tool_call>\n<function=run>\n<parameter=cmd>\nls -la\n</parameter>\n<parameter=n>\n12\n</parameter>\n\
         <parameter=deep>\n{\"a\": [true]}\n</parameter>\n<parameter=quoted>\n\"x\"\n</parameter>\n</function>\n</tool_call>",
        "‹I'll do it.›run({\"cmd\": \"ls -la\", \"n\": 12, \"deep\": {\"a\": [true]}, \"quoted\": \"\\\"x\\\"\"})",
    );
    check(
        "<function=write>\n<parameter=code>\n12\n</parameter>\n<parameter=n>12</parameter>\n</function>",
        "write({\"code\": \"12\", \"n\": 12})",
    );
    check(
        "<function=write><parameter=code>\n\nif a < b {\n  \"é\\n\"\n}\n\n</parameter></function> ok",
        "write({\"code\": \"\\nif a < b {\\n  \\\"é\\\\n\\\"\\n}\\n\"})‹ok›",
    );
    check("<tool_call><function=run><parameter=a>1</parameter></tool_call>", "run({\"a\": 1})");
    check(
        "<function=apply_patch>\n<parameter=input>\n*** Begin\n+\"\n</parameter>\n</function>",
        "apply_patch(*** Begin\n+\")",
    );
    // Cut off.
    check("<function=run><parameter=cmd>\nls", "run({\"cmd\": \"ls)!");
    check("<function=write><parameter=code>\nls", "write({\"code\": \"ls)!");
}

#[test]
fn custom_tools() {
    let patch = "*** Begin Patch\n*** Update File: a.rs\n@@\n-\"<a>\"\n+\\n é </tool\n*** End Patch";
    let expected = format!("apply_patch({patch})");
    check(&format!("<tool_call>\n{{\"name\": \"apply_patch\"}}\n{patch}\n</tool_call>"), &expected);
    check(
        &format!(
            "<tool_call>\n{{\"name\": \"apply_patch\"}}\n{patch}\n</tool_call>\n<tool_call>{{\"name\": \"run\"}}</tool_call> x"
        ),
        &format!("{expected}run({{}})‹x›"),
    );
    check(&format!("<tool_call>\n{{\"name\": \"apply_patch\"}}\n{patch}"), &format!("{expected}!"));
    let quoted = serde_json::Value::from(patch).to_string();
    for arguments in [
        format!("\"arguments\": {{\"input\": {quoted}}}"),
        format!("\"arguments\": {quoted}"),
        format!("\"input\": {quoted}"),
        format!("\"arguments\": {{ \"patch\" : {quoted}, \"more\": [\"}}\"]}}"),
    ] {
        check(&format!("<tool_call>\n{{\"name\": \"apply_patch\", {arguments}}}\n</tool_call>"), &expected);
        check(&format!("```json\n{{\"name\": \"apply_patch\", {arguments}}}\n```"), &expected);
    }
    check("{\"name\": \"apply_patch\", \"arguments\": {\"n\": 1}}", "apply_patch({\"n\": 1})");
    check("{\"name\": \"apply_patch\"}", "apply_patch()");
}

#[test]
fn answers_that_are_cut_off() {
    check("<tool_call>\n{\"name\": \"run\", \"arguments\": {\"a\": \"x", "run({\"a\": \"x)!");
    check("{\"name\": \"run\", \"arguments\": {\"a\": 1", "run({\"a\": 1)!");
    check("{\"name\": \"run\", \"arguments\": \"{\\\"a\\", "run({\"a)!");
    check("<tool_call>{\"name\": \"run\", \"arguments\": {\"a\": 1</tool_call>\nx", "run({\"a\": 1)!‹x›");
    check("<tool_call>{\"name\": \"run\", \"arguments\": {}}</tool_", "run({})‹</tool_›");
}

#[test]
fn thoughts() {
    let with = |reasoning| AnswerOptions { reasoning, ..options() };
    let tags = with(Reasoning::ThinkTags);
    check_with(&tags, "<think>\nHm, <b> `x`.\n</think>\n\nHi", "«Hm, <b> `x`.»‹Hi›");
    check_with(&tags, "\n<think></think>{\"name\": \"run\"}", "run({})");
    check_with(&tags, "<think>\n<tool_call>{\"name\": \"run\"}</tool_call>\n\n", "run({})");
    check_with(&tags, "<think>\nOr <tool_call>? No.\n</think>\n\nHi", "«Or <tool_call>? No.»‹Hi›");
    check_with(&tags, " Hi <think>x</think>", "‹ Hi <think>x</think>›");
    check_with(&tags, "<th", "‹<th›");
    check_with(&tags, "```json\n{\"name\": \"run\"}\n```", "run({})");
    let opened = with(Reasoning::ThinkTagsOpened);
    check_with(&opened, "\nHm\n\nok</think>\n\nHi ", "«Hm\n\nok»‹Hi ›");
    check_with(&opened, "<think>\nHm</think>Hi", "«Hm»‹Hi›");
    check_with(&opened, "Hm</thin", "«Hm</thin»");
}

#[test]
fn only_the_first_call_where_one_is_allowed() {
    let one = AnswerOptions { parallel: false, ..options() };
    check_with(&one, "a <tool_call>{\"name\": \"run\"}</tool_call> b {\"name\": \"run\"}", "‹a›run({})");
    let mut parser = AnswerParser::new(one);
    let mut parts = Vec::new();
    parser.push("{\"name\": \"run\", \"arguments\": {\"a\": 1", &mut parts);
    assert!(!parser.stopped());
    parser.push("}", &mut parts);
    assert!(parser.stopped());
}

#[test]
fn nothing_is_held_back_longer_than_needed() {
    let mut parser = AnswerParser::new(options());
    let mut parts = Vec::new();
    let mut push = |text: &str| {
        parser.push(text, &mut parts);
        std::mem::take(&mut parts)
    };
    let text = |text: &str| vec![Part::Text(text.into())];
    let arguments = |text: &str| vec![Part::CallDelta(text.into())];
    assert_eq!(push("{\"na"), []);
    assert_eq!(push("ti"), text("{\"nati"));
    assert_eq!(push(" a <"), text(" a"));
    assert_eq!(push("b"), text(" <b"));
    assert_eq!(push("``"), []);
    assert_eq!(push("`py"), text("```py"));
    assert_eq!(push("thon\nx\n```"), text("thon\nx\n```"));
    assert_eq!(push("\n<tool_call>{\"name\": \"r"), []);
    assert_eq!(push("x"), text("\n<tool_call>{\"name\": \"rx"));
    assert_eq!(push("```json\n{\"name\": \"run\", \"arg"), []);
    assert_eq!(push("uments\": {\"a"), [Part::CallStart { tool: 0 }, Part::CallDelta("{\"a".into())]);
    assert_eq!(push("\": 1"), arguments("\": 1"));
    assert_eq!(push("}"), [Part::CallDelta("}".into()), Part::CallEnd { complete: true }]);
}

#[test]
fn what_is_held_back_is_bounded() {
    check_text(&format!("{{\"id\": \"{}\", \"name\": \"run\"}}", "x".repeat(3000)));
    check_text(&format!("<tool_call>{}{{\"name\": \"run\"}}", " ".repeat(3000)));
    check_text(&format!("```json\n{}", "\n".repeat(3000)));
    let space = |count| " ".repeat(count);
    check(&format!("a{}<tool_call>{{\"name\": \"run\"}}", space(100)), &format!("‹a{}›run({{}})", space(36)));
    check(&format!("<function=run><parameter={}>1</parameter></function>", "k".repeat(300)), "run({})");
}

/// Everything calls are made of, in any order.
fn answers() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "<tool_call>",
        "</tool_call>",
        "<tools>",
        "</tools>",
        "<tool",
        "```",
        "```json\n",
        "\n```\n",
        "```python\n",
        "\n",
        " ",
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        "\\",
        "{\"name\": \"run\"",
        "{\"name\": \"apply_patch\"",
        "}\n",
        ", \"arguments\": ",
        "{\"a\": \"\\u00e9\"}",
        "{\"name\": \"run\", \"arguments\": {\"x\": [1]}}",
        "<function=write>",
        "<parameter=code>",
        "</parameter>",
        "</function>",
        "<think>",
        "</think>",
        "\"{\\\"a\\\": 1}\"",
        "\\ud83d\\ude00",
        "null",
        "text",
        "é😀",
        "`",
        "<",
        "{\"input\": \"",
        "\"function\": ",
        "\"type\": \"function\", ",
        "\n\n",
        "                                         ",
    ]);
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

fn any_options() -> impl Strategy<Value = AnswerOptions> {
    let reasoning = prop::sample::select(vec![Reasoning::None, Reasoning::ThinkTags, Reasoning::ThinkTagsOpened]);
    (reasoning, any::<bool>()).prop_map(|(reasoning, parallel)| AnswerOptions { reasoning, parallel, ..options() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn pieces_do_not_matter(text in answers(), options in any_options(), cuts in prop::collection::vec(1usize..12, 1..8)) {
        let whole = read(&options, [&*text]);
        let mut cuts = cuts.iter().cycle();
        prop_assert_eq!(read(&options, pieces(&text, || *cuts.next().unwrap())), &*whole);
        prop_assert_eq!(read(&options, pieces(&text, || 1)), whole);
    }

    #[test]
    fn text_without_a_known_tool_is_unchanged(text in answers()) {
        let options = AnswerOptions { tools: vec![ToolName::function("nothing")], ..options() };
        let expected = if text.is_empty() { String::new() } else { format!("‹{text}›") };
        prop_assert_eq!(read(&options, pieces(&text, || 2)), expected);
    }
}
