//! What a message is taken for, by the real binary and a model that answers everything with code: files change only when a
//! change was asked for.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use crate::socket::answer;

const CART: &str = "class Cart:\n    def add(self, item):\n        self.items.append(item)\n\n\ndef total(cart):\n    return sum(cart.items)\n";
const EDIT: &str = "Here it is.\n\n```python\ndef total(cart):\n    return sum(cart.items) + 1\n```\n";
const EDITED: &str = "class Cart:\n    def add(self, item):\n        self.items.append(item)\n\n\ndef total(cart):\n    return sum(cart.items) + 1\n";

type Requests = Arc<Mutex<Vec<Value>>>;

/// A model that sorts every message as `word` says and answers `text`. Requests that do not sort are kept.
struct Scripted {
    port: u16,
    requests: Requests,
}

impl Scripted {
    async fn start(word: &'static str, text: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, requests) = (listener.local_addr().unwrap().port(), Requests::default());
        let kept = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(connection(stream, word, text, Arc::clone(&kept)));
            }
        });
        Self { port, requests }
    }

    /// The last message of each request for an answer.
    fn asked(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        let last = |request: &Value| {
            let item = request["input"].as_array().and_then(|items| items.last()).cloned().unwrap_or_default();
            item["content"][0]["text"].as_str().unwrap_or_default().to_owned()
        };
        requests.iter().map(last).collect()
    }
}

async fn connection(stream: TcpStream, word: &str, text: &str, requests: Requests) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { return };
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(message) = message else { continue };
        let request: Value = serde_json::from_str(&message).unwrap();
        let sorts = request["instructions"]
            .as_str()
            .is_some_and(|said| said.starts_with("You decide what a coding assistant does"));
        let said = if sorts { word } else { text };
        let number = {
            let mut requests = requests.lock().unwrap();
            if !sorts {
                requests.push(request.clone());
            }
            requests.len()
        };
        if answer(&mut socket, &request, &format!("resp_{number}_{sorts}"), said).await.is_none() {
            return;
        }
    }
}

/// A folder with a project, and how `flint` went in it.
struct World {
    folder: tempfile::TempDir,
    state: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { folder: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() };
        std::fs::create_dir(world.folder.path().join("shop")).unwrap();
        std::fs::write(world.folder.path().join("shop/cart.py"), CART).unwrap();
        world
    }

    fn cart(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("shop/cart.py")).unwrap()
    }

    fn command(&self, model: &Scripted) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
        command.args(["-m", "m", "-c", "model_provider=\"scripted\"", "-c", "style=\"pair\""]);
        command.args(["-c", &format!("model_providers.scripted.base_url=\"http://127.0.0.1:{}/v1\"", model.port)]);
        command.args(["-c", "model_providers.scripted.supports_websockets=true"]);
        let state = self.state.path();
        command.env("XDG_STATE_HOME", state).env("XDG_CONFIG_HOME", state).env_remove("FLINT_HOME");
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    async fn exec(&self, model: &Scripted, arguments: &[&str]) -> Output {
        let mut command = self.command(model);
        command.arg("exec").args(arguments);
        finish(command).await
    }
}

