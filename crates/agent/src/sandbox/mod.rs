//! The sandbox: what a command may touch, enforced by the kernel.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What commands may touch. The order is from strict to loose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Read everything, write nothing.
    ReadOnly,
    /// Read everything, write in the workspace.
    #[default]
    WorkspaceWrite,
    /// Whatever the user may.
    DangerFullAccess,
}

/// What `workspace-write` means in detail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceWrite {
    /// Folders that may be written as well.
    pub writable_roots: Vec<PathBuf>,
    /// Whether the network is reached.
    pub network_access: bool,
    /// /tmp may not be written.
    pub exclude_slash_tmp: bool,
    /// `$TMPDIR` may not be written.
    pub exclude_tmpdir_env_var: bool,
}
