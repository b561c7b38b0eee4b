//! Fill in the middle: the tokens that ask a code model for the text in a gap.
//!
//! The order is the one llama.cpp documents for `/infill`, which is how Qwen2.5-Coder was trained: other files first,
//! where the model has tokens for them, then what stands before and after the gap, and last what was typed on the current
//! line. With the typed text at the end a key press leaves all tokens before it as they were, so they stay cached.

use crate::error::TextError;
use crate::tokenizer::{Special, Tokenizer};

/// The name of the current file, which editors do not send; llama.cpp writes the same.
const CURRENT_FILE: &str = "filename\n";

/// The name of a repository that nobody named; llama.cpp writes the same.
const UNNAMED_REPOSITORY: &str = "myproject";

/// Stands before another file where the model has no token for that.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";

/// A gap and what is known around it.
#[derive(Debug, Clone, Copy)]
pub struct Infill<'a> {
    /// The text before the gap.
    pub prefix: &'a str,
    /// The text after it.
    pub suffix: &'a str,
    /// What was typed on the current line, behind `prefix`; the answer continues it.
    pub prompt: &'a str,
    /// Other files or parts of them, the most useful last.
    pub extra: &'a [ExtraFile<'a>],
    /// The name of the repository.
    pub repo: Option<&'a str>,
    /// Most tokens to write.
    pub tokens_max: usize,
}

/// Another file of the same project, or a part of it.
#[derive(Debug, Clone, Copy)]
pub struct ExtraFile<'a> {
    /// Its path.
    pub filename: &'a str,
    /// What it says.
    pub text: &'a str,
}

/// The prompt for a gap, at most `tokens_max` tokens long. Where that is too short for everything, other files go first
/// (the first of them before the last), then the far ends of prefix and suffix, which share the room three to one.
pub fn write_infill(tokenizer: &Tokenizer, infill: &Infill<'_>) -> Result<Vec<u32>, TextError> {
    let special = tokenizer.vocabulary().special();
    let fim_prefix = special.fim_prefix.ok_or(TextError::NoInfill("prefix"))?;
    let fim_suffix = special.fim_suffix.ok_or(TextError::NoInfill("suffix"))?;
    let fim_middle = special.fim_middle.ok_or(TextError::NoInfill("middle"))?;
    let bos = special.bos.filter(|_| tokenizer.vocabulary().add_bos());

    let prompt = tokenizer.encode(infill.prompt, Special::Plain);
    let prefix = tokenizer.encode(infill.prefix, Special::Plain);
    let suffix = tokenizer.encode(infill.suffix, Special::Plain);
    let fixed = prompt.len() + 3 + bos.iter().len();
    let Some(room) = infill.tokens_max.checked_sub(fixed) else {
        return Err(TextError::InfillTooLong { needed: fixed, max: infill.tokens_max });
    };
    let (prefix_take, suffix_take) = share(room, prefix.len(), suffix.len());
    let context = context(tokenizer, infill, room - prefix_take - suffix_take);

    let mut tokens = Vec::with_capacity(fixed + context.len() + prefix_take + suffix_take);
    tokens.extend(bos);
    tokens.extend(context);
    tokens.push(fim_prefix);
    tokens.extend(&prefix[prefix.len() - prefix_take..]);
    tokens.push(fim_suffix);
    tokens.extend(&suffix[..suffix_take]);
    tokens.push(fim_middle);
    tokens.extend(prompt);
    Ok(tokens)
}

/// How much of prefix and suffix fits: three quarters and one, and what one side leaves goes to the other.
fn share(room: usize, prefix: usize, suffix: usize) -> (usize, usize) {
    let suffix_share = suffix.min(room / 4);
    let prefix_take = prefix.min(room - suffix_share);
    (prefix_take, suffix.min(room - prefix_take))
}

/// Repository and other files, as many of the last ones as fit into `room`. Nothing where there is nothing to say.
fn context(tokenizer: &Tokenizer, infill: &Infill<'_>, room: usize) -> Vec<u32> {
    if infill.extra.is_empty() && infill.repo.is_none() {
        return Vec::new();
    }
    let special = tokenizer.vocabulary().special();
    let section = |token: Option<u32>, text: &str| {
        let mut tokens: Vec<u32> = token.into_iter().collect();
        tokenizer.encode_into(text.as_bytes(), Special::Plain, &mut tokens);
        tokens
    };
    let repo = special.fim_repo.map(|token| {
        let name = infill.repo.unwrap_or(UNNAMED_REPOSITORY);
        section(Some(token), &format!("{name}\n"))
    });
    let current = special.fim_separator.map(|token| section(Some(token), CURRENT_FILE));
    let mut used = repo.as_ref().map_or(0, Vec::len) + current.as_ref().map_or(0, Vec::len);
    if used > room {
        return Vec::new();
    }
    let mut files = Vec::new();
    for ExtraFile { filename, text } in infill.extra.iter().rev() {
        let file = match special.fim_separator {
            Some(token) => section(Some(token), &format!("{filename}\n{text}")),
            None => section(None, &format!("{SNIPPET}{text}")),
        };
        if used + file.len() > room {
            break;
        }
        used += file.len();
        files.push(file);
    }
    repo.into_iter().chain(files.into_iter().rev()).chain(current).flatten().collect()
}
