//! Names that are obeyed by whoever merely enters or opens a folder: version control, agents, editors, shells. Who writes
//! there decides what later runs outside of the sandbox.

use std::ffi::OsStr;

/// Folders that are masked in a workspace also where they do not exist yet. The first two of them are masked beside every
/// nested project too.
pub(crate) const MASKED: [&str; 12] =
    [".git", ".flint", ".hg", ".jj", ".vscode", ".cursor", ".idea", ".zed", ".claude", ".codex", ".gemini", ".agents"];

/// How many of [`MASKED`] are masked beside nested projects.
pub(crate) const MASKED_NESTED: usize = 2;

/// More that is protected where it exists and taken away where a command made it. Files are not masked beforehand: an empty
/// one would confuse the very programs that look for it, and those ask before they obey a new one.
const OTHERS: [&str; 27] = [
    ".sl",
    ".windsurf",
    ".fleet",
    ".vs",
    ".devcontainer",
    ".opencode",
    ".continue",
    ".roo",
    ".kiro",
    ".qwen",
    ".crush",
    ".amazonq",
    ".aider.conf.yml",
    ".mcp.json",
    ".mise",
    ".mise.toml",
    ".mise.local.toml",
    "mise.toml",
    "mise.local.toml",
    ".envrc",
    ".direnv",
    ".autoenv.zsh",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".lvimrc",
    ".dir-locals.el",
];

/// Whether a name is protected. Some file systems take `.GIT` for `.git`, so the case does not matter.
pub(crate) fn is_protected(name: &OsStr) -> bool {
    MASKED.iter().chain(&OTHERS).any(|known| name.eq_ignore_ascii_case(known))
}

/// What stands in a folder of those things that make git take it for a repository without a `.git`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bare {
    head: bool,
    objects: bool,
    refs: bool,
    common: bool,
}

impl Bare {
    /// Takes note of an entry.
    pub(crate) fn note(&mut self, name: &OsStr) {
        match name.to_str() {
            Some("HEAD") => self.head = true,
            Some("objects") => self.objects = true,
            Some("refs") => self.refs = true,
            Some("commondir") => self.common = true,
            _ => {}
        }
    }

    /// Whether git would discover it.
    pub(crate) fn is_repository(self) -> bool {
        self.head && (self.common || self.objects && self.refs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_protected_whatever_their_case() {
        for name in [".git", ".GIT", ".Flint", ".vscode", ".envrc", "mise.toml"] {
            assert!(is_protected(name.as_ref()), "{name}");
        }
        for name in ["git", ".gitignore", ".github", ".env", "src", ".git2", ""] {
            assert!(!is_protected(name.as_ref()), "{name}");
        }
    }

    #[test]
    fn a_bare_repository_is_known_by_its_entries() {
        let bare = |names: &[&str]| {
            let mut bare = Bare::default();
            names.iter().for_each(|name| bare.note(name.as_ref()));
            bare.is_repository()
        };
        assert!(bare(&["HEAD", "objects", "refs"]) && bare(&["HEAD", "commondir"]));
        assert!(!bare(&["HEAD", "objects"]) && !bare(&["objects", "refs", "commondir"]));
    }
}
