//! Going back, file by file: what Flint left is taken back; of a file that somebody else has touched since only what Flint
//! wrote, and where that cannot be told apart they are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::objects::Hash;
use super::step::{Done, MODE_UNKNOWN, Step, hash_of};
use super::tree::{Entry, Kind};
use super::{CheckpointError, Result, Store, TreeId, merge};
use crate::edit::Fresh;

/// Bytes of a file that are compared and shown as text; of larger ones only the name is shown.
const SHOWN_BYTES_MAX: usize = 256 << 10;

/// What going back did.
#[derive(Debug, Default)]
pub struct Gone {
    /// Files that went back.
    pub paths: Vec<PathBuf>,
    /// Files that did not, and why.
    pub failed: Vec<(PathBuf, String)>,
}

/// One path that is to go back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reversal {
    /// Relative to the workspace.
    pub path: PathBuf,
    present: Option<Entry>,
    target: Option<Entry>,
}

/// What going back would do.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Stands as Flint left it.
    pub ours: Vec<Reversal>,
    /// Was changed since by somebody else, elsewhere in the file: what Flint wrote goes, what they wrote stays.
    pub merged: Vec<Reversal>,
    /// Was changed since by somebody else, so somebody must be asked.
    pub theirs: Vec<Reversal>,
    /// Cannot go back, and why.
    pub refused: Vec<(PathBuf, String)>,
}

impl Plan {
    /// Whether there is nothing to go back from.
    pub fn is_empty(&self) -> bool {
        self.ours.is_empty() && self.merged.is_empty() && self.theirs.is_empty() && self.refused.is_empty()
    }
}

/// What is known of a path over several steps.
struct Chain {
    /// Before the first of them.
    first: Option<Entry>,
    /// What stood there before each, and what Flint left there.
    steps: Vec<(Option<Entry>, Option<Entry>)>,
    /// Somebody else changed it in between, or nobody knows who changed it.
    foreign: bool,
}

impl Chain {
    /// What Flint left there, after each step.
    fn left(&self) -> impl Iterator<Item = &Option<Entry>> {
        self.steps.iter().map(|(_, after)| after)
    }
}

impl Store {
    /// What it takes to go back to before all of these, oldest first, seen from the files as they are now.
    pub fn plan_back(&self, root: &Path, done: &[Done]) -> Result<Plan> {
        let mut steps = Vec::with_capacity(done.len());
        for done in done {
            steps.push(self.step_of(root, done)?);
        }
        self.plan(root, steps)
    }

    /// What it takes to take back a step that [`Store::go`] made.
    pub fn plan_forth(&self, root: &Path, step: &TreeId) -> Result<Plan> {
        self.plan(root, vec![(self.step(step)?, true)])
    }

    fn plan(&self, root: &Path, steps: Vec<(Step, bool)>) -> Result<Plan> {
        let mut chains: BTreeMap<PathBuf, Chain> = BTreeMap::new();
        for (step, known) in steps {
            for path in step.paths() {
                let (before, after) = (step.before.get(&path).cloned(), step.after.get(&path).cloned());
                let chain = chains.entry(path).or_insert_with(|| Chain {
                    first: before.clone(),
                    steps: Vec::new(),
                    foreign: false,
                });
                let seen = |entry: &Option<Entry>| same(entry.as_ref(), before.as_ref());
                chain.foreign |= !known || !(seen(&chain.first) || chain.left().any(seen));
                chain.steps.push((before, after));
            }
        }
        let root = std::fs::canonicalize(root).map_err(CheckpointError::io(root))?;
        let mut plan = Plan::default();
        let mut theirs = Vec::new();
        tidy(&root, chains.keys());
        for (path, chain) in chains {
            let found = match look(&root, &path, self.limits.file_bytes) {
                Ok(found) => found,
                Err(why) => {
                    plan.refused.push((path, why));
                    continue;
                }
            };
            let present = found.map(|(entry, _)| entry);
            if same(present.as_ref(), chain.first.as_ref()) {
                continue;
            }
            let steps = chain.steps.clone();
            decide(&mut plan, path, present, chain);
            if let Some(reversal) = plan.theirs.pop() {
                match self.merged(&root, &reversal, &steps) {
                    Some(target) if same(reversal.present.as_ref(), Some(&target)) => {}
                    Some(target) => plan.merged.push(Reversal { target: Some(target), ..reversal }),
                    None => theirs.push(reversal),
                }
            }
        }
        plan.theirs = theirs;
        Ok(plan)
    }

