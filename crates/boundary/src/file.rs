//! Reading files that somebody else may have made: regular files only, never more than a limit, never waiting, and where
//! asked never outside of a folder.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("{} does not exist", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A folder, a pipe, a device or a socket.
    #[error("{} is not a regular file, so it was not read", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
    },
    /// A symbolic link, or a `..`, that leads out of the folder it must be in.
    #[error("{} leads outside of {}, so it was not read", path.display(), root.display())]
    Outside {
        /// The file.
        path: PathBuf,
        /// The folder it must be in.
        root: PathBuf,
    },
    /// More bytes than allowed.
    #[error("{} is larger than {bytes_max} bytes, the most that is read of such a file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most that is read.
        bytes_max: u64,
    },
    /// What the system said.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl FileError {
    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing { .. })
    }

    fn io(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Self::Missing { path },
            // Opening a socket.
            _ if source.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => Self::NotRegular { path },
            _ => Self::Io { path, source },
        }
    }
}

/// Opens a regular file for reading. Links are followed, so this is for paths the user named; see [`open_below`].
pub fn open(path: &Path) -> Result<File, FileError> {
    // Looked at before it is opened, because opening a device can have effects of its own.
    regular(path, &std::fs::metadata(path).map_err(|error| FileError::io(path, error))?)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let file = File::from(opened.map_err(|error| FileError::io(path, error.into()))?);
    // And again, because it may have been replaced since. Nothing waits meanwhile: the file was opened without blocking.
    regular(path, &file.metadata().map_err(|error| FileError::io(path, error))?)?;
    Ok(file)
}

/// Opens a regular file whose real place, links followed, is in the folder `root`.
pub fn open_below(root: &Path, path: &Path) -> Result<File, FileError> {
    let path = root.join(path);
    inside(root, &path)?;
    let file = open(&path)?;
    // Asked again of what was opened: a link may have been put in its place after the first look.
    inside_opened(root, &path, &file)?;
    Ok(file)
}

/// All of a regular file, if it has at most `bytes_max` bytes.
pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    whole(open(path)?, path, bytes_max)
}

/// All of a regular file whose real place is in the folder `root`, if it has at most `bytes_max` bytes.
pub fn read_below(root: &Path, path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    whole(open_below(root, path)?, path, bytes_max)
}

/// A folder of which many files are read: each costs a few calls of the system, and no link is followed on the way.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
    #[cfg(target_os = "linux")]
    opened: rustix::fd::OwnedFd,
}

impl Folder {
    /// Opens a folder.
    pub fn open(root: &Path) -> Result<Self, FileError> {
        let io = |error: rustix::io::Errno| FileError::io(root, error.into());
        #[cfg(target_os = "linux")]
        let opened =
            rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(io)?;
        #[cfg(not(target_os = "linux"))]
        rustix::fs::access(root, rustix::fs::Access::EXISTS).map_err(io)?;
        Ok(Self {
            root: root.to_owned(),
            #[cfg(target_os = "linux")]
            opened,
        })
    }

    /// All of a regular file in the folder, if it has at most `bytes_max` bytes. `path` must be relative, and no part of it
    /// a link.
    pub fn read(&self, path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileError> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::ResolveFlags;
            use rustix::io::Errno;
            let open = |flags: OFlags| {
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                rustix::fs::openat2(&self.opened, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
            };
            let whole_path = || self.root.join(path);
            // Looked at before it is opened for reading, because that can have effects of its own.
            match open(OFlags::PATH) {
                Ok(found) => {
                    let facts = File::from(found).metadata().map_err(|error| FileError::io(&whole_path(), error))?;
                    regular(&whole_path(), &facts)?;
                }
                Err(Errno::NOSYS | Errno::PERM) => return read_below(&self.root, path, bytes_max),
                Err(Errno::XDEV | Errno::LOOP) => {
                    return Err(FileError::Outside { path: whole_path(), root: self.root.clone() });
                }
                Err(error) => return Err(FileError::io(&whole_path(), error.into())),
            }
            let file = open(OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
            let file = File::from(file.map_err(|error| FileError::io(&whole_path(), error.into()))?);
            regular(&whole_path(), &file.metadata().map_err(|error| FileError::io(&whole_path(), error))?)?;
            whole(file, &whole_path(), bytes_max)
        }
        #[cfg(not(target_os = "linux"))]
        read_below(&self.root, path, bytes_max)
    }
}

/// The first `bytes_max` bytes of an open file, and whether there are more.
pub fn read_start(file: File, path: &Path, bytes_max: u64) -> Result<(Vec<u8>, bool), FileError> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| FileError::io(path, error))?;
    let more = bytes.len() as u64 > bytes_max;
    bytes.truncate(usize::try_from(bytes_max).unwrap_or(usize::MAX));
    Ok((bytes, more))
}

