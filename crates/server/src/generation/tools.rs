//! Tools, from what a client declares to what the prompt, the grammar and the parser need.
//!
//! The model sees one flat list of functions. A tool in a namespace is shown as `namespace__tool` and comes back under
//! its two names. A custom tool takes free text, which is never asked for inside JSON: it is written between the tags of
//! a call, after a line that names the tool.

use api::responses::{CustomFormat, Tool, ToolChoice};
use serde_json::{Value, json};
use text::grammar::{self, ToolGrammar, ToolMode, ToolSpec, ToolSpecKind};
use text::{Dialect, ToolName};

use crate::error::ApiError;

/// The tools of one request.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    entries: Vec<Entry>,
    choice: Choice,
    parallel: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    flat: String,
    name: String,
    namespace: Option<String>,
    description: String,
    kind: EntryKind,
    callable: bool,
}

#[derive(Clone, Debug)]
enum EntryKind {
    Function { parameters: Value, strict: bool },
    Custom(CustomFormat),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Choice {
    #[default]
    Auto,
    None,
    Required,
    Named(usize),
}

/// How a call is named to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called<'a> {
    /// The tool.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: Option<&'a str>,
    /// Whether it takes free text.
    pub custom: bool,
}

impl ToolSet {
    /// Takes in the declared tools; kinds that cannot run here are named in `warnings`.
    pub fn new(
        tools: &[Tool],
        choice: &ToolChoice,
        parallel: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Self, ApiError> {
        let mut set = Self { entries: Vec::new(), choice: Choice::Auto, parallel };
        for tool in tools {
            set.add(tool, None, warnings);
        }
        let mut names: Vec<&str> = set.entries.iter().map(|entry| entry.flat.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ApiError::bad_field("tools", format!("two tools are called {:?}", pair[0])));
        }
        set.choose(choice)?;
        Ok(set)
    }

    /// Refuses more tools than `limit`, those inside namespaces counted.
    pub fn check(&self, limit: usize) -> Result<(), ApiError> {
        match self.entries.len() {
            count if count > limit => {
                Err(ApiError::bad_field("tools", format!("{count} tools, at most {limit} are taken")))
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, tool: &Tool, namespace: Option<&str>, warnings: &mut Vec<String>) {
        let (name, description, kind) = match tool {
            Tool::Function { name, description, parameters, strict } => {
                let none = || json!({"type": "object", "properties": {}});
                let parameters = parameters.clone().unwrap_or_else(none);
                (name, description, EntryKind::Function { parameters, strict: *strict })
            }
            Tool::Custom { name, description, format } => (name, description, EntryKind::Custom(format.clone())),
            Tool::Namespace { name, tools, .. } => {
                tools.iter().for_each(|tool| self.add(tool, Some(name), warnings));
                return;
            }
            Tool::Other { kind } => {
                warnings.push(format!("tools of type `{kind}` cannot run here; the model was not told of this one"));
                return;
            }
        };
        let flat = namespace.map_or_else(|| name.clone(), |space| format!("{space}__{name}"));
        let namespace = namespace.map(str::to_owned);
        let description = description.clone().unwrap_or_default();
        self.entries.push(Entry { flat, name: name.clone(), namespace, description, kind, callable: true });
    }

    fn choose(&mut self, choice: &ToolChoice) -> Result<(), ApiError> {
        let required = |set: &Self| match set.entries.is_empty() {
            true => Err(ApiError::bad_field("tool_choice", "a call is required but no tool can be called")),
            false => Ok(Choice::Required),
        };
        self.choice = match choice {
            ToolChoice::Auto => Choice::Auto,
            ToolChoice::None => Choice::None,
            ToolChoice::Required => required(self)?,
            ToolChoice::Named(tool) => Choice::Named(self.find(&tool.name, tool.namespace.as_deref())?),
            ToolChoice::Allowed { required: must, tools } => {
                let allowed: Result<Vec<usize>, ApiError> =
                    tools.iter().map(|tool| self.find(&tool.name, tool.namespace.as_deref())).collect();
                let allowed = allowed?;
                for (index, entry) in self.entries.iter_mut().enumerate() {
                    entry.callable = allowed.contains(&index);
                }
                if *must { required(self)? } else { Choice::Auto }
            }
        };
        Ok(())
    }

    fn find(&self, name: &str, namespace: Option<&str>) -> Result<usize, ApiError> {
        let found = self.entries.iter().position(|entry| {
            entry.flat == name || entry.name == name && (namespace.is_none() || entry.namespace.as_deref() == namespace)
        });
        found.ok_or_else(|| ApiError::bad_field("tool_choice", format!("there is no tool called {name:?}")))
    }

    /// Whether there is nothing to call.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether answers must be searched for calls.
    pub fn may_call(&self) -> bool {
        self.choice != Choice::None && self.entries.iter().any(|entry| entry.callable)
    }

    /// Whether the answer must be a call.
    pub fn must_call(&self) -> bool {
        matches!(self.choice, Choice::Required | Choice::Named(_))
    }

    /// Whether several calls may come in one answer.
    pub fn parallel(&self) -> bool {
        self.parallel
    }

    /// What the chat template is given. All tools are shown whatever the choice, so that the prompt stays the same.
    pub fn declared(&self, dialect: Dialect) -> Vec<Value> {
        let declare = |entry: &Entry| {
            let (description, parameters) = match &entry.kind {
                EntryKind::Function { parameters, .. } => (entry.description.clone(), parameters.clone()),
                EntryKind::Custom(_) if dialect.takes_raw_input() => {
                    (entry.custom_description(), json!({"type": "object", "properties": {}}))
                }
                EntryKind::Custom(_) => (entry.description.clone(), input_schema()),
            };
            let function = json!({"name": entry.flat, "description": description, "parameters": parameters});
            json!({"type": "function", "function": function})
        };
        self.entries.iter().map(declare).collect()
    }

    /// The names the parser looks for; indices are those of [`ToolSet::called`].
    pub fn names(&self) -> Vec<ToolName> {
        self.callable().map(Entry::tool_name).collect()
    }

    /// How the tool at an index of [`ToolSet::names`] is named to the client.
    pub fn called(&self, index: usize) -> Option<Called<'_>> {
        let entry = self.callable().nth(index)?;
        let custom = matches!(entry.kind, EntryKind::Custom(_));
        Some(Called { name: &entry.name, namespace: entry.namespace.as_deref(), custom })
    }

    /// What the model saw a called tool as.
    pub fn flat_name(&self, name: &str, namespace: Option<&str>) -> String {
        let entry = self.entries.iter().find(|entry| entry.name == name && entry.namespace.as_deref() == namespace);
        entry.map_or_else(|| name.to_owned(), |entry| entry.flat.clone())
    }

    /// What calls are held to; `None` when there is nothing to hold.
    pub fn grammar(&self, dialect: Dialect) -> Option<ToolGrammar> {
        if !self.may_call() {
            return None;
        }
        let mode = match self.choice {
            Choice::Auto | Choice::None => ToolMode::Lazy,
            Choice::Required => ToolMode::Required,
            Choice::Named(index) => ToolMode::Named(self.callable_index(index)),
        };
        let kind = |entry: &Entry| match &entry.kind {
            EntryKind::Custom(_) if !dialect.takes_raw_input() => {
                ToolSpecKind::Function { parameters: input_schema(), strict: false }
            }
            kind => kind.spec(),
        };
        let spec = |entry: &Entry| ToolSpec { name: entry.flat.clone(), kind: kind(entry) };
        Some(ToolGrammar { tools: self.callable().map(spec).collect(), mode, parallel: self.parallel, dialect })
    }

    fn callable(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.callable)
    }

