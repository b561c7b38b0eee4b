//! The guard: finds what is protected before a command, holds the places of what does not exist yet, and takes away what
//! the command made at protected names where nothing could be held. Runs in the keeper, outside of the cell's mounts.
//!
//! A place is held by an empty folder of that name, over which the cell mounts something read-only: a name that does not
//! exist cannot be mounted over. The folder has the sticky bit as its mark, which nobody else gives to such a folder, so
//! one that a killed keeper left behind is removed by the next. To git and editors an empty folder is nothing.

use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, RenameFlags};

use crate::Enforcement;
use crate::keeper::{Control, Report, told};
use crate::names::{MASKED, MASKED_NESTED};
use crate::policy::Rules;
use crate::survey::{self, FOLDERS_MAX, Found, Identity, Survey};

/// Protected places of one command. Each is a mount or two.
const PLACES_MAX: usize = 2048;
/// Nested projects beside which places are held. Each keeps a descriptor open.
const PROJECTS_MAX: usize = 256;
/// The mode of a folder that holds a place.
const MARK: u32 = 0o1755;
/// How long another command's keeper may take to clear up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Stands from before a command until after it.
pub(crate) struct Guard {
    before: HashMap<PathBuf, Identity>,
    roots: Vec<PathBuf>,
    /// Folders in which places are held. Their locks say that somebody still needs these.
    locks: Vec<File>,
    /// What exists and may not be written.
    pub protected: Vec<PathBuf>,
    /// What does not exist; a folder holds its place.
    pub masked: Vec<PathBuf>,
}

impl Guard {
    /// Looks and holds. An error means that the command must not run.
    pub(crate) fn stand(rules: &Rules) -> Result<Self, String> {
        let survey = Survey::of(&rules.writable, FOLDERS_MAX);
        let before = survey.found.iter().map(|found| (found.path.clone(), found.identity)).collect();
        let mut guard = Self {
            before,
            roots: rules.writable.clone(),
            locks: Vec::new(),
            protected: rules.protected.clone(),
            masked: Vec::new(),
        };
        guard.protected.extend(survey.unseen);
        for found in &survey.found {
            guard.protect(found);
        }
        let inside = |path: &PathBuf| rules.writable.iter().any(|root| path.starts_with(root));
        guard.protected.retain(inside);
        if rules.enforcement == Enforcement::Namespaces {
            guard.hold_places(&survey.found)?;
        }
        guard.protected.sort();
        guard.protected.dedup();
        match guard.protected.len() + guard.masked.len() {
            0..=PLACES_MAX => Ok(guard),
            count => Err(format!(
                "the workspace has {count} protected places, more than {PLACES_MAX}; start in one of its repositories"
            )),
        }
    }

    fn protect(&mut self, found: &Found) {
        // A link's own name cannot be mounted over; where it leads can.
        let place = if found.is_link { found.path.canonicalize().ok() } else { Some(found.path.clone()) };
        self.protected.extend(place);
        if is_git(&found.path) {
            let obeyed = survey::obeyed_by_git(&found.path);
            self.protected.extend(obeyed.iter().filter_map(|path| path.canonicalize().ok()));
        }
    }

    fn hold_places(&mut self, found: &[Found]) -> Result<(), String> {
        let mut nested: Vec<PathBuf> = Vec::new();
        for found in found.iter().filter(|found| !found.is_bare) {
            nested.extend(found.path.parent().map(Path::to_owned));
            if is_git(&found.path) {
                nested.extend(survey::submodules(&found.path).into_iter().filter(|folder| is_folder(folder)));
            }
        }
        nested.sort();
        nested.dedup();
        nested.retain(|folder| !self.roots.contains(folder) && self.roots.iter().any(|root| folder.starts_with(root)));
        for root in self.roots.clone() {
            self.hold(&root, &MASKED)?;
        }
        for folder in nested.iter().take(PROJECTS_MAX) {
            self.hold(folder, &MASKED[..MASKED_NESTED])?;
        }
        Ok(())
    }