/// How much room a file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that may still be written.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// The room on the file system that holds `path`; none where the system does not say.
pub fn space(path: &Path) -> Option<Space> {
    let stat = rustix::fs::statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Some(Space { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) }).filter(|space| space.total > 0)
}

fn whole(file: File, path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileError> {
    match read_start(file, path, bytes_max)? {
        (bytes, false) => Ok(bytes),
        (_, true) => Err(FileError::TooLarge { path: path.to_owned(), bytes_max }),
    }
}

fn regular(path: &Path, metadata: &std::fs::Metadata) -> Result<(), FileError> {
    if metadata.is_file() { Ok(()) } else { Err(FileError::NotRegular { path: path.to_owned() }) }
}

fn inside(root: &Path, path: &Path) -> Result<(), FileError> {
    let root_itself = root.canonicalize().map_err(|error| FileError::io(root, error))?;
    let place = path.canonicalize().map_err(|error| FileError::io(path, error))?;
    within(&root_itself, &place, root, path)
}

#[cfg(target_os = "linux")]
fn inside_opened(root: &Path, path: &Path, file: &File) -> Result<(), FileError> {
    use std::os::fd::AsRawFd;
    let root_itself = root.canonicalize().map_err(|error| FileError::io(root, error))?;
    match std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        Ok(place) => within(&root_itself, &place, root, path),
        // Without /proc the first look has to do.
        Err(_) => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn inside_opened(root: &Path, path: &Path, _: &File) -> Result<(), FileError> {
    inside(root, path)
}

fn within(root_itself: &Path, place: &Path, root: &Path, path: &Path) -> Result<(), FileError> {
    if place.starts_with(root_itself) {
        return Ok(());
    }
    Err(FileError::Outside { path: path.to_owned(), root: root.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn regular_files_within_the_limit_are_read_and_nothing_else_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), "four").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        symlink("pipe", at("to-pipe")).unwrap();
        assert_eq!(read(&at("a"), 4).unwrap(), b"four");
        assert!(matches!(read(&at("a"), 3), Err(FileError::TooLarge { .. })));
        assert_eq!(read_start(open(&at("a")).unwrap(), &at("a"), 3).unwrap(), (b"fou".to_vec(), true));
        for name in ["pipe", "socket", "zero", "to-pipe", "."] {
            assert!(matches!(read(&at(name), 9), Err(FileError::NotRegular { .. })), "{name}");
        }
        assert!(read(&at("none"), 9).unwrap_err().is_missing());
    }

    #[test]
    fn links_stay_inside_or_are_refused() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("a"), "a").unwrap();
        std::fs::write(other.path().join("secret"), "s").unwrap();
        symlink("a", dir.path().join("relative")).unwrap();
        symlink(dir.path().join("a"), dir.path().join("absolute")).unwrap();
        symlink(other.path().join("secret"), dir.path().join("out")).unwrap();
        symlink(other.path(), dir.path().join("folder")).unwrap();
        for name in ["a", "relative", "absolute"] {
            assert_eq!(read_below(dir.path(), Path::new(name), 9).unwrap(), b"a", "{name}");
        }
        let beside = format!("../{}/secret", other.path().file_name().unwrap().to_str().unwrap());
        for name in ["out", "folder/secret", beside.as_str()] {
            let error = read_below(dir.path(), Path::new(name), 9).unwrap_err();
            assert!(matches!(error, FileError::Outside { .. }), "{name}: {error}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_gives_its_files_and_follows_no_link() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::fs::write(dir.path().join("in/a"), "four").unwrap();
        std::fs::write(other.path().join("secret"), "s").unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), rustix::fs::FileType::Fifo, Mode::from(0o600), 0)
            .unwrap();
        symlink("in/a", dir.path().join("link")).unwrap();
        symlink(other.path(), dir.path().join("out")).unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.read(Path::new("in/a"), 4).unwrap(), b"four");
        assert!(matches!(folder.read(Path::new("in/a"), 3), Err(FileError::TooLarge { .. })));
        assert!(folder.read(Path::new("none"), 9).unwrap_err().is_missing());
        for name in ["pipe", "in"] {
            assert!(matches!(folder.read(Path::new(name), 9), Err(FileError::NotRegular { .. })), "{name}");
        }
        let beside = format!("../{}/secret", other.path().file_name().unwrap().to_str().unwrap());
        for name in ["link", "out/secret", beside.as_str(), "/etc/passwd"] {
            assert!(matches!(folder.read(Path::new(name), 9), Err(FileError::Outside { .. })), "{name}");
        }
    }
}
