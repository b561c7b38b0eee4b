//! Spans over OTLP/HTTP in JSON, as the standard variables say.
//!
//! The SDK batches spans on a thread of its own with a bounded queue (2,048, `OTEL_BSP_MAX_QUEUE_SIZE`; more are
//! dropped). Here is what it lacks: an HTTP client. It makes one plain connection per batch, on a runtime made for it,
//! so that the last spans can be sent after the server's runtime has stopped.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_trait::async_trait;
use axum::http::Uri;
use axum::http::header::{HOST, HeaderValue};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry::KeyValue;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::net::TcpStream;

/// Bytes of an answer that are read; a larger one is an error.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How long one export may take unless the variables say otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An exporter if the variables ask for one, and what to tell the person about them.
pub(super) fn provider_from_environment() -> (Option<SdkTracerProvider>, Vec<String>) {
    let endpoint = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
    let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    let Some(endpoint) = endpoint.filter(|_| !disabled) else { return (None, Vec::new()) };
    if !endpoint.get(.."http://".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) {
        let warning = format!(
            "no traces are exported: the OTLP endpoint {} is not http://, which is all that is spoken here; \
             run a collector on this machine and let it forward",
            without_secrets(&endpoint)
        );
        return (None, vec![warning]);
    }
    let mut warnings = Vec::new();
    let protocol = variable("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| variable("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if let Some(protocol) = protocol.filter(|protocol| protocol != "http/json") {
        warnings
            .push(format!("traces are exported as OTLP http/json; {protocol}, as the variable asks, is not spoken"));
    }
    match build() {
        Ok(provider) => (Some(provider), warnings),
        Err(error) => {
            warnings.push(format!("no traces are exported: {error}"));
            (None, warnings)
        }
    }
}

/// A variable that is set to something.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn build() -> Result<SdkTracerProvider, Box<dyn std::error::Error>> {
    // The address, headers and time limit are read from the variables by the exporter.
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_http_client(Client::new())
        .build()?;
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build())
}

/// `OTEL_RESOURCE_ATTRIBUTES`, with `OTEL_SERVICE_NAME` above it and `flint` below.
fn resource() -> Resource {
    let found = Resource::builder().build();
    let service = "service.name".into();
    let name = variable("OTEL_SERVICE_NAME").or_else(|| {
        let named = found.get(&service).map(|name| name.to_string());
        // What the SDK says where nobody said anything.
        named.filter(|name| !name.starts_with("unknown_service"))
    });
    let version = found.get(&"service.version".into()).unwrap_or_else(|| env!("CARGO_PKG_VERSION").into());
    Resource::builder()
        .with_service_name(name.unwrap_or_else(|| "flint".to_owned()))
        .with_attribute(KeyValue::new("service.version", version))
        .build()
}

/// Runs on the SDK's export thread, which is no thread of any async runtime, and blocks it.
#[derive(Debug)]
struct Client {
    timeout: Duration,
    failing: AtomicBool,
}

impl Client {
    fn new() -> Self {
        let timeout = variable("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT").or_else(|| variable("OTEL_EXPORTER_OTLP_TIMEOUT"));
        let timeout = timeout.and_then(|text| text.parse().ok()).map_or(TIMEOUT, Duration::from_millis);
        Self { timeout, failing: AtomicBool::new(false) }
    }

    /// One line when exporting begins to fail and one when it works again, not one per batch.
    fn report(&self, result: &Result<Response<Bytes>, HttpError>) {
        let problem = match result {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("the collector answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        match (problem, self.failing.load(Relaxed)) {
            (Some(problem), false) => tracing::warn!(problem, "traces cannot be exported"),
            (None, true) => tracing::info!("traces are exported again"),
            (Some(_), true) | (None, false) => return,
        }
        self.failing.fetch_xor(true, Relaxed);
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // Made and dropped here, never inside another runtime, which tokio would answer with a panic.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let result = runtime.block_on(async {
            tokio::time::timeout(self.timeout, post(request)).await.unwrap_or_else(|elapsed| Err(elapsed.into()))
        });
        self.report(&result);
        result
    }
}

async fn post(mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let authority = request.uri().authority().ok_or("the OTLP endpoint names no host")?.clone();
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    request.headers_mut().insert(HOST, HeaderValue::from_str(host)?);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>()?;
    let (head, body) = sender.send_request(request.map(Full::new)).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
    connection.abort();
    Ok(Response::from_parts(head, body))
}

/// The endpoint without a password somebody put into it.
fn without_secrets(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}
