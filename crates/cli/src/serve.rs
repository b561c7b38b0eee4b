//! `flint serve`: arguments of the server, and the loader that finds its models.

mod embedder;
mod loader;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use engine::SnapshotOptions;
use load::LoadOptions;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use server::guard::{Keys, Limits};
use server::sessions::store::StoreOptions;
use server::telemetry::{self, LogFormat, TelemetryOptions};
use server::{ModelLimits, Server, ServerOptions};

use loader::StoreLoader;

/// Sessions are written to disk once the engine has had nothing to do for this long.
const SNAPSHOT_IDLE: Duration = Duration::from_secs(2);

/// Arguments of `flint serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Models to offer, the first is the default; repeatable [default: the catalogue's default, then what is here]
    #[arg(short, long = "model", value_name = "NAME", env = "FLINT_MODEL", value_delimiter = ',')]
    models: Vec<String>,
    /// Address to listen on; anything but loopback needs --api-key-file
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 picks one
    #[arg(long, default_value_t = 8911)]
    port: u16,
    /// Name that clients use for this host, besides its address
    #[arg(long, value_name = "NAME")]
    host_name: Option<String>,
    /// Write the port to this file once it is open
    #[arg(long, value_name = "FILE")]
    port_file: Option<PathBuf>,
    /// Private Unix socket [default: flint.sock in the state directory]
    #[arg(long, value_name = "PATH", conflicts_with = "no_socket")]
    socket: Option<PathBuf>,
    /// Listen on the Unix socket alone, on no port
    #[arg(long, conflicts_with_all = ["no_socket", "port_file", "tls_cert"])]
    socket_only: bool,
    /// Listen on no Unix socket
    #[arg(long)]
    no_socket: bool,
    /// File with one API key per line, readable by you alone
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Certificate chain for TLS (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key for TLS (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Web page on this machine that may use the server, such as http://localhost:3000; repeatable
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    origins: Vec<String>,
    /// Where stored responses and KV snapshots live [default: state in FLINT_HOME or the XDG state directory]
    #[arg(long, value_name = "DIR", env = "FLINT_STATE")]
    state: Option<PathBuf>,
    /// Tokens each model may read and write per minute; 0 is unlimited
    #[arg(long, default_value_t = 0)]
    tokens_per_minute: u64,
    /// Most tokens of an answer whose request names no limit; 0 is as many as fit
    #[arg(long, default_value_t = 0)]
    max_output_tokens: usize,
    /// Models in memory at once
    #[arg(long, default_value_t = 2)]
    loaded_max: usize,
    /// Unload a model after this many idle minutes; 0 keeps it
    #[arg(long, default_value_t = 0)]
    idle_minutes: u64,
    /// Days that stored responses are kept
    #[arg(long, default_value_t = 30)]
    keep_days: u64,
    /// Gigabytes of KV snapshots kept on disk; 0 keeps none
    #[arg(long, default_value_t = 8.0)]
    snapshot_gb: f64,
    /// Keep KV snapshots of requests with `store: false` too; without this they stay in memory
    #[arg(long)]
    snapshot_unstored: bool,
    /// Log lines for people, or JSON for programs
    #[arg(long, value_parser = log_format, default_value = "human")]
    log_format: LogFormat,
    /// What to log, such as info, debug or server=trace [default: FLINT_LOG, or info]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Load the default model before the first request asks for it
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    preload: bool,
    #[command(flatten)]
    load: LoadOptions,
}

/// Runs the server until it is told to stop.
pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let options = TelemetryOptions { format: args.log_format, level: args.log_level.clone() };
    let _telemetry = telemetry::init(&options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("tokio")?;
    runtime.block_on(serve(args))
}

async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let state = state_directory(args.state.as_deref())?;
    let snapshots = (args.snapshot_gb > 0.0).then(|| SnapshotOptions {
        directory: state.join("kv"),
        bytes_max: (args.snapshot_gb * 1e9) as u64,
        idle: SNAPSHOT_IDLE,
        before_read: None,
    });
    let loader = Arc::new(StoreLoader::new(&args.models, args.load.clone(), snapshots)?);
    let keys = args.api_key_file.as_deref().map(Keys::load).transpose()?;
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => Some(tls_config(certificate, key)?),
        _ => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let socket = (!args.no_socket).then(|| args.socket.clone().unwrap_or_else(|| state.join("flint.sock")));
    let options = ServerOptions {
        tcp: (!args.socket_only).then(|| SocketAddr::new(args.host, args.port)),
        host: args.host_name.clone().or_else(|| Some(args.host.to_string())),
        unix: socket.clone(),
        tls,
        keys,
        origins: args.origins.clone(),
        limits: Limits::default(),
        model_limits: ModelLimits {
            tokens_per_minute: args.tokens_per_minute,
            loaded_max: args.loaded_max,
            idle: Duration::from_secs(args.idle_minutes * 60),
            output_tokens: args.max_output_tokens,
            snapshot_unstored: args.snapshot_unstored,
        },
        store: StoreOptions {
            path: Some(state.join("responses.sqlite")),
            age_max: Duration::from_secs(args.keep_days * 24 * 3600),
            ..StoreOptions::default()
        },
    };
    let server = Server::bind(options, loader).await?;
    if args.preload {
        server.preload(None).await.map_err(anyhow::Error::msg)?;
    }
    if let Some(address) = server.address() {
        if let Some(file) = &args.port_file {
            write_port(file, address.port())?;
        }
        errln!("flint serves at {scheme}://{address}/v1");
    }
    if let Some(socket) = &socket {
        errln!("flint serves this user at unix:{}", socket.display());
    }
    server.run(stop_signal()).await;
    Ok(())
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "human" => Ok(LogFormat::Human),
        "json" => Ok(LogFormat::Json),
        _ => Err("it is human or json".to_owned()),
    }
}

/// Written whole: whoever waits for the file finds a port in it.
fn write_port(file: &Path, port: u16) -> anyhow::Result<()> {
    let unfinished = file.with_extension("partial");
    std::fs::write(&unfinished, port.to_string())
        .and_then(|()| std::fs::rename(&unfinished, file))
        .with_context(|| format!("the port could not be written to {}", file.display()))
}

async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let interrupt = tokio::signal::ctrl_c();
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = interrupt => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => {
            let _ = interrupt.await;
        }
    }
}

/// The directory for what a server keeps, for this user alone.
pub fn state_directory(asked: Option<&Path>) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let home = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = match asked {
        Some(path) => path.to_owned(),
        None => match (home("FLINT_HOME"), home("XDG_STATE_HOME"), home("HOME")) {
            (Some(flint), _, _) => flint.join("state"),
            (None, Some(xdg), _) => xdg.join("flint"),
            (None, None, Some(home)) => home.join(".local/state/flint"),
            (None, None, None) => bail!("there is no home directory; name one with --state"),
        },
    };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&path)
        .with_context(|| format!("the state directory {} cannot be made; choose one with --state", path.display()))?;
    Ok(path)
}

fn tls_config(certificate: &Path, key: &Path) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let read = |path: &Path| format!("{} is not a usable PEM file", path.display());
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(certificate).with_context(|| read(certificate))?.collect();
    let chain = chain.with_context(|| read(certificate))?;
    let secret = PrivateKeyDer::from_pem_file(key).with_context(|| read(key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .context("the certificate and the key do not fit together")?;
    Ok(Arc::new(config))
}
