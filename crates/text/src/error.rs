//! What can go wrong between a model file and text.

use model::gguf::GgufError;

/// Why a vocabulary or a template could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The prompt has more tokens than anybody can use, so they were not counted to the end.
    #[error("it has more than {more_than} tokens; shorten it")]
    TooLong {
        /// It has more than this many.
        more_than: usize,
    },
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] GgufError),
    /// The file has another kind of tokeniser.
    #[error("tokeniser \"{found}\" is not supported; choose a model with \"gpt2\", \"llama\" or \"gemma4\"")]
    TokenizerModel {
        /// `tokenizer.ggml.model` of the file.
        found: String,
    },
    /// The file names a pre-tokeniser that is not known here. Guessing would give wrong ids without a sign of it.
    #[error("pre-tokeniser \"{found}\" is not known (known are {known}); choose another model")]
    PreTokenizer {
        /// `tokenizer.ggml.pre` of the file.
        found: String,
        /// The known names.
        known: String,
    },
    /// The vocabulary contradicts itself.
    #[error("the vocabulary is damaged: {0}; fetch the file again")]
    Vocabulary(String),
    /// The chat template does not parse.
    #[error("the model's chat template does not parse: {0}; use a file with a working template")]
    TemplateSyntax(String),
    /// The template refused these messages in its own words.
    #[error("the model's chat template refuses this conversation: {0}")]
    TemplateRefused(String),
    /// The chat template fails on these messages.
    #[error("the model's chat template fails on this conversation: {0}")]
    TemplateRender(String),
    /// The chat template asks for more than any template may, or the process that runs it could not.
    #[error("the model's chat template {0}; use a file with a working template")]
    TemplateLimits(crate::confined::ConfinedError),
    /// The chat template is larger than any template.
    #[error("the model's chat template has {found} bytes, more than {max}; use a file with a working template")]
    TemplateTooLong {
        /// Its size.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// There is no template and no way to make one up.
    #[error("the file has no chat template and no <|im_start|> token; use plain completion or an instruct model")]
    NoTemplate,
    /// All characters that could mark a place in a prompt are in use.
    #[error("the conversation contains every private-use character from U+10FFBE to U+10FFFD; leave some of them out")]
    NoMarker,
    /// The model was not trained to fill gaps.
    #[error(
        "the model has no {0} token, so it cannot fill in the middle; choose a code model that can, such as Qwen2.5-Coder"
    )]
    NoInfill(&'static str),
    /// Not even the text in front of the gap fits.
    #[error(
        "the text to complete needs at least {needed} tokens and {max} are allowed; allow more or send less of the current line"
    )]
    InfillTooLong {
        /// What the fixed parts need.
        needed: usize,
        /// The limit.
        max: usize,
    },
}
