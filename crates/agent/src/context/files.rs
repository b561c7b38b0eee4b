//! The files of a workspace that a model may be shown: text, not ignored, not huge.

use std::path::{Component, Path, PathBuf};

/// Files looked at in one walk; the rest is left out and the caller is told.
const FILES_MAX: usize = 20_000;

/// Bytes of one file that is read for search; larger ones are data.
pub const FILE_BYTES_MAX: u64 = 256 << 10;

/// Bytes of a file that is mentioned or edited; the person is told of larger ones.
pub const NAMED_BYTES_MAX: u64 = 4 << 20;

/// Names that hold no text a model could use, though they are not ignored everywhere.
const BORING: &[&str] = &[
    "lock", "svg", "png", "jpg", "jpeg", "gif", "ico", "pdf", "zip", "gz", "woff", "woff2", "ttf", "map", "bin",
    "gguf", "pyc", "so", "o", "a", "class", "jar", "wasm", "csv", "parquet", "sqlite", "db", "log", "pack",
];

/// Endings of source code, as opposed to settings and prose.
const SOURCE: &[&str] = &[
    "py", "rs", "js", "ts", "jsx", "tsx", "go", "java", "kt", "c", "h", "cc", "cpp", "hpp", "cs", "rb", "php", "swift",
    "scala", "sh", "lua", "zig", "hs", "ml", "ex", "exs", "dart", "sql", "vue", "svelte", "cu", "mjs", "cjs",
];

/// What a walk found.
#[derive(Debug, Default)]
pub struct Walk {
    /// Paths relative to the root, sorted, with their sizes.
    pub files: Vec<(PathBuf, u64)>,
    /// There were more.
    pub cut: bool,
}

/// Lists the text files below `root`, without what `.gitignore` names.
pub fn walk(root: &Path) -> Walk {
    let mut found = Walk::default();
    let skipped = ["node_modules", "target", "__pycache__", "venv", "dist", "build"];
    let entries = index::walk::of(root, move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        !(is_folder && entry.depth() > 0 && skipped.iter().any(|name| entry.file_name() == *name))
    })
    .build();
    for entry in entries.flatten() {
        let Ok(path) = entry.path().strip_prefix(root) else { continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) || has_ending(path, BORING) {
            continue;
        }
        if found.files.len() == FILES_MAX {
            found.cut = true;
            break;
        }
        found.files.push((path.to_owned(), entry.metadata().map_or(0, |facts| facts.len())));
    }
    found.files.sort();
    found
}

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

/// Whether the file holds source code.
pub fn is_source(path: &Path) -> bool {
    has_ending(path, SOURCE)
}

/// Whether the file holds tests, by its name.
pub fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()).unwrap_or_default();
    let parts = || path.components().map(|part| part.as_os_str().to_string_lossy().to_lowercase());
    stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with(".test")
        || stem.ends_with(".spec")
        || stem == "tests"
        || stem == "test"
        || parts().any(|part| part == "tests" || part == "test")
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

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    endings.contains(&ending.as_str())
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

    #[test]
    fn a_walk_leaves_out_what_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(".gitignore", "secret.py\n");
        write("secret.py", "x");
        write("src/a.py", "x");
        write("target/b.rs", "x");
        write("c.png", "x");
        let found: Vec<PathBuf> = walk(folder.path()).files.into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, [PathBuf::from("src/a.py")]);
    }

    #[test]
    fn tests_are_told_by_their_names() {
        for name in ["test_a.py", "a_test.go", "a.spec.ts", "tests/a.rs", "src/a/tests.rs"] {
            assert!(is_test(Path::new(name)), "{name}");
        }
        assert!(!is_test(Path::new("src/contest.py")));
    }
}
