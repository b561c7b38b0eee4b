//! The sandbox of the real binary against real attacks, and what must work inside it.
//!
//! A test that cannot be run here says why on standard error. Where the kernel enforces something, nothing is skipped.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // The tests' own files and words.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

mod attacks;
mod fixture;
mod life;
mod work;

use attacks::{ATTACKS, BEYOND_LANDLOCK, FOR_ROOT, NEVER_WITHOUT, Target};
use fixture::Fixture;
use sandbox::{CommandSpec, Enforcement, Mode, Policy, Sandbox, WorkspaceWrite};

/// Not a test of its own: inside the sandbox this program is started again to run one attack.
#[test]
fn attack() {
    let Ok(name) = std::env::var("ATTACK_NAME") else { return };
    let (_, attack) = ATTACKS.iter().find(|(known, _)| *known == name).unwrap();
    attacks::report(&attack(&Target::from_environment()));
}

/// The sandbox of the binary under test, unless this kernel cannot enforce it.
pub fn sandbox() -> Option<Sandbox> {
    let sandbox = Sandbox::detect_with(env!("CARGO_BIN_EXE_flint").as_ref());
    match sandbox.enforcement() {
        Enforcement::None { why } => {
            eprintln!("skipped: this kernel enforces nothing ({why})");
            None
        }
        _ => Some(sandbox),
    }
}

/// Only the workspace may be written: the fixtures of tests are in /tmp themselves.
pub fn policy(fixture: &Fixture) -> Policy {
    let detail = WorkspaceWrite { exclude_slash_tmp: true, exclude_tmpdir_env_var: true, ..WorkspaceWrite::default() };
    Policy::new(Mode::WorkspaceWrite, &detail, &fixture.work, &[fixture.work.join("home/conf")])
}

async fn try_attack(name: &str, sandbox: &Sandbox, unconfined: bool) -> (bool, String) {
    let fixture = Fixture::new();
    let before = fixture.fingerprint();
    let policy = if unconfined { Policy::unconfined() } else { policy(&fixture) };
    let own = std::env::current_exe().unwrap().display().to_string();
    let arguments = [own.as_str(), "attack", "--exact", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let mut command = CommandSpec::arguments(arguments.to_vec(), &fixture.work);
    command.env = fixture.variables(name);
    let (output, _) = sandbox.spawn(&command, &policy).unwrap().collect().await.unwrap();
    let output = String::from_utf8_lossy(&output).into_owned();
    let result = output.lines().find_map(|line| line.strip_prefix("RESULT ")).map(str::to_owned);
    let result = result.unwrap_or_else(|| panic!("{name} did not say how it went: {output}"));
    let harmed = fixture.fingerprint() != before || fixture.was_reached();
    (result == "escaped" || harmed, result)
}

async fn all_refused(sandbox: &Sandbox, except: &[&str]) {
    let mut escaped = Vec::new();
    for (name, _) in ATTACKS.iter().filter(|(name, _)| !except.contains(name)) {
        let (success, result) = try_attack(name, sandbox, false).await;
        eprintln!("{name}: {result}");
        if success {
            escaped.push(format!("{name} ({result})"));
        }
    }
    assert!(escaped.is_empty(), "these got out: {escaped:#?}");
}

#[tokio::test]
async fn every_attack_is_refused() {
    let Some(sandbox) = sandbox() else { return };
    let except = if *sandbox.enforcement() == Enforcement::Landlock { BEYOND_LANDLOCK } else { &[] };
    all_refused(&sandbox, except).await;
}

#[tokio::test]
async fn landlock_and_seccomp_alone_refuse_what_they_promise() {
    match Sandbox::only(env!("CARGO_BIN_EXE_flint").as_ref(), Enforcement::Landlock) {
        Ok(alone) => all_refused(&alone, BEYOND_LANDLOCK).await,
        Err(why) => eprintln!("skipped: Landlock does not work here ({why})"),
    }
}

/// An attack that fails by itself proves nothing about the sandbox.
#[tokio::test]
async fn every_attack_works_without_a_sandbox() {
    let sandbox = Sandbox::with_enforcement(env!("CARGO_BIN_EXE_flint").as_ref(), Enforcement::Namespaces);
    let root = nix::unistd::geteuid().is_root();
    let mut failed = Vec::new();
    for (name, _) in ATTACKS.iter().filter(|(name, _)| !NEVER_WITHOUT.contains(name)) {
        if FOR_ROOT.contains(name) && !root {
            eprintln!("skipped: {name:?} needs root to work even without a sandbox");
            continue;
        }
        let (success, result) = try_attack(name, &sandbox, true).await;
        if !success {
            failed.push(format!("{name} ({result})"));
        }
    }
    assert!(failed.is_empty(), "these do not even work without a sandbox: {failed:#?}");
}
