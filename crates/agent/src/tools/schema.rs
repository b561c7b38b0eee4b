//! What the model is told about the tools, and how its arguments are read.
//!
//! The list is the same bytes in every request, because it stands before the conversation and a change would cost the
//! whole prefix. Descriptions are short for the same reason: the six tools take about 600 tokens.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::PlanStep;

/// Bytes of what a model passes to a tool. A file that is written whole has less; a provider may send anything.
pub const INPUT_BYTES_MAX: usize = 1 << 20;

/// What a model that passes more is told.
pub fn too_large(name: &str, bytes: usize) -> String {
    let name = super::bound::line(name);
    format!(
        "{name}: the arguments have {bytes} bytes, and {INPUT_BYTES_MAX} is the most; make smaller changes, one at a time"
    )
}

/// How changes in patch format are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatchTool {
    /// As free text: no quoting, so nothing is lost in it.
    #[default]
    FreeText,
    /// As a string in JSON, for providers that only have functions.
    Function,
}

/// The tools, in the form of a request's `tools`.
pub fn specs(patch: PatchTool) -> Vec<Value> {
    let text = |description: &str| json!({"type": "string", "description": description});
    let number = |description: &str| json!({"type": "integer", "description": description});
    let step = object(json!({"text": {"type": "string"}, "done": {"type": "boolean"}}), &["text", "done"]);
    vec![
        function(
            "read",
            "Read a file. Lines come with their numbers.",
            json!({"path": text("relative to the workspace"), "start": number("first line, from 1"), "lines": number("how many")}),
            &["path"],
        ),
        function(
            "search",
            "Find lines in files by a regular expression.",
            json!({"pattern": text("regular expression"), "path": text("file or folder; everywhere unless given")}),
            &["pattern"],
        ),
        function("list", "List a folder.", json!({"path": text("the workspace unless given")}), &[]),
        function(
            "edit",
            "Replace text in a file. `old` must stand exactly once in the file and be copied from it; with an empty \
             `old` a new file is made. Read a file before editing it.",
            json!({"path": text("relative to the workspace"), "old": text("text to replace"), "new": text("text to put there")}),
            &["path", "old", "new"],
        ),
        patch_spec(patch),
        function(
            "shell",
            "Run a command in the workspace, in a sandbox without network. Use read, search and edit for files.",
            json!({"command": text("for sh -c"), "timeout_s": number("120 unless given")}),
            &["command"],
        ),
        function(
            "plan",
            "Write down the steps of a longer task, and which are done. Not needed for short tasks.",
            json!({"steps": {"type": "array", "items": step}}),
            &["steps"],
        ),
    ]
}

fn patch_spec(patch: PatchTool) -> Value {
    const FORMAT: &str = "Change several files at once. Form: `*** Begin Patch`, then for each file `*** Update File: path` \
        with `@@` hunks of lines that begin with space, + or -, or `*** Add File: path` with + lines, or \
        `*** Delete File: path`; then `*** End Patch`.";
    match patch {
        PatchTool::FreeText => json!({"type": "custom", "name": "apply_patch", "description": FORMAT}),
        PatchTool::Function => function(
            "apply_patch",
            FORMAT,
            json!({"input": {"type": "string", "description": "the patch"}}),
            &["input"],
        ),
    }
}

fn function(name: &str, description: &str, properties: Value, required: &[&str]) -> Value {
    json!({"type": "function", "name": name, "description": description, "strict": false,
        "parameters": object(properties, required)})
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// What a call asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Lines of a file.
    Read { path: String, start: usize, lines: Option<usize> },
    /// Lines that match.
    Search { pattern: String, path: String },
    /// A folder.
    List { path: String },
    /// A replacement in one file.
    Edit { path: String, old: String, new: String },
    /// A patch.
    Patch { input: String },
    /// A command.
    Shell { command: String, timeout_s: Option<u64> },
    /// The steps.
    Plan { steps: Vec<PlanStep> },
}

