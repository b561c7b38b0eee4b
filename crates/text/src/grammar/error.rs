//! Why a grammar cannot be used, in words that a client can act on.

/// Why a grammar could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The model's vocabulary cannot be used with grammars.
    #[error("this model cannot follow grammars: {0}; choose another model or send no grammar")]
    Vocabulary(String),
    /// A schema or grammar has too many bytes.
    #[error("{what} has {found} bytes, more than {max}; make it smaller")]
    TooLarge {
        /// Which one.
        what: String,
        /// Its size.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A schema or grammar is nested too deeply.
    #[error("{what} is nested more than {max} deep; make it flatter")]
    TooDeep {
        /// Which one.
        what: String,
        /// The limit.
        max: usize,
    },
    /// There are too many tools.
    #[error("{found} tools are more than {max}; send fewer")]
    TooManyTools {
        /// How many.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// A call is required, but there is nothing to call.
    #[error("a tool call is required, but there is no such tool; send the tool or choose tool_choice \"auto\"")]
    NoTool,
    /// A schema or grammar is wrong, asks for what cannot be followed, or takes too much work.
    #[error("{what} cannot be followed: {reason}")]
    Invalid {
        /// Which one.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// All tools together take too long to compile.
    #[error("the tools take more than {seconds} s to compile; send fewer, or simpler schemas")]
    TooSlow {
        /// The limit.
        seconds: u64,
    },
}
