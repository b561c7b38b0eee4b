//! What must work inside the sandbox: a person's ordinary commands.

use std::process::{Command, Stdio};
use std::time::Duration;

use sandbox::{CommandSpec, Ended, Mode, Policy, Sandbox, WorkspaceWrite};

use crate::fixture::Fixture;
use crate::{policy, sandbox};

async fn shell(sandbox: &Sandbox, policy: &Policy, fixture: &Fixture, line: &str) -> (String, Ended) {
    let command = CommandSpec::shell(line, &fixture.work);
    let (output, ended) = sandbox.spawn(&command, policy).unwrap().collect().await.unwrap();
    (String::from_utf8_lossy(&output).into_owned(), ended)
}

#[tokio::test]
async fn ordinary_commands_work() {
    let Some(sandbox) = sandbox() else { return };
    let fixture = Fixture::new();
    let policy = policy(&fixture);
    let cases = [
        ("echo hello; echo oops >&2; exit 7", 7, "hello"),
        ("echo a > new && mkdir -p d/e && mv new d/e/f && cat d/e/f && rm -r d", 0, "a"),
        ("cat .git/config", 0, "before"),
        ("ls / > /dev/null && echo fine", 0, "fine"),
        ("read line || echo empty", 0, "empty"),
        ("kill -TERM $$", 128 + 15, ""),
        ("no-such-program-here", 127, "no-such-program-here"),
        ("(sleep 0; echo x) | cat", 0, "x"),
        ("id -u", 0, &nix::unistd::geteuid().to_string()),
    ];
    for (line, code, part) in cases {
        let (output, ended) = shell(&sandbox, &policy, &fixture, line).await;
        assert_eq!(ended.shell_code(), code, "{line}: {output}");
        assert!(output.contains(part), "{line}: {output}");
    }
}

#[tokio::test]
async fn read_only_means_nothing_is_written() {
    let Some(sandbox) = sandbox() else { return };
    let fixture = Fixture::new();
    let policy = Policy::new(Mode::ReadOnly, &WorkspaceWrite::default(), &fixture.work, &[]);
    let (output, ended) = shell(&sandbox, &policy, &fixture, "cat mine && echo x > mine").await;
    assert!(!ended.ok() && output.contains("before"), "{output}");
    assert_eq!(std::fs::read_to_string(fixture.work.join("mine")).unwrap(), "before");
}

#[tokio::test]
async fn what_is_made_at_a_protected_name_is_refused_or_moved_away() {
    let Some(sandbox) = sandbox() else { return };
    let fixture = Fixture::new();
    std::fs::remove_dir_all(fixture.work.join(".git")).unwrap();
    std::fs::create_dir(fixture.work.join("inner")).unwrap();
    let line = "mkdir .git/x && echo made; mkdir inner/.git && echo evil > inner/.git/config; exit 0";
    let (output, ended) = shell(&sandbox, &policy(&fixture), &fixture, line).await;
    assert!(!fixture.work.join(".git").exists() && !output.contains("made"), "{output}");
    assert!(!fixture.work.join("inner/.git").exists());
    let [(from, to)] = ended.moved.as_slice() else { panic!("{:?}", ended.moved) };
    assert_eq!(from, &fixture.work.join("inner/.git"));
    assert!(to.join("config").exists());
}

#[tokio::test]
async fn output_is_bounded_and_counted() {
    let Some(sandbox) = sandbox() else { return };
    let fixture = Fixture::new();
    let mut command = CommandSpec::shell("head -c 300000 /dev/zero", &fixture.work);
    command.output_bytes_max = 1000;
    let (output, ended) = sandbox.spawn(&command, &policy(&fixture)).unwrap().collect().await.unwrap();
    assert_eq!((output.len(), ended.bytes_left_out, ended.code), (1000, 299_000, Some(0)));
}

#[tokio::test]
async fn what_takes_too_long_is_ended() {
    let Some(sandbox) = sandbox() else { return };
    let fixture = Fixture::new();
    let mut command = CommandSpec::shell("echo begun; sleep 1000", &fixture.work);
    command.timeout = Some(Duration::from_millis(300));
    let (output, ended) = sandbox.spawn(&command, &policy(&fixture)).unwrap().collect().await.unwrap();
    assert!(ended.timed_out && !ended.ok() && ended.took < Duration::from_secs(60));
    assert_eq!(String::from_utf8_lossy(&output), "begun\n");
}

fn flint(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
    command.args(arguments).stdin(Stdio::null());
    command
}

#[test]
fn the_command_line_runs_one_command() {
    if sandbox().is_none() {
        return;
    }
    let fixture = Fixture::new();
    let home = tempfile::tempdir().unwrap();
    let folder = fixture.work.display().to_string();
    let run = |extra: &[&str], line: &str| {
        let mut command = flint(&["sandbox", "-C", &folder, "-c", "sandbox_workspace_write.exclude_slash_tmp=true"]);
        command.args(extra).args(["--", "sh", "-c", line]);
        command.env("FLINT_HOME", home.path()).env("MY_API_KEY", "hunter2").output().unwrap()
    };
    // The project's file of this fixture is no TOML, and that is said.
    let broken = run(&[], "true");
    assert!(!broken.status.success() && String::from_utf8_lossy(&broken.stderr).contains(".flint/config.toml"));
    std::fs::write(fixture.work.join(".flint/config.toml"), "").unwrap();
    let good = run(&[], "echo out; echo err >&2; echo \"key:$MY_API_KEY\"; echo x > inside; exit 3");
    assert_eq!(good.status.code(), Some(3), "{}", String::from_utf8_lossy(&good.stderr));
    assert_eq!(String::from_utf8_lossy(&good.stdout), "out\nkey:\n");
    assert_eq!(String::from_utf8_lossy(&good.stderr), "err\n");
    assert!(fixture.work.join("inside").exists());
    let strict = run(&["-s", "read-only"], "echo x > other");
    assert!(!strict.status.success() && !fixture.work.join("other").exists());
    let open = run(&["-s", "danger-full-access"], "echo x > ../outside/file");
    assert!(open.status.success());
    let says = flint(&["sandbox", "-C", &folder]).env("FLINT_HOME", home.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&says.stdout).starts_with("workspace-write ("));
}
