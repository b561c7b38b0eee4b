//! `/commit` and `commit = "turn"`: what Flint changed, nothing of the user's, and no program that a repository names.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::world::{CART, World, printed};

const EDIT: &str = "Here.\n\n```python\ndef total(cart):\n    return sum(item.price for item in cart.items) + 1\n```\n";
const TASK: &str = "Make total in shop/cart.py larger.";

fn changes(_: &str) -> &'static str {
    "edit"
}

impl World {
    /// Runs git in the workspace, as its user would.
    fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.current_dir(self.root()).args(arguments).env("HOME", self.root().join("../home"));
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", printed(&output));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// A repository with one commit of everything, of a user with a name.
    fn repository(answers: &'static [&'static str]) -> Self {
        let world = World::new(changes, answers);
        std::fs::create_dir(world.root().join("../home")).unwrap();
        std::fs::write(world.root().join("../home/.gitconfig"), "[user]\nname = Ann\nemail = ann@example.com\n")
            .unwrap();
        world.write("README.md", "A shop.\n");
        world.git(&["init", "-q", "-b", "main"]);
        world.git(&["add", "."]);
        world.git(&["commit", "-q", "-m", "begin"]);
        world
    }
}

#[test]
fn what_flint_changed_is_committed_and_what_the_user_changed_is_not() {
    let world = World::repository(&[EDIT]);
    // The user's own work: in another file, in a new one, and in the very file that Flint changes.
    world.write("README.md", "A shop of mine.\n");
    world.write("new.txt", "mine\n");
    world.write("shop/cart.py", &CART.replace("class Item:", "# My items.\nclass Item:"));
    let told = world.talk(&[], &[("/commit", "nothing to commit"), (TASK, "done in"), ("/commit", "Committed")]);
    assert!(told.contains(" on main, 1 file: Make total in shop/cart.py larger.\n"), "{told}");
    assert_eq!(
        world.git(&["show", "--format=%an %s", "--stat=60"]).lines().next(),
        Some("Ann Make total in shop/cart.py larger.")
    );
    let committed = world.git(&["show", "HEAD:shop/cart.py"]);
    assert_eq!(committed + "\n", CART.replace("cart.items)\n", "cart.items) + 1\n"));
    assert_eq!(world.git(&["status", "--porcelain"]), " M README.md\n M shop/cart.py\n?? new.txt");
    let left = world.git(&["diff", "shop/cart.py"]);
    assert!(left.contains("+# My items.") && !left.contains("+ 1"), "{left}");
    assert!(world.read("shop/cart.py").contains("# My items.") && world.read("shop/cart.py").contains("+ 1"));
}

