//! Tools of requests, prepared once.
//!
//! An agent sends the same long list with every step of its work. Reading it, checking it and compiling what calls are
//! held to happens for the first one; the others find it here.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use api::RawJson;
use api::responses::{CreateResponse, Tool};
use serde_json::Value;
use text::grammar::Grammar;

use crate::error::ApiError;
use crate::generation;
use crate::lock::lock;
use crate::pool::Pool;
use crate::responses::read_carried;
use crate::tools::ToolSet;

/// Lists kept; the one unused longest is forgotten.
const KEPT_MAX: usize = 64;

/// Lists of tools that were sent lately.
#[derive(Default)]
pub struct Toolbox {
    kept: Mutex<VecDeque<(u64, Arc<Declared>)>>,
}

/// A list of tools and how it may be used.
pub struct Declared {
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

impl Toolbox {
    /// The tools of a request. `carried` are items of the input that hold more.
    pub fn get(&self, request: &CreateResponse, carried: &[Value]) -> Result<Arc<Declared>, ApiError> {
        let list = hash(&(&request.tools, carried));
        let key = hash(&(list, &request.tool_choice_raw, request.parallel_tool_calls));
        {
            let mut kept = lock(&self.kept);
            if let Some(index) = kept.iter().position(|(other, _)| *other == key)
                && let Some(found) = kept.remove(index)
            {
                let declared = Arc::clone(&found.1);
                kept.push_back(found);
                return Ok(declared);
            }
        }
        let declared = Arc::new(Declared::read(request, carried, list)?);
        let mut kept = lock(&self.kept);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((key, Arc::clone(&declared)));
        Ok(declared)
    }
}

impl Declared {
    fn read(request: &CreateResponse, carried: &[Value], list: u64) -> Result<Self, ApiError> {
        let mut tools = Tool::read_list("tools", &request.tools)?;
        let carried = read_carried(carried, &tools)?;
        tools.extend(carried);
        let mut warnings = Vec::new();
        let set = ToolSet::new(&tools, &request.tool_choice, request.parallel_tool_calls, &mut warnings)?;
        let whole: Vec<Value> = request.tools.iter().map(whole_tool).collect();
        Ok(Self { set, echo: RawJson::new(&whole), warnings, list, grammars: Mutex::default() })
    }

    /// What calls are held to by this model.
    pub fn grammar(&self, pool: &Pool) -> Result<Option<Grammar>, ApiError> {
        let model = pool.facts.fingerprint;
        if let Some((_, grammar)) = lock(&self.grammars).iter().find(|(other, _)| *other == model) {
            return Ok(grammar.clone());
        }
        let grammar = generation::grammar(pool, None, &self.set)?;
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
