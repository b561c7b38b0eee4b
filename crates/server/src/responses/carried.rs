//! Tools that travel as input items instead of in the request's `tools`.
//!
//! A client that does so sends them once: a request that continues the conversation has them through the turns before it.

use std::sync::Arc;

use api::responses::{InputItem, Tool};
use serde_json::Value;

use super::turn::Turn;
use crate::error::ApiError;

/// The tools of `additional_tools` items: those of the turns up to `parent`, then those of `input`. A tool that is
/// declared again, there or in `own`, takes the place of what an earlier turn called so.
pub fn carried_tools(input: &[Value], own: &[Tool], parent: Option<&Arc<Turn>>) -> Result<Vec<Tool>, ApiError> {
    let new = of_items(input)?;
    let mut tools: Vec<Tool> = Vec::new();
    for turn in parent.map(Turn::chain).unwrap_or_default() {
        let more = of_items(&turn.input)?;
        tools.retain(|tool| !declares(&more, tool));
        tools.extend(more);
    }
    tools.retain(|tool| !declares(&new, tool) && !declares(own, tool));
    tools.extend(new);
    Ok(tools)
}

/// Whether items bring tools, so that the head of the prompt is another than before.
pub fn brings_tools(items: &[Value]) -> bool {
    items.iter().any(|item| item["type"] == "additional_tools")
}

fn of_items(items: &[Value]) -> Result<Vec<Tool>, ApiError> {
    let mut tools = Vec::new();
    if brings_tools(items) {
        for item in InputItem::read_list("input", items)? {
            if let InputItem::Tools(more) = item {
                tools.extend(more);
            }
        }
    }
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
