//! Tools of requests, prepared once.
//!
//! An agent sends the same long list with every step of its work. Reading it, checking it and compiling what calls are
//! held to happens for the first one; the others find it here.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use api::RawJson;
use api::responses::{CreateResponse, Tool, ToolChoice};
use serde_json::Value;
use text::grammar::Grammar;

use crate::error::ApiError;
use crate::generation;
use crate::generation::input_tools::read_input_tools;
use crate::generation::tools::ToolSet;
use crate::lock::lock;
use crate::models::LoadedModel;

/// Lists kept; the one unused longest is forgotten.
const KEPT_MAX: usize = 64;

/// Lists of tools that were sent lately.
#[derive(Default)]
pub struct ToolCache {
    kept: Mutex<VecDeque<Arc<Declared>>>,
}

/// What a request says of tools.
#[derive(PartialEq)]
struct Asked {
    /// The list as it came. Comparing kilobytes of text takes a microsecond, reading them a hundred.
    tools: RawJson,
    /// More of them, in items of the input.
    input_tools: Vec<Value>,
    choice: Option<Value>,
    parallel: bool,
}

/// A list of tools and how it may be used.
pub struct Declared {
    asked: Asked,
    /// The tools.
    pub set: ToolSet,
    /// The list as the response repeats it.
    pub echo: RawJson,
    /// What cannot be used.
    pub warnings: Vec<String>,
    /// Identity of the list, which stands at the head of the prompt.
    pub list: u64,
    /// What calls are held to, by model.
    grammars: Mutex<Vec<(u64, Option<Grammar>)>>,
}

impl ToolCache {
    /// The tools of a request. `carried` are items of the input that hold more.
    pub fn get(&self, request: &CreateResponse, input_tools: Vec<Value>) -> Result<Arc<Declared>, ApiError> {
        let (tools, choice) = (request.tools.clone(), request.tool_choice_raw.clone());
        let asked = Asked { tools, input_tools, choice, parallel: request.parallel_tool_calls };
        {
            let mut kept = lock(&self.kept);
            if let Some(index) = kept.iter().position(|declared| declared.asked == asked)
                && let Some(found) = kept.remove(index)
            {
                kept.push_back(Arc::clone(&found));
                return Ok(found);
            }
        }
        let declared = Arc::new(Declared::read(asked, &request.tool_choice)?);
        let mut kept = lock(&self.kept);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Arc::clone(&declared));
        Ok(declared)
    }
}

impl Declared {
    fn read(asked: Asked, choice: &ToolChoice) -> Result<Self, ApiError> {
        let own: Result<Vec<Value>, _> = serde_json::from_str(asked.tools.text());
        let own = own.map_err(|error| ApiError::bad_field("tools", error.to_string()))?;
        let mut tools = Tool::read_list("tools", &own)?;
        let input_tools = read_input_tools(&asked.input_tools, &tools)?;
        tools.extend(input_tools);
        let mut warnings = Vec::new();
        let set = ToolSet::new(&tools, choice, asked.parallel, &mut warnings)?;
        let list = hash(&(&own, &asked.input_tools));
        let whole: Vec<Value> = own.iter().map(whole_tool).collect();
        Ok(Self { asked, set, echo: RawJson::new(&whole), warnings, list, grammars: Mutex::default() })
    }

    /// What calls are held to by this model.
    pub fn grammar(&self, loaded: &LoadedModel) -> Result<Option<Grammar>, ApiError> {
        let model = loaded.facts.fingerprint;
        if let Some((_, grammar)) = lock(&self.grammars).iter().find(|(other, _)| *other == model) {
            return Ok(grammar.clone());
        }
        let grammar = generation::grammar(loaded, None, &self.set)?;
        lock(&self.grammars).push((model, grammar.clone()));
        Ok(grammar)
    }
}

/// A function as the specification returns it: no field missing.
fn whole_tool(tool: &Value) -> Value {
    let mut tool = tool.clone();
    if tool["type"] == "function"
        && let Some(fields) = tool.as_object_mut()
    {
        for name in ["description", "parameters"] {
            fields.entry(name).or_insert(Value::Null);
        }
        fields.entry("strict").or_insert(Value::Bool(false));
    }
    tool
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
