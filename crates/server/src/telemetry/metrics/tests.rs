//! The page, read back by a checker of the format that knows nothing of how it was written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use engine::{BlockCounts, DraftCounts, DraftKind, FinishReason, Finished, Stats, Timings, Usage};

use super::{Metrics, Rejection, SteerOutcome, Transport};

/// A name with its labels.
type Key = (String, BTreeMap<String, String>);
type Samples = BTreeMap<Key, f64>;

/// Reads a page and panics at the first thing the format forbids.
fn check(page: &str) -> Samples {
    assert!(page.ends_with('\n'));
    let mut samples = Samples::new();
    let mut seen = BTreeSet::new();
    let mut family: Option<(String, String)> = None;
    let mut helped: Option<String> = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(seen.insert(name.to_owned()), "{name} begins twice");
            assert!(!help.is_empty(), "{line}");
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(helped.take().as_deref(), Some(name), "HELP and TYPE go together");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(kind != "counter" || name.ends_with("_total"), "{name}");
            family = Some((name.to_owned(), kind.to_owned()));
        } else {
            let (name, labels, value) = sample(line);
            let (family, kind) = family.as_ref().expect("a family before its samples");
            let suffix = name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("{name} is inside {family}"));
            let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{name} is a {kind}");
            assert_eq!(labels.contains_key("le"), suffix == "_bucket", "{line}");
            assert!(samples.insert((name, labels), value).is_none(), "twice: {line}");
        }
    }
    check_histograms(&samples);
    samples
}

/// `name{label="value",...} number`
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let name_end = line.find(['{', ' ']).expect("a name");
    let (name, mut rest) = line.split_at(name_end);
    let name_fine = |name: &str, extra: &str| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || extra.contains(c))
    };
    assert!(name_fine(name, ":"), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label");
            assert!(name_fine(label, ""), "{line}");
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().expect("a closing quote") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match characters.next().expect("an escape").1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("no such escape: {other}"),
                    }),
                    (_, plain) => value.push(plain),
                }
            };
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("a closing brace");
    }
    let value = rest.strip_prefix(' ').expect("a space").parse().expect("a number");
    (name.to_owned(), labels, value)
}

