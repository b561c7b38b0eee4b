//! Calls in the forms that are not JSON in tags: grammars of their arguments, and of answers that must be calls.

use std::fmt::Write;

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use serde_json::{Value, json};

use super::tools::{Fidelity, named};
use crate::dialect::Dialect;

/// What stands for a marker in a grammar: its token, or its text where there are no tokens.
pub(super) type Marks<'a> = &'a dyn Fn(&str) -> String;

/// Deepest nesting of values that is held to a schema. What lies deeper may be anything.
const DEPTH_MAX: usize = 8;

/// A grammar being written.
struct Writer<'a> {
    dialect: Dialect,
    marks: Marks<'a>,
    fidelity: Fidelity,
    lark: String,
    grammars: Vec<GrammarWithLexer>,
    rules: usize,
}

/// The arguments of a call that the model began by itself, up to the end of the call.
pub(super) fn held_arguments(dialect: Dialect, schema: &Value, fidelity: Fidelity, marks: Marks) -> TopLevelGrammar {
    let mut writer = Writer::new(dialect, fidelity, marks);
    let arguments = writer.arguments(schema);
    let (end, rest) = match dialect {
        Dialect::Qwen => (literal("</function>"), true),
        Dialect::Glm => (literal("</tool_call>"), true),
        Dialect::Gemma => (marks("<tool_call|>"), false),
        Dialect::Hermes | Dialect::Harmony | Dialect::Mistral => (String::new(), true),
    };
    let rest = if rest { "REST?" } else { "" };
    let _ = writeln!(writer.lark, "start: BLANKS? {arguments} {end} {rest}");
    writer.lark.push_str("BLANKS: /[ \\t\\r\\n]{1,8}/\n");
    if !rest.is_empty() {
        writer.lark.push_str("REST: /(?s:.+)/\n");
    }
    writer.finish()
}

/// An answer of one call, or of `many`. Harmony may think first; elsewhere thoughts are over where this begins.
pub(super) fn calls(dialect: Dialect, tools: &[(&str, &Value, Fidelity)], many: bool, marks: Marks) -> TopLevelGrammar {
    let mut writer = Writer::new(dialect, Fidelity::Full, marks);
    let mut alternatives = Vec::new();
    for (name, schema, fidelity) in tools {
        writer.fidelity = *fidelity;
        let arguments = writer.arguments(schema);
        let name = match dialect {
            Dialect::Qwen => literal(&format!("{name}>\n")),
            Dialect::Glm => literal(&format!("{name}\n")),
            Dialect::Gemma => literal(&format!("{name}{{")),
            Dialect::Hermes | Dialect::Harmony | Dialect::Mistral => literal(name),
        };
        alternatives.push(match dialect {
            Dialect::Harmony => {
                format!("{name} \" \"? ({} \"json\")? {} {arguments}", marks("<|constrain|>"), marks("<|message|>"))
            }
            Dialect::Mistral => format!("{name} {} {arguments}", marks("[ARGS]")),
            _ => format!("{name} {arguments}"),
        });
    }
    let any = alternatives.join(" | ");
    let call = match dialect {
        Dialect::Qwen => {
            format!("\"<tool_call>\\n<function=\" ({any}) \"</function>\\n</tool_call>\"")
        }
        Dialect::Glm => format!("\"<tool_call>\" ({any}) \"</tool_call>\""),
        Dialect::Gemma => format!("{} \"call:\" ({any}) {}", marks("<|tool_call>"), marks("<tool_call|>")),
        Dialect::Mistral => format!("{} ({any})", marks("[TOOL_CALLS]")),
        Dialect::Harmony | Dialect::Hermes => format!("\"commentary to=functions.\" ({any})"),
    };
    let _ = writeln!(writer.lark, "call: {call}");
    let start = match dialect {
        Dialect::Harmony => {
            let (channel, message) = (marks("<|channel|>"), marks("<|message|>"));
            let thought = format!(
                "\"analysis\" {message} TEXT? {} {} \"assistant\" {channel}",
                marks("<|end|>"),
                marks("<|start|>")
            );
            writer.lark.push_str("TEXT: /(?s:.+)/\n");
            format!("{channel} ({thought})? call")
        }
        Dialect::Gemma if many => "call+".to_owned(),
        Dialect::Mistral if many => "call+".to_owned(),
        _ if many => "call (\"\\n\" call)*".to_owned(),
        _ => "call".to_owned(),
    };
    let _ = writeln!(writer.lark, "start: {start}");
    writer.finish()
}

