//! Numbers for Prometheus, under the names vLLM uses where they exist, so that dashboards made for it show Flint too.
//!
//! Counting is a few atomic additions; the one lock is taken when a model is registered and when somebody scrapes. No
//! label comes from a client: models are those of the configuration, everything else is a closed enum. So the number of
//! series has a limit whatever clients send.

mod cells;
mod engine_stats;
#[cfg(test)]
mod tests;
mod text;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use engine::{FinishReason, Finished, Stats};

use cells::{Counter, Gauge, Histogram};
use text::{Kind, Page};

/// The `Content-Type` of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Defines an enum that is a label: its variants index an array of cells and give the label's value.
macro_rules! label {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            const VALUES: &'static [&'static str] = &[$($value),*];
        }
    };
}

label! {
    /// How a connection reaches the server.
    Transport {
        /// HTTP over TCP.
        Http = "http",
        /// A WebSocket, whatever is below it.
        WebSocket = "websocket",
        /// HTTP over the Unix socket.
        Unix = "unix",
    }
}

label! {
    /// What became of a `response.steer`.
    SteerOutcome {
        /// Applied to the running response.
        Accepted = "accepted",
        /// Kept for when the response can take it.
        Pending = "pending",
        /// Refused.
        Failed = "failed",
    }
}

label! {
    /// Why a request was not taken.
    Rejection {
        /// No key or a wrong one.
        Key = "key",
        /// A wrong `Host`.
        Host = "host",
        /// A wrong `Origin`.
        Origin = "origin",
        /// A body or message above the limit.
        BodySize = "body_size",
        /// Input that is not what the API describes.
        Invalid = "invalid",
        /// A prompt that does not fit the context.
        ContextLength = "context_length",
        /// A model that is not served.
        Model = "model",
        /// The model's queue is full.
        QueueFull = "queue_full",
        /// Tokens per minute are spent.
        TokenRate = "token_rate",
        /// Too many connections.
        Connections = "connections",
        /// Too many responses or lanes on one socket.
        SocketLimit = "socket_limit",
        /// The server is stopping.
        Shutdown = "shutdown",
    }
}

label! {
    /// vLLM's words for why a request ended.
    Ending {
        /// The model was done.
        Stop = "stop",
        /// A limit on tokens was reached.
        Length = "length",
        /// Somebody stopped it.
        Abort = "abort",
        /// Something broke.
        Error = "error",
    }
}

impl From<&FinishReason> for Ending {
    fn from(reason: &FinishReason) -> Self {
        match reason {
            FinishReason::Stop | FinishReason::StopToken(_) => Ending::Stop,
            FinishReason::Length | FinishReason::ContextFull => Ending::Length,
            FinishReason::Cancelled | FinishReason::SlowReader | FinishReason::Shutdown => Ending::Abort,
            FinishReason::Error { .. } => Ending::Error,
        }
    }
}

/// All numbers of one server.
#[derive(Debug)]
pub struct Metrics {
    models: RwLock<Vec<Arc<ModelMetrics>>>,
    connections: Box<[Gauge]>,
    steers: Box<[Counter]>,
    rejections: Box<[Counter]>,
    interrupts: Counter,
}

/// The numbers of one model's requests. The model keeps the `Arc`.
#[derive(Debug)]
pub struct ModelMetrics {
    name: String,
    endings: Box<[Counter]>,
    first_token: Histogram,
    inter_token: Histogram,
    per_output_token: Histogram,
    whole: Histogram,
    queue: Histogram,
    prefill: Histogram,
    decode: Histogram,
}

/// One open connection, counted until it is dropped.
#[derive(Debug)]
pub struct Connected {
    metrics: Arc<Metrics>,
    transport: Transport,
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.metrics.connections[self.transport as usize].add(-1);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            models: RwLock::default(),
            connections: cells(Transport::VALUES),
            steers: cells(SteerOutcome::VALUES),
            rejections: cells(Rejection::VALUES),
            interrupts: Counter::default(),
        }
    }
}

impl Metrics {
    /// The numbers of the model of that name, from zero when it is new. For when a model is loaded, not for each request.
    pub fn model(&self, name: &str) -> Arc<ModelMetrics> {
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = models.iter().find(|model| model.name == name) {
            return Arc::clone(model);
        }
        let model = Arc::new(ModelMetrics::new(name));
        models.push(Arc::clone(&model));
        model
    }

    /// Counts a connection for as long as the result lives.
    pub fn connected(self: &Arc<Self>, transport: Transport) -> Connected {
        self.connections[transport as usize].add(1);
        Connected { metrics: Arc::clone(self), transport }
    }

    /// Counts what became of a steer.
    pub fn steered(&self, outcome: SteerOutcome) {
        self.steers[outcome as usize].increment();
    }

    /// Counts a response stopped by its client while running: cancelled, or the connection dropped.
    pub fn interrupted(&self) {
        self.interrupts.increment();
    }

    /// Counts a request not taken.
    pub fn rejected(&self, reason: Rejection) {
        self.rejections[reason as usize].increment();
    }

