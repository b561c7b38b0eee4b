//! The files of a workspace that a model may be shown: text, not ignored, not huge.

use std::path::{Component, Path, PathBuf};

pub use index::files::{FILE_BYTES_MAX, Walk, is_source, is_test, walk};

/// Bytes of a file that is mentioned or edited; the person is told of larger ones.
pub const NAMED_BYTES_MAX: u64 = 4 << 20;

/// The text of a file of the workspace `root`, if it is text of a size that can be shown.
pub fn read_text(root: &Path, path: &Path, bytes_max: u64) -> Option<String> {
    text_or_why(root, path, bytes_max).ok()
}

/// The text of a file of the workspace `root`, or why it is not shown, for the person.
pub fn text_or_why(root: &Path, path: &Path, bytes_max: u64) -> Result<String, String> {
    let bytes = boundary::file::read_below(root, path, bytes_max).map_err(|error| error.to_string())?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| format!("{} is not a text file, so it was not read", path.display()))
}

/// A path as written by a person or a model, made relative to the root; none when it points outside of it.
pub fn inside(root: &Path, written: &str) -> Option<PathBuf> {
    let path = Path::new(written);
    let path = if path.is_absolute() { path.strip_prefix(root).ok()? } else { path };
    let mut parts: Vec<Component<'_>> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(_) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    (!parts.is_empty()).then(|| parts.iter().collect())
}

/// Whether a word is the name of a file: a stem and a short ending that begins with a letter.
pub fn is_name(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.is_empty()
            && (1..=8).contains(&ending.len())
            && ending.starts_with(|letter: char| letter.is_ascii_alphabetic())
    })
}

/// The name of a file's language, for the fence around it.
pub fn language(path: &Path) -> &str {
    match path.extension().and_then(|ending| ending.to_str()).unwrap_or_default() {
        "py" => "python",
        "rs" => "rust",
        "js" | "mjs" | "cjs" | "jsx" => "javascript",
        "ts" | "tsx" => "typescript",
        "md" => "markdown",
        "rb" => "ruby",
        "kt" => "kotlin",
        "yml" => "yaml",
        "cc" | "hpp" => "cpp",
        "cs" => "csharp",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        let root = Path::new("/work/project");
        let check = |written: &str, expected: Option<&str>| {
            assert_eq!(inside(root, written), expected.map(PathBuf::from), "{written}");
        };
        check("src/a.py", Some("src/a.py"));
        check("./src/../b.py", Some("b.py"));
        check("/work/project/c.py", Some("c.py"));
        check("../x", None);
        check("/etc/passwd", None);
        check("src/../../x", None);
        check("", None);
    }
}
