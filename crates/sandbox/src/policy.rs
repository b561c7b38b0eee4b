//! What a command may touch, from the person's words to the list of paths that the kernel is told.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Enforcement;
use crate::names::is_protected;

/// Folders of the system, in which a command may write nothing of its own accord. So are `/`, the user's home and whatever
/// is around it.
const BROAD: [&str; 16] = [
    "/tmp", "/var/tmp", "/etc", "/usr", "/var", "/boot", "/bin", "/sbin", "/lib", "/lib64", "/dev", "/proc", "/sys",
    "/run", "/home", "/opt",
];

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
    /// Variables that commands get besides the usual ones.
    #[serde(default)]
    pub environment: Vec<String>,
}

/// What one command may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The mode it came from.
    pub mode: Mode,
    /// Folders that may be written, with all below.
    pub writable: Vec<PathBuf>,
    /// Paths inside those that may not, besides the protected names.
    pub protected: Vec<PathBuf>,
    /// Whether there is a folder for temporary files: the session's own, which a command sees at /tmp.
    pub temporary: bool,
    /// Variables that commands get besides the usual ones.
    pub environment: Vec<String>,
    /// Why the workspace itself is not among the folders that may be written, for people.
    pub narrowed: Option<String>,
    /// Whether the network is reached. Unix sockets are not, either way: behind one may stand a service that does anything.
    pub network: bool,
}

impl Policy {
    /// The policy for work in `workspace`. `protect` names what else must not be written, such as configuration files and
    /// the folders of sessions and checkpoints.
    pub fn new(mode: Mode, detail: &WorkspaceWrite, workspace: &Path, protect: &[PathBuf]) -> Self {
        let (mut writable, mut narrowed) = (Vec::new(), None);
        if mode == Mode::WorkspaceWrite {
            narrowed = too_broad(workspace);
            writable.extend(narrowed.is_none().then(|| workspace.to_owned()));
            writable.extend(detail.writable_roots.iter().map(|root| workspace.join(expand(root))));
        }
        // What is to be protected may be made by its owner while a command runs, so it counts only when it is there.
        let there = |path: &&PathBuf| std::fs::symlink_metadata(path).is_ok();
        Self {
            mode,
            writable,
            protected: protect.iter().filter(there).cloned().collect(),
            temporary: mode == Mode::WorkspaceWrite && !(detail.exclude_slash_tmp && detail.exclude_tmpdir_env_var),
            environment: detail.environment.clone(),
            narrowed,
            network: mode == Mode::WorkspaceWrite && detail.network_access,
        }
    }

    /// No limits. Only after a person said so.
    pub fn unconfined() -> Self {
        Self {
            mode: Mode::DangerFullAccess,
            writable: Vec::new(),
            protected: Vec::new(),
            temporary: false,
            environment: Vec::new(),
            narrowed: None,
            network: true,
        }
    }

    /// Whether the partner itself may write a file, which no sandbox holds. Says why not, for the model and the person.
    pub fn may_write(&self, path: &Path) -> Result<(), String> {
        if self.mode == Mode::DangerFullAccess {
            return Ok(());
        }
        let place = on_disk(path).ok_or_else(|| format!("{} leads nowhere", path.display()))?;
        let within = |list: &[PathBuf]| -> Vec<PathBuf> {
            list.iter().filter_map(|root| on_disk(root)).filter(|root| place.starts_with(root)).collect()
        };
        if self.mode == Mode::ReadOnly {
            return Err("sandbox_mode is read-only, so no file may be written".to_owned());
        }
        let roots = within(&self.writable);
        // A name is protected by where it stands below the folder that may be written.
        let named = |root: &PathBuf| place.strip_prefix(root).is_ok_and(|rest| rest.iter().any(is_protected));
        if roots.iter().any(named) || !within(&self.protected).is_empty() {
            return Err(format!("{} is protected and may not be written", path.display()));
        }
        match (&self.narrowed, roots.is_empty()) {
            (_, false) => Ok(()),
            (Some(why), true) => Err(format!("{} may not be written: {why}", path.display())),
            (None, true) => Err(format!("{} is outside of the workspace and may not be written", path.display())),
        }
    }

