//! Clients from their registries, each in a directory of its own, kept between runs.
//!
//! A directory is complete when its stamp holds the list of packages asked for; anything else is removed and made again, so
//! that a changed version or an interrupted installation never leaves a mixture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A Python environment with these packages.
pub fn pip_venv(name: &str, packages: &[&str]) -> PathBuf {
    installed(name, packages, |directory| {
        run(Command::new("python3").args(["-m", "venv"]).arg(directory));
        run(Command::new(directory.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(packages));
    })
}

/// A directory whose `node_modules` has these packages.
pub fn npm_dir(name: &str, packages: &[&str]) -> PathBuf {
    installed(name, packages, |directory| {
        fs::create_dir_all(directory).expect("the directory of the client");
        // Nothing of a package runs here before the client itself does.
        run(Command::new("npm")
            .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--prefix"])
            .arg(directory)
            .args(packages));
    })
}

fn installed(name: &str, packages: &[&str], install: impl FnOnce(&Path)) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name);
    let stamp = directory.join("installed");
    let wanted = packages.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return directory;
    }
    println!("installing {}", packages.join(", "));
    let start = Instant::now();
    if directory.exists() {
        fs::remove_dir_all(&directory).expect("the old installation can be removed");
    }
    fs::create_dir_all(directory.parent().unwrap()).expect("the directory of clients");
    install(&directory);
    fs::write(&stamp, wanted).expect("the stamp");
    println!("installed {name} in {:.1} s", start.elapsed().as_secs_f64());
    directory
}

fn run(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
