//! A look through the writable folders: which protected names stand where, at any depth, and what git would obey besides.

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::names::{Bare, is_protected};

/// Folders that are looked into before a command. What is not reached is not writable for it.
pub(crate) const FOLDERS_MAX: usize = 100_000;
/// Bytes of a git index, and of git's small text files, that are read.
const INDEX_BYTES_MAX: u64 = 64 << 20;
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// What tells one thing from another that took its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    /// Of a symbolic link also when it was made: it cannot be masked, only compared.
    made_ns: i64,
}

/// Something protected.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The protected name itself, or the folder that is a repository without one.
    pub path: PathBuf,
    pub identity: Identity,
    pub is_link: bool,
    pub is_bare: bool,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub found: Vec<Found>,
    /// Folders right below a root that were not seen to their end.
    pub unseen: BTreeSet<PathBuf>,
}

impl Survey {
    /// Looks through `roots`, the shallow folders first, into at most `folders_max` folders. Links are not followed.
    pub(crate) fn of(roots: &[PathBuf], folders_max: usize) -> Self {
        let mut survey = Self::default();
        // With every folder the one right below the root that it belongs to.
        let mut waiting: VecDeque<(PathBuf, Option<PathBuf>)> = VecDeque::new();
        for root in roots.iter().filter(|root| !roots.iter().any(|outer| *root != outer && root.starts_with(outer))) {
            waiting.push_back((root.clone(), None));
        }
        let mut folders = 0;
        while let Some((folder, top)) = waiting.pop_front() {
            folders += 1;
            if folders > folders_max {
                survey.unseen.insert(top.unwrap_or(folder));
                continue;
            }
            survey.look_into(&folder, |inner| {
                let top = top.clone().unwrap_or_else(|| inner.clone());
                waiting.push_back((inner, Some(top)));
            });
        }
        survey
    }

    fn look_into(&mut self, folder: &Path, mut inner: impl FnMut(PathBuf)) {
        let (mut bare, mut folders) = (Bare::default(), Vec::new());
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if is_protected(&name) {
                self.found.extend(found(entry.path(), false));
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
            bare.note(&name);
        }
        if bare.is_repository() {
            self.found.extend(found(folder.to_owned(), true));
            return;
        }
        folders.into_iter().for_each(&mut inner);
    }
}

fn found(path: PathBuf, is_bare: bool) -> Option<Found> {
    let meta = std::fs::symlink_metadata(&path).ok()?;
    Some(Found { identity: identity(&meta), is_link: meta.is_symlink(), path, is_bare })
}

fn identity(meta: &std::fs::Metadata) -> Identity {
    let made_ns = if meta.is_symlink() { meta.ctime() * 1_000_000_000 + meta.ctime_nsec() } else { 0 };
    Identity { device: meta.dev(), inode: meta.ino(), made_ns }
}

/// What git obeys because of a `.git`: the folders a file of that name leads to, the hooks and included files that its
/// configuration names.
pub(crate) fn obeyed_by_git(git: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let Some(work) = git.parent() else { return all };
    if let Some(target) = read_text(git).as_deref().and_then(|text| text.trim().strip_prefix("gitdir:")) {
        let target = work.join(target.trim());
        if let Some(common) = read_text(&target.join("commondir")) {
            all.push(target.join(common.trim()));
        }
        all.push(target);
    }
    let folders: Vec<PathBuf> = all.iter().cloned().chain([git.to_owned()]).collect();
    for folder in folders {
        for line in read_text(&folder.join("config")).unwrap_or_default().lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            let value = value.trim().trim_matches('"');
            match key.trim().to_ascii_lowercase().as_str() {
                // Hooks are looked for from the work tree, included files from the file that names them.
                "hookspath" => all.push(work.join(value)),
                "path" => all.push(folder.join(value)),
                _ => {}
            }
        }
    }
    all
}

