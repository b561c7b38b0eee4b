//! The index of the workspace as turns share it: taken from disk when it is first asked for, and brought up to date each time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use index::Index;

/// The index of one workspace. Clones share it.
#[derive(Clone, Debug)]
pub struct SharedIndex {
    root: PathBuf,
    /// Where it is kept; none where nothing of this session is.
    state: Option<PathBuf>,
    held: Arc<Mutex<Option<Index>>>,
}

impl SharedIndex {
    /// The index of `root`, kept in `state`. It reads nothing yet.
    pub fn new(root: &Path, state: Option<&Path>) -> Self {
        Self { root: root.to_owned(), state: state.map(Path::to_owned), held: Arc::default() }
    }

    /// Does something with the index as the folder is now. This reads files: it is not for async code.
    pub fn with<T>(&self, work: impl FnOnce(&Index) -> T) -> T {
        self.refreshed(|_| {}, work)
    }

    /// The same with the last commits.
    pub fn with_history<T>(&self, work: impl FnOnce(&Index) -> T) -> T {
        self.refreshed(Index::refresh_history, work)
    }

    fn refreshed<T>(&self, more: impl FnOnce(&mut Index), work: impl FnOnce(&Index) -> T) -> T {
        // Whoever panicked in it has left an index that the next refresh puts right.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let index = held.get_or_insert_with(|| match &self.state {
            Some(state) => Index::load(state, &self.root),
            None => Index::new(&self.root),
        });
        index.refresh();
        more(index);
        let result = work(index);
        if let Some(state) = &self.state {
            // What cannot be kept is built anew the next time, which costs seconds and nothing else.
            let _ = index.save(state);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_that_of_the_folder_as_it_is() {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("a.py"), "def one():\n    pass\n").unwrap();
        let shared = SharedIndex::new(folder.path(), Some(state.path()));
        assert!(shared.with(|index| index.has_name("one")));
        std::fs::write(folder.path().join("a.py"), "def another():\n    pass\n").unwrap();
        assert!(shared.clone().with(|index| index.has_name("another") && !index.has_name("one")));
        assert!(Index::load(state.path(), folder.path()).has_name("another"));
        let unkept = SharedIndex::new(folder.path(), None);
        assert!(unkept.with(|index| index.has_name("another")));
    }
}
