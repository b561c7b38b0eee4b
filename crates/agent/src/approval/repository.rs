//! Whether git can be run in a folder without running what a repository names. Its configuration can (file-system monitor,
//! filters, drivers of diffs, signatures, includes), a hook can, and so can those of a submodule that `git status` looks
//! into. Names in it are free, so they cannot all be switched off from outside; they are looked at instead.

use std::path::{Path, PathBuf};

/// Bytes of a configuration that are read.
const CONFIG_BYTES_MAX: u64 = 64 << 10;
/// Bytes of an index that are read.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the small files of a repository.
const SMALL_BYTES_MAX: u64 = 4 << 10;

/// Settings that say nothing about programs: `section.key`, or `section.*.key` where it has a name. Whatever is not here
/// is asked about.
const HARMLESS: &[&str] = &[
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.quotepath",
    "core.abbrev",
    "core.untrackedcache",
    "core.preloadindex",
    "core.commitgraph",
    "core.longpaths",
    "core.compression",
    "remote.*.url",
    "remote.*.pushurl",
    "remote.*.fetch",
    "remote.*.tagopt",
    "remote.*.prune",
    "remote.*.gh-resolved",
    "branch.*.remote",
    "branch.*.merge",
    "branch.*.rebase",
    "branch.*.pushremote",
    "branch.*.description",
    "branch.*.vscode-merge-base",
    "branch.*.github-pr-owner-number",
    "branch.*.gh-merge-base",
    "user.name",
    "user.email",
    "user.signingkey",
    "pull.rebase",
    "pull.ff",
    "push.default",
    "push.autosetupremote",
    "fetch.prune",
    "init.defaultbranch",
    "color.ui",
    "merge.conflictstyle",
    "merge.ff",
    "rebase.autostash",
    "rerere.enabled",
    "gc.auto",
    "maintenance.auto",
    "diff.algorithm",
    "diff.renames",
    "diff.colormoved",
    "diff.mnemonicprefix",
    "log.date",
    "status.showuntrackedfiles",
    "submodule.*.url",
    "submodule.*.active",
    "commit.gpgsign",
    "tag.gpgsign",
];

/// Variables that make git use another repository than the one of the folder.
const ELSEWHERE: &[&str] =
    &["GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"];

/// Why git in this folder might run a program that the repository names.
pub(super) fn runs_nothing(folder: &Path) -> Result<(), String> {
    if let Some(name) = ELSEWHERE.iter().find(|name| std::env::var_os(name).is_some()) {
        return Err(format!("{name} leads git to another repository"));
    }
    for level in folder.ancestors() {
        let dot = level.join(".git");
        if std::fs::symlink_metadata(&dot).is_ok() {
            let directory = directory_of(level, &dot).ok_or_else(|| format!("{} is unusual", dot.display()))?;
            inspect(&directory)?;
            if is_repository(&directory) {
                return Ok(());
            }
        }
        // Without `.git` a folder can be a repository itself.
        if std::fs::symlink_metadata(level.join("HEAD")).is_ok() {
            return Err(format!("{} looks like a repository without a folder of work", level.display()));
        }
    }
    Ok(())
}

/// The git directory that `.git` is or names.
fn directory_of(level: &Path, dot: &Path) -> Option<PathBuf> {
    if dot.is_dir() {
        return Some(dot.to_path_buf());
    }
    let text = small(dot)?;
    let named = text.strip_prefix("gitdir: ")?.trim_end_matches(['\n', '\r']);
    let directory = level.join(named);
    directory.is_dir().then_some(directory)
}

fn small(path: &Path) -> Option<String> {
    String::from_utf8(boundary::file::read(path, SMALL_BYTES_MAX).ok()?).ok()
}

/// Whether git takes this for a repository and looks no further up.
fn is_repository(directory: &Path) -> bool {
    let head = small(&directory.join("HEAD")).unwrap_or_default();
    let points =
        head.starts_with("ref: refs/") || (head.len() >= 40 && head.bytes().take(40).all(|b| b.is_ascii_hexdigit()));
    let common = common(directory);
    points && common.is_some_and(|common| common.join("objects").is_dir() && common.join("refs").is_dir())
}

