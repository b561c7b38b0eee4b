//! AGENTS.md: what a person and a project want every model to know. Read from the user's folder, then from the project's
//! root down to the folder worked in, so that what is nearer comes later and wins.

use std::path::{Path, PathBuf};

use boundary::file::{self, FileError};

use crate::config::{folders_from_root, project_root};

/// The file's name.
const FILE: &str = "AGENTS.md";
/// This one is read in its place where both exist, so that a person can keep words of their own out of the repository.
const OVERRIDE: &str = "AGENTS.override.md";

/// What the files say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// The text of all files, in order, empty when there are none.
    pub text: String,
    /// The files it came from.
    pub files: Vec<PathBuf>,
    /// What a person should know: a file that was cut or left out.
    pub warnings: Vec<String>,
}

/// Reads them, at most `bytes_max` in all. 0 reads none.
pub fn read(user_dir: Option<&Path>, cwd: &Path, bytes_max: usize) -> Instructions {
    let mut found = Instructions::default();
    let root = project_root(cwd);
    // The user's own file may be a link to anywhere; a project's may not lead out of the project.
    let own = user_dir.map(|folder| (folder.to_owned(), None));
    let folders =
        own.into_iter().chain(folders_from_root(cwd).into_iter().map(|folder| (folder, Some(root.as_path()))));
    let mut left = bytes_max;
    for (folder, root) in folders {
        let named = [OVERRIDE, FILE].map(|name| folder.join(name));
        let Some(path) = named.into_iter().find(|path| path.symlink_metadata().is_ok()) else { continue };
        if left == 0 {
            if bytes_max > 0 {
                found.warnings.push(format!("{} was not read: project_doc_max_bytes is used up", path.display()));
            }
            continue;
        }
        match read_at_most(root, &path, left) {
            Ok((text, cut)) => {
                left -= text.len();
                if cut {
                    left = 0;
                    found.warnings.push(format!(
                        "{} was cut: project_doc_max_bytes is {bytes_max}; raise it or shorten the file",
                        path.display()
                    ));
                }
                add(&mut found, path, &text);
            }
            Err(error) => found.warnings.push(error.to_string()),
        }
    }
    found
}

fn add(found: &mut Instructions, path: PathBuf, text: &str) {
    let text = text.trim();
    if !text.is_empty() {
        if !found.text.is_empty() {
            found.text.push_str("\n\n");
        }
        found.text.push_str(text);
        found.files.push(path);
    }
}

/// The beginning of a file, and whether there was more. Never cuts a character.
fn read_at_most(root: Option<&Path>, path: &Path, bytes_max: usize) -> Result<(String, bool), FileError> {
    let opened = match root {
        Some(root) => file::open_below(root, path)?,
        None => file::open(path)?,
    };
    let (mut bytes, cut) = file::read_start(opened, path, bytes_max as u64)?;
    if cut {
        let whole = std::str::from_utf8(&bytes).map_or_else(|error| error.valid_up_to(), str::len);
        bytes.truncate(whole);
    }
    Ok((String::from_utf8_lossy(&bytes).into_owned(), cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_from_the_root_to_the_folder_and_never_more_than_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let (home, root) = (dir.path().join("home"), dir.path().join("project"));
        let inner = root.join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::create_dir_all(root.join(".git")).unwrap();
        std::fs::create_dir_all(&home).unwrap();
        std::fs::write(dir.path().join("AGENTS.md"), "above the root").unwrap();
        std::fs::write(home.join("AGENTS.md"), "user\n").unwrap();
        std::fs::write(root.join("AGENTS.md"), "root").unwrap();
        std::fs::write(root.join("a/AGENTS.md"), "hidden").unwrap();
        std::fs::write(root.join("a/AGENTS.override.md"), "middle").unwrap();
        std::fs::write(inner.join("AGENTS.md"), "inn\u{e9}r").unwrap();
        let all = read(Some(&home), &inner, 32 << 10);
        assert_eq!(all.text, "user\n\nroot\n\nmiddle\n\ninn\u{e9}r");
        assert_eq!((all.files.len(), all.warnings.len()), (4, 0));
        // 5 + 4 + 6 bytes, then four of the last: its third letter would be cut in half.
        let cut = read(Some(&home), &inner, 19);
        assert_eq!(cut.text, "user\n\nroot\n\nmiddle\n\ninn");
        assert!(cut.warnings[0].contains("was cut"), "{:?}", cut.warnings);
        let few = read(Some(&home), &inner, 4);
        assert_eq!((few.text.as_str(), few.warnings.len()), ("user", 4));
        assert_eq!(read(None, &inner, 0), Instructions::default());
    }
}
