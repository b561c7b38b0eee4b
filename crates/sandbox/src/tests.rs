//! Rules without a kernel: which paths are writable, protected and watched. Real escapes are tried by the tests of `cli`.

use std::os::unix::fs::symlink;

use super::*;
use crate::policy::Rules;

fn rules_of(policy: &Policy) -> Rules {
    policy.rules(&Enforcement::Namespaces, None)
}

#[test]
fn a_workspace_is_writable_and_what_rules_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let workspace = root.join("work");
    std::fs::create_dir_all(workspace.join(".git/hooks")).unwrap();
    std::fs::create_dir_all(workspace.join("etc")).unwrap();
    std::fs::write(workspace.join("etc/config.toml"), "").unwrap();
    symlink(&workspace, root.join("link")).unwrap();
    let detail = WorkspaceWrite { exclude_slash_tmp: true, exclude_tmpdir_env_var: true, ..WorkspaceWrite::default() };
    let extra = [workspace.join("etc/config.toml"), root.join("elsewhere")];
    let rules = rules_of(&Policy::new(Mode::WorkspaceWrite, &detail, &root.join("link"), &extra));
    assert_eq!(rules.writable, std::slice::from_ref(&workspace));
    assert_eq!(rules.protected, [workspace.join("etc/config.toml")]);
    let cases = [("src/a.rs", true), ("etc/other", true), ("etc/config.toml", false)];
    for (path, expected) in cases {
        assert_eq!(rules.allows_writing(&workspace.join(path)), expected, "{path}");
    }
    assert!(!rules.allows_writing(&root) && !rules.allows_writing(&root.join("work2")));
    let strict = rules_of(&Policy::new(Mode::ReadOnly, &detail, &workspace, &[]));
    assert!(strict.writable.is_empty() && !strict.network && !strict.allows_writing(&workspace));
}

#[test]
fn a_folder_that_is_no_projects_is_not_written() {
    let detail = WorkspaceWrite { writable_roots: vec!["listed".into()], ..WorkspaceWrite::default() };
    for broad in ["/", "/tmp", "/etc", "/usr"] {
        let policy = Policy::new(Mode::WorkspaceWrite, &detail, Path::new(broad), &[]);
        assert_eq!(policy.writable, [Path::new(broad).join("listed")], "{broad}");
        let refused = policy.may_write(&Path::new(broad).join("file")).unwrap_err();
        assert!(refused.contains("start in a project folder"), "{refused}");
    }
    let home = std::env::var("HOME").unwrap();
    assert!(Policy::new(Mode::WorkspaceWrite, &detail, Path::new(&home), &[]).narrowed.is_some());
}

#[test]
fn the_folder_of_temporary_files_hides_all_but_what_is_needed() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let root = dir.path().canonicalize().unwrap();
    let policy = Policy::new(Mode::WorkspaceWrite, &WorkspaceWrite::default(), &root, &[]);
    let rules = policy.rules(&Enforcement::Namespaces, Some(Path::new("/tmp/own")));
    assert_eq!(rules.temporary_seen(), Some(Path::new("/tmp")));
    assert!(rules.temporary.as_ref().unwrap().kept.as_ref().unwrap().contains(&root));
    assert!(rules.allows_writing(&root) && rules.allows_writing(Path::new("/tmp")));
    let alone = policy.rules(&Enforcement::Landlock, Some(Path::new("/tmp/own")));
    assert!(alone.temporary_seen() == Some(Path::new("/tmp/own")) && !alone.allows_writing(Path::new("/tmp")));
}

#[test]
fn what_cannot_be_enforced_is_refused() {
    let sandbox = Sandbox::with_enforcement(Path::new("/none"), Enforcement::None { why: "no kernel".to_owned() });
    let policy = Policy::new(Mode::WorkspaceWrite, &WorkspaceWrite::default(), Path::new("/tmp"), &[]);
    let refused = sandbox.spawn(&CommandSpec::shell("true", "/"), &policy).err().unwrap();
    assert!(refused.to_string().contains("no kernel") && !sandbox.holds(&policy));
}

#[test]
fn the_partner_itself_keeps_to_the_workspace() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let work = root.join("work");
    std::fs::create_dir_all(work.join(".git")).unwrap();
    std::fs::create_dir_all(root.join("outside")).unwrap();
    symlink(root.join("outside"), work.join("out")).unwrap();
    symlink(root.join("missing"), work.join("dangling")).unwrap();
    symlink(work.join(".git"), work.join("git")).unwrap();
    let detail = WorkspaceWrite { exclude_slash_tmp: true, exclude_tmpdir_env_var: true, ..WorkspaceWrite::default() };
    let policy = Policy::new(Mode::WorkspaceWrite, &detail, &work, &[]);
    for allowed in ["a.rs", "new/deep/a.rs", "./x", "new/../b", ".gitignore"] {
        let parent = allowed == "new/../b";
        assert_eq!(policy.may_write(&work.join(allowed)).is_ok(), !parent, "{allowed}");
    }
    for refused in [
        "sub/.git",
        "sub/.git/config",
        "sub/.Flint/config.toml",
        ".vscode/tasks.json",
        "../x",
        "out/x",
        "dangling",
        ".git/config",
        "git/config",
        ".flint/config.toml",
        "/etc/passwd",
        "a/../../x",
    ] {
        assert!(policy.may_write(&work.join(refused)).is_err(), "{refused}");
    }
    let strict = Policy::new(Mode::ReadOnly, &detail, &work, &[]);
    assert!(strict.may_write(&work.join("a.rs")).is_err() && Policy::unconfined().may_write(&root.join("x")).is_ok());
}
