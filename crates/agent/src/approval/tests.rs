//! Policies, what "always" means, and lines that write or execute in disguise.

mod disguise;
mod ordinary;

use super::*;

/// A workspace with a few files.
fn workspace() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "a.rs", "x", "Cargo.toml"] {
        std::fs::write(folder.path().join(name), "one\ntwo\n").unwrap();
    }
    std::fs::create_dir(folder.path().join("src")).unwrap();
    folder
}

fn asks(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Ask { prefix, .. } => Some(prefix),
        _ => None,
    }
}

#[test]
fn policies_decide_as_they_say() {
    let work = workspace();
    let cases = [
        (Policy::Untrusted, "cargo test", true, "ask"),
        (Policy::Untrusted, "git log | head -3", true, "allow"),
        (Policy::OnRequest, "rm -rf target", true, "allow"),
        (Policy::OnRequest, "rm -rf target", false, "ask"),
        (Policy::OnRequest, "cat Cargo.toml", false, "allow"),
        (Policy::OnFailure, "make", true, "allow"),
        (Policy::OnFailure, "make", false, "ask"),
        (Policy::Never, "make", true, "allow"),
        (Policy::Never, "make", false, "deny"),
        (Policy::Never, "ls", false, "allow"),
    ];
    for (policy, command, sandboxed, expected) in cases {
        let verdict = Rules::new(policy, Mode::WorkspaceWrite).decide(command, work.path(), sandboxed);
        let got = match verdict {
            Verdict::Allow => "allow",
            Verdict::Ask { .. } => "ask",
            Verdict::Deny { .. } => "deny",
        };
        assert_eq!(got, expected, "{policy} {command} {sandboxed}");
        assert_eq!(Policy::from_name(&policy.to_string()), Some(policy));
    }
    let full = Rules::new(Policy::Never, Mode::DangerFullAccess);
    assert_eq!(full.decide("make", work.path(), false), Verdict::Allow);
    assert!(matches!(full.decide_outside("make", ""), Verdict::Deny { .. }));
}

#[test]
fn always_means_what_begins_alike_and_no_more() {
    let work = workspace();
    let mut rules = Rules::new(Policy::Untrusted, Mode::WorkspaceWrite);
    for (command, prefix) in [
        ("cargo test -p agent", "cargo test"),
        ("./check.sh fast", "./check.sh"),
        ("bash -c 'make all'", "bash -c make all"),
        ("rm -r target", "rm -r target"),
        ("make 2>&1 | tail -3", "make 2>&1 | tail -3"),
        ("/usr/bin/python3 x.py", "/usr/bin/python3 x.py"),
    ] {
        assert_eq!(asks(&rules.decide(command, work.path(), true)), Some(prefix), "{command}");
        rules.remember(command);
        assert_eq!(rules.decide(command, work.path(), true), Verdict::Allow, "{command}");
    }
    for allowed in ["cargo test --release", "cargo test && ls", "./check.sh", "cargo test -q | tail -5"] {
        assert_eq!(rules.decide(allowed, work.path(), true), Verdict::Allow, "{allowed}");
    }
    rules.remember("cd src");
    rules.remember("source env.sh");
    assert_eq!(rules.decide("source env.sh", work.path(), true), Verdict::Allow);
    for asked in [
        "cd src && cargo test",
        "cd src && ./check.sh",
        "source env.sh && ls",
        "cargo run",
        "cargo testify",
        "cargo test > /etc/passwd",
        "cargo test; rm -rf /",
        "cargo test $(rm x)",
        "bash -c 'rm x'",
        "rm -r src",
        "make 2>&1 | tail -4",
    ] {
        assert!(asks(&rules.decide(asked, work.path(), true)).is_some(), "{asked}");
    }
}

#[test]
fn readers_that_can_write_are_told_apart() {
    let work = workspace();
    let rules = Rules::new(Policy::Untrusted, Mode::WorkspaceWrite);
    for allowed in ["find . -name x", "git diff HEAD", "sed -n 1,20p a.rs", "rg -n foo src", "sort a", "uniq -c a"] {
        assert_eq!(rules.decide(allowed, work.path(), true), Verdict::Allow, "{allowed}");
    }
    for asked in [
        "find . -delete",
        "find . -exec rm x +",
        "git diff --output=x",
        "git -c core.pager=x log",
        "git commit -m x",
        "sed -n w/x a",
        "sed -i s/a/b/ x",
        "rg --pre sh x",
        "sort -o x a",
        "sort -ox a",
        "uniq a b",
        "lsx",
        "sudo ls",
    ] {
        assert!(asks(&rules.decide(asked, work.path(), true)).is_some(), "{asked}");
    }
    assert!(asks(&rules.decide_outside("cat x", "it failed")).is_some());
}
