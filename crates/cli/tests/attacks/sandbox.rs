//! Ways out of the sandbox, by `flint sandbox`, which runs a command as the partner's are run.
//!
//! Three set-ups: complete, Landlock alone (the kernel refuses user namespaces) and none (it knows no Landlock either). The
//! last two are made by a filter of system calls that this very program, started again, sets before it becomes Flint.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};

use crate::support::{Home, binary, copied, output, printed, users};

/// What the kernel has to offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetUp {
    Complete,
    LandlockAlone,
    None,
}

const ENFORCED: [SetUp; 2] = [SetUp::Complete, SetUp::LandlockAlone];
/// How long a run may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// Not a test of its own: becomes Flint in another set-up.
#[test]
fn become_flint() {
    let Ok(refused) = std::env::var("ATTACK_REFUSE") else { return };
    let user_namespaces =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(0x1000_0000), 0x1000_0000);
    let mut rules = BTreeMap::from([(272, vec![SeccompRule::new(vec![user_namespaces.unwrap()]).unwrap()])]);
    if refused == "all" {
        rules.insert(444, Vec::new());
    }
    let refuse = SeccompAction::Errno(38);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into().unwrap());
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
    let arguments = std::env::var("ATTACK_ARGUMENTS").unwrap();
    let error = Command::new(std::env::var("ATTACK_BINARY").unwrap()).args(arguments.split('\u{1f}')).exec();
    panic!("{error}");
}

/// This program, where every user can run it.
fn own_copy() -> &'static Path {
    static COPY: OnceLock<(PathBuf, tempfile::TempDir)> = OnceLock::new();
    let (path, _) = COPY.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("flint-tests").tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let copy = folder.path().join("tests");
        copied(&std::env::current_exe().unwrap(), &copy);
        (copy, folder)
    });
    path
}

fn flint(home: &Home, set_up: SetUp, arguments: &[&str]) -> Command {
    if set_up == SetUp::Complete {
        return home.flint(arguments);
    }
    let mut command = home.program(own_copy());
    command.args(["sandbox::become_flint", "--exact", "--nocapture", "--test-threads=1"]);
    command.env("ATTACK_REFUSE", if set_up == SetUp::None { "all" } else { "namespaces" });
    command.env("ATTACK_BINARY", binary()).env("ATTACK_ARGUMENTS", arguments.join("\u{1f}"));
    command
}

fn sandboxed(home: &Home, set_up: SetUp, line: &str) -> Command {
    flint(home, set_up, &["sandbox", "--", "sh", "-c", line])
}

fn run(home: &Home, set_up: SetUp, line: &str) -> Output {
    output(sandboxed(home, set_up, line), LIMIT)
}

/// Shell lines that make a git folder which runs `touch MARK` for whoever asks for its status.
fn plant(folder: &str, mark: &Path) -> String {
    let mark = mark.display();
    format!(
        "mkdir -p {folder}/objects {folder}/refs; echo 'ref: refs/heads/main' > {folder}/HEAD; \
         printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = %s\\n\\tfsmonitor = \"touch {mark}; false\"\\n' \
         \"$PWD\" > {folder}/config; "
    )
}

/// What the user does afterwards. True when that ran what was planted.
fn git_status_runs_it(home: &Home, folder: &Path, mark: &Path) -> bool {
    let mut git = home.program(Path::new("/usr/bin/git"));
    git.current_dir(folder).arg("status");
    let _ = output(git, LIMIT);
    let ran = mark.exists();
    let _ = std::fs::remove_file(mark);
    ran
}

fn shell(home: &Home, line: &str) {
    let mut command = home.program(Path::new("/bin/sh"));
    command.args(["-c", line]).env("GIT_CONFIG_COUNT", "0");
    for (name, value) in [("AUTHOR", "a"), ("COMMITTER", "a")] {
        command.env(format!("GIT_{name}_NAME"), value).env(format!("GIT_{name}_EMAIL"), "a@example.org");
    }
    let done = output(command, LIMIT);
    assert!(done.status.success(), "{line}: {}", printed(&done));
}