async fn finish(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[tokio::test]
async fn talk_and_questions_change_nothing_whatever_the_model_answers() {
    for (word, text) in [
        ("chat", "hello"),
        ("chat", "thanks, that fix was great!"),
        ("answer", "Can you explain how the cart works?"),
        ("answer", "Review shop/cart.py and fix nothing"),
        ("answer", "show me the total function"),
        ("run", "run the tests"),
    ] {
        let (world, model) = (World::new(), Scripted::start(word, EDIT).await);
        let output = world.exec(&model, &[text]).await;
        assert_eq!(output.status.code(), Some(0), "{text}: {}", errors(&output));
        assert_eq!(world.cart(), CART, "{text}");
        assert!(said(&output).contains("return sum(cart.items) + 1"), "the answer is shown: {}", said(&output));
        assert!(errors(&output).contains("taken for"), "{}", errors(&output));
    }
}

#[tokio::test]
async fn a_change_is_made_and_what_is_unclear_is_only_answered() {
    let (world, model) = (World::new(), Scripted::start("edit", EDIT).await);
    let output = world.exec(&model, &["total is one too small"]).await;
    assert_eq!((output.status.code(), world.cart().as_str()), (Some(0), EDITED), "{}", errors(&output));

    let (world, model) = (World::new(), Scripted::start("unclear", EDIT).await);
    let output = world.exec(&model, &["total"]).await;
    assert_eq!((output.status.code(), world.cart().as_str()), (Some(5), CART), "{}", errors(&output));
    assert!(errors(&output).contains("--intent change"), "{}", errors(&output));
    let output = world.exec(&model, &["--intent", "answer", "total"]).await;
    assert_eq!((output.status.code(), world.cart().as_str()), (Some(0), CART), "{}", errors(&output));
    let output = world.exec(&model, &["--intent", "change", "total"]).await;
    assert_eq!((output.status.code(), world.cart().as_str()), (Some(0), EDITED), "{}", errors(&output));
}

#[tokio::test]
async fn a_command_for_the_screen_is_not_a_task() {
    let (world, model) = (World::new(), Scripted::start("edit", EDIT).await);
    let output = world.exec(&model, &["!ls"]).await;
    assert_eq!((output.status.code(), world.cart().as_str()), (Some(0), CART), "{}", errors(&output));
    assert_eq!(model.asked(), [] as [String; 0], "the model is not asked");
}

#[tokio::test]
async fn a_change_that_was_asked_for_and_not_made_is_an_exit_code() {
    let same = "```python\ndef total(cart):\n    return sum(cart.items)\n```\n";
    for (answer, code, requests) in [("I would rather not.", 3, 1), (same, 5, 2)] {
        let (world, model) = (World::new(), Scripted::start("edit", answer).await);
        let output = world.exec(&model, &["Make total faster."]).await;
        assert_eq!((output.status.code(), world.cart().as_str()), (Some(code), CART), "{}", errors(&output));
        // Words are an answer. What is there already is asked for once more, and then the person is asked.
        assert_eq!(model.asked().len(), requests, "{:#?}", model.asked());
        let question = "What should be different in `total` (`shop/cart.py`)?";
        assert_eq!(String::from_utf8_lossy(&output.stdout).contains(question), code == 5, "{output:?}");
    }
}

#[tokio::test]
async fn a_check_is_about_changes_and_no_question_fails_because_of_it() {
    let mark = "touch \"$TMPDIR/checked\" && false";
    let (world, model) = (World::new(), Scripted::start("answer", "4").await);
    let config = format!("check={mark:?}");
    let output = world.exec(&model, &["-c", &config, "What is 2+2?"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(!errors(&output).contains("check: "), "{}", errors(&output));
    let (world, model) = (World::new(), Scripted::start("edit", EDIT).await);
    let output = world.exec(&model, &["--check", "false", "--repairs", "0", "Make total larger."]).await;
    assert_eq!((output.status.code(), world.cart().as_str()), (Some(4), EDITED), "{}", errors(&output));
}

#[tokio::test]
async fn the_check_runs_on_the_screen_too() {
    let world = World::new();
    let model = Scripted::start("edit", EDIT).await;
    let mut command = world.command(&model);
    command.args(["--plain", "-c", "check=\"echo looked at; false\""]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"Make total larger.\n").unwrap();
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    let seen = said(&output);
    assert!(seen.contains("check: echo looked at"), "{seen}{}", errors(&output));
    assert!(seen.contains("the check failed"), "{seen}{}", errors(&output));
}

#[tokio::test]
async fn what_does_not_exist_is_said_without_asking_the_model() {
    let model = Scripted::start("answer", "It reads the settings and returns them.").await;
    for (text, wanted) in [
        ("What does shop/settings.py do?", "There is no `shop/settings.py`"),
        ("Gibt es eine Klasse Customer?", "`Customer` gibt es in diesem Projekt nicht"),
        ("А где функция count_lines?", "В этом проекте нет `count_lines`"),
    ] {
        let world = World::new();
        let output = world.exec(&model, &[text]).await;
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        assert!(said(&output).contains(wanted), "{text}: {}", said(&output));
        assert_eq!(model.asked(), [] as [String; 0], "{text}");
    }
}

#[tokio::test]
async fn questions_are_asked_with_the_facts_and_answers_say_where() {
    let (world, model) = (World::new(), Scripted::start("answer", "It sums the items, see `total`.").await);
    let output = world.exec(&model, &["Was ist in @shop/ und was macht total?"]).await;
    let asked = model.asked();
    assert!(asked[0].contains("shop/cart.py: Cart, total"), "the folder is listed: {}", asked[0]);
    assert!(asked[0].ends_with("Write in German."), "{}", asked[0]);
    assert!(said(&output).contains("shop/cart.py:6 `total`"), "{}", said(&output));

    let (world, model) = (World::new(), Scripted::start("answer", "A number.").await);
    let mut long: String =
        (0..900).map(|number| format!("def part_{number}(a):\n    return a + {number}\n\n")).collect();
    long += "def last_part(a):\n    return 'the end'\n";
    std::fs::write(world.folder.path().join("shop/long.py"), long).unwrap();
    world.exec(&model, &["What does last_part in shop/long.py return?"]).await;
    let asked = model.asked();
    assert!(asked[0].contains("return 'the end'") && asked[0].len() < 12_000, "{}", asked[0]);
}

#[tokio::test]
async fn what_is_piped_in_joins_the_prompt_and_wrong_arguments_are_told_apart() {
    let (world, model) = (World::new(), Scripted::start("answer", "A number.").await);
    let mut command = world.command(&model);
    command.args(["exec", "What is this?"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"piped in 42\n").unwrap();
        child.wait_with_output().unwrap()
    });
    let output = output.await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(model.asked()[0].contains("What is this?\n\npiped in 42"), "{}", model.asked()[0]);

    let bad = world.folder.path().join("schema.json");
    std::fs::write(&bad, "{").unwrap();
    let before = files(world.folder.path());
    for arguments in [
        &["--output-schema", bad.to_str().unwrap(), "hi"][..],
        &["--profile", "nosuch", "hi"],
        &["  "],
        &["-C", "/nowhere", "hi"],
    ] {
        let output = world.exec(&model, arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
    }
    // Arguments of the partner stand before or after the command.
    let mut command = Command::new(env!("CARGO_BIN_EXE_flint"));
    command.args(["-p", "nosuch", "exec", "hi"]).env("XDG_CONFIG_HOME", world.state.path()).stdin(Stdio::null());
    let output = finish(command).await;
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("nosuch"), "{}", errors(&output));
    assert_eq!(files(world.folder.path()), before);
}