    fn callable_index(&self, index: usize) -> usize {
        self.entries[..index].iter().filter(|entry| entry.callable).count()
    }
}

impl Entry {
    fn tool_name(&self) -> ToolName {
        match &self.kind {
            EntryKind::Custom(_) => ToolName::custom(self.flat.clone()),
            EntryKind::Function { parameters, .. } => ToolName::with_schema(self.flat.clone(), parameters),
        }
    }

    /// A custom tool is explained to the model by how a call of it looks.
    fn custom_description(&self) -> String {
        let example = format!("<tool_call>\n{{\"name\": \"{}\"}}\nthe input as plain text\n</tool_call>", self.flat);
        format!("{}\nThis tool takes plain text instead of arguments. Call it like this:\n{example}", self.description)
    }
}

impl EntryKind {
    fn spec(&self) -> ToolSpecKind {
        match self {
            Self::Function { parameters, strict } => {
                ToolSpecKind::Function { parameters: parameters.clone(), strict: *strict }
            }
            Self::Custom(CustomFormat::Text) => ToolSpecKind::Custom { format: grammar::CustomFormat::Text },
            Self::Custom(CustomFormat::Lark(text)) => {
                ToolSpecKind::Custom { format: grammar::CustomFormat::Lark(text.clone()) }
            }
            Self::Custom(CustomFormat::Regex(text)) => {
                ToolSpecKind::Custom { format: grammar::CustomFormat::Regex(text.clone()) }
            }
        }
    }
}

/// What a custom tool takes where a model knows only named arguments.
fn input_schema() -> Value {
    let input = json!({"type": "string", "description": "the input as plain text"});
    json!({"type": "object", "properties": {"input": input}, "required": ["input"], "additionalProperties": false})
}

/// The arguments of a call to such a tool.
pub fn input_arguments(input: &str) -> String {
    json!({"input": input}).to_string()
}

/// How tools are announced by a template that does not know them, in the words Qwen's own template uses.
pub fn announcement(declared: &[Value]) -> String {
    let list: String = declared.iter().map(|tool| format!("\n{tool}")).collect();
    format!(
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function \
         signatures within <tools></tools> XML tags:\n<tools>{list}\n</tools>\n\nFor each function call, return a json \
         object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{{\"name\": \
         <function-name>, \"arguments\": <args-json-object>}}\n</tool_call>"
    )
}
