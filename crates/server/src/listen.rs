//! Sockets: who listens where, who is let in, and how everything ends.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;

use crate::guard::owner::Owner;
use crate::guard::refusal;
use crate::guard::{BindError, HostRules, Keys, Limits, Listener, OriginError, check_bind};
use crate::lock::lock;
use crate::models::embeddings::Embedders;
use crate::models::{Loader, ModelLimits, Models};
use crate::routes;
use crate::sessions::store::{Store, StoreError, StoreOptions};
use crate::sessions::turn::Turns;
use crate::shared::{Door, Shared};
use crate::telemetry::metrics::{Metrics, Transport};

/// How often idle models and old responses are looked for.
const SWEEP: Duration = Duration::from_secs(10);

/// Everything a server is told. The default listens nowhere.
#[derive(Default)]
pub struct ServerOptions {
    /// Where to listen on the network; port 0 picks one.
    pub tcp: Option<SocketAddr>,
    /// The name clients may use for this host.
    pub host: Option<String>,
    /// A Unix socket for this user alone.
    pub unix: Option<PathBuf>,
    /// Certificate and key for TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who may come in.
    pub keys: Option<Keys>,
    /// Web pages on this machine that may use the server.
    pub origins: Vec<String>,
    /// Every bound.
    pub limits: Limits,
    /// Bounds of each model.
    pub model_limits: ModelLimits,
    /// Where responses are kept.
    pub store: StoreOptions,
}

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Open to the network without keys.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An origin that is none.
    #[error(transparent)]
    Origin(#[from] OriginError),
    /// The response store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address is taken, or not ours.
    #[error("cannot listen on {at}; is another server running? choose another --port or --socket")]
    Listen {
        /// Where.
        at: String,
        /// Why.
        source: io::Error,
    },
}

/// A server that listens and has not begun to answer.
pub struct Server {
    shared: Arc<Shared>,
    tcp: Option<(TcpListener, Door)>,
    unix: Option<(UnixListener, Door, PathBuf)>,
    tls: Option<TlsAcceptor>,
    store: Arc<Store>,
    doors: Arc<Doors>,
}

impl Server {
    /// Opens the sockets and the store.
    pub async fn bind(options: ServerOptions, loader: Arc<dyn Loader>) -> Result<Self, ServeError> {
        let metrics = Arc::new(Metrics::default());
        let door = |hosts| Door { hosts: Arc::new(hosts), metrics: Arc::clone(&metrics) };
        let failed = |at: String| move |source| ServeError::Listen { at, source };
        let tcp = match options.tcp {
            None => None,
            Some(address) => {
                check_bind(address.ip(), options.keys.is_some())?;
                let kind =
                    if address.ip().to_canonical().is_loopback() { Listener::Loopback } else { Listener::Network };
                let hosts = HostRules::new(kind, options.host.as_deref(), &options.origins)?;
                let listener = TcpListener::bind(address).await.map_err(failed(address.to_string()))?;
                Some((listener, door(hosts)))
            }
        };
        let unix = match options.unix {
            None => None,
            Some(path) => {
                let hosts = HostRules::new(Listener::Unix, None, &[])?;
                let listener = bind_unix(&path).await.map_err(failed(path.display().to_string()))?;
                Some((listener, door(hosts), path))
            }
        };
        let store = Arc::new(Store::open(options.store)?);
        if let Some(notice) = store.notice() {
            tracing::warn!("{notice}");
        }
        let embedders = Embedders::new(Arc::clone(&loader));
        let models = Models::new(loader, options.model_limits, Arc::clone(&metrics));
        let doors = Arc::new(Doors::new(&options.limits));
        let shared =
            Shared::new((models, embedders), Turns::new(Arc::clone(&store)), metrics, options.limits, options.keys);
        let tls = options.tls.map(TlsAcceptor::from);
        Ok(Self { shared: Arc::new(shared), tcp, unix, tls, store, doors })
    }

    /// Where it listens on the network.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// Loads a model ahead of the first request for it.
    pub async fn preload(&self, name: Option<&str>) -> Result<(), String> {
        self.shared.models.get(name).await.map(|_| ()).map_err(|error| error.message)
    }

    /// Answers until `stop` resolves, then lets running responses finish within the grace period and fails the rest.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let router = routes::router(Arc::clone(&self.shared));
        let serving = async {
            let tcp = async {
                match &self.tcp {
                    Some((listener, door)) => self.accept_tcp(listener, &routes::behind(&router, door)).await,
                    None => std::future::pending().await,
                }
            };
            let unix = async {
                match &self.unix {
                    Some((listener, door, _)) => self.accept_unix(listener, &routes::behind(&router, door)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::join!(tcp, unix);
        };
        tokio::select! {
            () = serving => {}
            () = self.sweep() => {}
            () = stop => {}
        }
        self.close().await;
    }

    async fn accept_tcp(&self, listener: &TcpListener, router: &Router) {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            };
            // Nothing tells the clients of a port apart but their keys.
            let owner = Owner::KEYLESS;
            // A token is worth more than a full packet.
            let _ = stream.set_nodelay(true);
            let entry = self.doors.enter(Some(peer.ip()));
            let (shared, router, tls) = (Arc::clone(&self.shared), router.clone(), self.tls.clone());
            tokio::spawn(async move {
                match (entry, tls) {
                    (None, tls) => refusal::over_tcp(&shared, stream, tls).await,
                    (Some(entry), None) => connection(shared, stream, router, (entry, owner), Transport::Http).await,
                    (Some(entry), Some(tls)) => {
                        let handshake = tokio::time::timeout(shared.limits.header_read, tls.accept(stream)).await;
                        if let Ok(Ok(stream)) = handshake {
                            connection(shared, stream, router, (entry, owner), Transport::Http).await;
                        }
                    }
                }
            });
        }
    }