    /// A file without what the steps wrote and with what somebody wrote since, where that can be told apart. Its contents are
    /// kept.
    fn merged(&self, root: &Path, reversal: &Reversal, steps: &[(Option<Entry>, Option<Entry>)]) -> Option<Entry> {
        let Some(Entry { kind: Kind::File { .. }, mode }) = reversal.present else { return None };
        let short = |bytes: Vec<u8>| String::from_utf8(bytes).ok().filter(|text| text.len() <= SHOWN_BYTES_MAX);
        let kept = |entry: &Option<Entry>| short(self.objects.get(&hash_of(entry.as_ref())?, &reversal.path).ok()?);
        let mut text = short(boundary::file::read(&root.join(&reversal.path), self.limits.file_bytes).ok()?)?;
        for (before, after) in steps.iter().rev() {
            text = merge::three_way(&kept(after)?, &text, &kept(before)?)?;
        }
        let hash = self.objects.put(text.as_bytes(), true).ok()?;
        Some(Entry { kind: Kind::File { hash, size: text.len() as u64 }, mode })
    }

    /// What going back would do to one path, as a diff from what is there now.
    pub fn show(&self, root: &Path, reversal: &Reversal) -> (String, (usize, usize)) {
        let text = |bytes: Option<Vec<u8>>| match bytes {
            None => Some(String::new()),
            Some(bytes) if bytes.len() > SHOWN_BYTES_MAX => None,
            Some(bytes) => String::from_utf8(bytes).ok(),
        };
        let now = match &reversal.present {
            Some(Entry { kind: Kind::File { .. }, .. }) => {
                text(boundary::file::read(&root.join(&reversal.path), self.limits.file_bytes).ok())
            }
            Some(Entry { kind: Kind::Link { target }, .. }) => target.to_str().map(str::to_owned),
            _ => Some(String::new()),
        };
        let then = match &reversal.target {
            Some(Entry { kind: Kind::File { hash, .. }, .. }) => text(self.objects.get(hash, &reversal.path).ok()),
            Some(Entry { kind: Kind::Link { target }, .. }) => target.to_str().map(str::to_owned),
            _ => Some(String::new()),
        };
        match (now, then) {
            (Some(now), Some(then)) => (crate::diff::unified(&now, &then), crate::diff::lines(&now, &then)),
            _ => (String::new(), (0, 0)),
        }
    }

    /// Keeps what is there now, so that going back can be taken back. Nothing is changed yet.
    pub fn keep_present(&self, root: &Path, reversals: &[Reversal]) -> Result<TreeId> {
        let mut step = Step::default();
        for reversal in reversals {
            step.before.extend(reversal.present.clone().map(|entry| (reversal.path.clone(), entry)));
            step.after.extend(reversal.target.clone().map(|entry| (reversal.path.clone(), entry)));
        }
        self.keep(root, &step)
    }

