//! Names by which models call tokens with a meaning, for files that do not give the ids.
//!
//! The lists are llama.cpp's. Where a model has several of a list, the first one counts.

use std::collections::HashMap;

use model::gguf::StringArray;

/// End of a turn.
pub(crate) const END_OF_TURN: [&str; 9] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "[EOT]",
];
/// Start of the text before a gap.
pub(crate) const FIM_PREFIX: [&str; 7] =
    ["<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "<|code_prefix|>", "<|prefix|>"];
/// Start of the text after a gap.
pub(crate) const FIM_SUFFIX: [&str; 7] =
    ["<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "<|code_suffix|>", "<|suffix|>"];
/// Start of the answer that fills a gap.
pub(crate) const FIM_MIDDLE: [&str; 7] =
    ["<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "<|code_middle|>", "<|middle|>"];
/// Padding between gaps.
pub(crate) const FIM_PAD: [&str; 5] = ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
/// Before a repository's name.
pub(crate) const FIM_REPO: [&str; 5] = ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
/// Between files.
pub(crate) const FIM_SEPARATOR: [&str; 1] = ["<|file_sep|>"];
/// Tokens after which an answer is over.
pub(crate) const STOPS: [&str; 21] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    // The model asks for the result of the call it has just made.
    "<|tool_response>",
    // GLM ends its answers with the mark of whoever speaks next.
    "<|user|>",
    "<|observation|>",
];
/// A model that has both of these ends its answers with them, and only messages with [`MESSAGE_END`].
pub(crate) const ANSWER_ENDS: [&str; 2] = ["<|return|>", "<|call|>"];
/// Ends a message, after which the same answer may go on with another one.
pub(crate) const MESSAGE_END: &str = "<|end|>";

/// Ids of the tokens that have one of the names above.
pub(crate) struct Index(HashMap<&'static str, u32>);

impl Index {
    /// Looks through a vocabulary once. Of several tokens with one text the last counts.
    pub fn new(texts: &StringArray) -> Index {
        let lists: [&[&'static str]; 8] =
            [&END_OF_TURN, &FIM_PREFIX, &FIM_SUFFIX, &FIM_MIDDLE, &FIM_PAD, &FIM_REPO, &FIM_SEPARATOR, &STOPS];
        let names: HashMap<&[u8], &'static str> =
            lists.into_iter().flatten().map(|name| (name.as_bytes(), *name)).collect();
        let mut ids = HashMap::new();
        for (id, text) in texts.iter().enumerate() {
            // Nearly all tokens start otherwise; asking the map for each would cost more than reading them.
            if matches!(text.first(), Some(b'<' | b'['))
                && let Some(name) = names.get(text)
            {
                ids.insert(*name, id as u32);
            }
        }
        Index(ids)
    }

    /// The id of the token with this name.
    pub fn get(&self, name: &str) -> Option<u32> {
        self.0.get(name).copied()
    }
}
