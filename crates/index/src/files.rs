//! The files of a project that are read: text, not ignored, not huge; and what their names say about them.

use std::path::{Path, PathBuf};

use crate::walk;

/// Files of one walk; the rest is left out and the caller is told.
pub const FILES_MAX: usize = 20_000;

/// Bytes of one file that is read; larger ones are data.
pub const FILE_BYTES_MAX: u64 = 256 << 10;

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

/// Folders that hold what was installed or built, though they are not ignored everywhere.
const SKIPPED: &[&str] = &["node_modules", "target", "__pycache__", "venv", "dist", "build"];

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
    for entry in entries(root).build().flatten() {
        let Ok(path) = entry.path().strip_prefix(root) else { continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) || is_boring(path) {
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

/// The walk that finds them, folders and all.
pub(crate) fn entries(root: &Path) -> ignore::WalkBuilder {
    walk::of(root, move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        !(is_folder && entry.depth() > 0 && SKIPPED.iter().any(|name| entry.file_name() == *name))
    })
}

/// Whether a file holds nothing to read, by its name.
pub(crate) fn is_boring(path: &Path) -> bool {
    has_ending(path, BORING)
}

/// Whether a walk reads a file of this path, as far as its names say.
pub fn would_read(path: &Path) -> bool {
    let skipped = |part: &std::ffi::OsStr| SKIPPED.iter().any(|name| part == *name);
    let folders = path.parent().unwrap_or(Path::new("")).components();
    let hidden = path.components().any(|part| part.as_os_str().to_string_lossy().starts_with('.'));
    !hidden && !is_boring(path) && !folders.map(std::path::Component::as_os_str).any(skipped)
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

/// Whether the file shows how something is used, by the folder it lies in: documents and examples.
pub fn is_example(path: &Path) -> bool {
    let aside = ["doc", "docs", "example", "examples"];
    let mut folders = path.parent().unwrap_or(Path::new("")).components();
    folders.any(|part| aside.iter().any(|name| part.as_os_str() == *name))
}

fn has_ending(path: &Path, endings: &[&str]) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    endings.contains(&ending.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

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