    /// Goes back: the paths that changed, and those that could not with the reason. Every file changes by one rename, what
    /// was cut in the middle can be gone on with, and everything needed is read before the first file is changed.
    pub fn go(&self, root: &Path, reversals: &[Reversal]) -> Result<Gone> {
        let root = std::fs::canonicalize(root).map_err(CheckpointError::io(root))?;
        let mut contents: BTreeMap<&Path, Vec<u8>> = BTreeMap::new();
        for reversal in reversals {
            if let Some(hash) = hash_of(reversal.target.as_ref()) {
                contents.insert(&reversal.path, self.objects.get(&hash, &reversal.path)?);
            }
        }
        let mut failed: BTreeMap<PathBuf, String> = BTreeMap::new();
        let mut gone: Vec<PathBuf> = Vec::new();
        // Children before parents: what must go goes from the inside out.
        for reversal in reversals.iter().rev().filter(|reversal| reversal.target.is_none() || changes_kind(reversal)) {
            match remove(&root, reversal, self.limits.file_bytes) {
                Ok(true) if reversal.target.is_none() => gone.push(reversal.path.clone()),
                Ok(_) => {}
                Err(why) => {
                    failed.insert(reversal.path.clone(), why);
                }
            }
        }
        for reversal in reversals.iter().filter(|reversal| reversal.target.is_some()) {
            if failed.contains_key(&reversal.path) {
                continue;
            }
            match place(&root, reversal, contents.get(reversal.path.as_path()), self.limits.file_bytes) {
                Ok(()) => gone.push(reversal.path.clone()),
                Err(why) => {
                    failed.insert(reversal.path.clone(), why);
                }
            }
        }
        gone.sort_unstable();
        Ok(Gone { paths: gone, failed: failed.into_iter().collect() })
    }
}

/// Removes what a process that was killed has left beside the files it was about to write.
fn tidy<'a>(root: &Path, paths: impl Iterator<Item = &'a PathBuf>) {
    let folders: BTreeSet<PathBuf> = paths.filter_map(|path| Some(root.join(path).parent()?.to_owned())).collect();
    // A folder that is a link now is somebody else's.
    for folder in folders.iter().filter(|folder| std::fs::canonicalize(folder).is_ok_and(|real| real == **folder)) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if crate::edit::is_leftover(&entry.file_name()) {
                crate::edit::remove_leftover(&entry.path());
            }
        }
    }
}

/// Whether a path goes back by itself, after a question, or not at all.
fn decide(plan: &mut Plan, path: PathBuf, present: Option<Entry>, chain: Chain) {
    let is_folder = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.kind == Kind::Folder);
    let touches_folder = is_folder(&chain.first) || chain.left().any(is_folder);
    let mut target = chain.first.clone();
    if is_folder(&present) || touches_folder {
        let replaced = present.is_some() && !is_folder(&present) && is_folder(&target);
        match (is_folder(&present), &target) {
            // A folder goes when it is empty, which nobody needs to be asked about, and comes back the same way.
            (true, None) | (false, Some(_)) if !replaced && (touches_folder || present.is_none()) => {
                plan.ours.push(Reversal { path, present, target });
            }
            (true, Some(Entry { kind: Kind::Folder, .. })) => {}
            _ => plan.refused.push((path, "a folder stands here now, or stood here; move it away first".to_owned())),
        }
        return;
    }
    let stands = |left: &Option<Entry>| same(left.as_ref(), present.as_ref());
    let mut ours = chain.left().any(stands);
    if !ours && let (Some(now), Some(then)) = (&present, &mut target) {
        // The text is Flint's and somebody changed the mode: the text goes back and the mode stays.
        let only_mode = |left: &Entry| left.kind == now.kind && left.mode == then.mode;
        if now.kind != then.kind && chain.left().flatten().any(only_mode) {
            ours = true;
            then.mode = now.mode;
        }
    }
    let reversal = Reversal { path, present, target };
    if ours && !chain.foreign { plan.ours.push(reversal) } else { plan.theirs.push(reversal) }
}

fn changes_kind(reversal: &Reversal) -> bool {
    let folder = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.kind == Kind::Folder);
    folder(&reversal.present).is_some() && folder(&reversal.present) != folder(&reversal.target)
}

/// Whether two states are one and the same, as far as is known.
fn same(a: Option<&Entry>, b: Option<&Entry>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            a.kind == b.kind && (a.mode == b.mode || a.mode == MODE_UNKNOWN || b.mode == MODE_UNKNOWN)
        }
        _ => false,
    }
}

