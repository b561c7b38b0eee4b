//! Which file a path given by a model means. Everything a tool touches itself lies in the workspace: a `..` or a symbolic
//! link that leads out is refused here, because file tools run in this process and not in the sandbox.

use std::path::{Component, Path, PathBuf};

/// A path in the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspacePath {
    /// Relative to the workspace; empty for the workspace itself.
    pub relative: PathBuf,
    /// Where it is on disk.
    pub absolute: PathBuf,
}

impl WorkspacePath {
    /// Finds `given` in the workspace `root`. It need not exist.
    pub fn find(root: &Path, given: &str) -> Result<Self, String> {
        let given = given.trim().trim_matches(['`', '"', '\'']);
        let given = Path::new(given.strip_prefix('@').unwrap_or(given));
        let inside = match given.strip_prefix(root) {
            Ok(inside) => inside,
            Err(_) if given.is_absolute() => return Err(outside(given)),
            Err(_) => given,
        };
        let relative = normal(inside).ok_or_else(|| outside(given))?;
        if relative.components().next().is_some_and(|first| first.as_os_str() == ".git") {
            return Err(format!("{} belongs to git; use git commands instead", given.display()));
        }
        let target = Self { absolute: root.join(&relative), relative };
        if target.leads_out(root) {
            return Err(outside(given));
        }
        Ok(target)
    }

    /// Whether it, or the nearest folder above it that exists, is really somewhere else.
    fn leads_out(&self, root: &Path) -> bool {
        let Ok(root) = root.canonicalize() else { return true };
        let existing = self.absolute.ancestors().find(|path| path.symlink_metadata().is_ok());
        // A link that points nowhere could be made to point anywhere, so it is refused too.
        existing.is_none_or(|path| !path.canonicalize().is_ok_and(|real| real.starts_with(&root)))
    }

    /// For a person or a model to read.
    pub fn shown(&self) -> String {
        if self.relative.as_os_str().is_empty() { ".".to_owned() } else { self.relative.display().to_string() }
    }
}

fn outside(given: &Path) -> String {
    format!("{} is outside the workspace; give a path relative to the workspace", given.display())
}

/// Without `.` and `..`; none when it climbs above its beginning.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !normal.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_inside() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("src")).unwrap();
        let check = |given: &str, want: &str| {
            let target = WorkspacePath::find(root.path(), given).unwrap();
            assert_eq!(target.relative, Path::new(want), "{given}");
            assert_eq!(target.absolute, root.path().join(want));
        };
        check("src/lib.rs", "src/lib.rs");
        check("./src/../src/lib.rs", "src/lib.rs");
        check(&root.path().join("src").display().to_string(), "src");
        check("@src/lib.rs", "src/lib.rs");
        check("`new/file.py`", "new/file.py");
        check(".", "");
        check("", "");
    }

    #[test]
    fn paths_outside_are_refused() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(other.path(), root.path().join("link")).unwrap();
        std::os::unix::fs::symlink(other.path().join("nothing"), root.path().join("dangling")).unwrap();
        let inside_out = format!("{}/../x", root.path().display());
        for given in ["../x", "a/../../x", "/etc/passwd", "link", "link/file", "dangling", ".git/config", &inside_out] {
            assert!(WorkspacePath::find(root.path(), given).is_err(), "{given}");
        }
    }
}
