//! Completions, manual pages and the version, as a shell, `man` and a bug report get them.

use crate::{flint, stdout, success};

#[test]
fn completions_name_every_command_and_are_valid_shell() {
    let script = stdout(&success(flint(&["completions", "bash"])));
    for word in ["exec", "serve", "models", "--check", "completions"] {
        assert!(script.contains(word), "no {word}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flint.bash");
    std::fs::write(&file, script).unwrap();
    assert!(std::process::Command::new("bash").arg("-n").arg(&file).status().unwrap().success());
    for (shell, start) in [("zsh", "#compdef flint"), ("fish", "# Print an optspec")] {
        let script = stdout(&success(flint(&["completions", shell])));
        assert!(script.starts_with(start), "{}", &script[..80]);
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    success(flint(&["man", folder.path().to_str().unwrap()]));
    for name in ["flint.1", "flint-exec.1", "flint-models-pull.1"] {
        let page = std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page.contains(".TH flint") && page.contains(".SH SYNOPSIS"), "{name}: {page}");
    }
    assert!(stdout(&success(flint(&["man"]))).contains(".TH flint 1"));
}

#[test]
fn the_version_names_the_commit() {
    let line = stdout(&success(flint(&["--version"])));
    let version = line.trim().strip_prefix("flint ").unwrap();
    let (number, commit) = version.split_once(" (").unwrap_or((version, ""));
    assert_eq!(number.split('.').count(), 3, "{line}");
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    // A checkout, unless these are sources without one.
    if git(&["rev-parse", "--show-toplevel"]).is_some() && std::env::var_os("FLINT_BUILD_COMMIT").is_none() {
        let known = git(&["rev-parse", "--verify", commit.split(' ').next().unwrap_or_default()]);
        assert!(known.is_some(), "{line} names no commit of this checkout");
    }
}