/// Buckets grow, end with infinity, and agree with the count.
fn check_histograms(samples: &Samples) {
    let mut buckets: BTreeMap<Key, Vec<(f64, f64)>> = BTreeMap::new();
    for ((name, labels), value) in samples {
        if let Some(family) = name.strip_suffix("_bucket") {
            let mut labels = labels.clone();
            let bound = labels.remove("le").unwrap();
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
            buckets.entry((family.to_owned(), labels)).or_default().push((bound, *value));
        }
    }
    for ((family, labels), mut list) in buckets {
        list.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(list.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{family}: {list:?}");
        let last = list.last().unwrap();
        assert!(last.0.is_infinite(), "{family}");
        assert_eq!(samples[&(format!("{family}_count"), labels.clone())], last.1, "{family}");
        assert!(samples.contains_key(&(format!("{family}_sum"), labels)), "{family}");
    }
}

fn value(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let key = (name.to_owned(), labels);
    *samples.get(&key).unwrap_or_else(|| panic!("no {key:?}"))
}

fn finished(reason: FinishReason, generated: usize) -> Finished {
    Finished {
        tokens: Vec::new(),
        reason,
        tail: Vec::new(),
        usage: Usage { prompt: 10, generated, ..Usage::default() },
        timings: Timings {
            queued: Duration::from_millis(1),
            prefill: Duration::from_millis(20),
            first_token: Duration::from_millis(21),
            decode: Duration::from_millis(100),
        },
    }
}

#[test]
fn an_empty_server_has_a_valid_page() {
    let samples = check(&Metrics::default().render(&[]));
    assert_eq!(value(&samples, "flint_interrupts_total", &[]), 0.0);
    assert_eq!(value(&samples, "flint_requests_rejected_total", &[("reason", "queue_full")]), 0.0);
}

#[test]
fn engines_are_read_at_scrape_time() {
    let mut drafts = DraftCounts::default();
    drafts.add(DraftKind::Ngram, 9, 8);
    let stats = Stats {
        running: [2, 1],
        queued: [0, 4],
        preempted: [0, 1],
        blocks: BlockCounts { used: 25, cached: 50, free: 25 },
        generated_tokens: 7,
        prompt_tokens: 30,
        cached_tokens: 70,
        drafts,
        forward_seconds: 1.5,
        ..Stats::default()
    };
    let samples = check(&Metrics::default().render(&[("toy", stats), ("other", Stats::default())]));
    for (name, expected) in [
        ("vllm:num_requests_running", 3.0),
        ("vllm:num_requests_waiting", 5.0),
        ("vllm:kv_cache_usage_perc", 0.25),
        ("vllm:prompt_tokens_total", 100.0),
        ("vllm:generation_tokens_total", 7.0),
        ("vllm:prefix_cache_queries_total", 100.0),
        ("vllm:prefix_cache_hits_total", 70.0),
        ("vllm:num_preemptions_total", 0.0),
        ("flint_forward_seconds_total", 1.5),
    ] {
        assert_eq!(value(&samples, name, &[("model_name", "toy")]), expected, "{name}");
        assert_eq!(value(&samples, name, &[("model_name", "other")]), 0.0, "{name}");
    }
    let drafter = |name, drafter| value(&samples, name, &[("model_name", "toy"), ("drafter", drafter)]);
    for (name, expected) in [
        ("vllm:spec_decode_num_drafts_total", 1.0),
        ("vllm:spec_decode_num_draft_tokens_total", 9.0),
        ("vllm:spec_decode_num_accepted_tokens_total", 8.0),
    ] {
        assert_eq!((drafter(name, "ngram"), drafter(name, "prediction")), (expected, 0.0), "{name}");
    }
    let lane = |name, lane| value(&samples, name, &[("model_name", "toy"), ("lane", lane)]);
    assert_eq!((lane("flint_lane_running", "interactive"), lane("flint_lane_running", "background")), (2.0, 1.0));
    assert_eq!((lane("flint_lane_waiting", "interactive"), lane("flint_lane_waiting", "background")), (0.0, 5.0));
}

#[test]
fn requests_are_counted_by_model_and_reason() {
    let metrics = Metrics::default();
    let toy = metrics.model("toy");
    toy.finished(&finished(FinishReason::StopToken(2), 11), Duration::from_millis(121));
    metrics.model("toy").finished(&finished(FinishReason::Cancelled, 0), Duration::from_millis(3));
    metrics.model("big").finished(&finished(FinishReason::Length, 1), Duration::from_secs(9));
    toy.tokens(Duration::from_millis(8), 4);
    toy.tokens(Duration::from_millis(8), 0);
    let samples = check(&metrics.render(&[]));
    let success = |model, reason| {
        value(&samples, "vllm:request_success_total", &[("model_name", model), ("finished_reason", reason)])
    };
    assert_eq!((success("toy", "stop"), success("toy", "abort"), success("toy", "length")), (1.0, 1.0, 0.0));
    assert_eq!(success("big", "length"), 1.0);
    let toy = |name| value(&samples, name, &[("model_name", "toy")]);
    assert_eq!(toy("vllm:e2e_request_latency_seconds_count"), 2.0);
    assert_eq!(toy("vllm:e2e_request_latency_seconds_sum"), 0.124);
    assert_eq!(toy("vllm:time_to_first_token_seconds_count"), 1.0);
    assert_eq!(toy("vllm:request_time_per_output_token_seconds_sum"), 0.01);
    assert_eq!(toy("vllm:inter_token_latency_seconds_count"), 4.0);
    assert_eq!(toy("vllm:inter_token_latency_seconds_sum"), 0.008);
    let below =
        |bound| value(&samples, "vllm:inter_token_latency_seconds_bucket", &[("model_name", "toy"), ("le", bound)]);
    assert_eq!((below("0.001"), below("0.002"), below("+Inf")), (0.0, 4.0, 4.0));
}

#[test]
fn connections_steers_and_rejections() {
    let metrics = Arc::new(Metrics::default());
    let first = metrics.connected(Transport::WebSocket);
    let _second = metrics.connected(Transport::WebSocket);
    let _third = metrics.connected(Transport::Unix);
    drop(first);
    metrics.steered(SteerOutcome::Pending);
    metrics.interrupted();
    metrics.rejected(Rejection::Origin);
    metrics.rejected(Rejection::Shutdown);
    let samples = check(&metrics.render(&[]));
    assert_eq!(value(&samples, "flint_connections", &[("transport", "websocket")]), 1.0);
    assert_eq!(value(&samples, "flint_connections", &[("transport", "unix")]), 1.0);
    assert_eq!(value(&samples, "flint_connections", &[("transport", "http")]), 0.0);
    assert_eq!(value(&samples, "flint_steers_total", &[("outcome", "pending")]), 1.0);
    assert_eq!(value(&samples, "flint_interrupts_total", &[]), 1.0);
    assert_eq!(value(&samples, "flint_requests_rejected_total", &[("reason", "origin")]), 1.0);
    assert_eq!(value(&samples, "flint_requests_rejected_total", &[("reason", "shutdown")]), 1.0);
}

#[test]
fn names_of_models_are_escaped() {
    let name = "a \"quoted\"\\path\nand {braces}, a=b";
    let metrics = Metrics::default();
    metrics.model(name).finished(&finished(FinishReason::Stop, 2), Duration::from_millis(1));
    let samples = check(&metrics.render(&[(name, Stats { running: [1, 0], ..Stats::default() })]));
    assert_eq!(value(&samples, "vllm:num_requests_running", &[("model_name", name)]), 1.0);
    assert_eq!(value(&samples, "vllm:e2e_request_latency_seconds_count", &[("model_name", name)]), 1.0);
}
