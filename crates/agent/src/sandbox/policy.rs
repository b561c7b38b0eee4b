//! What a command may touch, from the person's words to the list of paths that the kernel is told.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Enforcement;

/// What stands at the top of every writable root and is protected in it: who writes there decides what later runs outside.
const PROTECTED: [&str; 2] = [".git", ".flint"];

/// What commands may touch. The order is from strict to loose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Read everything, write nothing.
    ReadOnly,
    /// Read everything, write in the workspace.
    #[default]
    WorkspaceWrite,
    /// Whatever the user may.
    DangerFullAccess,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        })
    }
}

/// What `workspace-write` means in detail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceWrite {
    /// Folders that may be written as well.
    pub writable_roots: Vec<PathBuf>,
    /// Whether the network is reached.
    pub network_access: bool,
    /// /tmp may not be written.
    pub exclude_slash_tmp: bool,
    /// `$TMPDIR` may not be written.
    pub exclude_tmpdir_env_var: bool,
}

/// What one command may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The mode it came from.
    pub mode: Mode,
    /// Folders that may be written, with all below.
    pub writable: Vec<PathBuf>,
    /// Paths inside those that may not.
    pub protected: Vec<PathBuf>,
    /// Whether the network is reached. Unix sockets are not, either way: behind one may stand a service that does anything.
    pub network: bool,
}

impl Policy {
    /// The policy for work in `workspace`. `protect` names what else must not be written, such as configuration files and
    /// the folders of sessions and checkpoints.
    pub fn new(mode: Mode, detail: &WorkspaceWrite, workspace: &Path, protect: &[PathBuf]) -> Self {
        let (mut writable, mut guarded) = (Vec::new(), Vec::new());
        if mode == Mode::WorkspaceWrite {
            writable.push(workspace.to_owned());
            writable.extend(detail.writable_roots.iter().map(|root| workspace.join(expand(root))));
            guarded = writable.iter().flat_map(|root| PROTECTED.map(|name| root.join(name))).collect();
            if !detail.exclude_slash_tmp {
                writable.push(PathBuf::from("/tmp"));
            }
            if let Some(dir) =
                std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty() && !detail.exclude_tmpdir_env_var)
            {
                writable.push(PathBuf::from(dir));
            }
        }
        // What else is to be protected may be made by its owner while a command runs, so it counts only when it is there.
        guarded.extend(protect.iter().filter(|path| std::fs::symlink_metadata(path).is_ok()).cloned());
        Self { mode, writable, protected: guarded, network: mode == Mode::WorkspaceWrite && detail.network_access }
    }

    /// No limits. Only after a person said so.
    pub fn unconfined() -> Self {
        Self { mode: Mode::DangerFullAccess, writable: Vec::new(), protected: Vec::new(), network: true }
    }

    /// Whether the partner itself may write a file, which no sandbox holds. Says why not, for the model and the person.
    pub fn may_write(&self, path: &Path) -> Result<(), String> {
        if self.mode == Mode::DangerFullAccess {
            return Ok(());
        }
        let place = on_disk(path).ok_or_else(|| format!("{} leads nowhere", path.display()))?;
        let below = |list: &[PathBuf]| list.iter().filter_map(|root| on_disk(root)).any(|root| place.starts_with(root));
        if self.mode == Mode::ReadOnly {
            return Err("sandbox_mode is read-only, so no file may be written".to_owned());
        }
        if below(&self.protected) {
            return Err(format!("{} is protected and may not be written", path.display()));
        }
        if !below(&self.writable) {
            return Err(format!("{} is outside of the workspace and may not be written", path.display()));
        }
        Ok(())
    }

    /// What the helper is told: paths as they are on disk, so that a symbolic link is no way out.
    pub(crate) fn rules(&self, enforcement: &Enforcement) -> Rules {
        let enforcement = match self.mode {
            Mode::DangerFullAccess => Enforcement::None { why: String::new() },
            _ => enforcement.clone(),
        };
        let mut writable: Vec<PathBuf> = self.writable.iter().filter_map(|path| path.canonicalize().ok()).collect();
        writable.sort();
        writable.dedup();
        let (mut protected, mut watched) = (Vec::new(), Vec::new());
        for path in self.protected.iter().chain(&git_folders(&self.protected)) {
            match std::fs::symlink_metadata(path) {
                Ok(meta) if !meta.is_symlink() => protected.extend(path.canonicalize().ok()),
                // What is not there cannot be mounted over, and a link's own name cannot either.
                Ok(_) => {
                    watched.push(path.clone());
                    protected.extend(path.canonicalize().ok());
                }
                Err(_) => watched.push(path.clone()),
            }
        }
        protected.retain(|path| writable.iter().any(|root| path.starts_with(root)));
        protected.sort();
        protected.dedup();
        watched.retain(|path| {
            let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
            folder.is_some_and(|folder| writable.iter().any(|root| folder.starts_with(root)))
        });
        Rules { enforcement, writable, protected, watched, network: self.network }
    }
}

/// Where a path leads, links followed, when its end need not exist yet. None when it steps out of something missing.
fn on_disk(path: &Path) -> Option<PathBuf> {
    if let Ok(found) = path.canonicalize() {
        return Some(found);
    }
    // A link to nothing would be followed by whoever writes.
    if std::fs::symlink_metadata(path).is_ok() {
        return None;
    }
    Some(on_disk(path.parent()?)?.join(path.file_name()?))
}

/// `~/` at the beginning.
fn expand(path: &Path) -> PathBuf {
    match (path.strip_prefix("~"), std::env::var_os("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}

/// Where a `.git` that is a file points to: the folder of a linked work tree, and the repository it belongs to.
fn git_folders(protected: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for file in protected.iter().filter(|path| path.ends_with(".git") && path.is_file()) {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let (Some(target), Some(folder)) = (text.trim().strip_prefix("gitdir:"), file.parent()) else { continue };
        let target = folder.join(target.trim());
        if let Ok(common) = std::fs::read_to_string(target.join("commondir")) {
            found.push(target.join(common.trim()));
        }
        found.push(target);
    }
    found
}

/// What the helper is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    pub enforcement: Enforcement,
    pub writable: Vec<PathBuf>,
    pub protected: Vec<PathBuf>,
    /// Protected names that nothing can be mounted over. What a command makes there is moved out of the way afterwards.
    pub watched: Vec<PathBuf>,
    pub network: bool,
}

impl Rules {
    /// Whether something at this path may be written.
    pub fn allows_writing(&self, path: &Path) -> bool {
        let depth = |list: &[PathBuf]| {
            list.iter().filter(|root| path.starts_with(root)).map(|root| root.components().count()).max()
        };
        match (depth(&self.writable), depth(&self.protected)) {
            (None, _) => false,
            (Some(_), None) => true,
            // A writable root inside something protected is writable; the same path in both lists is not.
            (Some(writable), Some(protected)) => writable > protected,
        }
    }
}
