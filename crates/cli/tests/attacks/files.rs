//! Files that are not what they seem: pipes, devices, links that lead out, and sizes without end.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Answer, FakeModel, Home, output, printed, users};

const SECRET: &str = "the-secret-of-elsewhere";

fn pipe(home: &Home, path: &str) {
    let path = home.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    home.give(&path);
}

fn link(home: &Home, path: &str, to: impl AsRef<Path>) {
    let path = home.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(to, &path).unwrap();
    home.give(&path);
}

/// Fewer megabytes than anything endless fills: a process may use no more address space. In KiB, for `ulimit -v`.
const MEMORY_KIB: u64 = 8 << 20;

fn bounded(home: &Home, arguments: &str) -> std::process::Output {
    let mut command = home.program(Path::new("/bin/sh"));
    let line = format!("ulimit -v {MEMORY_KIB}; exec {} {arguments}", crate::support::binary().display());
    command.args(["-c", &line]);
    output(command, Duration::from_secs(60))
}

#[test]
fn a_configuration_that_never_ends_is_refused() {
    for user in users() {
        for kind in ["pipe", "/dev/zero", "/dev/urandom", "/proc/self/mem", "link to a pipe", "folder"] {
            for file in ["work/.flint/config.toml", "flint/config.toml"] {
                let home = Home::new(user);
                match kind {
                    "pipe" => pipe(&home, file),
                    "link to a pipe" => {
                        pipe(&home, "work/p");
                        link(&home, file, home.path().join("work/p"));
                    }
                    "folder" => std::fs::create_dir_all(home.path().join(file)).unwrap(),
                    device => link(&home, file, device),
                }
                for command in ["config show", "exec x", "sandbox"] {
                    let ran = bounded(&home, command);
                    let said = printed(&ran);
                    assert!(!ran.status.success() && said.contains("config.toml"), "{user:?} {kind} {command}: {said}");
                }
            }
        }
    }
}

#[test]
fn links_out_of_the_workspace_are_not_sent() {
    for user in users() {
        for (file, prompt) in [
            ("AGENTS.md", "explain"),
            ("AGENTS.override.md", "explain"),
            ("notes.txt", "explain notes.txt"),
            ("notes.txt", "explain @notes.txt"),
            ("inner/notes.txt", "explain @inner/notes.txt"),
        ] {
            for style in ["pair", "agent"] {
                let home = Home::new(user);
                let model = FakeModel::start([]);
                home.use_model(&model, &format!("style = \"{style}\"\n"));
                home.write("work/a.txt", "plain\n");
                home.write("elsewhere/secret", SECRET);
                match file {
                    "inner/notes.txt" => {
                        home.write("elsewhere/notes.txt", SECRET);
                        link(&home, "work/inner", home.path().join("elsewhere"));
                    }
                    file => link(&home, &format!("work/{file}"), home.path().join("elsewhere/secret")),
                }
                let ran = home.run(&["exec", prompt]);
                let sent = serde_json::to_string(&model.requests()).unwrap();
                assert!(sent.len() > 2, "{}", printed(&ran));
                assert!(!sent.contains(SECRET), "{user:?} {file} {style} {prompt}");
                if file.starts_with("AGENTS") {
                    assert!(printed(&ran).contains("leads outside"), "{}", printed(&ran));
                }
            }
        }
        // A link that stays inside is read as before.
        let home = Home::new(user);
        let model = FakeModel::start([]);
        home.use_model(&model, "style = \"agent\"\n");
        home.write("work/docs/rules", SECRET);
        link(&home, "work/AGENTS.md", "docs/rules");
        home.run(&["exec", "explain"]);
        assert!(serde_json::to_string(&model.requests()).unwrap().contains(SECRET));
    }
}

#[test]
fn tools_wait_for_no_pipe_and_read_no_device() {
    for user in users() {
        for tool in ["read", "search", "list", "edit"] {
            for what in ["pipe", "zero", "inner"] {
                let home = Home::new(user);
                let arguments = match tool {
                    "search" => json!({"pattern": "x", "path": what}),
                    "edit" => json!({"path": what, "old": "a", "new": "b"}),
                    _ => json!({"path": what}),
                };
                let model = FakeModel::start([Answer::call(tool, &arguments)]);
                home.use_model(&model, "style = \"agent\"\n");
                home.write("work/inner/a.txt", "x\n");
                pipe(&home, "work/pipe");
                pipe(&home, "work/inner/.gitignore");
                link(&home, "work/zero", "/dev/zero");
                let ran = bounded(&home, "exec 'look'");
                // It ends by itself, having changed nothing although it was set to.
                assert_eq!(ran.status.code(), Some(3), "{user:?} {tool} {what}: {}", printed(&ran));
                assert_eq!(model.requests().len(), 2, "{user:?} {tool} {what}: the call was answered");
            }
        }
    }
}

