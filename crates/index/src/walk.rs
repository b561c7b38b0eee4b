//! Walking a folder that others made, without what git ignores. The lists of what is ignored are files of that folder as
//! well: one that is a pipe would be waited for without end, one that leads to a device read without end. So they are
//! looked at before the walk reads them.

use std::path::Path;

use ignore::{DirEntry, WalkBuilder};

/// Bytes of one list of ignored names; a folder with a larger one is not entered.
const LIST_BYTES_MAX: u64 = 1 << 20;

/// The files that a walk reads in every folder.
const LISTS: [&str; 2] = [".gitignore", ".ignore"];

/// A walk below `root` of what `keep` lets through. Links are not followed.
///
/// A folder whose list of ignored names cannot be read safely is left out; where that is `root` or a folder above it, no
/// list is read. `.git/info/exclude` is not read: a `.git` file can make any path of it.
pub fn of(root: &Path, keep: impl Fn(&DirEntry) -> bool + Send + Sync + 'static) -> WalkBuilder {
    let mut builder = WalkBuilder::new(root);
    let readable = root.canonicalize().is_ok_and(|root| root.ancestors().all(lists_are_plain));
    builder.follow_links(false).git_exclude(false).require_git(false);
    builder.git_ignore(readable).ignore(readable).parents(readable);
    builder.filter_entry(move |entry| {
        let folder = entry.depth() > 0 && entry.file_type().is_some_and(|kind| kind.is_dir());
        keep(entry) && (!folder || !readable || lists_are_plain(entry.path()))
    });
    builder
}

fn lists_are_plain(folder: &Path) -> bool {
    LISTS.iter().all(|name| match std::fs::metadata(folder.join(name)) {
        Ok(facts) => facts.is_file() && facts.len() <= LIST_BYTES_MAX || facts.is_dir(),
        // It does not exist, or it cannot be read, which the walk finds out as fast.
        Err(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(root: &Path) -> Vec<String> {
        let mut names: Vec<String> = of(root, |_| true)
            .build()
            .flatten()
            .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn lists_that_never_end_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "inner/b", "good/c", "good/d"] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        std::fs::write(folder.path().join("good/.gitignore"), "d\n").unwrap();
        symlink("/dev/zero", folder.path().join("inner/.gitignore")).unwrap();
        assert_eq!(names(folder.path()), ["a", "c"]);
        symlink("/dev/zero", folder.path().join(".ignore")).unwrap();
        assert_eq!(names(folder.path()), ["a", "b", "c", "d"]);
    }
}
