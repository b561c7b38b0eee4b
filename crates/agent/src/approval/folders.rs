//! Where a command would be and what it would read. What is read goes to the model, wherever that runs, so only the
//! workspace and ordinary places of the system are read without a question, and nothing that could block.

use std::path::{Component, Path, PathBuf};

use super::programs::BUILTINS;

/// Folders of the system that hold programs and their data, and no secrets.
const SYSTEM: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib64", "/nix/store"];

/// Single files of the system that are ordinarily looked at.
const SYSTEM_FILES: &[&str] = &[
    "/dev/null",
    "/etc/os-release",
    "/etc/hostname",
    "/etc/hosts",
    "/etc/passwd",
    "/etc/group",
    "/etc/resolv.conf",
    "/etc/debian_version",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/version",
    "/proc/loadavg",
    "/proc/uptime",
];

/// Folders a line may be in at a time; with more, it is asked about.
const FOLDERS_MAX: usize = 8;

/// The workspace and where in it the commands of a line may be run.
#[derive(Clone)]
pub(super) struct WorkingFolders {
    root: PathBuf,
    /// Every folder the next command may run in: a `cd` may fail, or be in a part of the line that is not reached.
    folders: Vec<PathBuf>,
}

impl WorkingFolders {
    /// The beginning of a line. None when the workspace is not there.
    pub fn new(root: &Path) -> Option<Self> {
        let root = root.canonicalize().ok()?;
        Some(Self { folders: vec![root.clone()], root })
    }

    /// Every folder the next command may run in.
    pub fn all(&self) -> &[PathBuf] {
        &self.folders
    }

    /// Whether the line has changed folder.
    pub fn has_moved(&self) -> bool {
        self.folders.len() > 1
    }

    /// `cd` into a folder of the workspace. Links are asked about: the shell and the kernel differ on what is above one.
    pub fn enter(&mut self, folder: &str) -> Result<(), String> {
        let asked = || format!("`cd {folder}` may leave the workspace");
        // Empty, `-` and options mean something else, and so does a relative name where CDPATH is set.
        let elsewhere =
            std::env::var_os("CDPATH").is_some() && !["/", "./", "../"].iter().any(|start| folder.starts_with(start));
        if folder.is_empty() || folder.starts_with('-') || elsewhere {
            return Err(asked());
        }
        for base in self.folders.clone() {
            let entered = self.inside(&base, Path::new(folder)).ok_or_else(asked)?;
            if !self.folders.contains(&entered) {
                self.folders.push(entered);
            }
        }
        if self.folders.len() > FOLDERS_MAX { Err("it changes folder too often".to_owned()) } else { Ok(()) }
    }

    /// A folder below the workspace, on a way that never leaves it and has no links.
    fn inside(&self, base: &Path, path: &Path) -> Option<PathBuf> {
        let (mut at, path) = match path.strip_prefix(&self.root) {
            Ok(below) => (self.root.clone(), below),
            Err(_) => (base.to_path_buf(), path),
        };
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => at.push(name),
                Component::ParentDir => {
                    at.pop();
                }
                Component::RootDir | Component::Prefix(_) => return None,
            }
            if !at.starts_with(&self.root) {
                return None;
            }
        }
        (at.is_dir() && at.canonicalize().ok()? == at).then_some(at)
    }

    /// Whether files may be read without a question: they are not there, or ordinary ones in an ordinary place.
    pub fn free(&self, files: &[&str]) -> Result<(), String> {
        for file in files.iter().filter(|file| **file != "-") {
            for folder in &self.folders {
                self.readable(&folder.join(file)).map_err(|why| format!("it reads `{file}`, {why}"))?;
            }
        }
        Ok(())
    }

    /// Whether any of the words is a folder.
    pub fn any_folder(&self, files: &[&str]) -> bool {
        files.iter().any(|file| self.folders.iter().any(|folder| folder.join(file).is_dir()))
    }

    fn readable(&self, path: &Path) -> Result<(), &'static str> {
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return self.is_absent(path),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(()),
            // A name that is too long for a file is none.
            Err(error) if error.kind() == std::io::ErrorKind::InvalidFilename => return Ok(()),
            Err(_) => return Err("which cannot be looked at"),
        };
        if !real.starts_with(&self.root) && !SYSTEM.iter().any(|system| real.starts_with(system)) {
            let listed = SYSTEM_FILES.iter().any(|file| real == Path::new(file));
            return if listed { Ok(()) } else { Err("which is outside of the workspace") };
        }
        let kind = std::fs::metadata(&real).map_err(|_| "which cannot be looked at")?.file_type();
        if kind.is_file() || kind.is_dir() { Ok(()) } else { Err("which is not a regular file") }
    }

    /// Whether a file that we do not find is not there for the command either: what a link names may come, the files of
    /// processes and devices are others for each, and elsewhere somebody else may make it.
    fn is_absent(&self, path: &Path) -> Result<(), &'static str> {
        let nearest = path.ancestors().skip(1).find_map(|folder| folder.canonicalize().ok()).unwrap_or_default();
        let ordinary = nearest.starts_with(&self.root) || SYSTEM.iter().any(|system| nearest.starts_with(system));
        match (ordinary, std::fs::symlink_metadata(path).is_ok()) {
            (true, false) => Ok(()),
            (true, true) => Err("which is a link to nothing"),
            (false, _) => Err("which is outside of the workspace"),
        }
    }

    /// The name of a program, if starting it starts one of the system's: a bare name that the shell would find outside of
    /// the workspace, or a path into the folders of the system.
    pub fn program<'a>(&self, word: &'a str) -> Result<&'a str, String> {
        if let Some((folder, name)) = word.rsplit_once('/') {
            let system = ["/bin", "/usr/bin"].contains(&folder);
            return if system { Ok(name) } else { Err(format!("`{word}` is not a program of the system")) };
        }
        if BUILTINS.contains(&word) {
            return Ok(word);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).find_map(|folder| {
            // The shell looks for relative entries where it is.
            self.folders.iter().map(|at| at.join(&folder).join(word)).find(|file| is_program(file))
        });
        match found.and_then(|file| Some((file.parent()?.canonicalize().ok()?, file.canonicalize().ok()?))) {
            Some((folder, real)) if folder.starts_with(&self.root) || real.starts_with(&self.root) => {
                Err(format!("`{word}` is found in the workspace"))
            }
            _ => Ok(word),
        }
    }
}

fn is_program(file: &Path) -> bool {
    file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
}
