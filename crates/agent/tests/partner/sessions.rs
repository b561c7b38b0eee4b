//! What lasts longer than a turn: the way back, sessions, and conversations that grow too long.

use super::*;
use agent::RewindWhat;

fn is_restored(event: &Event) -> bool {
    matches!(event, Event::Restored { .. })
}

#[tokio::test]
async fn undo_redo_and_rewind() {
    let second = "```python\ndef first(a):\n    return a[-0]\n```\n";
    let world = World::new([Say::all(ANSWER), Say::all(second), Say::all("Hello.")]).await;
    let mut talk = world.start();
    talk.ask("Fix last.").await;
    talk.ask("Change first.").await;
    let both = world.read("module.py");
    assert!(both.contains("a[-1]") && both.contains("a[-0]"));
    talk.say(Command::Undo { force: false }).await;
    talk.until(is_restored).await;
    assert_eq!(world.read("module.py"), FIXED);
    talk.say(Command::Undo { force: false }).await;
    talk.until(is_restored).await;
    assert_eq!(world.read("module.py"), MODULE);
    talk.say(Command::Undo { force: false }).await;
    talk.until(|event| matches!(event, Event::Trouble { .. })).await;
    talk.say(Command::Redo { force: false }).await;
    talk.until(is_restored).await;
    assert_eq!(world.read("module.py"), FIXED);
    talk.say(Command::Redo { force: false }).await;
    talk.until(is_restored).await;
    assert_eq!(world.read("module.py"), both);

    talk.say(Command::PreviewRewind { turn: 1 }).await;
    let Event::RewindPreview(preview) = talk.until(|event| matches!(event, Event::RewindPreview(_))).await else {
        unreachable!()
    };
    assert_eq!((preview.turns_lost, preview.files), (2, vec![(PathBuf::from("module.py"), (2, 2))]));
    talk.say(Command::Rewind { turn: 2, what: RewindWhat::Both }).await;
    talk.until(is_restored).await;
    assert_eq!(world.read("module.py"), FIXED);
    talk.ask("What is this?").await;
    let messages = world.script.messages(2);
    assert_eq!(messages.len(), 3, "the second turn is forgotten: {messages:?}");
    talk.say(Command::Diff).await;
    let Event::Diff { text } = talk.until(|event| matches!(event, Event::Diff { .. })).await else { unreachable!() };
    assert!(text.starts_with("--- a/module.py\n+++ b/module.py\n@@"), "{text}");
}

#[tokio::test]
async fn a_session_goes_on_after_the_process() {
    let world = World::new([Say::all(ANSWER), Say::all("Yes."), Say::all("Fork.")]).await;
    let mut talk = world.start();
    talk.ask("Fix last.").await;
    talk.say(Command::Add { path: "test_module.py".to_owned() }).await;
    let Event::Status(status) = talk.until(|event| matches!(event, Event::Status(_))).await else { unreachable!() };
    drop(talk);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut options = world.options();
    options.resume = Some(status.session[..status.session.len() - 1].to_owned());
    let mut talk = world.start_with(options);
    let Event::SessionOpened { session, turns } =
        talk.until(|event| matches!(event, Event::SessionOpened { .. })).await
    else {
        unreachable!()
    };
    assert_eq!(session, status.session);
    talk.say(Command::Status).await;
    let Event::Status(status) = talk.until(|event| matches!(event, Event::Status(_))).await else { unreachable!() };
    assert_eq!(status.pinned, [Path::new("test_module.py")], "what was added stays");
    assert_eq!((turns.len(), turns[0].asked.as_str()), (1, "Fix last."));
    assert!(!turns[0].answered.contains("```"), "the code is in the file: {}", turns[0].answered);
    let (path, lines, diff) = &turns[0].edits[0];
    assert_eq!((path.as_path(), *lines), (Path::new("module.py"), (1, 1)));
    assert!(diff.contains("+"), "{diff}");
    talk.ask("Was that right?").await;
    assert_eq!(world.script.messages(1).len(), 3);
    talk.say(Command::Undo { force: false }).await;
    talk.until(is_restored).await;
    assert_eq!(world.read("module.py"), MODULE);
    talk.say(Command::Fork).await;
    let Event::SessionOpened { session, turns } =
        talk.until(|event| matches!(event, Event::SessionOpened { .. })).await
    else {
        unreachable!()
    };
    assert!(session != status.session && turns.len() == 2);
    talk.say(Command::Sessions { query: "fix LAST".to_owned() }).await;
    let Event::Sessions(found) = talk.until(|event| matches!(event, Event::Sessions(_))).await else { unreachable!() };
    assert_eq!(found.len(), 2);
}

#[tokio::test]
async fn a_long_conversation_is_made_short_before_it_is_too_long() {
    let answers = [Say::all("Hello.").with_tokens(900), Say::all("We said hello."), Say::all("Yes.")];
    let mut world = World::new(answers).await;
    world.settings = vec!["model_context_window=1000".to_owned()];
    let mut talk = world.start();
    talk.ask("What is this?").await;
    talk.ask("Is it good?").await;
    let compacted = |event: &Event| matches!(event, Event::Compacted { tokens: (900, _), .. });
    assert_eq!(talk.count(compacted), 1, "{:?}", talk.seen);
    let messages = world.script.messages(2);
    assert!(messages[0].1.contains("We said hello.") && messages[0].1.contains("- What is this?"), "{messages:?}");
    assert_eq!(messages.len(), 2);
}