/// A text as Lark writes it.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

impl<'a> Writer<'a> {
    fn new(dialect: Dialect, fidelity: Fidelity, marks: Marks<'a>) -> Writer<'a> {
        Writer { dialect, marks, fidelity, lark: String::new(), grammars: Vec::new(), rules: 0 }
    }

    fn finish(mut self) -> TopLevelGrammar {
        self.grammars.insert(0, GrammarWithLexer::from_lark(self.lark));
        TopLevelGrammar { grammars: self.grammars, max_tokens: None }
    }

    /// A new rule; gives its name.
    fn rule(&mut self, body: &str) -> String {
        self.rules += 1;
        let name = format!("r{}", self.rules);
        let _ = writeln!(self.lark, "{name}: {body}");
        name
    }

    /// A grammar of JSON by a schema.
    fn json(&mut self, schema: &Value) -> String {
        self.rules += 1;
        let name = format!("j{}", self.rules);
        self.grammars.push(named(name.clone(), schema, self.fidelity));
        format!("@{name}")
    }

    fn arguments(&mut self, schema: &Value) -> String {
        match self.dialect {
            Dialect::Qwen => self.parameters(schema, ["<parameter=", ">\n", "\n</parameter>\n"]),
            Dialect::Glm => self.parameters(schema, ["<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"]),
            Dialect::Gemma => {
                let members = self.members(schema, schema, 0);
                format!("{members} \"}}\"")
            }
            Dialect::Hermes | Dialect::Harmony | Dialect::Mistral => self.json(schema),
        }
    }

    /// Arguments between tags, in the order of the schema.
    fn parameters(&mut self, schema: &Value, [open, close, end]: [&str; 3]) -> String {
        let text = |writer: &mut Self| {
            writer.rules += 1;
            let name = format!("t{}", writer.rules);
            let _ = writeln!(writer.lark, "{name}[suffix={}]: /(?s:.*)/", literal(end));
            name
        };
        let properties = schema["properties"].as_object().filter(|properties| !properties.is_empty());
        let Some(properties) = properties else {
            let value = text(self);
            let one = self.rule(&format!("{} /[^<>\\n]{{1,64}}/ {} {value}", literal(open), literal(close)));
            return format!("{one}*");
        };
        let mut sequence = Vec::new();
        for (key, property) in properties {
            let value = match Kind::of(property) {
                Kind::Texts(texts) => {
                    let texts: Vec<String> = texts.iter().map(|text| literal(&format!("{text}{end}"))).collect();
                    format!("({})", texts.join(" | "))
                }
                Kind::Text => text(self),
                Kind::Boolean => {
                    let words: Vec<String> = ["true", "false", "True", "False"]
                        .iter()
                        .map(|word| literal(&format!("{word}{end}")))
                        .collect();
                    format!("({})", words.join(" | "))
                }
                Kind::Other => {
                    let json = self.json(&with_definitions(property, schema));
                    format!("{json} {}", literal(end))
                }
            };
            let one = self.rule(&format!("{} {value}", literal(&format!("{open}{key}{close}"))));
            sequence.push(if is_required(schema, key) { one } else { format!("{one}?") });
        }
        sequence.join(" ")
    }

    /// `key:value` pairs by name, as Gemma's template sorts them.
    fn members(&mut self, schema: &Value, root: &Value, depth: usize) -> String {
        let properties = schema["properties"].as_object().filter(|properties| !properties.is_empty());
        let Some(properties) = properties else {
            let any = self.any();
            return format!("({KEY} \":\" {any} (\",\" {KEY} \":\" {any})*)?");
        };
        let mut keys: Vec<&String> = properties.keys().collect();
        keys.sort();
        let pairs: Vec<(String, bool)> = keys
            .into_iter()
            .map(|key| {
                let value = self.value(&properties[key], root, depth + 1);
                let pair = self.rule(&format!("{} {value}", literal(&format!("{key}:"))));
                (pair, is_required(schema, key))
            })
            .collect();
        // Behind a pair the others, each with its comma; before the first one none has been written.
        let (mut rest, mut first) = (String::new(), String::new());
        for (pair, required) in pairs.into_iter().rev() {
            let with = format!("{pair} {rest}");
            first = match (first.is_empty(), required) {
                (_, true) => self.rule(&with),
                (true, false) => {
                    let one = self.rule(&with);
                    format!("{one}?")
                }
                (false, false) => self.rule(&format!("{with} | {first}")),
            };
            let one = self.rule(&format!("\",\" {with}"));
            rest = match (rest.is_empty(), required) {
                (_, true) => one,
                (true, false) => format!("{one}?"),
                (false, false) => self.rule(&format!("{one} | {rest}")),
            };
        }
        first
    }

    fn value(&mut self, schema: &Value, root: &Value, depth: usize) -> String {
        let quote = (self.marks)("<|\"|>");
        match Kind::of(schema) {
            Kind::Texts(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| literal(text)).collect();
                format!("{quote} ({}) {quote}", texts.join(" | "))
            }
            Kind::Text => {
                self.any();
                format!("{quote} CHARS? {quote}")
            }
            Kind::Boolean => "(\"true\" | \"false\")".to_owned(),
            Kind::Other if depth > DEPTH_MAX => self.any(),
            Kind::Other => match schema["type"].as_str() {
                Some("integer") => "/-?(0|[1-9][0-9]{0,17})/".to_owned(),
                Some("number") => NUMBER.to_owned(),
                Some("null") => "\"null\"".to_owned(),
                Some("array") => {
                    let item = match schema.get("items") {
                        Some(items) => self.value(items, root, depth + 1),
                        None => self.any(),
                    };
                    let item = self.rule(&item);
                    format!("\"[\" ({item} (\",\" {item})*)? \"]\"")
                }
                Some("object") => {
                    let members = self.members(schema, root, depth + 1);
                    format!("\"{{\" {members} \"}}\"")
                }
                _ => self.any(),
            },
        }
    }

