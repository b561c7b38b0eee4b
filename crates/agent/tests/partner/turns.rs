//! One turn: the prompt, the growing change, the edit, and the person in between.

use super::*;

#[tokio::test]
async fn an_answer_becomes_an_edit() {
    let world = World::new([Say::all(ANSWER)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Fix the bug.").await, Outcome::Done);
    assert_eq!(world.read("module.py"), FIXED);
    let position = |fits: &dyn Fn(&Event) -> bool| talk.seen.iter().position(fits).unwrap();
    let started = position(&|event| matches!(event, Event::EditStarted { .. }));
    let grew = position(&|event| matches!(event, Event::EditGrew { .. }));
    let applied = position(&is_applied);
    assert!(position(&|event| matches!(event, Event::Requested { .. })) < started && started < grew && grew < applied);
    let last_grown = talk.seen.iter().rev().find_map(|event| match event {
        Event::EditGrew { diff, lines, .. } => Some((diff.to_string(), *lines)),
        _ => None,
    });
    let (diff, lines) = last_grown.unwrap();
    assert!(diff.contains("-    return a[1]\n+    return a[-1]\n"), "{diff}");
    assert_eq!(lines, (1, 1));

    let body = &world.script.requests()[0];
    assert_eq!((&body["model"], &body["temperature"], &body["store"]), (&"scripted".into(), &0.into(), &false.into()));
    assert!(body.get("prediction").is_none(), "only Flint's own server is sent what it may not know");
    let messages = world.script.messages(0);
    assert_eq!(messages.len(), 1);
    let (module, test) =
        (messages[0].1.find("module.py\n```python\n").unwrap(), messages[0].1.find("test_module.py\n").unwrap());
    assert!(module < test && messages[0].1.contains("Fix the bug."));
}

#[tokio::test]
async fn an_answer_that_does_not_apply_is_asked_for_once_more() {
    let elided = "```python\ndef last(a):\n    # ... rest of the code unchanged\n```\n";
    let world = World::new([Say::all(elided), Say::all(ANSWER)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Fix the bug.").await, Outcome::Done);
    assert_eq!(world.read("module.py"), FIXED);
    let messages = world.script.messages(1);
    assert_eq!(messages.len(), 3);
    assert!(messages[2].1.contains("leaves out code"), "{}", messages[2].1);

    let world = World::new([Say::all(elided), Say::all(elided)]).await;
    let mut talk = world.start();
    assert!(matches!(talk.ask("Fix the bug.").await, Outcome::Asked { .. }));
    assert_eq!(world.read("module.py"), MODULE);
    assert_eq!(talk.count(|event| matches!(event, Event::EditFailed { .. })), 2);
}

#[tokio::test]
async fn an_answer_that_changes_nothing_is_asked_for_once_more_and_then_the_person_is_asked() {
    let same = format!("```python\n{MODULE}```\n");
    let world = World::new([Say::all(&same), Say::all(ANSWER)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Make last work.").await, Outcome::Done);
    assert_eq!(world.read("module.py"), FIXED);
    let body = &world.script.requests()[1];
    assert!(body["temperature"].as_f64() > Some(0.0), "the same again would be the same again: {body}");
    assert_eq!(world.script.messages(1).len(), 1, "the model does not read that it said nothing new");

    let world = World::new([Say::all(&same), Say::all(&same), Say::all(ANSWER)]).await;
    let mut talk = world.start();
    let Outcome::Asked { question } = talk.ask("Make last work.").await else { panic!("nothing changed") };
    assert!(question.starts_with("What should be different in `last` (`module.py`)?"), "{question}");
    assert_eq!(world.read("module.py"), MODULE);
    assert_eq!(talk.ask("the last element").await, Outcome::Done);
    assert_eq!(world.read("module.py"), FIXED);
    let messages = world.script.messages(2);
    assert!(messages.iter().any(|(role, text)| role == "assistant" && *text == question), "{messages:?}");
}

#[tokio::test]
async fn a_stop_keeps_what_was_said_and_writes_nothing() {
    let world = World::new([Say::and_hang("I will.\n```python\ndef last(a):\n    ret"), Say::all("Hello.")]).await;
    let mut talk = world.start();
    talk.say(Command::Ask(Prompt::from("Fix the bug."))).await;
    talk.until(|event| matches!(event, Event::EditStarted { .. })).await;
    talk.say(Command::Stop).await;
    assert_eq!(talk.turn_end().await, Outcome::Stopped);
    assert_eq!(world.read("module.py"), MODULE);
    assert_eq!(talk.count(|event| matches!(event, Event::EditFailed { .. })), 1);
    assert_eq!(talk.ask("What now?").await, Outcome::Done);
    let messages = world.script.messages(1);
    assert!(messages[1].1.starts_with("I will.\n```python\ndef last(a):\n"), "{messages:?}");
    assert!(messages[2].1.starts_with("What now?"), "nothing changed, so no file is shown again: {messages:?}");
}

#[tokio::test]
async fn a_steer_turns_the_answer_also_where_the_server_cannot() {
    let world = World::new([Say::and_hang("Let me think about "), Say::all(ANSWER)]).await;
    let mut talk = world.start();
    talk.say(Command::Ask(Prompt::from("Fix the bug."))).await;
    talk.until(|event| matches!(event, Event::Text { .. })).await;
    talk.say(Command::Steer(Prompt::from("Only code."))).await;
    assert_eq!(talk.turn_end().await, Outcome::Done);
    assert_eq!(world.read("module.py"), FIXED);
    assert_eq!(talk.count(|event| matches!(event, Event::SteerAccepted { .. })), 1);
    assert_eq!(talk.count(|event| matches!(event, Event::SteerApplied { .. })), 1);
    let messages = world.script.messages(1);
    let roles: Vec<&str> = messages.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(messages[2].1, "Only code.");
}

#[tokio::test]
async fn what_is_queued_comes_after() {
    let world = World::new([Say::all("One."), Say::all("Two.")]).await;
    let mut talk = world.start();
    talk.say(Command::Ask(Prompt::from("What is one?"))).await;
    talk.say(Command::Queue(Prompt::from("What is two?"))).await;
    assert_eq!(talk.turn_end().await, Outcome::Done);
    assert_eq!(talk.turn_end().await, Outcome::Done);
    assert!(world.script.messages(1)[2].1.starts_with("What is two?"));
}

#[tokio::test]
async fn a_read_only_sandbox_asks_before_it_writes() {
    let mut world = World::new([Say::all(ANSWER), Say::all(ANSWER)]).await;
    world.settings = vec!["sandbox_mode=\"read-only\"".to_owned()];
    let mut talk = world.start();
    talk.say(Command::Ask(Prompt::from("Fix the bug."))).await;
    let Event::ApprovalAsked(asked) = talk.until(|event| matches!(event, Event::ApprovalAsked(_))).await else {
        unreachable!()
    };
    talk.say(Command::Decide { ask: asked.ask, decision: agent::Decision::No }).await;
    assert!(matches!(talk.turn_end().await, Outcome::Failed { .. }));
    assert_eq!(world.read("module.py"), MODULE);
    talk.say(Command::Ask(Prompt::from("Fix the bug."))).await;
    let Event::ApprovalAsked(asked) = talk.until(|event| matches!(event, Event::ApprovalAsked(_))).await else {
        unreachable!()
    };
    talk.say(Command::Decide { ask: asked.ask, decision: agent::Decision::Yes }).await;
    assert_eq!(talk.turn_end().await, Outcome::Done);
    assert_eq!(world.read("module.py"), FIXED);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_answer_too() {
    let mut world = World::new([]).await;
    world.settings = vec!["model_providers.test.base_url=\"http://127.0.0.1:9/v1\"".to_owned()];
    let mut talk = world.start();
    let Outcome::Failed { why } = talk.ask("Fix the bug.").await else { panic!("it cannot be done") };
    assert!(why.contains("127.0.0.1:9"), "{why}");
}