    /// Holds the places of names in a folder.
    fn hold(&mut self, folder: &Path, names: &[&str]) -> Result<(), String> {
        // Inside of something protected nothing can be made.
        if self.protected.iter().any(|path| folder.starts_with(path)) {
            return Ok(());
        }
        let Ok(lock) = File::open(folder) else { return Ok(()) };
        let begun = Instant::now();
        while let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            if error != rustix::io::Errno::WOULDBLOCK || begun.elapsed() > PATIENCE {
                return Err(told(&format!("{} is locked by another program", folder.display()), error));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for name in names {
            let path = folder.join(name);
            match std::fs::symlink_metadata(&path) {
                Ok(meta) if !is_mark(&meta) => continue,
                Ok(_) => {}
                Err(_) => match std::fs::create_dir(&path) {
                    Ok(()) => std::fs::set_permissions(&path, Permissions::from_mode(MARK))
                        .map_err(|error| told(&format!("holding {}", path.display()), error))?,
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    // Who may not make it here may not make it from inside either.
                    Err(error) if not_writable(&error) => continue,
                    Err(error) => return Err(told(&format!("holding {}", path.display()), error)),
                },
            }
            self.protected.retain(|known| *known != path);
            self.masked.push(path);
        }
        self.locks.push(lock);
        Ok(())
    }

    /// After the last process of the command ended: takes away what it made, and lets go of the places.
    pub(crate) fn leave(self, control: &mut Control) {
        let after = Survey::of(&self.roots, usize::MAX);
        for found in after.found {
            let known = self.before.get(&found.path) == Some(&found.identity) || self.masked.contains(&found.path);
            if !known && !holds_a_place(&found.path) {
                take_away(&found, control);
            }
        }
        // Whoever else works in a folder still needs its places and is the one to remove them.
        for lock in &self.locks {
            let _ = rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive);
        }
        for path in &self.masked {
            if std::fs::symlink_metadata(path).is_ok_and(|meta| is_mark(&meta)) && self.is_last_in(path.parent()) {
                // Not when somebody made it a real one meanwhile: then it is not empty.
                let _ = std::fs::remove_dir(path);
            }
        }
    }

    fn is_last_in(&self, folder: Option<&Path>) -> bool {
        let Some(wanted) = folder.and_then(|folder| std::fs::metadata(folder).ok()) else { return false };
        let lock = self
            .locks
            .iter()
            .find(|lock| lock.metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == (wanted.dev(), wanted.ino())));
        lock.is_some_and(|lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok())
    }
}

fn is_git(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.eq_ignore_ascii_case(".git"))
}

fn is_folder(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
}

fn is_mark(meta: &std::fs::Metadata) -> bool {
    meta.is_dir() && meta.mode() & 0o7777 == MARK
}

fn holds_a_place(path: &Path) -> bool {
    let empty = || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    std::fs::symlink_metadata(path).is_ok_and(|meta| is_mark(&meta)) && empty()
}

fn not_writable(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | NotFound)
        || error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error())
}

/// Gives what a command made at a protected name another one, under which nobody obeys it and which nobody could foresee.
/// Nothing is deleted.
fn take_away(found: &Found, control: &mut Control) {
    // A bare repository is none without its HEAD.
    let from = if found.is_bare { found.path.join("HEAD") } else { found.path.clone() };
    let name = from.file_name().unwrap_or_default().to_string_lossy().trim_start_matches('.').to_owned();
    let mut why = String::new();
    for attempt in 0..8 {
        let to = from.with_file_name(format!("{name}.sandboxed-{:016x}", RandomState::new().hash_one(attempt)));
        let renamed = rustix::fs::renameat_with(rustix::fs::CWD, &from, rustix::fs::CWD, &to, RenameFlags::NOREPLACE);
        match renamed.or_else(|error| plain_rename(error, &from, &to)) {
            Ok(()) => return control.say(&Report::Moved { from, to }),
            Err(error) => why = error.to_string(),
        }
        // A folder that the command closed against its own owner.
        if let Some(folder) = from.parent() {
            let _ = std::fs::set_permissions(folder, Permissions::from_mode(0o755));
        }
    }
    control.say(&Report::Stuck { path: from, why });
}

/// For file systems that cannot rename without replacing. Nobody is left who could make the new name in between.
fn plain_rename(error: rustix::io::Errno, from: &Path, to: &Path) -> Result<(), std::io::Error> {
    if error != rustix::io::Errno::INVAL || std::fs::symlink_metadata(to).is_ok() {
        return Err(error.into());
    }
    std::fs::rename(from, to)
}