/// Where a further folder of work has the configuration: with the first one's.
fn common(directory: &Path) -> Option<PathBuf> {
    let file = directory.join("commondir");
    if std::fs::symlink_metadata(&file).is_err() {
        return Some(directory.to_path_buf());
    }
    Some(directory.join(small(&file)?.trim_end_matches(['\n', '\r'])))
}

fn inspect(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    let common = common(directory).ok_or_else(|| format!("{shown} is unusual"))?;
    for file in [common.join("config"), directory.join("config.worktree"), common.join("config.worktree")] {
        match boundary::file::read(&file, CONFIG_BYTES_MAX) {
            Ok(bytes) => {
                harmless(&bytes).map_err(|what| format!("{} sets {what}, which may run a program", file.display()))?
            }
            Err(error) if error.is_missing() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    for hook in [directory, &common] {
        if std::fs::symlink_metadata(hook.join("hooks/post-index-change")).is_ok() {
            return Err(format!("{shown} has a hook that runs when files are looked at"));
        }
    }
    match boundary::file::read(&directory.join("index"), INDEX_BYTES_MAX) {
        // The mode of a submodule. Elsewhere these bytes are rare, and then a question too many is asked.
        Ok(index) if index.windows(4).any(|mode| mode == [0, 0, 0xe0, 0]) => {
            return Err(format!("{shown} has submodules, whose configuration may run a program"));
        }
        Err(error) if !error.is_missing() => return Err(error.to_string()),
        _ => {}
    }
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{shown}: {error}"))?;
    // A part of the index in another file could hide a submodule.
    let split = entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("sharedindex."));
    if split { Err(format!("{shown} has an index in parts")) } else { Ok(()) }
}

/// The first setting that is not known to be harmless, or the line that cannot be read.
fn harmless(config: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(config).map_err(|_| "something unreadable".to_owned())?;
    let mut section = String::new();
    for line in text.split('\n') {
        let line = line.trim_matches([' ', '\t', '\r']);
        let unclear = || boundary::terminal::clean_line(&line.chars().take(40).collect::<String>()).into_owned();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        // A line that goes on in the next, and one that has a setting behind its heading, are left to git.
        if line.ends_with('\\') {
            return Err(unclear());
        }
        if let Some(heading) = line.strip_prefix('[') {
            let heading = heading.strip_suffix(']').ok_or_else(unclear)?;
            section = match heading.split_once(" \"") {
                Some((name, title)) if title.ends_with('"') && title.matches(['"', '\\']).count() == 1 => {
                    format!("{name}.*")
                }
                None => heading.to_owned(),
                Some(_) => return Err(unclear()),
            };
            if !section.trim_end_matches(".*").bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
                return Err(unclear());
            }
            continue;
        }
        let key = line.split(['=', ' ', '\t']).next().unwrap_or_default();
        let setting = format!("{section}.{key}").to_ascii_lowercase();
        if !HARMLESS.contains(&setting.as_str()) {
            return Err(boundary::terminal::clean_line(&setting.chars().take(60).collect::<String>()).into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_settings_are_harmless() {
        let plain = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n; x\n[remote \"origin\"]\n\turl = /x\r\n\
                     [branch \"a b\"]\nmerge=refs/heads/a\n[user]\n\tname = \"a b\"\n\temail\n";
        assert_eq!(harmless(plain.as_bytes()), Ok(()));
        for hostile in [
            "[core]\n\tfsmonitor = x",
            "[core] fsmonitor = x",
            "[core]\n\tfilemode = true \\\n",
            "[CORE]\nFsMonitor=x",
            "[core]\rfsmonitor=x\n[core]",
            "[core.x]\nfilemode=1",
            "[include]\npath = /x",
            "[includeIf \"gitdir:/\"]\npath=x",
            "[filter \"x\"]\nclean = x",
            "[diff \"x\"]\ntextconv = x",
            "[diff \"x\"]\nalgorithm = x",
            "[diff]\nexternal=x",
            "[remote \"o\"]\nuploadpack=x",
            "[remote \"o\"]\npromisor=true",
            "[core \"a\\\"]\n[x\"]\nfilemode=1",
            "[core]\nhooksPath=x",
            "[gpg]\nprogram=x",
            "[core]\n\u{feff}fsmonitor=x",
            "fsmonitor",
            "[core",
        ] {
            assert!(harmless(hostile.as_bytes()).is_err(), "{hostile:?}");
        }
        assert!(harmless(b"[core]\n\xff").is_err());
    }
}