/// The folders of submodules, by the index of a repository. `git status` enters each that has a `.git`.
pub(crate) fn submodules(git: &Path) -> Vec<PathBuf> {
    let Some(work) = git.parent() else { return Vec::new() };
    let index = boundary::file::read(&git.join("index"), INDEX_BYTES_MAX).unwrap_or_default();
    links_of_index(&index).into_iter().map(|path| work.join(path)).collect()
}

/// The paths of entries of the kind `gitlink`. An index that is not understood ends the list.
fn links_of_index(index: &[u8]) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let number = |at: usize| Some(u32::from_be_bytes(index.get(at..at + 4)?.try_into().ok()?));
    let (Some(b"DIRC"), Some(version), Some(count)) = (index.get(..4), number(4), number(8)) else { return Vec::new() };
    let (mut links, mut at, mut name) = (Vec::new(), 12, Vec::new());
    for _ in 0..count {
        // Times, device, inode, mode, owner, size and hash take 60 bytes, then come two of flags and perhaps two more.
        let (Some(mode), Some(&[high, _])) = (number(at + 24), index.get(at + 60..at + 62)) else { break };
        let mut start = at + if version >= 3 && high & 0x40 != 0 { 64 } else { 62 };
        if version == 4 {
            let Some((strip, after)) = variable_number(index, start) else { break };
            name.truncate(name.len().saturating_sub(strip));
            start = after;
        } else {
            name.clear();
        }
        let Some(length) = index.get(start..).and_then(|rest| rest.iter().position(|byte| *byte == 0)) else { break };
        name.extend_from_slice(&index[start..start + length]);
        at = match version {
            4 => start + length + 1,
            // Entries are filled up with 1 to 8 zero bytes.
            _ => at + ((start + length - at) / 8 + 1) * 8,
        };
        if mode == 0o160_000 {
            links.push(PathBuf::from(std::ffi::OsStr::from_bytes(&name)));
        }
    }
    links
}

/// A number of git's offset encoding, and where it ends.
fn variable_number(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
    }
    Some((value, at + 1))
}

fn read_text(path: &Path) -> Option<String> {
    String::from_utf8(boundary::file::read(path, TEXT_BYTES_MAX).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_are_found_at_any_depth_and_what_was_not_reached_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for folder in ["a/b/.git/hooks", "c/.VSCODE", "bare/objects", "bare/refs", "d/e/f/g", "bare/deep/.git"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        std::fs::write(at("bare/HEAD"), "").unwrap();
        std::fs::write(at("d/.git"), "gitdir: ../a/b/.git\n").unwrap();
        let all = Survey::of(&[dir.path().to_owned(), at("d")], FOLDERS_MAX);
        let mut paths: Vec<PathBuf> = all.found.iter().map(|found| found.path.clone()).collect();
        paths.sort();
        assert_eq!(paths, [at("a/b/.git"), at("bare"), at("c/.VSCODE"), at("d/.git")]);
        assert!(all.unseen.is_empty());
        let some = Survey::of(&[dir.path().to_owned()], 7);
        assert_eq!(some.unseen.into_iter().collect::<Vec<_>>(), [at("d")]);
        assert_eq!(obeyed_by_git(&at("d/.git")), [at("d/../a/b/.git")]);
    }

    #[test]
    fn submodules_are_read_from_an_index_of_every_version() {
        let dir = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let mut command = std::process::Command::new("git");
            command.current_dir(dir.path()).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null");
            assert!(command.output().unwrap().status.success(), "{arguments:?}");
        };
        git(&["init", "-q"]);
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        std::fs::write(dir.path().join("dir/file"), "").unwrap();
        git(&["add", "."]);
        for path in ["dir/one", "dir/other-one", "z"] {
            let entry = format!("160000,{},{path}", "1".repeat(40));
            git(&["update-index", "--add", "--cacheinfo", &entry]);
        }
        for version in ["2", "3", "4"] {
            git(&["update-index", "--index-version", version]);
            let expected = ["dir/one", "dir/other-one", "z"].map(|path| dir.path().join(path));
            assert_eq!(submodules(&dir.path().join(".git")), expected, "version {version}");
        }
        assert!(links_of_index(b"DIRC\0\0\0\x02\0\0\0\x09").is_empty());
    }
}
