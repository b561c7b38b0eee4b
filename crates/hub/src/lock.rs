//! One process at a time works on one model.
//!
//! The lock is the kernel's (flock), held through an open file: it vanishes with its process however that ends, so a
//! killed pull never leaves a model locked. The file handle is closed on exec, so a child process does not keep it; one that
//! another thread is just starting has it until then, so the lock is given back and not only closed.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Held while it lives.
pub(crate) struct Lock {
    path: PathBuf,
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing does the same where nobody else has the handle.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock if nobody has it.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Lock>, Error> {
        Self::take_with(path, |file| match file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        })
    }

    /// Takes the lock, waiting for whoever has it.
    pub(crate) fn wait(path: &Path) -> Result<Lock, Error> {
        let lock = Self::take_with(path, |file| file.lock().map(|()| true))?;
        Ok(lock.expect("a blocking lock is taken or an error"))
    }

    /// Deletes the lock file with the lock, so that a removed model leaves nothing behind.
    pub(crate) fn remove(self) -> Result<(), Error> {
        crate::disk::remove(&self.path)
    }

    fn take_with(path: &Path, take: impl Fn(&File) -> std::io::Result<bool>) -> Result<Option<Lock>, Error> {
        loop {
            let file = File::options().create(true).append(true).open(path).map_err(Error::io("open", path))?;
            if !take(&file).map_err(Error::io("lock", path))? {
                return Ok(None);
            }
            // The previous holder may have deleted the file while we waited: then our lock guards nothing, and a third
            // process may hold one on a new file of the same name.
            let ours = file.metadata().map_err(Error::io("read", path))?.ino();
            if std::fs::metadata(path).is_ok_and(|there| there.ino() == ours) {
                return Ok(Some(Lock { path: path.to_owned(), file }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_given_back_even_if_a_child_still_has_the_handle() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = Lock::try_take(&path).unwrap().unwrap();
        // What a process that is being started has until it runs.
        let _inherited = lock.file.try_clone().unwrap();
        assert!(Lock::try_take(&path).unwrap().is_none());
        drop(lock);
        assert!(Lock::try_take(&path).unwrap().is_some());
    }
}
