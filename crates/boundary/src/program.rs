//! Starting programs: found outside of the workspace, in a folder of our choosing, with an environment by allow-list.
//!
//! A repository must not be able to choose what runs. So no program is found by a relative entry of `PATH` or by one that
//! lies in the workspace, none starts in the workspace unless it has to, and variables that make programs load code
//! (`LD_PRELOAD`, `PYTHONPATH`, `GIT_*`) or that hold secrets are not handed on.
//!
//! This is the one place where `Command::new` may stand, beside the sandbox's own (see `clippy.toml`).
#![allow(clippy::disallowed_methods, reason = "the gate itself")]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Variables that every program gets, where they are set: who and where the user is, how to write, which toolchains.
const ALLOWED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CARGO_TARGET_DIR",
    "RUSTFLAGS",
    "RUST_BACKTRACE",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "GOMODCACHE",
    "GOFLAGS",
    "JAVA_HOME",
    "MAVEN_HOME",
    "GRADLE_HOME",
    "NVM_DIR",
    "NODE_ENV",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "DOTNET_ROOT",
    "CUDA_HOME",
    "CUDA_PATH",
    "CC",
    "CXX",
    "AR",
    "CFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "MAKEFLAGS",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "CI",
];

/// What programs that reach the network need to know: proxies and certificates.
pub const NETWORK: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];

/// The folders that count as somebody else's, for a process that works in `folder`: it and the repository around it.
///
/// The root of the file system and the user's home are nobody else's, and half of what can be run lies below them.
pub fn workspace_of(folder: &Path) -> Vec<PathBuf> {
    let Ok(folder) = folder.canonicalize() else { return Vec::new() };
    let home = std::env::var_os("HOME").and_then(|home| Path::new(&home).canonicalize().ok());
    let own = |folder: &Path| folder.parent().is_none() || home.as_deref() == Some(folder);
    let repository = folder.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok()).map(Path::to_owned);
    let mut found: Vec<PathBuf> = repository.into_iter().chain([folder]).filter(|folder| !own(folder)).collect();
    found.dedup();
    found
}

/// The same for the folder this process is in.
pub fn current_workspace() -> Vec<PathBuf> {
    std::env::current_dir().map(|folder| workspace_of(&folder)).unwrap_or_default()
}

/// The program called `name`, by its real, absolute path. `name` may be a path itself.
///
/// None when there is none outside of the folders in `never`, which are those of the repository worked on.
pub fn find(name: &OsStr, never: &[impl AsRef<Path>]) -> Option<PathBuf> {
    let never: Vec<PathBuf> = never.iter().filter_map(|folder| folder.as_ref().canonicalize().ok()).collect();
    let usable = |path: PathBuf| {
        // Both the name that is used and what it leads to must be outside: a link inside could be changed.
        let folder = path.parent()?.canonicalize().ok()?;
        let real = path.canonicalize().ok()?;
        let outside = |place: &Path| !never.iter().any(|folder| place.starts_with(folder));
        // The link itself is run where there is one: programs such as python find their files by the name they have.
        (outside(&folder) && outside(&real) && is_program(&real))
            .then(|| folder.join(path.file_name().unwrap_or_default()))
    };
    if Path::new(name).components().count() > 1 {
        return Path::new(name).is_absolute().then(|| usable(name.into())).flatten();
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).find_map(|folder| usable(folder.join(name)))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Our environment as programs may have it: what is on the list, and what `also` names for this one.
pub fn environment(also: &[&str]) -> Vec<(OsString, OsString)> {
    let allowed = |name: &OsStr| {
        let name = name.to_string_lossy();
        ALLOWED.contains(&&*name) || name.starts_with("LC_") || also.contains(&&*name)
    };
    std::env::vars_os().filter(|(name, _)| allowed(name)).collect()
}

/// A command for a program found by [`find`], in the folder `cwd`, with nothing but [`environment`].
pub fn command(program: &Path, cwd: &Path, also: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(cwd).env_clear().envs(environment(also));
    command
}

/// The same, without what points into the folders in `never`: a virtual environment in the repository, an entry of `PATH`
/// that lies there or is relative, a setting that names a file there.
pub fn command_outside(program: &Path, cwd: &Path, also: &[&str], never: &[impl AsRef<Path>]) -> Command {
    let never: Vec<PathBuf> = never.iter().filter_map(|folder| folder.as_ref().canonicalize().ok()).collect();
    let mut command = command(program, cwd, also);
    command.env_clear();
    command.envs(environment(also).into_iter().filter_map(|(name, value)| {
        let value = outside_of(&name, value, &never)?;
        Some((name, value))
    }));
    command
}

/// A value without what lies in `never`; none when nothing is left.
fn outside_of(name: &OsStr, value: OsString, never: &[PathBuf]) -> Option<OsString> {
    let inside = |path: &Path| {
        // What does not exist yet is judged by the folder it would be in.
        let place = path.ancestors().find_map(|above| above.canonicalize().ok());
        path.is_absolute() && place.is_some_and(|place| never.iter().any(|folder| place.starts_with(folder)))
    };
    let lists = ["PATH", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "GOPATH"];
    if lists.iter().any(|list| name == *list) {
        let kept = std::env::split_paths(&value).filter(|path| path.is_absolute() && !inside(path));
        return std::env::join_paths(kept).ok().filter(|value| !value.is_empty());
    }
    // A file by its address, or several in one value, as package indexes are given.
    let text = value.to_string_lossy().into_owned();
    let mut words = text.split([' ', ',', ';', '=']).map(|word| word.strip_prefix("file://").unwrap_or(word));
    (!inside(Path::new(&value)) && !words.any(|word| inside(Path::new(word)))).then_some(value)
}

/// This program once more, in the folder `cwd`. Its environment is ours: whatever is in it has had its effect already.
pub fn ourselves(cwd: &Path) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.current_dir(cwd);
    Ok(command)
}

