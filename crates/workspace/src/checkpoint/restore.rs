//! Bringing a snapshot back: only what differs is touched, and every file changes by one rename.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::cache::SYNCED_MAX;
use super::objects::Objects;
use super::tree::{Entry, Kind, Snapshot, differing};
use super::{CheckpointError, Result};
use crate::edit::Fresh;

/// Makes `now` into `then`; the paths that changed.
pub(super) fn run(objects: &Objects, root: &Path, now: &Snapshot, then: &Snapshot) -> Result<Vec<PathBuf>> {
    let mut paths = differing(&now.entries, &then.entries);
    // What either side does not know stays as it is, and so does a folder that holds such a thing.
    paths.retain(|path| !then.leaves_out(path) && !now.leaves_out(path));
    if then.is_cut() {
        paths.retain(|path| then.entries.contains_key(path));
    }
    let mut contents: BTreeMap<&Path, Vec<u8>> = BTreeMap::new();
    for path in &paths {
        if let Some(Entry { kind: Kind::File { hash, .. }, .. }) = then.entries.get(path)
            && !matches!(now.entries.get(path), Some(Entry { kind: Kind::File { hash: same, .. }, .. }) if same == hash)
        {
            contents.insert(path, objects.get(hash, path)?);
        }
    }
    // Children before parents: what must go goes from the inside out.
    for path in paths.iter().rev() {
        let gone = match (now.entries.get(path), then.entries.get(path)) {
            (Some(_), None) => true,
            (Some(old), Some(new)) => is_folder(old) != is_folder(new),
            (None, _) => false,
        };
        if gone {
            remove(&root.join(path), &now.entries[path])?;
        }
    }
    let sync = contents.len() <= SYNCED_MAX;
    for path in &paths {
        if let Some(entry) = then.entries.get(path) {
            place(&root.join(path), entry, contents.get(path.as_path()), sync)?;
        }
    }
    Ok(paths)
}

fn is_folder(entry: &Entry) -> bool {
    entry.kind == Kind::Folder
}

fn remove(path: &Path, entry: &Entry) -> Result<()> {
    let removed = match entry.kind {
        Kind::Folder => std::fs::remove_dir(path),
        _ => std::fs::remove_file(path),
    };
    match removed {
        // A folder that holds what no snapshot knows stays.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => Ok(()),
        removed => removed.map_err(CheckpointError::io(path)),
    }
}

fn place(path: &Path, entry: &Entry, content: Option<&Vec<u8>>, sync: bool) -> Result<()> {
    let io = || CheckpointError::io(path);
    let set_mode = || std::fs::set_permissions(path, Permissions::from_mode(entry.mode)).map_err(io());
    match &entry.kind {
        Kind::Folder => {
            match std::fs::create_dir(path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => made.map_err(io())?,
            }
            set_mode()
        }
        Kind::File { .. } => match content {
            Some(bytes) => {
                let write = |fresh: &Path| {
                    let mut file = File::create_new(fresh)?;
                    file.write_all(bytes)?;
                    file.set_permissions(Permissions::from_mode(entry.mode))?;
                    if sync { file.sync_data() } else { Ok(()) }
                };
                Fresh::at(path, write).and_then(|fresh| fresh.replace(path)).map_err(io())
            }
            // Only the mode differs.
            None => set_mode(),
        },
        Kind::Link { target } => {
            let fresh = Fresh::at(path, |fresh| symlink(target, fresh));
            fresh.and_then(|fresh| fresh.replace(path)).map_err(io())
        }
    }
}
