//! Tool calls as grammars for llguidance: one for whole answers that must be calls, one for the arguments alone.

use std::fmt::Write;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{JsonCompileOptions, regex_to_lark};
use serde_json::{Map, Value, json};

use super::formats;

/// White space inside JSON: a blank, or a new line with its indent. Bounded, so that no model can go on with blanks.
const JSON_BLANKS: &str = r"[ ]{1,2}|\r?\n(?:[ ]{0,64}|\t{0,16})";
/// Whether a schema must be followed in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fidelity {
    /// Keywords that cannot be followed are errors.
    Full,
    /// They are left out.
    Lenient,
}

/// JSON by a schema.
pub(super) fn json(schema: &Value, fidelity: Fidelity) -> TopLevelGrammar {
    TopLevelGrammar::from_grammar(GrammarWithLexer::from_json_schema(with_options(schema, fidelity)))
}

/// Text by a regular expression, which is about the whole text with and without anchors.
pub(super) fn regex(regex: &str) -> TopLevelGrammar {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    let ends = regex.strip_suffix('$').filter(|rest| !rest.ends_with('\\'));
    let regex = regex_to_lark(ends.unwrap_or(regex), "");
    TopLevelGrammar::from_lark(format!("start: /(?:{regex})/"))
}

/// The schema of arguments, which are always an object.
pub(super) fn arguments_schema(parameters: &Value) -> Result<Value, String> {
    let mut members = match parameters {
        Value::Null => Map::new(),
        Value::Object(members) => members.clone(),
        _ => return Err("the schema must be a JSON object".to_string()),
    };
    match members.get("type") {
        None => drop(members.insert("type".to_string(), json!("object"))),
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => return Err(format!("the schema must have \"type\": \"object\", not {other}")),
    }
    Ok(Value::Object(members))
}

/// A tool in [`calls`].
pub(super) struct Callable<'a> {
    /// Its name as a JSON string.
    pub quoted: &'a [u8],
    /// The schema of its arguments; none for custom tools.
    pub arguments: Option<(&'a Value, Fidelity)>,
}

/// Where in an answer [`calls`] stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPosition {
    /// At its start: one call, in any wrapper.
    One,
    /// At its start: one call or more.
    Many,
    /// After the text of a custom tool: more calls, or none.
    More,
}

/// An answer of calls. A custom tool's call ends this grammar where its text begins; that has a grammar of its own.
pub(super) fn calls(tools: &[Callable], place: CallPosition) -> TopLevelGrammar {
    let mut lark = String::from(
        "BLANKS: /[ ]{1,2}|\\r?\\n[ ]{0,16}/\n\
         BETWEEN: /,?[ ]?\\r?\\n{1,2}[ ]{0,16}/\n\
         NAME: \"{\" BLANKS? \"\\\"name\\\"\" BLANKS? \":\" BLANKS?\n\
         ARGUMENTS: BLANKS? \",\" BLANKS? (\"\\\"arguments\\\"\" | \"\\\"parameters\\\"\") BLANKS? \":\" BLANKS?\n\
         OPEN: \"<tool_call>\" BLANKS?\n\
         CLOSE: BLANKS? \"</tool_call>\"\n\
         END: BLANKS? \"}\"\n",
    );
    let mut grammars = Vec::new();
    let (mut functions, mut customs) = (Vec::new(), Vec::new());
    for (index, tool) in tools.iter().enumerate() {
        let name = Value::from(String::from_utf8_lossy(tool.quoted));
        let _ = writeln!(lark, "T{index}: {name}");
        match tool.arguments {
            Some((schema, fidelity)) => {
                functions.push(format!("T{index} ARGUMENTS @t{index} END"));
                grammars.push(named(format!("t{index}"), schema, fidelity));
            }
            None => customs.push(format!("T{index} END \"\\n\"")),
        }
    }
    let mut starts = Vec::new();
    let mut tagged = Vec::new();
    if !functions.is_empty() {
        let _ = writeln!(lark, "call: NAME ({})", functions.join(" | "));
        lark.push_str("tagged: OPEN call CLOSE\n");
        tagged.push("tagged");
        if place != CallPosition::More {
            lark.push_str("fenced: \"```json\" /\\r?\\n/ list /\\r?\\n/ \"```\"\n");
            starts.extend(["fenced", "list"]);
        }
        lark.push_str(match place {
            CallPosition::Many => {
                "list: call (BETWEEN call)* | \"[\" BLANKS? call (\",\" BLANKS? call)* BLANKS? \"]\"\n"
            }
            _ => "list: call | \"[\" BLANKS? call BLANKS? \"]\"\n",
        });
    }
    if !customs.is_empty() {
        let _ = writeln!(lark, "custom: OPEN NAME ({})", customs.join(" | "));
        tagged.push("custom");
    }
    let last = tagged.join(" | ");
    let before = if functions.is_empty() || place == CallPosition::One { "" } else { "(tagged BETWEEN)*" };
    let _ = match place {
        CallPosition::More if functions.is_empty() => writeln!(lark, "start: (BETWEEN ({last}))?"),
        CallPosition::More => writeln!(lark, "start: (BETWEEN {before} ({last}))?"),
        _ => writeln!(lark, "tags: {before} ({last})\nstart: {}", [&["tags"], &starts[..]].concat().join(" | ")),
    };
    grammars.insert(0, GrammarWithLexer::from_lark(lark));
    TopLevelGrammar { grammars, max_tokens: None }
}

pub(super) fn named(name: String, schema: &Value, fidelity: Fidelity) -> GrammarWithLexer {
    let grammar = GrammarWithLexer::from_json_schema(with_options(schema, fidelity));
    GrammarWithLexer { name: Some(name), ..grammar }
}

/// The schema with our options in it, which is how llguidance takes them; a client's are overwritten.
fn with_options(schema: &Value, fidelity: Fidelity) -> Value {
    let mut schema = match schema {
        Value::Object(_) => schema.clone(),
        Value::Bool(true) => json!({}),
        // Whatever else this is, it is no schema, and llguidance says so.
        other => json!({ "allOf": [other] }),
    };
    formats::tighten(&mut schema);
    let options = JsonCompileOptions {
        whitespace_pattern: Some(JSON_BLANKS.to_string()),
        // Where the alternatives overlap, an answer may fit more than one of them. Refusing oneOf would help nobody.
        coerce_one_of: true,
        json_allow_general_unicode_escapes: true,
        lenient: fidelity == Fidelity::Lenient,
        ..Default::default()
    };
    options.apply_to(&mut schema);
    schema
}