    /// What the helper is told: paths as they are on disk, so that a symbolic link is no way out.
    pub(crate) fn rules(&self, enforcement: &Enforcement, temporary: Option<&Path>) -> Rules {
        let enforcement = match self.mode {
            Mode::DangerFullAccess => Enforcement::None { why: String::new() },
            _ => enforcement.clone(),
        };
        let real = |list: &[PathBuf]| -> Vec<PathBuf> {
            let mut list: Vec<PathBuf> = list.iter().filter_map(|path| path.canonicalize().ok()).collect();
            list.sort();
            list.dedup();
            list
        };
        let writable = real(&self.writable);
        let mut protected = real(&self.protected);
        let temporary = temporary.map(|folder| Temporary {
            folder: folder.to_owned(),
            kept: kept(writable.iter().chain(&protected), &writable),
        });
        protected.retain(|path| writable.iter().any(|root| path.starts_with(root)));
        Rules { enforcement, writable, protected, masked: Vec::new(), temporary, network: self.network }
    }
}

/// Why a folder is too much to be a workspace that commands write in.
fn too_broad(workspace: &Path) -> Option<String> {
    let real = workspace.canonicalize().ok()?;
    let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let around_home = home.is_some_and(|home| home.starts_with(&real));
    let system = BROAD.iter().any(|folder| Path::new(folder).canonicalize().is_ok_and(|folder| folder == real));
    (around_home || system || real == Path::new("/")).then(|| {
        format!(
            "{} is not a project folder, so Flint may not write in it; start in a project folder, or name folders in \
             sandbox_workspace_write.writable_roots",
            workspace.display()
        )
    })
}

/// What must stay to be seen below /tmp when the session's own folder stands there: where work is done, our own files,
/// and the user's home and programs should they be there.
fn kept<'a>(ours: impl Iterator<Item = &'a PathBuf>, writable: &[PathBuf]) -> Option<Vec<PathBuf>> {
    let tmp = Path::new(TMP);
    // The folder of temporary files itself is worked on: then it stays as it is.
    if writable.iter().any(|root| tmp.starts_with(root)) {
        return None;
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut kept: Vec<PathBuf> =
        std::env::split_paths(&path).chain(home).filter_map(|path| path.canonicalize().ok()).collect();
    kept.extend(ours.cloned());
    kept.retain(|path| path.starts_with(tmp) && path != tmp);
    kept.sort();
    kept.dedup();
    let all = kept.clone();
    kept.retain(|path| !all.iter().any(|outer| path != outer && path.starts_with(outer)));
    Some(kept)
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

/// Where commands expect to put temporary files.
pub(crate) const TMP: &str = "/tmp";

/// The session's own folder for temporary files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Temporary {
    pub folder: PathBuf,
    /// What stays to be seen below /tmp when the folder stands there; none leaves /tmp as it is.
    pub kept: Option<Vec<PathBuf>>,
}

/// What the helper is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rules {
    pub enforcement: Enforcement,
    pub writable: Vec<PathBuf>,
    pub protected: Vec<PathBuf>,
    /// Protected names that do not exist; the guard has put an empty folder there to mount over.
    pub masked: Vec<PathBuf>,
    pub temporary: Option<Temporary>,
    pub network: bool,
}

impl Rules {
    /// The folder of temporary files as the cell sees it.
    pub(crate) fn temporary_seen(&self) -> Option<&Path> {
        let temporary = self.temporary.as_ref()?;
        let at_tmp = self.enforcement == Enforcement::Namespaces && temporary.kept.is_some();
        Some(if at_tmp { Path::new(TMP) } else { &temporary.folder })
    }

    /// Whether something at this path may be written.
    pub(crate) fn allows_writing(&self, path: &Path) -> bool {
        fn depth<'a>(path: &Path, list: impl Iterator<Item = &'a Path>) -> Option<usize> {
            list.filter(|root| path.starts_with(root)).map(|root| root.components().count()).max()
        }
        let writable = self.writable.iter().map(PathBuf::as_path).chain(self.temporary_seen());
        let kept = self.temporary.iter().flat_map(|temporary| temporary.kept.iter().flatten());
        let kept = kept.filter(|path| !self.writable.contains(path));
        let protected = self.protected.iter().chain(&self.masked).chain(kept).map(PathBuf::as_path);
        match (depth(path, writable), depth(path, protected)) {
            (None, _) => false,
            (Some(_), None) => true,
            // A writable root inside something protected is writable; the same path in both lists is not.
            (Some(writable), Some(protected)) => writable > protected,
        }
    }
}
