//! Logs for people and machines, and traces for whoever set the standard OpenTelemetry variables.
//!
//! **No prompt text.** A subscriber cannot tell a prompt from any other field, so this is the discipline of every
//! caller: fields are ids, counts, times, names of models and reasons. Text of a client or a model is logged nowhere,
//! unless a person asked for it by an option of its own.
//!
//! Logs go to stderr. Spans are exported only when `OTEL_EXPORTER_OTLP_ENDPOINT` or its `TRACES` variant is set;
//! otherwise there is no exporter, no thread and no layer, and a span that no log line shows costs a check of its
//! level.

pub mod metrics;
pub mod status;
pub mod trace;

mod otlp;
#[cfg(test)]
mod tests;

use std::time::Duration;

use axum::http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for a person.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// What to log. The default is lines for people at the level `FLINT_LOG` says, or `info`.
#[derive(Clone, Debug, Default)]
pub struct TelemetryOptions {
    /// `--log-format`
    pub format: LogFormat,
    /// `--log-level`: a level, or directives as `warn,server=debug`. Goes before `FLINT_LOG`.
    pub level: Option<String>,
}

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A level nobody knows.
    #[error("{text:?} is not a log level; use error, warn, info, debug or trace, or directives as `warn,server=debug`")]
    Level {
        /// What was asked for.
        text: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// Somebody has set a subscriber before.
    #[error("logging is set up already")]
    AlreadySet,
}

/// Keeps the export of spans going. Dropping it sends what is left.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

/// How long the last spans may take to be sent when the server stops.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// Sets up logs and traces for the whole process. Once, before the first log line.
pub fn init(options: &TelemetryOptions) -> Result<Telemetry, TelemetryError> {
    let (provider, warnings) = otlp::provider_from_environment();
    // Without colours: whatever the fields of a line hold, the whole line is cleaned.
    subscriber(options, boundary::print::stderr, provider.as_ref())?
        .try_init()
        .map_err(|_| TelemetryError::AlreadySet)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(Telemetry { provider })
}

impl Telemetry {
    /// Sends what is left, for three seconds at most. Blocks, so not on a worker of the async runtime.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // The subscriber holds the provider too and is never dropped, so its own end would not come.
        if let Some(provider) = self.provider.take()
            && let Err(error) = provider.shutdown_with_timeout(FLUSH_MAX)
        {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}

/// Makes `span` a part of the trace that the client's `traceparent` header names, if it sent one.
pub fn continue_trace(span: &Span, headers: &HeaderMap) {
    if !headers.contains_key("traceparent") {
        return;
    }
    let parent = TraceContextPropagator::new().extract(&opentelemetry_http::HeaderExtractor(headers));
    if parent.span().span_context().is_valid() {
        // Fails when nothing is exported, and then nothing is lost.
        let _ = span.set_parent(parent);
    }
}

fn subscriber<W>(
    options: &TelemetryOptions,
    writer: W,
    provider: Option<&SdkTracerProvider>,
) -> Result<impl Subscriber + Send + Sync + use<W>, TelemetryError>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match options.format {
        LogFormat::Human => Box::new(lines.compact().with_ansi(false).with_target(false)),
        LogFormat::Json => Box::new(lines.json().flatten_event(true).with_span_list(false)),
    };
    let lines = lines.with_filter(log_filter(options.level.as_deref())?);
    // Traces have a level of their own: quiet logs are no reason for empty traces.
    let traces = provider.map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("flint"))
            .with_location(false)
            .with_threads(false)
            .with_filter(tracing::level_filters::LevelFilter::INFO)
    });
    Ok(Registry::default().with(lines).with(traces))
}

fn log_filter(level: Option<&str>) -> Result<EnvFilter, TelemetryError> {
    let text = match level {
        Some(level) => level.to_owned(),
        None => otlp::variable("FLINT_LOG").unwrap_or_else(|| "info".to_owned()),
    };
    EnvFilter::builder().parse(&text).map_err(|source| TelemetryError::Level { text, source })
}