/// What stands at a path now. The error says why nobody may go there.
fn look(root: &Path, path: &Path, bytes_max: u64) -> std::result::Result<Option<(Entry, Metadata)>, String> {
    let full = root.join(path);
    let parent = full.parent().unwrap_or(root);
    match std::fs::canonicalize(parent) {
        Ok(real) if real == parent => {}
        Ok(_) => return Err("a folder on the way to it is a link now; it is left alone".to_owned()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            // A dangling link on the way is no missing folder.
            let link = parent.ancestors().take_while(|above| *above != root).any(Path::is_symlink);
            return if link {
                Err("a folder on the way to it is a link now; it is left alone".into())
            } else {
                Ok(None)
            };
        }
        Err(error) => return Err(error.to_string()),
    }
    let data = match std::fs::symlink_metadata(&full) {
        Ok(data) => data,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mode = if data.is_symlink() { 0 } else { data.mode() & 0o7777 };
    let kind = if data.is_dir() {
        Kind::Folder
    } else if data.is_symlink() {
        Kind::Link { target: std::fs::read_link(&full).map_err(|error| error.to_string())? }
    } else {
        let bytes = boundary::file::read(&full, bytes_max)
            .map_err(|error| format!("{error}; it is left alone, move it away first"))?;
        Kind::File { hash: Hash::of(&bytes), size: bytes.len() as u64 }
    };
    Ok(Some((Entry { kind, mode }, data)))
}

/// Looks once more right before something is replaced; between this and the rename are microseconds.
fn unchanged(root: &Path, reversal: &Reversal, bytes_max: u64) -> std::result::Result<Option<Metadata>, String> {
    let now = look(root, &reversal.path, bytes_max)?;
    if same(now.as_ref().map(|(entry, _)| entry), reversal.present.as_ref()) {
        Ok(now.map(|(_, data)| data))
    } else {
        Err("it changed while files went back; look at it and undo again".to_owned())
    }
}

fn remove(root: &Path, reversal: &Reversal, bytes_max: u64) -> std::result::Result<bool, String> {
    unchanged(root, reversal, bytes_max)?;
    let path = root.join(&reversal.path);
    let removed = match reversal.present.as_ref().map(|entry| &entry.kind) {
        None => return Ok(false),
        Some(Kind::Folder) => std::fs::remove_dir(&path),
        Some(_) => std::fs::remove_file(&path),
    };
    match removed {
        Ok(()) => Ok(true),
        // A folder that holds somebody's work stays.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

fn place(
    root: &Path,
    reversal: &Reversal,
    content: Option<&Vec<u8>>,
    bytes_max: u64,
) -> std::result::Result<(), String> {
    let Some(target) = &reversal.target else { return Ok(()) };
    let path = root.join(&reversal.path);
    let like = if changes_kind(reversal) { None } else { unchanged(root, reversal, bytes_max)? };
    let said = |error: std::io::Error| error.to_string();
    let mode = (target.mode != MODE_UNKNOWN).then(|| Permissions::from_mode(target.mode));
    if let (None, Some(parent)) = (&like, path.parent()) {
        std::fs::create_dir_all(parent).map_err(said)?;
    }
    match (&target.kind, content) {
        (Kind::Folder, _) => match std::fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(said(error)),
            _ => {
                if let Some(mode) = mode {
                    std::fs::set_permissions(&path, mode).map_err(said)?;
                }
            }
        },
        (Kind::File { .. }, Some(bytes)) => {
            let write = |fresh: &Path| {
                let mut file = File::create_new(fresh)?;
                file.write_all(bytes)?;
                if let Some(like) = like.as_ref().filter(|like| like.is_file()) {
                    // Only root may give files away; for others the owner is the same already.
                    let _ = std::os::unix::fs::fchown(&file, Some(like.uid()), Some(like.gid()));
                }
                if let Some(mode) = mode {
                    file.set_permissions(mode)?;
                }
                file.sync_data()
            };
            Fresh::at(&path, write).and_then(|fresh| fresh.replace(&path)).map_err(said)?;
        }
        (Kind::File { .. }, None) => return Err("its contents were not kept".to_owned()),
        (Kind::Link { target }, _) => {
            let fresh = Fresh::at(&path, |fresh| symlink(target, fresh));
            fresh.and_then(|fresh| fresh.replace(&path)).map_err(said)?;
        }
    }
    Ok(())
}