#[test]
fn pipes_and_devices_everywhere_are_passed_by() {
    for user in users() {
        for style in ["pair", "agent"] {
            for file in ["AGENTS.md", "notes.txt", ".gitignore", ".ignore", "src/.gitignore", "pyproject.toml", "a.py"]
            {
                for device in [false, true] {
                    let home = Home::new(user);
                    let model = FakeModel::start([Answer::call("list", &json!({"path": "."}))]);
                    home.use_model(&model, &format!("style = \"{style}\"\n"));
                    home.write("work/src/b.py", "def f():\n    pass\n");
                    match device {
                        true => link(&home, &format!("work/{file}"), "/dev/zero"),
                        false => pipe(&home, &format!("work/{file}")),
                    }
                    let ran = bounded(&home, &format!("exec 'explain @{file} and f'"));
                    assert!(!model.requests().is_empty(), "{user:?} {style} {file} {device}: {}", printed(&ran));
                }
            }
        }
    }
}

#[test]
fn huge_files_are_not_sent_and_take_no_memory() {
    for user in users() {
        let home = Home::new(user);
        let model = FakeModel::start([]);
        home.use_model(&model, "style = \"pair\"\n");
        home.write("work/line.txt", "x".repeat(50 << 20));
        home.write("work/middle.txt", "y".repeat(1 << 20));
        let sparse = home.write("work/sparse.txt", "");
        std::fs::File::options().write(true).open(sparse).unwrap().set_len(12 << 30).unwrap();
        let ran = bounded(&home, "exec 'explain @line.txt @middle.txt @sparse.txt'");
        let sent = serde_json::to_string(&model.requests()).unwrap();
        assert!(sent.len() > 2, "{}", printed(&ran));
        assert!(sent.len() < 200_000, "{} bytes were sent", sent.len());
        let said = printed(&ran);
        for name in ["line.txt", "sparse.txt"] {
            assert!(said.contains(&format!("{name} is larger than")), "{said}");
        }
        assert!(sent.contains("more bytes in this line"), "the model is told what was left out");
    }
}

#[test]
fn arguments_of_a_provider_are_bounded() {
    for user in users() {
        let home = Home::new(user);
        let large = "z".repeat(3 << 20);
        let call = Answer::call("edit", &json!({"path": "a.txt", "old": "", "new": large}));
        let model = FakeModel::start([call]);
        home.use_model(&model, "style = \"agent\"\n");
        let ran = home.run(&["exec", "write"]);
        assert!(!home.work.join("a.txt").exists(), "{}", printed(&ran));
        let requests = model.requests();
        assert_eq!(requests.len(), 2, "{}", printed(&ran));
        let second = requests[1].to_string();
        assert!(second.contains("is the most") && second.len() < 200_000, "{} bytes", second.len());
    }
}

#[test]
fn a_schema_and_standard_input_are_bounded() {
    for user in users() {
        let home = Home::new(user);
        pipe(&home, "work/pipe");
        for schema in ["pipe", "/dev/zero"] {
            let ran = bounded(&home, &format!("exec --output-schema {schema} x"));
            assert!(printed(&ran).contains("not a regular file"), "{}", printed(&ran));
        }
        for command in ["exec -", "run --model ./none.gguf hello"] {
            let ran = bounded(&home, &format!("{command} < /dev/zero"));
            assert!(printed(&ran).contains("standard input has more than"), "{}", printed(&ran));
        }
    }
}

#[test]
fn the_first_interrupt_ends_a_look() {
    for user in users() {
        let home = Home::new(user);
        let model = FakeModel::start([Answer::call("read", &json!({"path": "pipe"})), Answer::text("x")]);
        home.use_model(&model, "style = \"agent\"\n");
        pipe(&home, "work/pipe");
        let mut command = home.flint(&["exec", "look"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while model.requests().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(10));
        }
        let id = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        let _ = nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT);
        let ended = loop {
            match child.try_wait().unwrap() {
                Some(_) => break true,
                None if begun.elapsed() > Duration::from_secs(60) => break false,
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let _ = child.kill();
        let _ = child.wait();
        assert!(ended, "{user:?}: one interrupt did not end it");
    }
}