    /// The name of the rule for any value.
    fn any(&mut self) -> String {
        if !self.lark.contains("\nany: ") {
            let quote = (self.marks)("<|\"|>");
            let key = format!("({KEY} | {quote} CHARS {quote})");
            let _ = write!(
                self.lark,
                "\nany: {quote} CHARS? {quote} | {NUMBER} | \"true\" | \"false\" | \"null\" | \"[\" (any (\",\" any)*)? \
                 \"]\" | \"{{\" ({key} \":\" any (\",\" {key} \":\" any)*)? \"}}\"\nCHARS: /(?s:.+)/\n"
            );
        }
        "any".to_owned()
    }
}

const KEY: &str = "/[A-Za-z_][A-Za-z0-9_-]{0,63}/";
const NUMBER: &str = "/-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?/";

/// What a value is written as.
enum Kind {
    /// One of these texts.
    Texts(Vec<String>),
    Text,
    Boolean,
    Other,
}

impl Kind {
    fn of(schema: &Value) -> Kind {
        if let Some(Value::Array(values)) = schema.get("enum") {
            let texts: Option<Vec<String>> = values.iter().map(|value| value.as_str().map(str::to_owned)).collect();
            return texts.filter(|texts| !texts.is_empty()).map_or(Kind::Other, Kind::Texts);
        }
        match schema["type"].as_str() {
            Some("string") => Kind::Text,
            Some("boolean") => Kind::Boolean,
            _ => Kind::Other,
        }
    }
}

fn is_required(schema: &Value, key: &str) -> bool {
    schema["required"].as_array().is_some_and(|required| required.iter().any(|name| name == key))
}

/// A property with the definitions that it may refer to.
fn with_definitions(property: &Value, schema: &Value) -> Value {
    let mut property = match property {
        Value::Object(_) => property.clone(),
        _ => json!({}),
    };
    for key in ["$defs", "definitions"] {
        if let (Some(definitions), Some(members)) = (schema.get(key), property.as_object_mut()) {
            members.entry(key).or_insert_with(|| definitions.clone());
        }
    }
    property
}
