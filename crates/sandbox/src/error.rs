//! Why a command could not be run in the sandbox.

/// Why a command could not be run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel cannot hold the command to the policy.
    #[error(
        "this system cannot hold a command to the sandbox ({why}); allow it to run without, or set sandbox_mode = \"danger-full-access\""
    )]
    NotEnforced {
        /// Why.
        why: String,
    },
    /// The helper process could not be started.
    #[error("the sandbox's helper process cannot be started: {source}")]
    Helper {
        /// Why.
        source: std::io::Error,
    },
    /// The sandbox could not be set up, and the command was not run.
    #[error("the sandbox could not be set up, so the command was not run: {why}")]
    Setup {
        /// Why.
        why: String,
    },
}
