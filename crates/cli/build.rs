//! Tells the binary which commit it is built from: `FLINT_BUILD_COMMIT` where it is set, as in a container, else git's word.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "how a build talks to cargo, with the builder's git"
)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=FLINT_BUILD_COMMIT");
    let given = std::env::var("FLINT_BUILD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(of_checkout).map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo:rustc-env=FLINT_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
}

/// The commit and its date, if this is a checkout of Flint rather than sources that lie in somebody else's repository.
fn of_checkout() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // Both change with every commit; without the log, as in a bare clone, a later commit shows after a change of sources.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--path-format=absolute", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["log", "-1", "--format=%h %cs"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