/// A git that reads a repository and runs nothing a repository can name: no hooks, no file-system monitor, no pager, no
/// external diff, no filters of attributes from elsewhere, no network, and no repository of another owner.
///
/// It is for what reads commits. What compares files of the work tree (`status`, `diff`, `describe --dirty`) runs the clean
/// filters that a repository's own attributes and configuration name, and no setting turns those off.
pub fn git(repository: &Path) -> Option<Command> {
    let never = workspace_of(repository);
    let mut command = command_outside(&find("git".as_ref(), &never)?, repository, &[], &never);
    command.args(["--no-pager", "--no-optional-locks", "--literal-pathspecs"]);
    for setting in [
        "core.fsmonitor=false",
        "core.hooksPath=/dev/null",
        "core.pager=cat",
        "core.sshCommand=false",
        "core.askPass=false",
        "core.attributesFile=/dev/null",
        "diff.external=",
        "credential.helper=",
        "protocol.allow=never",
        "uploadpack.packObjectsHook=",
        "gpg.program=false",
        "safe.directory=",
        "safe.bareRepository=explicit",
        "submodule.recurse=false",
    ] {
        command.args(["-c", setting]);
    }
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0").env("GIT_PAGER", "cat");
    command.env("GIT_ATTR_NOSYSTEM", "1");
    Some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn programs_in_the_workspace_are_never_found() {
        let work = tempfile::tempdir().unwrap();
        let own = work.path().join("sh");
        std::fs::write(&own, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o755)).unwrap();
        let outside = tempfile::tempdir().unwrap();
        symlink(&own, outside.path().join("tool")).unwrap();
        let nowhere: &[&Path] = &[];
        assert_eq!(find(own.as_os_str(), nowhere), Some(own.canonicalize().unwrap()));
        assert_eq!(find(own.as_os_str(), &[work.path()]), None);
        assert_eq!(find(outside.path().join("tool").as_os_str(), &[work.path()]), None);
        let shell = find("sh".as_ref(), &[work.path()]).unwrap();
        assert!(shell.is_absolute() && !shell.starts_with(work.path()), "{}", shell.display());
        for missing in ["./sh", "no-such-program", "", "..", "/etc/passwd"] {
            assert_eq!(find(missing.as_ref(), nowhere), None, "{missing}");
        }
    }

    #[test]
    fn the_environment_is_what_is_on_the_list() {
        let names: Vec<String> = environment(&[]).iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        assert!(names.contains(&"PATH".to_owned()), "{names:?}");
        assert!(!names.contains(&"CARGO_MANIFEST_DIR".to_owned()), "{names:?}");
        assert_eq!(environment(&["CARGO_MANIFEST_DIR"]).len(), names.len() + 1);
    }

    #[test]
    fn values_that_point_into_the_workspace_are_left_out() {
        let work = tempfile::tempdir().unwrap();
        let never = [work.path().canonicalize().unwrap()];
        let inside = work.path().join("venv");
        let left = |name: &str, value: &str| {
            outside_of(name.as_ref(), value.into(), &never).map(|value| value.to_string_lossy().into_owned())
        };
        let shown = inside.display();
        assert_eq!(left("PATH", &format!("{shown}/bin:.:relative::/usr/bin")).as_deref(), Some("/usr/bin"));
        assert_eq!(left("PATH", &format!("{shown}/bin")), None);
        for value in
            [shown.to_string(), format!("file://{shown}/x"), format!("https://a {shown}"), format!("-L={shown}")]
        {
            assert_eq!(left("VIRTUAL_ENV", &value), None, "{value}");
        }
        for value in ["https://index/simple", "/usr", "de_DE.UTF-8", ""] {
            assert_eq!(left("PIP_INDEX_URL", value).as_deref(), Some(value));
        }
    }

    #[test]
    fn the_repository_around_a_folder_is_the_workspace_and_the_root_of_everything_is_not() {
        let work = tempfile::tempdir().unwrap();
        let root = work.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        assert_eq!(workspace_of(&root.join("a/b")), [root.join("a/b")]);
        std::fs::write(root.join(".git"), "gitdir: elsewhere").unwrap();
        assert_eq!(workspace_of(&root.join("a/b")), [root.clone(), root.join("a/b")]);
        assert!(workspace_of(Path::new("/")).is_empty());
    }
}