/// A planted folder that nobody obeys even unprotected would prove nothing.
#[test]
fn what_is_planted_runs_without_a_sandbox() {
    for user in users() {
        let home = Home::new(user);
        let mark = home.path().join("mark");
        shell(&home, &plant(".git", &mark));
        assert!(git_status_runs_it(&home, &home.work, &mark), "{user:?}");
        shell(&home, &format!("mkdir x; cd x; {}", plant(".", &mark)));
        assert!(git_status_runs_it(&home, &home.work.join("x"), &mark), "{user:?}: bare");
    }
}

/// H1: all names of the clean-up are taken, and `.git` is live while the command runs.
#[test]
fn protected_names_that_do_not_exist_are_masked() {
    for (user, set_up) in every_way() {
        let home = Home::new(user);
        let mark = home.path().join("mark");
        let names = "for n in $(seq 1 999); do mkdir -p git.sandboxed-$n flint.sandboxed-$n; done 2>/dev/null; ";
        let config =
            "mkdir .flint; echo 'model = \"evil\"' > .flint/config.toml; mkdir .vscode; echo {} > .vscode/tasks.json; ";
        let line = format!("{names}{}{config} echo planted; read line < /dev/null; sleep 1000", plant(".git", &mark));
        let mut command = sandboxed(&home, set_up, &line);
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(running.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|line| line.ends_with("planted")), "{user:?} {set_up:?}");
        assert!(!git_status_runs_it(&home, &home.work, &mark), "{user:?} {set_up:?}: while it runs");
        running.kill().unwrap();
        running.wait().unwrap();
        let gone = Instant::now() + LIMIT;
        while home.work.join(".git").exists() && Instant::now() < gone {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!git_status_runs_it(&home, &home.work, &mark), "{user:?} {set_up:?}: afterwards");
        for name in [".git", ".flint/config.toml", ".vscode/tasks.json"] {
            assert!(!home.work.join(name).exists(), "{user:?} {set_up:?}: {name}");
        }
    }
}

/// H1 in folders nobody could know of: what is made there has another name afterwards, whatever else is there.
#[test]
fn what_is_made_at_protected_names_anywhere_is_taken_away() {
    for (user, set_up) in every_way() {
        let home = Home::new(user);
        let mark = home.path().join("mark");
        home.write("work/src/deep/file", "");
        let folders = ["src/deep/.git", "src/new/er/.git", "src/.GIT", "src/bare"];
        let mut line: String = folders.iter().map(|folder| plant(folder, &mark)).collect();
        line += "ln -s deep/.git src/new/.git; echo 'touch mark' > src/.envrc; mkdir -p src/.flint src/.vscode; ";
        line +=
            "echo > src/.flint/config.toml; mkdir -p src/shut/.git; echo > src/shut/.git/config; chmod 555 src/shut; ";
        line += "for n in $(seq 1 999); do mkdir -p src/git.sandboxed-$n; done 2>/dev/null; exit 0";
        let said = run(&home, set_up, &line);
        assert!(said.status.success(), "{user:?} {set_up:?}: {}", printed(&said));
        for name in
            ["deep/.git", "new/er/.git", "new/.git", ".GIT", "bare/HEAD", ".envrc", ".flint", ".vscode", "shut/.git"]
        {
            let there = std::fs::symlink_metadata(home.work.join("src").join(name)).is_ok();
            assert!(!there, "{user:?} {set_up:?}: {name} is there; {}", printed(&said));
        }
        for folder in ["src", "src/deep", "src/new/er", "src/new", "src/bare"] {
            assert!(!git_status_runs_it(&home, &home.work.join(folder), &mark), "{user:?} {set_up:?}: {folder}");
        }
        assert!(printed(&said).contains("is a protected name"), "{}", printed(&said));
    }
}

