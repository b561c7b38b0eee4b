//! Why a grammar cannot be used, in words that a client can act on.

/// Why a grammar could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
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
    /// It takes too much time or memory to compile, or the process that tries it could not.
    #[error("{what} {reason}; make it simpler")]
    TooMuch {
        /// Which one.
        what: String,
        /// Of what.
        reason: String,
    },
    /// Others are being compiled.
    #[error("too many grammars are being compiled; try again in a moment")]
    Busy,
    /// Nobody waits for it any more.
    #[error("the client left before its grammar was compiled")]
    Left,
    /// All tools together take too long to compile.
    #[error("the tools take more than {seconds} s to compile; send fewer, or simpler schemas")]
    TooSlow {
        /// The limit.
        seconds: u64,
    },
}

/// Lines of llguidance's words that are passed on, and characters of each: it may quote the whole grammar.
const SAID_LINES: usize = 16;
const SAID_CHARS: usize = 160;

/// What llguidance says about an error, in a form that is fit for clients.
pub(super) fn said(error: &impl ToString) -> String {
    let text = error.to_string();
    // It turns its own panics into errors, with a backtrace. The one that clients can cause is to name special tokens.
    if text.contains("<backtrace>") {
        return "it asks for something that is not supported (special tokens such as <|name|> are not)".to_string();
    }
    // This marks errors that it would have said more about, with more logging.
    let text = text.replace("<non-verbose/>", "");
    let lines = text.trim().lines().take(SAID_LINES);
    let short = lines.map(|line| match line.char_indices().nth(SAID_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_string(),
    });
    short.collect::<Vec<_>>().join("\n")
}
