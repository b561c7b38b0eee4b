//! A server in this process, over models that say what they are told and wait where they are told.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use engine::{Engine, EngineHandle, EngineOptions};
use model::gguf::Gguf;
use server::guard::{Keys, Limits};
use server::sessions::store::StoreOptions;
use server::{Loader, ModelCard, ModelLimits, ModelParts, Server, ServerOptions};
use tempfile::TempDir;
use testkit::chat::{ChatBackend, Gate};
use testkit::toy::ToyOptions;
use text::{ChatTemplate, Tokenizer};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Http, Socket};

/// Longest that anything here may take; nothing waits for it to pass.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Tokens of one sequence.
pub const CONTEXT: usize = 2048;

static TOKENIZER: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let bytes = testkit::chat::vocabulary().bytes();
    Arc::new(Tokenizer::from_gguf(&Gguf::parse(&bytes, bytes.len() as u64).unwrap()).unwrap())
});

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < DEADLINE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Waits for something that must come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.unwrap_or_else(|_| panic!("never happened: {what}"))
}

/// What a server is made of.
pub struct Setup {
    pub limits: Limits,
    pub model_limits: ModelLimits,
    pub keys: Option<Keys>,
    pub engine: EngineOptions,
    pub origins: Vec<String>,
    pub unix: bool,
    pub context: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            model_limits: ModelLimits::default(),
            keys: None,
            // One token each step, so that a gate can count them.
            engine: EngineOptions { draft_max: 0, ..EngineOptions::default() },
            origins: Vec::new(),
            unix: false,
            context: CONTEXT,
        }
    }
}

/// Models with a gate before each.
pub struct Actors {
    options: EngineOptions,
    context: usize,
    pub gates: [Arc<Gate>; 3],
    /// Engines by model, the last one loaded.
    engines: Mutex<[Option<EngineHandle>; 3]>,
    pub loads: AtomicUsize,
}

/// Names of the models.
pub const NAMES: [&str; 3] = ["actor", "second", "third"];

impl Actors {
    pub fn new(options: EngineOptions, context: usize) -> Arc<Self> {
        let (gates, engines, loads) = Default::default();
        Arc::new(Self { options, context, gates, engines, loads })
    }

    /// The engine of a model that has been loaded.
    pub fn engine(&self, index: usize) -> EngineHandle {
        self.engines.lock().unwrap()[index].clone().expect("it has been loaded")
    }
}

impl Loader for Actors {
    fn cards(&self) -> Vec<ModelCard> {
        let card = |name: &str| ModelCard {
            name: name.to_owned(),
            aliases: vec![format!("{name}-alias")],
            description: "does what it is told".to_owned(),
            context: self.context,
            file: Default::default(),
        };
        NAMES.map(card).to_vec()
    }

    fn load(&self, name: &str) -> Result<ModelParts, String> {
        let index = NAMES.iter().position(|other| *other == name).ok_or("no such model")?;
        let toy = ToyOptions { context: self.context, blocks: 1024, ..ToyOptions::default() };
        let backend = ChatBackend::new(toy, Arc::clone(&self.gates[index]));
        let engine = Engine::start(Box::new(backend), self.options.clone()).map_err(|error| error.to_string())?;
        self.engines.lock().unwrap()[index] = Some(engine.clone());
        self.loads.fetch_add(1, Ordering::Relaxed);
        Ok(ModelParts {
            after_tools: None,
            engine,
            tokenizer: Arc::clone(&TOKENIZER),
            template: ChatTemplate::new(TOKENIZER.vocabulary()),
            served_model: format!("{name}.gguf"),
            fingerprint: 0x70f + index as u64,
            quantisation: "F32".to_owned(),
            context: self.context,
        })
    }
}

/// A running server. Dropping it opens the gates, so that its engines can end.
pub struct TestServer {
    pub actors: Arc<Actors>,
    pub address: String,
    pub directory: TempDir,
    stop: Option<oneshot::Sender<()>>,
    pub task: Option<JoinHandle<()>>,
}

impl TestServer {
    pub async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    pub async fn with(setup: Setup) -> Self {
        Self::on(setup, TempDir::new().unwrap()).await
    }

    /// A server over a directory that another has left.
    pub async fn on(setup: Setup, directory: TempDir) -> Self {
        let actors = Actors::new(setup.engine, setup.context);
        let options = ServerOptions {
            tcp: Some(([127, 0, 0, 1], 0).into()),
            host: None,
            unix: setup.unix.then(|| socket_path(directory.path())),
            tls: None,
            keys: setup.keys,
            origins: setup.origins,
            limits: setup.limits,
            model_limits: setup.model_limits,
            store: StoreOptions { path: Some(directory.path().join("responses.sqlite")), ..StoreOptions::default() },
        };
        let server = Server::bind(options, Arc::clone(&actors) as Arc<dyn Loader>).await.unwrap();
        let address = server.address().unwrap().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Self { actors, address, directory, stop: Some(stop), task: Some(task) }
    }

    /// A new HTTP connection.
    pub async fn http(&self) -> Http {
        Http::connect(&self.address).await
    }

    /// A new WebSocket.
    pub async fn socket(&self) -> Socket {
        Socket::connect(&self.address).await
    }

    /// The gate of the default model.
    pub fn gate(&self) -> &Gate {
        &self.actors.gates[0]
    }

    /// Waits until `sequences` run on the default model.
    pub async fn running(&self, sequences: usize) {
        let engine = self.actors.engine(0);
        until("that many sequences run", || engine.stats().running.iter().sum::<usize>() == sequences).await;
    }

    /// Waits until a step of the default model stands before its closed gate.
    pub async fn held(&self) {
        until("a step waits", || self.gate().is_held()).await;
    }

    /// TokenHealing to stop.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Stops and hands over what it kept on disk.
    pub async fn finish(mut self) -> TempDir {
        self.stop();
        if let Some(task) = self.task.take() {
            soon("the server ends", task).await.unwrap();
        }
        std::mem::replace(&mut self.directory, TempDir::new().unwrap())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.actors.gates.iter().for_each(|gate| gate.open());
    }
}

/// Where the Unix socket is.
pub fn socket_path(directory: &Path) -> std::path::PathBuf {
    directory.join("run").join("flint.sock")
}