/// H2: submodules, with a folder, with a file, and not there yet; nested repositories.
#[test]
fn repositories_in_the_repository_are_protected() {
    let ways = [
        "rm -rf sub/.git; echo 'gitdir: ../evil' > sub/.git; ",
        "echo 'gitdir: ../evil' > sub/.git; ",
        "mv sub away; mkdir sub; echo 'gitdir: ../evil' > sub/.git; ",
        "printf '[core]\\nfsmonitor = \"touch MARK; false\"\\n' >> sub/.git/config; ",
        "mv evil/config sub/.git/config; ",
        "ln -sfn ../evil sub/.git; ",
        "mv sub/.git x; ln -s ../evil sub/.git; ",
    ];
    let make = "git init -q . && git init -q sub && cd sub && git commit -q --allow-empty -m a && cd .. && \
                git -c advice.addEmbeddedRepo=false add sub && git commit -q -m b";
    let kinds = ["", " && git submodule -q absorbgitdirs 2>/dev/null; true", " && rm -rf sub && mkdir sub"];
    for (user, set_up) in every_way() {
        for kind in kinds {
            let home = Home::new(user);
            let mark = home.path().join("mark");
            shell(&home, &format!("{make}{kind}"));
            home.write("work/evil/x", "");
            let before = tree(&home.work.join("sub"));
            for way in ways {
                let line = plant("evil", &mark) + &way.replace("MARK", &mark.display().to_string());
                let said = run(&home, set_up, &format!("{line} exit 0"));
                assert!(said.status.success(), "{user:?} {set_up:?} {way}: {}", printed(&said));
                assert!(!git_status_runs_it(&home, &home.work, &mark), "{user:?} {set_up:?} {kind:?} {way}");
                assert!(
                    !git_status_runs_it(&home, &home.work.join("sub"), &mark),
                    "{user:?} {set_up:?} {kind:?} {way}"
                );
            }
            if kind != kinds[2] {
                assert_eq!(tree(&home.work.join("sub")), before, "{user:?} {set_up:?} {kind:?}");
            }
        }
    }
}

/// Names of all files below a folder, without git's index, which a status writes.
fn tree(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            all.extend(tree(&entry.path()));
        } else if entry.file_name() != "index" {
            all.push(entry.path());
        }
    }
    all.sort();
    all
}

/// H2: /tmp and $TMPDIR are everybody's.
#[test]
fn nothing_is_planted_in_the_folders_of_temporary_files() {
    for (user, set_up) in every_way() {
        let home = Home::new(user);
        let mark = home.path().join("mark");
        let there = Path::new("/tmp/.git").exists();
        let line = plant("/tmp/.git", &mark) + &plant(&format!("{}/.git", home.path().join("tmp").display()), &mark);
        let said = run(&home, set_up, &format!("{line} echo own > $TMPDIR/file && cat $TMPDIR/file"));
        let planted = !there && Path::new("/tmp/.git").exists();
        if planted {
            std::fs::remove_dir_all("/tmp/.git").unwrap();
        }
        assert!(!planted && !home.path().join("tmp/.git").exists(), "{user:?} {set_up:?}: {}", printed(&said));
        assert!(printed(&said).contains("own"), "{user:?} {set_up:?}: {}", printed(&said));
    }
}

/// H3: terminals of the user's other windows.
#[test]
fn terminals_are_not_the_users() {
    // Holds a terminal open as long as this lives.
    let terminal = std::fs::File::options().read(true).write(true).open("/dev/ptmx").unwrap();
    assert!(terminal.metadata().unwrap().file_type().is_char_device());
    let outside = |text: &str| text.split_whitespace().filter(|name| name.parse::<u32>().is_ok()).count();
    for user in users() {
        let home = Home::new(user);
        let said = run(&home, SetUp::Complete, "ls /dev/pts; exec 3<>/dev/ptmx && ls /dev/pts | grep -x 0 && echo own");
        let text = printed(&said);
        let (before, after) = text.split_once("0\nown").unwrap_or_else(|| panic!("no terminal of its own: {text}"));
        assert_eq!(outside(before) + outside(after), 0, "{user:?}: {text}");
        let devices =
            printed(&run(&home, SetUp::Complete, "ls /dev; echo x > /dev/null && head -c1 /dev/urandom | wc -c"));
        assert!(devices.contains("null") && !devices.contains("vd") && !devices.contains("loop"), "{devices}");
        // Landlock alone lets them be seen and not written.
        let name = std::fs::read_dir("/dev/pts").unwrap().flatten().find(|entry| entry.file_name() != "ptmx").unwrap();
        let line = format!("echo x > {} && echo written", name.path().display());
        assert!(!printed(&run(&home, SetUp::LandlockAlone, &line)).contains("written"), "{user:?}");
    }
}