    /// The whole page. `engines` are the models loaded now, each with its engine's numbers.
    pub fn render(&self, engines: &[(&str, Stats)]) -> String {
        let mut page = Page::default();
        engine_stats::write(&mut page, engines);
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner).clone();
        write_models(&mut page, &models);
        self.write_server(&mut page);
        page.finish()
    }

    fn write_server(&self, page: &mut Page) {
        page.family("flint_connections", Kind::Gauge, "Open connections.");
        for (value, gauge) in Transport::VALUES.iter().zip(&self.connections) {
            page.sample("flint_connections", &[("transport", value)], gauge.value() as f64);
        }
        page.family("flint_steers_total", Kind::Counter, "Steers of running responses.");
        for (value, counter) in SteerOutcome::VALUES.iter().zip(&self.steers) {
            page.sample("flint_steers_total", &[("outcome", value)], counter.value() as f64);
        }
        page.family("flint_interrupts_total", Kind::Counter, "Responses stopped by their client while running.");
        page.sample("flint_interrupts_total", &[], self.interrupts.value() as f64);
        page.family("flint_requests_rejected_total", Kind::Counter, "Requests not taken.");
        for (value, counter) in Rejection::VALUES.iter().zip(&self.rejections) {
            page.sample("flint_requests_rejected_total", &[("reason", value)], counter.value() as f64);
        }
    }
}

impl ModelMetrics {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            endings: cells(Ending::VALUES),
            first_token: Histogram::new(REQUEST_BOUNDS),
            inter_token: Histogram::new(TOKEN_BOUNDS),
            per_output_token: Histogram::new(TOKEN_BOUNDS),
            whole: Histogram::new(REQUEST_BOUNDS),
            queue: Histogram::new(REQUEST_BOUNDS),
            prefill: Histogram::new(REQUEST_BOUNDS),
            decode: Histogram::new(REQUEST_BOUNDS),
        }
    }

    /// `count` tokens came in one event, `since` the one before. The first tokens of a response are not counted here.
    pub fn tokens(&self, since: Duration, count: usize) {
        if let Ok(divisor @ 1..) = u32::try_from(count) {
            self.inter_token.observe_many(since / divisor, u64::from(divisor));
        }
    }

    /// A request ended, `whole` after it arrived.
    pub fn finished(&self, finished: &Finished, whole: Duration) {
        self.endings[Ending::from(&finished.reason) as usize].increment();
        let (timings, generated) = (finished.timings, finished.usage.generated);
        self.whole.observe(whole);
        self.queue.observe(timings.queued);
        // What a sequence never reached took no time, which is not the same as being fast.
        if generated > 0 {
            self.prefill.observe(timings.prefill);
            self.first_token.observe(timings.first_token);
            self.decode.observe(timings.decode);
        }
        if let Ok(after_first @ 1..) = u32::try_from(generated.saturating_sub(1)) {
            self.per_output_token.observe(timings.decode / after_first);
        }
    }
}

/// Where latencies of requests are told apart, in seconds: a warm local turn takes milliseconds, a cold one minutes.
const REQUEST_BOUNDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0, 160.0, 320.0, 640.0,
];

/// The same for tokens: 0.2 ms is the fastest device, 100 ms slower than reading.
const TOKEN_BOUNDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2,
    0.5, 1.0, 5.0,
];

/// A histogram of one model.
type OfModel = fn(&ModelMetrics) -> &Histogram;

fn write_models(page: &mut Page, models: &[Arc<ModelMetrics>]) {
    let name = "vllm:request_success_total";
    page.family(name, Kind::Counter, "Requests that ended, by reason.");
    for model in models {
        for (value, counter) in Ending::VALUES.iter().zip(&model.endings) {
            page.sample(name, &[("model_name", &model.name), ("finished_reason", value)], counter.value() as f64);
        }
    }
    let histograms: [(&str, &str, OfModel); 7] = [
        ("vllm:time_to_first_token_seconds", "From arrival to the first token.", |model| &model.first_token),
        ("vllm:inter_token_latency_seconds", "Between one token and the next.", |model| &model.inter_token),
        ("vllm:request_time_per_output_token_seconds", "Mean time per token after the first.", |model| {
            &model.per_output_token
        }),
        ("vllm:e2e_request_latency_seconds", "From arrival to the end.", |model| &model.whole),
        ("vllm:request_queue_time_seconds", "Waiting to be started.", |model| &model.queue),
        ("vllm:request_prefill_time_seconds", "From the start to the first token.", |model| &model.prefill),
        ("vllm:request_decode_time_seconds", "From the first token to the end.", |model| &model.decode),
    ];
    for (name, help, histogram) in histograms {
        page.family(name, Kind::Histogram, help);
        for model in models {
            page.histogram(name, &[("model_name", &model.name)], histogram(model));
        }
    }
}

fn cells<T: Default>(values: &[&str]) -> Box<[T]> {
    values.iter().map(|_| T::default()).collect()
}
