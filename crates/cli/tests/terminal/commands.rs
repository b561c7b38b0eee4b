//! What the commands of the screen do, on the screen and in lines.

use crate::world::World;

const SIZE: (u16, u16) = (90, 40);
const EDIT: &str =
    "Here it is.\n\n```python\ndef total(cart):\n    return sum(item.price for item in cart.items) + 1\n```\n";

fn asks(_: &str) -> &'static str {
    "answer"
}

fn changes(_: &str) -> &'static str {
    "edit"
}

#[test]
fn a_command_of_ones_own_runs_in_the_sandbox_and_the_model_reads_what_it_prints() {
    let world = World::new(asks, &["It has a Cart."]);
    let screen = world.screen(&[], SIZE);
    screen.enter("!ls shop && echo made > made.txt");
    screen.sees("$ ls shop && echo made > made.txt");
    screen.sees("  cart.py");
    screen.sees("Enter asks");
    assert_eq!(world.read("made.txt"), "made\n");
    screen.enter("What is in it?");
    screen.sees("It has a Cart.");
    let asked = world.model.asked();
    assert_eq!(asked.len(), 1, "the command itself asks no model: {asked:?}");
    screen.enter("/undo");
    screen.sees("undo: made.txt");
    assert!(!world.root().join("made.txt").exists(), "what a command makes has a way back");

    let told = world.plain(&[], "!echo one; echo two; false\n");
    assert!(told.contains("$: echo one") && told.contains("\none\ntwo\n"), "{told}");
    assert!(told.contains("failed with exit code 1"), "{told}");
}

#[test]
fn nothing_outside_of_the_workspace_is_written_by_a_command_of_ones_own() {
    let world = World::new(asks, &[""]);
    let told = world.plain(&["-csandbox_workspace_write.exclude_slash_tmp=true"], "!echo x > ../outside.txt\n");
    if told.contains("No sandbox holds commands") {
        return eprintln!("no sandbox here: {told}");
    }
    assert!(!world.root().join("../outside.txt").exists(), "{told}");
    assert!(told.contains("$: echo x"), "{told}");
}

#[test]
fn files_stay_before_the_model_until_they_are_dropped() {
    let world = World::new(asks, &["Yes."]);
    world.write("notes.txt", "The shop opens at nine.\n");
    let told = world.plain(&[], "/add notes.txt\n/add\n/add nots.txt\n/add shop\nIs it good?\n");
    assert!(told.contains("kept before the model from the next message on: notes.txt"), "{told}");
    assert!(told.contains("kept before the model: notes.txt"), "{told}");
    assert!(told.contains("there is no file nots.txt; did you mean notes.txt?"), "{told}");
    assert!(told.contains("shop is a folder"), "{told}");
    assert!(told.contains("read") && told.contains("notes.txt"), "which files were read is told: {told}");
    assert!(world.model.asked()[0].contains("The shop opens at nine."), "{:?}", world.model.asked());

    let world = World::new(changes, &[EDIT]);
    world.write("notes.txt", "The shop opens at nine.\n");
    let told = world.plain(&[], "/add notes.txt\n/drop @notes.txt\nMake total in shop/cart.py larger.\n");
    assert!(told.contains("No file is kept any more."), "{told}");
    assert!(!world.model.asked()[0].contains("The shop opens at nine."), "{:?}", world.model.asked());
}

#[test]
fn what_was_said_can_be_forgotten_and_the_session_goes_on() {
    let world = World::new(asks, &["The first answer.", "The second answer."]);
    let screen = world.screen(&[], SIZE);
    screen.enter("Tell me one thing.");
    screen.sees("The first answer.");
    screen.enter("/clear");
    screen.wait("an empty screen", |text| {
        text.contains("The conversation is empty now.") && !text.contains("The first answer.")
    });
    screen.enter("Tell me another thing.");
    screen.sees("The second answer.");
    screen.enter("/rewind");
    screen.sees("Tell me one thing.");
    let turns = [("Tell me one thing.", "done in"), ("/clear", "is empty now"), ("And another thing.", "done in")];
    let told = world.talk(&[], &turns);
    assert!(told.contains("the conversation is empty now; files, turns and /undo stay"), "{told}");
}