/// Low: what whoever started Flint had open, and secrets in variables.
#[test]
fn descriptors_and_variables_do_not_get_in() {
    for (user, set_up) in every_way() {
        let home = Home::new(user);
        home.write("secret", "hunter2");
        let inner = flint(&home, set_up, &["sandbox", "--", "sh", "-c", "ls /proc/self/fd; cat <&9; env; true"]);
        let mut outer = home.program(Path::new("/bin/sh"));
        let words = std::iter::once(inner.get_program()).chain(inner.get_args());
        outer.args(["-c", "exec 9<\"$0\"; exec \"$@\""]).arg(home.path().join("secret")).args(words);
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let secrets =
            ["GH_PAT", "DATABASE_URL", "MYSQL_PWD", "PGPASS", "COOKIE", "AWS_PROFILE", "SSH_AUTH_SOCK", "LD_PRELOAD_X"];
        for name in secrets {
            outer.env(name, "hunter2");
        }
        let said = printed(&output(outer, LIMIT));
        assert!(!said.contains("hunter2"), "{user:?} {set_up:?}: {said}");
        assert!(said.contains("PATH=") && said.contains("HOME="), "{said}");
    }
}

/// The user may pass a variable on; a project may not.
#[test]
fn only_the_user_names_variables_that_get_in() {
    let home = Home::new(users()[0]);
    let key = "[sandbox_workspace_write]\nenvironment = [\"DATABASE_URL\"]\n";
    let says = |home: &Home| {
        let mut command = sandboxed(home, SetUp::Complete, "echo \"it is $DATABASE_URL\"");
        command.env("DATABASE_URL", "here");
        printed(&output(command, LIMIT))
    };
    home.write("work/.flint/config.toml", key);
    assert!(!says(&home).contains("it is here"));
    home.write("flint/config.toml", key);
    assert!(says(&home).contains("it is here"), "{}", says(&home));
}

/// Low: in `/`, the home and /tmp.
#[test]
fn folders_that_are_no_projects_are_not_written() {
    for (user, set_up) in every_way() {
        let home = Home::new(user);
        let own = home.path().display().to_string();
        for folder in ["/", "/tmp", own.as_str()] {
            let line = format!("touch {own}/touched /tmp/flint-touched; echo $TMPDIR; touch $TMPDIR/file && echo fine");
            let said = output(flint(&home, set_up, &["sandbox", "-C", folder, "--", "sh", "-c", &line]), LIMIT);
            let planted = Path::new("/tmp/flint-touched").exists();
            let _ = std::fs::remove_file("/tmp/flint-touched");
            assert!(
                !home.path().join("touched").exists() && !planted,
                "{user:?} {set_up:?} {folder}: {}",
                printed(&said)
            );
            assert!(printed(&said).contains("not a project folder"), "{folder}: {}", printed(&said));
            assert!(printed(&said).contains("fine"), "{user:?} {set_up:?} {folder}: {}", printed(&said));
        }
    }
}

/// Low: processes and shared memory have limits.
#[test]
fn processes_and_shared_memory_have_limits() {
    for user in users() {
        let home = Home::new(user);
        let bomb = "i=0; while [ $i -lt 4500 ]; do sleep 1000 & i=$((i+1)); done; echo all of them";
        let said = printed(&run(&home, SetUp::Complete, bomb));
        assert!(!said.contains("all of them"), "{user:?}: {said}");
        let size =
            printed(&run(&home, SetUp::Complete, "df -k /dev/shm | tail -1 | awk '{print \"size\", $2}'; ulimit -c"));
        let kilobytes =
            size.split_whitespace().skip_while(|word| *word != "size").nth(1).and_then(|n| n.parse::<u64>().ok());
        assert!(kilobytes.is_some_and(|size| size <= 1 << 20), "{user:?}: {size}");
    }
}

