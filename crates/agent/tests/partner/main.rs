//! The partner's turns against a model that says what the test wrote down: what goes over the wire, what the person is
//! told, and what stands in the files afterwards.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // The tests' own files and words.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

mod names;
mod placing;
mod script;
mod sessions;
mod turns;

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::config::{Config, Sources};
use agent::local::ServerSpec;
use agent::{Command, Event, Outcome, Partner, PartnerOptions, Prompt};
use tokio::sync::mpsc::Receiver;

use script::{Say, Script};

const MODULE: &str = "def first(a):\n    return a[0]\n\n\ndef last(a):\n    return a[1]\n";
const FIXED: &str = "def first(a):\n    return a[0]\n\n\ndef last(a):\n    return a[-1]\n";
const ANSWER: &str = "```python\ndef last(a):\n    return a[-1]\n```\n";

/// A workspace, a state directory and a scripted model.
struct World {
    folder: tempfile::TempDir,
    script: Script,
    settings: Vec<String>,
}

impl World {
    async fn new(answers: impl IntoIterator<Item = Say>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Script::start(answers).await;
        let world = Self { folder, script, settings: Vec::new() };
        std::fs::create_dir_all(world.root()).unwrap();
        std::fs::create_dir_all(world.path("user")).unwrap();
        let config = format!(
            "model = \"scripted\"\nmodel_provider = \"test\"\nstyle = \"pair\"\nintent = \"change\"\n[model_providers.test]\nbase_url = \
             \"{}\"\nsupports_websockets = false\n",
            world.script.url
        );
        std::fs::write(world.path("user/config.toml"), config).unwrap();
        world.write("module.py", MODULE);
        world.write("test_module.py", "from module import last\n\nassert last([1, 2, 3]) == 3\n");
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> PathBuf {
        self.path("work")
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.root().join(name).parent().unwrap()).unwrap();
        std::fs::write(self.root().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.root().join(name)).unwrap()
    }

    fn options(&self) -> PartnerOptions {
        let root = self.root().canonicalize().unwrap();
        let sources = Sources {
            user_dir: Some(self.path("user")),
            cwd: root.clone(),
            overrides: self.settings.clone(),
            ..Sources::default()
        };
        let state = self.path("state");
        let server =
            ServerSpec { program: PathBuf::new(), arguments: Vec::new(), models: Vec::new(), state: state.clone() };
        PartnerOptions {
            root,
            state,
            config: Config::load(&sources).unwrap(),
            sources,
            server,
            default_model: "scripted".to_owned(),
            known_models: Vec::new(),
            models: Vec::new,
            instructions: String::new(),
            instruction_files: Vec::new(),
            ephemeral: false,
            resume: None,
            output_schema: None,
            checks: false,
        }
    }

    fn start(&self) -> Talk {
        self.start_with(self.options())
    }

    fn start_with(&self, options: PartnerOptions) -> Talk {
        let (partner, events) = Partner::start(options);
        Talk { partner, events, seen: Vec::new() }
    }
}

/// A person at the partner.
struct Talk {
    partner: Partner,
    events: Receiver<Event>,
    seen: Vec<Event>,
}

impl Talk {
    async fn say(&self, command: Command) {
        assert!(self.partner.send(command).await, "the partner has ended");
    }

    /// Reads events up to one that fits.
    async fn until(&mut self, fits: impl Fn(&Event) -> bool) -> Event {
        let wait = async {
            while let Some(event) = self.events.recv().await {
                self.seen.push(event.clone());
                if fits(&event) {
                    return event;
                }
            }
            panic!("the partner ended: {:?}", self.seen);
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
        waited.unwrap_or_else(|_| panic!("nothing more came"))
    }

    /// Reads to the end of the turn.
    async fn turn_end(&mut self) -> Outcome {
        match self.until(|event| matches!(event, Event::TurnEnded { .. })).await {
            Event::TurnEnded { outcome, .. } => outcome,
            _ => unreachable!(),
        }
    }

    /// Asks and reads to the end of the turn.
    async fn ask(&mut self, text: &str) -> Outcome {
        self.say(Command::Ask(Prompt::from(text))).await;
        self.turn_end().await
    }

    fn notices(&self) -> String {
        let text = |event: &Event| match event {
            Event::Notice { text } => Some(format!("{text}\n")),
            _ => None,
        };
        self.seen.iter().filter_map(text).collect()
    }

    fn count(&self, fits: impl Fn(&Event) -> bool) -> usize {
        self.seen.iter().filter(|event| fits(event)).count()
    }
}

fn is_applied(event: &Event) -> bool {
    matches!(event, Event::EditApplied { path, .. } if path == Path::new("module.py"))
}