#[derive(Deserialize)]
struct ReadArguments {
    #[serde(alias = "file", alias = "file_path", alias = "filename")]
    path: String,
    #[serde(default)]
    start: Option<usize>,
    #[serde(default)]
    lines: Option<usize>,
}

#[derive(Deserialize)]
struct SearchArguments {
    #[serde(alias = "query", alias = "regex")]
    pattern: String,
    #[serde(default)]
    path: Option<String>,
}

#[derive(Deserialize)]
struct ListArguments {
    #[serde(default)]
    path: Option<String>,
}

#[derive(Deserialize)]
struct EditArguments {
    #[serde(alias = "file", alias = "file_path", alias = "filename")]
    path: String,
    #[serde(default, alias = "old_string", alias = "old_text")]
    old: String,
    #[serde(alias = "new_string", alias = "new_text", alias = "content")]
    new: String,
}

#[derive(Deserialize)]
struct ShellArguments {
    #[serde(alias = "cmd")]
    command: CommandLine,
    #[serde(default, alias = "timeout")]
    timeout_s: Option<u64>,
}

/// Models that learned another tool give a list of words.
#[derive(Deserialize)]
#[serde(untagged)]
enum CommandLine {
    Line(String),
    Words(Vec<String>),
}

#[derive(Deserialize)]
struct PlanArguments {
    #[serde(alias = "plan")]
    steps: Vec<StepArguments>,
}

#[derive(Deserialize)]
struct StepArguments {
    #[serde(alias = "step")]
    text: String,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    status: String,
}

impl Request {
    /// Reads a call. The error tells the model what to write instead.
    pub fn read(name: &str, input: &str, custom: bool) -> Result<Self, String> {
        if input.len() > INPUT_BYTES_MAX {
            return Err(too_large(name, input.len()));
        }
        Ok(match name {
            "read" => {
                let ReadArguments { path, start, lines } = arguments(name, input)?;
                Self::Read { path, start: start.unwrap_or(1), lines }
            }
            "search" => {
                let SearchArguments { pattern, path } = arguments(name, input)?;
                Self::Search { pattern, path: path.unwrap_or_default() }
            }
            "list" => {
                let ListArguments { path } = arguments(name, input)?;
                Self::List { path: path.unwrap_or_default() }
            }
            "edit" => {
                let EditArguments { path, old, new } = arguments(name, input)?;
                Self::Edit { path, old, new }
            }
            "apply_patch" if custom => Self::Patch { input: input.to_owned() },
            "apply_patch" => {
                let fields: Value = arguments(name, input)?;
                let patch = fields["input"].as_str().or(fields["patch"].as_str());
                Self::Patch { input: patch.ok_or("apply_patch: `input` is missing; it holds the patch")?.to_owned() }
            }
            "shell" => {
                let ShellArguments { command, timeout_s } = arguments(name, input)?;
                Self::Shell { command: command.line(), timeout_s }
            }
            "plan" => Self::Plan { steps: arguments::<PlanArguments>(name, input)?.steps() },
            _ => return Err(format!("there is no tool {name:?}; there are {NAMES}")),
        })
    }

    /// Whether it changes nothing, so that several may run at once.
    pub fn only_looks(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Search { .. } | Self::List { .. } | Self::Plan { .. })
    }

    /// One line that says what it does.
    pub fn title(&self) -> String {
        let in_folder = |path: &str| if path.is_empty() { String::new() } else { format!(" in {path}") };
        match self {
            Self::Read { path, start: 1, lines: None } => path.clone(),
            Self::Read { path, start, lines: None } => format!("{path} from line {start}"),
            Self::Read { path, start, lines: Some(lines) } => {
                format!("{path} lines {start} to {}", (start + lines).saturating_sub(1))
            }
            Self::Search { pattern, path } => format!("{pattern}{}", in_folder(path)),
            Self::List { path } => if path.is_empty() { "." } else { path }.to_owned(),
            Self::Edit { path, .. } => path.clone(),
            Self::Patch { input } => {
                let path = |line: &str| Some(line.strip_prefix("*** ")?.split_once("File: ")?.1.to_owned());
                input.lines().filter_map(path).collect::<Vec<_>>().join(", ")
            }
            Self::Shell { command, .. } => command.clone(),
            Self::Plan { steps } => format!("{} steps", steps.len()),
        }
    }
}