#[test]
fn no_hook_and_no_filter_of_the_repository_runs() {
    let world = World::repository(&[EDIT]);
    let mark = world.root().join("../mark");
    let script = format!("#!/bin/sh\ntouch {}\ncat\n", mark.display());
    for hook in ["pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change", "fsmonitor"] {
        let path = world.root().join(".git/hooks").join(hook);
        std::fs::write(&path, &script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let hooks = world.root().join(".git/hooks");
    let fsmonitor = hooks.join("fsmonitor").display().to_string();
    let config = format!(
        "[core]\nrepositoryformatversion = 0\nfsmonitor = {fsmonitor}\nhooksPath = {}\n[commit]\ngpgSign = true\n[gpg]\nprogram = \
         {fsmonitor}\n[filter \"evil\"]\nclean = {fsmonitor}\nsmudge = {fsmonitor}\n",
        hooks.display()
    );
    std::fs::write(world.root().join(".git/config"), config).unwrap();
    let told = world.talk(&[], &[(TASK, "done in"), ("/commit", "Committed")]);
    assert!(!mark.exists(), "{told}");

    let world = World::repository(&[EDIT]);
    let config = format!("[filter \"evil\"]\nclean = {fsmonitor}\nsmudge = {fsmonitor}\n");
    std::fs::write(world.root().join(".git/config"), config).unwrap();
    world.write(".gitattributes", "*.py filter=evil\n");
    let told = world.talk(&[], &[(TASK, "done in"), ("/commit", "nothing was committed")]);
    assert!(told.contains("shop/cart.py: git converts it (the attribute `filter`)"), "{told}");
    assert!(!mark.exists(), "{told}");
}

#[test]
fn what_cannot_be_told_apart_is_refused() {
    let own = CART.replace("cart.items)\n", "cart.items) * 2\n");
    let world = World::repository(&[EDIT]);
    world.write("shop/cart.py", &own);
    let told = world.talk(&[], &[(TASK, "done in"), ("/commit", "nothing was committed")]);
    assert!(told.contains("shop/cart.py: your own changes stand in the same lines"), "{told}");

    let world = World::repository(&[EDIT]);
    world.write("shop/cart.py", &CART.replace("class Item:", "# My items.\nclass Item:"));
    world.git(&["add", "."]);
    let told = world.talk(&[], &[(TASK, "done in"), ("/commit", "nothing was committed")]);
    assert!(told.contains("you have staged changes of it"), "{told}");
    assert_eq!(world.git(&["log", "--format=%s"]), "begin");

    let world = World::new(changes, &[EDIT]);
    let told = world.talk(&[], &[(TASK, "done in"), ("/commit", "nothing was committed")]);
    assert!(told.contains("git does not work in this folder"), "{told}");

    // What was taken back is not committed.
    let world = World::repository(&[EDIT]);
    let told = world.talk(&[], &[(TASK, "done in"), ("/undo", "undo: "), ("/commit", "nothing to commit")]);
    assert_eq!(world.git(&["status", "--porcelain"]), "", "{told}");
}

#[test]
fn every_turn_is_a_commit_where_that_is_wanted() {
    let world = World::repository(&[EDIT]);
    let told = world.talk(&["-ccommit=turn"], &[(TASK, "Committed")]);
    assert_eq!(world.git(&["log", "--format=%s"]), "Make total in shop/cart.py larger.\nbegin", "{told}");
    assert_eq!(world.git(&["status", "--porcelain"]), "");

    let world = World::repository(&[EDIT]);
    let output = world.exec(&["-c", "commit=turn", "--check", "false", "--repairs", "0", TASK]);
    assert_eq!((output.status.code(), world.git(&["log", "--format=%s"]).as_str()), (Some(4), "begin"));
    let world = World::repository(&[EDIT]);
    let output = world.exec(&["-c", "commit=turn", "--check", "true", TASK]);
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
    assert_eq!(world.git(&["log", "--format=%s"]), "Make total in shop/cart.py larger.\nbegin");

    // A project cannot want it.
    let world = World::repository(&[EDIT]);
    world.write(".flint/config.toml", "commit = \"turn\"\n");
    let output = world.exec(&[TASK]);
    assert_eq!(world.git(&["log", "--format=%s"]), "begin", "{}", printed(&output));
}

#[test]
fn the_first_commit_of_a_repository_is_made_in_a_folder_below_it() {
    let world = World::empty(changes, &["```python\nprint(1)\n```\n"]);
    std::fs::create_dir(world.root().join("../home")).unwrap();
    std::fs::write(world.root().join("../home/.gitconfig"), "[user]\nname = Ann\nemail = ann@example.com\n").unwrap();
    world.git(&["init", "-q", "-b", "main"]);
    world.write("Cargo.toml", "[package]\n");
    let told = world.talk(&[], &[("/init", "done in"), ("/commit commands of the project", "Committed")]);
    assert!(told.contains("It is the first commit."), "{told}");
    assert_eq!(world.git(&["log", "--format=%s", "--name-only"]), "commands of the project\n\nAGENTS.md");
    world.write("sub/package.json", "{\"scripts\": {\"test\": \"x\"}}\n");
    let told = world.talk(&["-C", "sub"], &[("/init", "done in"), ("/commit", "Committed")]);
    assert_eq!(world.git(&["log", "-1", "--format=%s", "--name-only"]), "/init\n\nsub/AGENTS.md", "{told}");
}