#[test]
fn every_command_says_what_it_did() {
    let world = World::new(asks, &["The shop sells things."]);
    let config = "[profiles.fast]\nmax_output_tokens = 64\n";
    std::fs::create_dir_all(world.root().join("../config/flint")).unwrap();
    std::fs::write(world.root().join("../config/flint/config.toml"), config).unwrap();
    for (line, wanted) in [
        ("/fast", "The profile fast is in use: scripted, style pair."),
        ("/profile fast", "The profile fast is in use"),
        ("/profile", "No profile is in use; the configuration has fast"),
        ("/profile nosuch", "nosuch"),
        ("/style agent", "The style is agent now"),
        ("/approvals never", "approval_policy is never now."),
        ("/approvals", "approval_policy is on-request."),
        ("/compact", "The conversation is empty, so there is nothing to make shorter."),
        ("/diff", "this session changed no file"),
        ("/copy", "neither an answer nor a change"),
        ("/undo", "nothing to undo"),
        ("/overrule", "no message yet"),
        ("/model other", "other answers from the next message on."),
        ("/drop", "No file is kept"),
        ("/nosuch", "there is no /nosuch"),
        ("!", "say what to run"),
    ] {
        let told = world.plain(&[], &format!("{line}\n"));
        assert!(told.contains(wanted), "{line}: {told}");
    }
    let told = world.talk(&[], &[("What is sold?", "done in"), ("/compact", "compacted from")]);
    assert!(told.contains("summarises the conversation"), "{told}");
    let screen = world.screen(&[], SIZE);
    screen.enter("/status");
    screen.sees("no turn yet");
    let text = screen.text();
    assert!(!text.contains("transport not known") && !text.contains("0 of 0"), "{text}");
    assert!(text.contains("provider  http://127.0.0.1:"), "{text}");
}

#[test]
fn models_are_listed_with_what_a_pull_costs_and_unknown_ones_are_refused() {
    // The private server's models; nothing is asked, so no server starts.
    let world = World::new(asks, &[""]);
    let told = world.plain(&["-cmodel_provider=\"scripted\""], "/model\n");
    assert!(told.contains("scripted is in use"), "{told}");
    let store = tempfile::tempdir().unwrap();
    let models = store.path().join("models");
    std::fs::create_dir_all(&models).unwrap();
    let own = store.path().join("own.gguf");
    std::fs::write(&own, testkit::chat::tiny_model("{{ messages }}").bytes()).unwrap();
    let lines = "/model\n/model qwen2.5-coder-15b\n/model qwen2.5-coder-7b\n/model nosuch\n";
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_flint"))
        .args(["--plain", "--offline", "-m"])
        .arg(&own)
        .env("FLINT_HOME", store.path())
        .current_dir(world.root())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    let told = crate::world::printed(&child.wait_with_output().unwrap());
    assert!(told.contains("`flint models pull NAME` fetches one of these:"), "{told}");
    assert!(told.contains("qwen2.5-coder-1.5b") && told.contains("1.1 GB from Hugging Face, Qwen/"), "{told}");
    assert!(told.contains("qwen2.5-coder-7b") && told.contains("about 5 GB from Hugging Face, Qwen/"), "{told}");
    assert!(told.contains("there is no model qwen2.5-coder-15b; the nearest names are qwen2.5-coder-"), "{told}");
    assert!(
        told.contains("qwen2.5-coder-7b is not here") && told.contains("flint models pull qwen2.5-coder-7b"),
        "{told}"
    );
    assert!(told.contains("there is no model nosuch; /model lists those there are"), "{told}");
}

#[test]
fn init_writes_the_commands_of_the_project_and_nothing_else() {
    let world = World::new(asks, &[""]);
    world.write("Cargo.toml", "[package]\nname = \"x\"\n");
    let told = world.talk(&[], &[("/init", "done in"), ("/init", "there already")]);
    let text = world.read("AGENTS.md");
    assert!(text.starts_with("# Commands\n\n- build: `cargo build`\n- test: `cargo test`\n"), "{text}");
    assert!(told.contains("changed AGENTS.md") && told.contains("AGENTS.md is there already"), "{told}");
    assert_eq!(world.model.asked(), [] as [String; 0], "no model is asked");
}

#[test]
fn a_message_that_was_taken_wrongly_is_taken_otherwise_by_one_key() {
    let world = World::new(asks, &[EDIT]);
    let screen = world.screen(&[], SIZE);
    screen.enter("total is one too small");
    screen.sees("taken for a question: no file changes");
    screen.sees("Enter asks");
    assert_eq!(world.read("shop/cart.py"), crate::world::CART);
    screen.keys("\x0f");
    screen.sees("changed shop/cart.py");
    assert!(world.read("shop/cart.py").contains("+ 1"));
    screen.sees("Enter asks");
    screen.keys("\x0f");
    screen.wait("the change taken back", |text| text.matches("taken for a question").count() == 2);
    screen.sees("Enter asks");
    assert_eq!(world.read("shop/cart.py"), crate::world::CART);
}

#[test]
fn a_session_that_goes_on_shows_its_changes_as_diffs() {
    let world = World::new(changes, &[EDIT]);
    let told = world.plain(&[], "Make total larger.\n");
    assert!(told.contains("changed shop/cart.py"), "{told}");
    let screen = world.screen(&["resume"], SIZE);
    screen.sees("changed shop/cart.py +1 -1");
    let text = screen.text();
    assert!(text.contains("+    return sum(item.price for item in cart.items) + 1"), "{text}");
    assert!(text.contains("Here it is.") && !text.contains("```"), "{text}");
    screen.enter("/resume");
    screen.wait("rows with times", |text| text.contains(" s ago") && text.contains("1 turn"));
}
