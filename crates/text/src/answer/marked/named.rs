//! Which tool a name means.

use super::ToolName;

/// The tool of this name.
pub fn find(name: &str, tools: &[ToolName]) -> Option<usize> {
    let name = name.trim();
    tools.iter().position(|tool| tool.name == name)
}

/// The tool that a message is for: `functions.NAME`, `NAME`, or any namespace in front of the name.
pub fn recipient(name: &str, tools: &[ToolName]) -> Option<usize> {
    let bare = name.strip_prefix("functions.").unwrap_or(name);
    find(bare, tools).or_else(|| find(bare.rsplit_once('.')?.1, tools))
}
