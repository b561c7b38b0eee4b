//! Several models: loaded when asked for, limited each by itself, and never one in place of another.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::EngineOptions;
use serde_json::json;
use server::models::Models;
use server::telemetry::metrics::Metrics;
use server::{Loader, ModelCard, ModelLimits, ModelParts};

use crate::client::text;
use crate::support::{Actors, CONTEXT, Setup, TestServer, soon, until};

#[tokio::test(flavor = "multi_thread")]
async fn models_are_loaded_when_asked_for_and_once() {
    let server = TestServer::start().await;
    let mut http = server.http().await;
    assert_eq!(http.get("/health").await.ok()["loaded"], json!([]));
    let mut others = [server.http().await, server.http().await];
    let [one, two] = &mut others;
    // At the same time, and still loaded once.
    let (a, b, c) = tokio::join!(http.say("say a"), one.say("say b"), two.say("say c"));
    assert_eq!([text(&a), text(&b), text(&c)], ["a", "b", "c"]);
    assert_eq!(server.actors.loads.load(Ordering::Relaxed), 1);
    assert_eq!(http.get("/health").await.ok()["loaded"], json!(["actor"]));
    let second = http.create(json!({"model": "second-alias", "input": "say b"})).await.ok();
    assert_eq!(second["flint"]["served_model"], "second.gguf");
    assert_eq!(http.get("/health").await.ok()["loaded"], json!(["actor", "second"]));
    assert_eq!(http.get("/v1/models").await.ok()["data"][1]["loaded"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_idle_longest_makes_way() {
    let model_limits = ModelLimits { loaded_max: 1, ..ModelLimits::default() };
    let server = TestServer::with(Setup { model_limits, ..Setup::default() }).await;
    let mut http = server.http().await;
    let first = http.say("say a").await;
    http.create(json!({"model": "second", "input": "say b"})).await.ok();
    assert_eq!(http.get("/health").await.ok()["loaded"], json!(["second"]));
    // Back again, where it was.
    let next = json!({"model": "actor", "input": "recite", "previous_response_id": first["id"]});
    assert_eq!(text(&http.create(next).await.ok()), "user=say a|assistant=a|user=recite");
    assert_eq!(server.actors.loads.load(Ordering::Relaxed), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_models_are_unloaded_and_busy_ones_are_not() {
    let actors = Actors::new(EngineOptions::default(), CONTEXT);
    let limits = ModelLimits { idle: Duration::from_nanos(1), ..ModelLimits::default() };
    let models = Models::new(Arc::clone(&actors) as Arc<dyn Loader>, limits, Arc::new(Metrics::default()));
    let used = models.get(None).await.unwrap();
    drop(models.get(Some("second")).await.unwrap());
    models.sweep().await;
    let names = || models.loaded().iter().map(|loaded| loaded.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(), ["actor"], "what a request holds stays");
    drop(used);
    models.sweep().await;
    assert!(names().is_empty());
    assert!(models.get(Some("none")).await.is_err());
    models.get(Some("actor")).await.unwrap();
    assert_eq!(models.loads(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_model_is_passed_over_when_room_is_made() {
    let actors = Actors::new(EngineOptions::default(), CONTEXT);
    let limits = ModelLimits { loaded_max: 1, ..ModelLimits::default() };
    let models = Models::new(Arc::clone(&actors) as Arc<dyn Loader>, limits, Arc::new(Metrics::default()));
    let used = models.get(Some("actor")).await.unwrap();
    // It cannot be unloaded under a request; the other is loaded beside it rather than refused.
    models.get(Some("second")).await.unwrap();
    assert!(used.engine.submit(engine::Request::new(vec![1], 1)).is_ok(), "it still runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_idle_one_goes_when_the_longest_idle_is_busy() {
    let actors = Actors::new(EngineOptions::default(), CONTEXT);
    let limits = ModelLimits { loaded_max: 2, ..ModelLimits::default() };
    let models = Models::new(Arc::clone(&actors) as Arc<dyn Loader>, limits, Arc::new(Metrics::default()));
    let names = || models.loaded().iter().map(|loaded| loaded.name.clone()).collect::<Vec<_>>();
    // Used once, long ago, and still held: the time alone would make it the first to go.
    let busy = models.get(Some("actor")).await.unwrap();
    drop(models.get(Some("second")).await.unwrap());
    let third = models.get(Some("third")).await.unwrap();
    assert_eq!(names(), ["actor", "third"]);
    // All are held: the limit gives way, and holds again as soon as it can.
    drop(models.get(Some("second")).await.unwrap());
    assert_eq!(names(), ["actor", "second", "third"]);
    models.sweep().await;
    assert_eq!(names(), ["actor", "third"]);
    drop((busy, third));
}

#[tokio::test]
async fn two_first_requests_do_not_take_the_same_room() {
    let actors = Actors::new(EngineOptions::default(), CONTEXT);
    let limits = ModelLimits { loaded_max: 1, ..ModelLimits::default() };
    let models = Models::new(Arc::clone(&actors) as Arc<dyn Loader>, limits, Arc::new(Metrics::default()));
    let first = async { drop(models.get(Some("actor")).await.unwrap()) };
    let second = async { drop(models.get(Some("second")).await.unwrap()) };
    tokio::join!(first, second);
    assert_eq!(models.loads(), 2);
    assert_eq!(models.loaded().len(), 1, "one at a time");
}

/// Says when a load begins and waits until it may end.
struct Slow {
    actors: Arc<Actors>,
    begun: tokio::sync::mpsc::UnboundedSender<()>,
    go: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Loader for Slow {
    fn cards(&self) -> Vec<ModelCard> {
        self.actors.cards()
    }

    fn load(&self, name: &str) -> Result<ModelParts, String> {
        self.begun.send(()).unwrap();
        self.go.lock().unwrap().recv().unwrap();
        self.actors.load(name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_goes_on_when_its_client_leaves() {
    let (begun, mut loading) = tokio::sync::mpsc::unbounded_channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let actors = Actors::new(EngineOptions::default(), CONTEXT);
    let slow = Slow { actors, begun, go: std::sync::Mutex::new(may_go) };
    let models = Arc::new(Models::new(Arc::new(slow), ModelLimits::default(), Arc::new(Metrics::default())));
    let asking = tokio::spawn({
        let models = Arc::clone(&models);
        async move { models.get(None).await.is_ok() }
    });
    soon("the load begins", loading.recv()).await.unwrap();
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    go.send(()).unwrap();
    soon("the model", models.get(None)).await.unwrap();
    assert_eq!(models.loads(), 1, "the second client found what the first had begun");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_told_with_the_time_to_wait() {
    let engine = EngineOptions { running_max: 1, queue_max: 1, draft_max: 0, ..EngineOptions::default() };
    let server = TestServer::with(Setup { engine, ..Setup::default() }).await;
    server.gate().close();
    let (mut a, mut b, mut c) = (server.http().await, server.http().await, server.http().await);
    let mut first = a.stream(json!({"input": "say a"})).await;
    first.find("response.created").await;
    server.held().await;
    let mut second = b.stream(json!({"input": "say b"})).await;
    second.find("response.created").await;
    let answer = c.create(json!({"input": "say c"})).await;
    let error = answer.error(429);
    assert_eq!(error["code"], "rate_limit_exceeded");
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("1"));
    assert_eq!(answer.header("x-ratelimit-remaining-requests"), Some("0"));
    // Another model has a queue of its own.
    assert_eq!(text(&c.create(json!({"model": "second", "input": "say c"})).await.ok()), "c");
    let mut socket = server.socket().await;
    socket.create(json!({"input": "say c"})).await;
    let error = socket.find(None, "error").await;
    assert_eq!((&error["status"], &error["headers"]["retry-after"]), (&json!(429), &json!("1")));
    assert_eq!(error["headers"]["x-ratelimit-remaining-requests"], "0");
    let page = c.get("/metrics").await;
    let page = str::from_utf8(&page.body).unwrap();
    assert!(page.contains("flint_requests_rejected_total{reason=\"queue_full\"} 2\n"), "{page}");
    server.gate().open();
    assert_eq!(text(&second.find("response.completed").await["response"]), "b");
    assert_eq!(text(&c.say("say c").await), "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_is_told_the_place() {
    let engine = EngineOptions { running_max: 1, draft_max: 0, ..EngineOptions::default() };
    let server = TestServer::with(Setup { engine, ..Setup::default() }).await;
    server.gate().close();
    let mut socket = server.socket().await;
    for lane in ["a", "b", "c"] {
        socket.create(json!({"input": format!("say {lane}"), "stream_id": lane})).await;
        socket.find(Some(lane), "response.created").await;
        server.held().await;
    }
    let queued = socket.find(Some("c"), "response.queued").await["response"].clone();
    assert_eq!((&queued["status"], &queued["flint"]["queue_position"]), (&json!("queued"), &json!(1)));
    server.gate().open();
    let begun = socket.find(Some("c"), "response.in_progress").await["response"].clone();
    assert_eq!(begun["status"], "in_progress");
    let ended = socket.ended(Some("c")).await;
    assert_eq!((text(&ended).as_str(), &ended["flint"]["queue_position"]), ("c", &json!(null)));
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_per_minute_are_a_limit_of_each_model() {
    let model_limits = ModelLimits { tokens_per_minute: 100, ..ModelLimits::default() };
    let server = TestServer::with(Setup { model_limits, ..Setup::default() }).await;
    let mut http = server.http().await;
    let answer = http.create(json!({"input": format!("say {}", "x".repeat(60))})).await;
    answer.ok();
    let number = |name: &str| answer.header(name).unwrap().parse::<u64>().unwrap();
    assert_eq!((number("x-ratelimit-limit-tokens"), number("x-ratelimit-remaining-tokens")), (100, 0));
    assert_eq!(number("x-ratelimit-limit-requests"), number("x-ratelimit-remaining-requests"));
    let answer = http.create(json!({"input": "say more"})).await;
    assert!(answer.error(429)["message"].as_str().unwrap().contains("100 tokens per minute"));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let reset = answer.header("x-ratelimit-reset-tokens").unwrap().strip_suffix('s').unwrap();
    assert!((wait - 1..=60).contains(&reset.parse().unwrap()), "{reset}");
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), Some("0"));
    let page = http.get("/metrics").await;
    let page = str::from_utf8(&page.body).unwrap();
    assert!(page.contains("flint_requests_rejected_total{reason=\"token_rate\"} 1\n"), "{page}");
    http.create(json!({"model": "second", "input": "say other"})).await.ok();
    // Every endpoint tells it, streams included.
    let asked = [
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": "say x"}], "stream": true})),
        ("/v1/messages", json!({"messages": [{"role": "user", "content": "say x"}], "max_tokens": 9})),
        ("/v1/completions", json!({"prompt": "x", "max_tokens": 2})),
    ];
    for (path, mut body) in asked {
        body["model"] = json!("third");
        let answer = http.post(path, &body).await;
        assert!(answer.status == 200 || answer.status == 429, "{answer:?}");
        assert!(answer.header("x-ratelimit-remaining-tokens").is_some(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interactive_work_goes_before_background_work() {
    let engine = EngineOptions { running_max: 1, draft_max: 0, ..EngineOptions::default() };
    let server = TestServer::with(Setup { engine, ..Setup::default() }).await;
    let mut http = server.http().await;
    server.gate().close();
    let slow = http.create(json!({"input": "count 300", "background": true})).await.ok();
    server.gate().allow(10);
    server.held().await;
    let mut socket = server.socket().await;
    socket.create(json!({"input": "say now", "service_tier": "priority"})).await;
    socket.find(None, "response.created").await;
    server.gate().open();
    let fast = socket.ended(None).await;
    assert_eq!(text(&fast), "now");
    assert!(server.actors.engine(0).stats().preemptions > 0, "it did not wait for the other's end");
    let path = format!("/v1/responses/{}", slow["id"].as_str().unwrap());
    let counted = (1..=300).map(|n| format!(" {n}")).collect::<String>();
    server.running(0).await;
    let engine = server.actors.engine(0);
    until("nothing is left", || engine.stats().preempted == [0, 0] && engine.stats().queued == [0, 0]).await;
    let begun = std::time::Instant::now();
    let slow = loop {
        let response = http.get(&path).await.ok();
        if response["status"] == "completed" {
            break response;
        }
        assert!(begun.elapsed() < crate::support::DEADLINE, "{response}");
        tokio::task::yield_now().await;
    };
    assert_eq!(text(&slow), counted, "what was preempted lost nothing");
}
