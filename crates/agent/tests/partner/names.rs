//! Names that nothing knows: the model hears of them once, then the person decides.

use agent::Decision;

use super::*;

const INVENTED: &str = "```python\ndef last(a):\n    return wire.fetch_last(a)\n```\n";
const RIGHT: &str = "```python\ndef last(a):\n    return wire.fetch_end(a)\n```\n";

/// A workspace with an environment of its own, in which one package is installed.
async fn world(answers: impl IntoIterator<Item = Say>) -> World {
    let world = World::new(answers).await;
    world.write(".venv/pyvenv.cfg", "home = /nowhere/bin\n");
    world.write(".venv/lib/python3.11/site-packages/wire.py", "def fetch_end(a):\n    return a[-1]\n");
    world.write(".gitignore", ".venv\n");
    world.write("module.py", &format!("import wire\n\n\n{MODULE}"));
    world
}

#[tokio::test]
async fn the_model_is_told_what_exists_and_answers_again() {
    let world = world([Say::all(INVENTED), Say::all(RIGHT)]).await;
    let mut talk = world.start();
    assert_eq!(talk.ask("Make last in module.py use wire.").await, Outcome::Done);
    assert!(world.read("module.py").contains("wire.fetch_end(a)"), "{}", world.read("module.py"));
    let told = talk.notices();
    assert!(told.contains("`wire` has no `fetch_last`; there is `fetch_end`"), "{told}");
    let heard = world.script.requests().last().unwrap().to_string();
    assert!(heard.contains("`wire` has no `fetch_last`; there is `fetch_end`"), "{heard}");
}

#[tokio::test]
async fn what_stays_unknown_is_written_only_when_the_person_says_so() {
    for (decision, written) in [(Decision::No, false), (Decision::Yes, true)] {
        let world = world([Say::all(INVENTED), Say::all(INVENTED)]).await;
        let before = world.read("module.py");
        let mut talk = world.start();
        talk.say(Command::Ask(Prompt::from("Make last in module.py use wire."))).await;
        let Event::ApprovalAsked(asked) = talk.until(|event| matches!(event, Event::ApprovalAsked(_))).await else {
            unreachable!("it was looked for");
        };
        assert!(asked.why.contains("`wire` has no `fetch_last`"), "{}", asked.why);
        assert_eq!(world.read("module.py"), before, "nothing is written while the person is asked");
        talk.say(Command::Decide { ask: asked.ask, decision }).await;
        let outcome = talk.turn_end().await;
        assert_eq!(outcome == Outcome::Done, written, "{outcome:?}");
        assert_eq!(world.read("module.py").contains("fetch_last"), written);
        assert!(
            talk.notices().contains("unknown names:\nmodule.py:9: `wire` has no `fetch_last`"),
            "{}",
            talk.notices()
        );
    }
}

#[tokio::test]
async fn names_are_not_looked_for_where_the_person_does_not_want_it() {
    let mut world = world([Say::all(INVENTED)]).await;
    world.settings.push("names=\"off\"".to_owned());
    let mut talk = world.start();
    assert_eq!(talk.ask("Make last in module.py use wire.").await, Outcome::Done);
    assert!(world.read("module.py").contains("fetch_last"));
}

#[tokio::test]
async fn names_that_a_sentence_invents_are_marked_and_packages_that_nobody_has() {
    let said =
        "`last` calls `fetch_end()` of `wire`, then `fetch_everything()`. Run `pip install wire left-pad` first.";
    let mut world = world([Say::all(said)]).await;
    world.settings.push("intent=\"answer\"".to_owned());
    let mut talk = world.start();
    assert_eq!(talk.ask("What does last call?").await, Outcome::Done);
    let told = talk.notices();
    assert!(
        told.contains("nothing here knows `fetch_everything`, which the answer names; there is `fetch_end`"),
        "{told}"
    );
    assert!(told.contains("nothing here knows the package `left-pad`"), "{told}");
    assert!(!told.contains("`wire`") && !told.contains("knows `fetch_end`"), "{told}");
}
