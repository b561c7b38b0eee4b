//! No child outlives its command: not when the command ends, not when it is ended, not when Flint itself is killed.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sandbox::{CommandSpec, Enforcement, Output, Policy, Sandbox};

use crate::fixture::Fixture;
use crate::{policy, sandbox};

/// Starts a process that has left its parent, group and session, and says that it is there.
const DAEMON: &str = "(setsid sh -c 'echo there; exec sleep 1000' &) ; ";

/// Processes that have this variable, as their number shows it to anybody.
fn alive(mark: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let has = |path: &PathBuf| {
        std::fs::read(path.join("environ"))
            .is_ok_and(|text| text.windows(mark.len()).any(|part| part == mark.as_bytes()))
    };
    entries.filter(has).collect()
}

/// Waits until nobody is alive. Death takes the kernel a moment; who is still there after ten seconds stays.
fn all_die(mark: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !alive(mark).is_empty() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn marked(line: &str, fixture: &Fixture) -> (CommandSpec, String) {
    let mut command = CommandSpec::shell(line, &fixture.work);
    let value = fixture.work.display().to_string();
    command.env = vec![("FLINT_TEST_MARK".to_owned(), value.clone())];
    (command, format!("FLINT_TEST_MARK={value}"))
}

fn every_way() -> Vec<(Sandbox, bool)> {
    let with = |enforcement| Sandbox::with_enforcement(env!("CARGO_BIN_EXE_flint").as_ref(), enforcement);
    let mut ways = vec![(with(Enforcement::Namespaces), true)];
    for enforcement in [Enforcement::Namespaces, Enforcement::Landlock] {
        match Sandbox::only(env!("CARGO_BIN_EXE_flint").as_ref(), enforcement.clone()) {
            Ok(sandbox) => ways.push((sandbox, false)),
            Err(why) => eprintln!("skipped: {enforcement} does not work here ({why})"),
        }
    }
    ways
}

fn policy_of(fixture: &Fixture, unconfined: bool) -> Policy {
    if unconfined { Policy::unconfined() } else { policy(fixture) }
}

#[tokio::test]
async fn a_child_dies_with_its_command() {
    for (sandbox, unconfined) in every_way() {
        let fixture = Fixture::new();
        // The daemon keeps the output open, so its end would not come while it lives.
        let (command, mark) = marked(&format!("{DAEMON} read line; exit 5"), &fixture);
        let running = sandbox.spawn(&command, &policy_of(&fixture, unconfined)).unwrap();
        let (output, ended) = running.collect().await.unwrap();
        assert_eq!(ended.code, Some(5), "{:?}: {}", sandbox.enforcement(), String::from_utf8_lossy(&output));
        assert!(all_die(&mark), "{:?}: {:?} outlived the command", sandbox.enforcement(), alive(&mark));
    }
}

#[tokio::test]
async fn a_child_dies_when_the_command_is_ended_or_dropped() {
    for (sandbox, unconfined) in every_way() {
        for drop_it in [false, true] {
            let fixture = Fixture::new();
            let (command, mark) = marked(&format!("{DAEMON} exec sleep 1000"), &fixture);
            let mut running = sandbox.spawn(&command, &policy_of(&fixture, unconfined)).unwrap();
            assert_eq!(running.next().await, Some(Output::Stdout(b"there\n".to_vec())));
            assert!(!alive(&mark).is_empty());
            if drop_it {
                drop(running);
            } else {
                running.kill();
                assert!(running.wait().await.unwrap().killed);
            }
            assert!(all_die(&mark), "{:?}: {:?} is still there", sandbox.enforcement(), alive(&mark));
        }
    }
}

#[test]
fn a_child_dies_when_flint_is_killed() {
    if sandbox().is_none() {
        return;
    }
    let fixture = Fixture::new();
    std::fs::write(fixture.work.join(".flint/config.toml"), "").unwrap();
    let value = fixture.work.display().to_string();
    let mut flint = Command::new(env!("CARGO_BIN_EXE_flint"))
        .args(["sandbox", "-C", &value, "-c", "sandbox_workspace_write.environment=[\"FLINT_TEST_MARK\"]"])
        .args(["--", "sh", "-c", &format!("{DAEMON} exec sleep 1000")])
        .env("FLINT_TEST_MARK", &value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    std::io::Read::read_exact(&mut flint.stdout.take().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"there\n");
    assert!(alive(&format!("FLINT_TEST_MARK={value}")).len() > 1);
    flint.kill().unwrap();
    flint.wait().unwrap();
    let mark = format!("FLINT_TEST_MARK={value}");
    assert!(all_die(&mark), "{:?} outlived flint", alive(&mark));
}
