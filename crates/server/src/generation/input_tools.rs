//! Tools that travel as input items instead of in the request's `tools`.
//!
//! A client that does so sends them once: a request that continues the conversation has them through the turns before it.

use std::sync::Arc;

use api::responses::{InputItem, Tool};
use serde_json::Value;

use crate::error::ApiError;
use crate::sessions::turn::Turn;

/// The lists of `additional_tools` items: those of the turns up to `parent`, then those of `input`.
pub fn input_tool_lists(input: &[Value], parent: Option<&Arc<Turn>>) -> Vec<Value> {
    let of_turns = parent.into_iter().flat_map(Turn::back).flat_map(|turn| turn.input.iter().rev());
    let newest_first = input.iter().rev().chain(of_turns);
    let mut lists: Vec<Value> = newest_first.filter(|item| item["type"] == "additional_tools").cloned().collect();
    lists.reverse();
    lists
}

/// The tools of such lists. One that is declared again, later or in `own`, takes the place of what was called so before.
pub fn read_input_tools(lists: &[Value], own: &[Tool]) -> Result<Vec<Tool>, ApiError> {
    let mut tools: Vec<Tool> = Vec::new();
    for item in InputItem::read_list("input", lists)? {
        if let InputItem::Tools(more) = item {
            tools.retain(|tool| !declares(&more, tool));
            tools.extend(more);
        }
    }
    tools.retain(|tool| !declares(own, tool));
    Ok(tools)
}

/// Whether one of `tools` has the name of `tool`.
fn declares(tools: &[Tool], tool: &Tool) -> bool {
    name(tool).is_some() && tools.iter().any(|other| name(other) == name(tool))
}

fn name(tool: &Tool) -> Option<&str> {
    match tool {
        Tool::Function { name, .. } | Tool::Custom { name, .. } | Tool::Namespace { name, .. } => Some(name),
        Tool::Other { .. } => None,
    }
}