/// M7: a helper that is slow to start. It is stopped before it can answer, longer than the first try waits. The sandbox is
/// then neither off nor less than it could be.
#[test]
fn a_slow_start_does_not_turn_the_sandbox_off() {
    let home = Home::new(users()[0]);
    for _ in 0..50 {
        let mut command = sandboxed(&home, SetUp::Complete, "echo \"it ran as $$.\"");
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", running.id());
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut stopped = false;
        while !stopped && Instant::now() < deadline && Path::new(&children).exists() {
            let text = std::fs::read_to_string(&children).unwrap_or_default();
            if let Some(child) = text.split_whitespace().next().and_then(|pid| pid.parse().ok()) {
                stopped = kill(Pid::from_raw(child), Signal::SIGSTOP).is_ok();
                std::thread::sleep(Duration::from_secs(if stopped { 7 } else { 0 }));
                let _ = kill(Pid::from_raw(child), Signal::SIGCONT);
            }
            if text.is_empty()
                && std::fs::read_to_string(format!("/proc/{}/stat", running.id()))
                    .is_ok_and(|stat| stat.contains(") Z"))
            {
                break;
            }
        }
        let said = running.wait_with_output().unwrap();
        if stopped {
            // In a process namespace of its own numbers are small; with less than that the sandbox would be half off.
            let text = printed(&said);
            let number =
                text.split_once("it ran as ").and_then(|(_, rest)| rest.split_once('.')?.0.parse::<u32>().ok());
            assert!(number.is_some_and(|number| number < 10), "{text}");
            return;
        }
    }
    panic!("the helper was never caught in time");
}

/// Where nothing can be enforced nothing runs.
#[test]
fn without_a_sandbox_nothing_runs() {
    for user in users() {
        let home = Home::new(user);
        let said = run(&home, SetUp::None, "touch ran");
        assert!(!said.status.success() && !home.work.join("ran").exists(), "{user:?}: {}", printed(&said));
        assert!(printed(&said).contains("cannot hold a command"), "{}", printed(&said));
    }
}

/// All three set-ups, again and again, with 16 busy processes: the sandbox is never off by itself, and never lets anything
/// through. `FLINT_ATTACK_RUNS` says how often, 20 times unless told; the long run is 500.
#[test]
fn the_sandbox_is_never_off_by_itself_under_load() {
    let runs: usize = std::env::var("FLINT_ATTACK_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(20);
    let busy: Vec<Busy> = (0..16).map(|_| Busy::new()).collect();
    let users = users();
    let (mut held, mut refused, mut slowest) = (0, 0, Duration::ZERO);
    for number in 0..runs {
        let home = Home::new(users[number % users.len()]);
        let set_up = [SetUp::Complete, SetUp::LandlockAlone, SetUp::None][number % 3];
        home.write("work/sub/.git/config", "before");
        home.write("work/src/a", "before");
        let outside = home.write("outside", "before");
        let line = format!(
            "echo x > {}; echo x > sub/.git/config; echo x > .git/config; mkdir -p src/b/.git; echo x > src/b/.git/config; \
             echo x > /tmp/.git; echo x > src/a; echo ran",
            outside.display()
        );
        let begun = Instant::now();
        let said = run(&home, set_up, &line);
        slowest = slowest.max(begun.elapsed());
        let text = printed(&said);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(read(&outside), "before", "run {number}, {set_up:?}: {text}");
        assert_eq!(read(&home.work.join("sub/.git/config")), "before", "run {number}, {set_up:?}: {text}");
        for name in [".git/config", "src/b/.git"] {
            assert!(!home.work.join(name).exists(), "run {number}, {set_up:?}: {name}; {text}");
        }
        assert!(!Path::new("/tmp/.git").is_file(), "run {number}, {set_up:?}: {text}");
        if set_up == SetUp::None {
            assert!(
                text.contains("cannot hold a command") && read(&home.work.join("src/a")) == "before",
                "{number}: {text}"
            );
            refused += 1;
        } else {
            assert!(
                text.contains("ran") && read(&home.work.join("src/a")) == "x\n",
                "run {number}, {set_up:?}: {text}"
            );
            held += 1;
        }
    }
    drop(busy);
    eprintln!(
        "sandbox under load 16: {runs} runs, {held} held, {refused} refused where nothing can be enforced, 0 off, 0 escaped; \
         slowest {:.1} s",
        slowest.as_secs_f64()
    );
}

/// A process that does nothing but work.
struct Busy(std::process::Child);

impl Busy {
    fn new() -> Self {
        Self(Command::new("/bin/sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn every_way() -> Vec<(crate::support::User, SetUp)> {
    users().into_iter().flat_map(|user| ENFORCED.map(|set_up| (user, set_up))).collect()
}