const NAMES: &str = "read, search, list, edit, apply_patch, shell and plan";

fn arguments<T: serde::de::DeserializeOwned>(name: &str, input: &str) -> Result<T, String> {
    // A call without arguments comes as an empty text from some models.
    let input = if input.trim().is_empty() { "{}" } else { input };
    serde_json::from_str(input).map_err(|error| format!("{name}: the arguments cannot be read: {error}"))
}

impl CommandLine {
    fn line(self) -> String {
        match self {
            Self::Line(line) => line,
            // ["bash", "-lc", "..."]: only the last word is meant.
            Self::Words(words) if words.len() == 3 && words[1].starts_with('-') && words[1].ends_with('c') => {
                words.into_iter().next_back().unwrap_or_default()
            }
            Self::Words(words) => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        }
    }
}

/// A word as a shell reads it back unchanged.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

impl PlanArguments {
    fn steps(self) -> Vec<PlanStep> {
        let step = |step: StepArguments| PlanStep { text: step.text, done: step.done || step.status == "completed" };
        self.steps.into_iter().take(50).map(step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_offered_can_be_read() {
        for patch in [PatchTool::FreeText, PatchTool::Function] {
            for spec in specs(patch) {
                let name = spec["name"].as_str().unwrap();
                assert!(NAMES.contains(name), "{name}");
                let required = spec["parameters"]["required"].as_array().cloned().unwrap_or_default();
                let value = |name: &str| match name {
                    "steps" => json!([{"text": "a", "done": true}]),
                    _ => json!("x"),
                };
                let given: serde_json::Map<String, Value> =
                    required.iter().filter_map(Value::as_str).map(|name| (name.to_owned(), value(name))).collect();
                let custom = spec["type"] == "custom";
                let read = Request::read(name, &Value::from(given).to_string(), custom);
                assert!(read.is_ok(), "{name}: {read:?}");
            }
        }
    }

    #[test]
    fn arguments_in_the_ways_models_write_them() {
        let shell = |input: &str| match Request::read("shell", input, false) {
            Ok(Request::Shell { command, .. }) => command,
            other => panic!("{other:?}"),
        };
        assert_eq!(shell(r#"{"command": "ls -l"}"#), "ls -l");
        assert_eq!(shell(r#"{"cmd": ["bash", "-lc", "ls | wc"]}"#), "ls | wc");
        assert_eq!(shell(r#"{"command": ["grep", "it's", "a b"]}"#), r"grep 'it'\''s' 'a b'");
        let plan = Request::read("plan", r#"{"plan": [{"step": "a", "status": "completed"}]}"#, false);
        assert_eq!(plan, Ok(Request::Plan { steps: vec![PlanStep { text: "a".to_owned(), done: true }] }));
        assert_eq!(Request::read("list", "", false), Ok(Request::List { path: String::new() }));
    }

    #[test]
    fn a_wrong_call_is_told_what_to_do() {
        let error = |name: &str, input: &str| Request::read(name, input, false).unwrap_err();
        assert_eq!(error("reed", "{}"), format!("there is no tool \"reed\"; there are {NAMES}"));
        assert!(error("read", "{}").contains("missing field `path`"));
        assert!(error("read", "{").contains("cannot be read"));
        assert!(error("apply_patch", "{}").contains("`input` is missing"));
    }

    #[test]
    fn the_list_stays_small() {
        let bytes = serde_json::to_string(&specs(PatchTool::FreeText)).unwrap().len();
        assert!(bytes < 3200, "{bytes} bytes are read at the beginning of every session");
    }
}
