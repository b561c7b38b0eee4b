//! A pull that is killed, at moments nobody chose, and pulled again.
//!
//! The victim is a real process (this test binary, asked for one "test" that is a pull) and it gets SIGKILL, so nothing
//! of ours runs on its way out. Its installers are left orphaned, as they would be.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::fixture::{self, Fixture, Random};

const VICTIM: &str = "kills::victim";
const KILLS_PER_ROUND: usize = 6;
/// Tells a victim where to pull.
pub const DIRECTORY: &str = "HUB_TEST_PULL_IN";

/// Not a test of its own: what the victims run.
#[test]
fn victim() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory);
    let store = fixture::open(directory);
    store.pull(fixture::entry(&store), &fixture::options(directory), &mut hub::Silent).unwrap();
}

/// Starts a process that runs the named victim in this directory.
pub fn start(victim: &str, directory: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", victim]).env(DIRECTORY, directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Kills the child after a random part of `longest`; answers whether it was still running.
pub fn kill_within(mut child: Child, longest: Duration, random: &mut Random) -> bool {
    std::thread::sleep(Duration::from_micros(random.next() % longest.as_micros() as u64));
    child.kill().unwrap();
    !child.wait().unwrap().success()
}

pub fn seed() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1
}

#[test]
fn killed_at_any_moment_and_pulled_again_gives_the_right_file() {
    let rounds = std::env::var("HUB_TEST_KILL_ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    let seed = seed();
    let mut random = Random(seed);
    let undisturbed = Fixture::new();
    let began = Instant::now();
    assert!(start(VICTIM, &undisturbed.path("")).wait().unwrap().success());
    let longest = began.elapsed();

    let (mut interrupted, mut with_parts) = (0, 0);
    for round in 0..rounds {
        let fixture = Fixture::new();
        let path = fixture.path("store/models/tiny.gguf");
        for _ in 0..KILLS_PER_ROUND {
            interrupted += u32::from(kill_within(start(VICTIM, &fixture.path("")), longest, &mut random));
            if let Ok(bytes) = std::fs::read(&path) {
                assert!(bytes == fixture.model, "seed {seed}, round {round}: a wrong file under its final name");
                break;
            }
            with_parts += u32::from(fixture.path("store/partial/tiny/source-1/joined.state").exists());
        }
        let pulled = fixture.pull().unwrap();
        assert!(std::fs::read(pulled).unwrap() == fixture.model, "seed {seed}, round {round}");
    }
    println!("seed {seed}: {interrupted} kills of pulls of {longest:?}, {with_parts} left joined parts behind");
    assert!(interrupted > 0, "seed {seed}: no kill met a running pull");
}
