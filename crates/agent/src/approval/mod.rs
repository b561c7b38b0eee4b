//! Permission: whether a command may run, must be asked about, or may not.

use serde::{Deserialize, Serialize};

/// When a person is asked. The order is from strict to loose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Before every command that is not known to read only.
    Untrusted,
    /// When a command is to leave the sandbox or there is none.
    #[default]
    OnRequest,
    /// Only when a command failed in the sandbox and might succeed outside.
    OnFailure,
    /// Never: what the sandbox refuses stays refused.
    Never,
}
