//! Forgetting: by age and by size, never what a live session may need, and never the last turn of any session.
//!
//! Each session has a file beside the store that lists its checkpoints, a line `turn name` each, locked while the session
//! is open. So one process knows what another still needs without reading conversations.

use std::collections::{BTreeSet, HashSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::objects::{self, Hash};
use super::step::{STEP_HEAD, Step};
use super::{CheckpointError, Result, Store, TreeId};

/// When and how much is forgotten.
#[derive(Clone, Copy, Debug)]
pub struct PruneLimits {
    /// Checkpoints that nobody used for this long go.
    pub unused: Duration,
    /// Beyond so many bytes the oldest go, until the rest fits.
    pub bytes_max: u64,
    /// Not more often than this.
    pub every: Duration,
    /// Contents younger than this stay, because somebody may be about to name them.
    pub rest: Duration,
    /// It takes at most this long; what is left waits for the next time.
    pub time: Duration,
}

impl Default for PruneLimits {
    fn default() -> Self {
        Self {
            unused: Duration::from_secs(30 * 86_400),
            bytes_max: 4 << 30,
            every: Duration::from_secs(86_400),
            rest: Duration::from_secs(3600),
            time: Duration::from_secs(10),
        }
    }
}

/// The list of a session's checkpoints, while the session is open.
#[derive(Debug)]
pub struct Kept {
    file: File,
}

impl Kept {
    /// Notes that a turn needs a checkpoint.
    pub fn note(&mut self, turn: u32, id: &TreeId) -> std::io::Result<()> {
        self.file.write_all(format!("{turn} {id}\n").as_bytes())
    }
}

/// A checkpoint: its name, and when it was last used.
struct Aged {
    name: String,
    at: SystemTime,
}

impl Store {
    /// Opens the list of a session's checkpoints and holds it, so that nobody prunes them.
    pub fn hold(&self, session: &str) -> Result<Kept> {
        let path = self.folder.join("sessions").join(session);
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let file = opened.map_err(CheckpointError::io(&path))?;
        // File systems without locks: then age alone protects it.
        let _ = file.try_lock_shared();
        Ok(Kept { file })
    }

    /// Forgets what is too old or too much, and contents that nothing names any more; the bytes freed. `has_session` says
    /// whether a session still exists. Does nothing when it was done lately or another process is at it.
    pub fn prune(&self, limits: &PruneLimits, has_session: impl Fn(&str) -> bool) -> Result<u64> {
        let begun = Instant::now();
        let marker = self.folder.join("pruned");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&marker);
        let marked = opened.map_err(CheckpointError::io(&marker))?;
        let lately = |path: &Path| age(path).is_some_and(|age| age < limits.every);
        let is_new = marked.metadata().is_ok_and(|data| data.len() == 0);
        if marked.try_lock().is_err() || (!is_new && lately(&marker)) {
            return Ok(0);
        }
        let protected = self.protected(&has_session)?;
        let mut trees = self.aged()?;
        trees.sort_by_key(|tree| tree.at);
        let is_old = |tree: &Aged| tree.at.elapsed().is_ok_and(|age| age > limits.unused);
        let forget = |tree: &Aged| !protected.contains(&tree.name);
        let (old, mut rest): (Vec<Aged>, Vec<Aged>) = trees.into_iter().partition(|tree| is_old(tree) && forget(tree));
        for tree in &old {
            let _ = std::fs::remove_file(self.folder.join("trees").join(&tree.name));
        }
        let mut freed = 0;
        // Once for age; then, while it is too much, half of what may go each time: the sizes of what is shared are only
        // known when it is gone.
        loop {
            let Some(needed) = self.needed(&rest, begun, limits.time)? else { return Ok(freed) };
            freed += self.objects.remove_unless(&needed, |path| age(path).is_some_and(|age| age > limits.rest))?;
            let may_go: Vec<usize> = (0..rest.len()).filter(|at| forget(&rest[*at])).collect();
            if self.objects.bytes()? <= limits.bytes_max || may_go.is_empty() || begun.elapsed() > limits.time {
                break;
            }
            for at in may_go[..may_go.len().div_ceil(2)].iter().rev() {
                let tree = rest.remove(*at);
                let _ = std::fs::remove_file(self.folder.join("trees").join(&tree.name));
            }
        }
        let mut marked = marked;
        let _ = marked.set_len(0).and_then(|()| marked.write_all(b"done\n"));
        Ok(freed)
    }

    /// What live sessions need, and what the last turn of every other one needs.
    fn protected(&self, has_session: &impl Fn(&str) -> bool) -> Result<HashSet<String>> {
        let folder = self.folder.join("sessions");
        let mut protected = HashSet::new();
        for session in objects::names(&folder)? {
            let path = folder.join(&session);
            let Ok(file) = File::open(&path) else { continue };
            let live = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
            if !live && !has_session(&session) {
                let _ = std::fs::remove_file(&path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
            let number = |turn: &str| turn.parse::<u32>().unwrap_or(0);
            let last = lines.iter().map(|(turn, _)| number(turn)).max();
            let wanted = lines.iter().filter(|(turn, _)| live || Some(number(turn)) == last);
            protected.extend(wanted.map(|(_, name)| (*name).to_owned()));
        }
        Ok(protected)
    }

    fn aged(&self) -> Result<Vec<Aged>> {
        let folder = self.folder.join("trees");
        let found = objects::names(&folder)?.into_iter().filter_map(|name| {
            let at = std::fs::metadata(folder.join(&name)).and_then(|data| data.modified()).ok()?;
            Some(Aged { name, at })
        });
        Ok(found.collect())
    }

    /// The names of all contents that these checkpoints need; `None` when there was no time to find out. A folder that
    /// several of them share is looked at once.
    fn needed(&self, trees: &[Aged], begun: Instant, time: Duration) -> Result<Option<BTreeSet<String>>> {
        let mut needed = BTreeSet::new();
        for tree in trees {
            let Some(record) = TreeId::parse(&tree.name).and_then(|id| self.record(&id).ok()) else { continue };
            if record.starts_with(STEP_HEAD) {
                let step = Step::parse(&record).unwrap_or_default();
                needed.extend(step.all_contents().iter().map(Hash::to_string));
                continue;
            }
            let line = record.split(|byte| *byte == b'\n').nth(1).and_then(|line| std::str::from_utf8(line).ok());
            let mut open: Vec<Hash> = line.and_then(Hash::parse).into_iter().collect();
            while let Some(folder) = open.pop() {
                if begun.elapsed() > time {
                    return Ok(None);
                }
                if !needed.insert(folder.to_string()) {
                    continue;
                }
                // A damaged list names nothing that could be brought back.
                let Ok(list) = self.objects.get(&folder, Path::new("")) else { continue };
                let mut parts = list.split(|byte| *byte == 0);
                while let (Some(head), Some(rest)) = (parts.next().filter(|head| !head.is_empty()), parts.next()) {
                    let hash = rest.split(|byte| *byte == b' ').next().and_then(|hash| std::str::from_utf8(hash).ok());
                    match (head.first(), hash.and_then(Hash::parse)) {
                        (Some(b'd'), Some(hash)) => open.push(hash),
                        (Some(b'f'), Some(hash)) => drop(needed.insert(hash.to_string())),
                        _ => {}
                    }
                }
            }
        }
        Ok(Some(needed))
    }
}

fn age(path: &Path) -> Option<Duration> {
    std::fs::metadata(path).and_then(|data| data.modified()).ok()?.elapsed().ok()
}