    async fn accept_unix(&self, listener: &UnixListener, router: &Router) {
        loop {
            match listener.accept().await {
                Err(error) => pause_after(&error).await,
                Ok((stream, _)) => {
                    let Some(owner) = user_of(&stream) else { continue };
                    let entry = self.doors.enter(None);
                    let (shared, router) = (Arc::clone(&self.shared), router.clone());
                    tokio::spawn(async move {
                        match entry {
                            None => refusal::refuse(&shared, stream).await,
                            Some(entry) => connection(shared, stream, router, (entry, owner), Transport::Unix).await,
                        }
                    });
                }
            }
        }
    }

    async fn sweep(&self) {
        let mut tick = tokio::time::interval(SWEEP);
        loop {
            tick.tick().await;
            self.shared.models.sweep().await;
            for loaded in self.shared.models.loaded() {
                for notice in loaded.engine.take_snapshot_notices() {
                    tracing::warn!(model = loaded.name, "{notice}");
                }
            }
            let store = Arc::clone(&self.store);
            let swept = tokio::task::spawn_blocking(move || store.sweep(crate::ids::now())).await;
            match swept {
                Ok(Ok(0)) => {}
                Ok(Ok(count)) => tracing::info!(count, "old responses removed"),
                Ok(Err(error)) => tracing::error!(%error, "old responses not removed"),
                Err(error) => tracing::error!(%error, "old responses not removed"),
            }
        }
    }

    async fn close(mut self) {
        tracing::info!("closing: running responses may finish");
        self.shared.close();
        // Nobody accepts any more, so nobody may wait to be: a closed socket refuses at once.
        drop(self.tcp.take());
        if let Some((listener, _, path)) = self.unix.take() {
            let _ = std::fs::remove_file(path);
            drop(listener);
        }
        let grace = self.shared.limits.shutdown_grace;
        let quiet = async || tokio::join!(self.doors.empty(), self.shared.live.ended());
        if tokio::time::timeout(grace, quiet()).await.is_err() {
            tracing::warn!("some responses did not finish in time and were ended");
        }
        self.shared.models.close().await;
        // Streams that were ended just now still have their last words to send.
        let _ = tokio::time::timeout(Duration::from_secs(2), quiet()).await;
    }
}

/// Serves one connection to its end.
async fn connection<S>(
    shared: Arc<Shared>,
    stream: S,
    router: Router,
    (entry, owner): (Entry, Owner),
    transport: Transport,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _counted = shared.metrics.connected(transport);
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(shared.limits.header_read).pipeline_flush(true);
    let place = Connection { _entry: Arc::new(entry), owner };
    let router = router.layer(axum::Extension(place.clone()));
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).with_upgrades();
    let mut served = pin!(served);
    tokio::select! {
        _ = served.as_mut() => {}
        () = shared.closed() => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

async fn pause_after(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// Who is at the other end, if it is the user this server runs as, or root: the mode of a socket is not all that guards
/// it. Root, who can read everything here anyway, is let in as itself.
fn user_of(stream: &tokio::net::UnixStream) -> Option<Owner> {
    let own = rustix::process::geteuid().as_raw();
    let peer = stream.peer_cred().ok().map(|peer| peer.uid()).filter(|&id| id == own || id == 0);
    if peer.is_none() {
        tracing::warn!("a connection of another user to the Unix socket was refused");
    }
    peer.map(Owner::of_user)
}

/// A socket that only this user can reach, in place of one that a dead server left behind.
async fn bind_unix(path: &std::path::Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
    }
    if path.exists() {
        if tokio::net::UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "a server answers there"));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Counts connections, all and by address.
struct Doors {
    places: Arc<Semaphore>,
    places_max: u32,
    per_address: usize,
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// The place of a connection, for requests that outlive its HTTP: a WebSocket counts until it is closed.
#[derive(Clone)]
pub struct Connection {
    _entry: Arc<Entry>,
    owner: Owner,
}

impl Connection {
    /// Whose requests these are when they carry no key.
    pub fn owner(&self) -> Owner {
        self.owner
    }
}

/// A place for one connection.
struct Entry {
    doors: Arc<Doors>,
    address: Option<IpAddr>,
    _place: OwnedSemaphorePermit,
}

impl Doors {
    fn new(limits: &Limits) -> Self {
        let places_max = u32::try_from(limits.connections).unwrap_or(u32::MAX >> 4);
        Self {
            places: Arc::new(Semaphore::new(places_max as usize)),
            places_max,
            per_address: limits.connections_per_address,
            addresses: Mutex::default(),
        }
    }

    /// A place, if there is one. Clients on this machine all have the same address, which is not counted.
    fn enter(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Entry> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let address = address.filter(|address| !address.to_canonical().is_loopback());
        if let Some(address) = address {
            let mut addresses = lock(&self.addresses);
            let count = addresses.entry(address).or_default();
            if *count >= self.per_address {
                return None;
            }
            *count += 1;
        }
        Some(Entry { doors: Arc::clone(self), address, _place: place })
    }

    /// Resolves when every connection has gone.
    async fn empty(&self) {
        let _ = self.places.acquire_many(self.places_max).await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut addresses = lock(&self.doors.addresses);
        if let Some(count) = addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&address);
            }
        }
    }
}
