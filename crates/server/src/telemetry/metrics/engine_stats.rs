//! What each engine counts by itself, read when somebody asks.

use engine::{DraftCount, DraftKind, StateCounts, Stats};

use super::text::{Kind, Page};

/// One family with one sample per engine.
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&Stats) -> f64,
}

const fn counter(name: &'static str, help: &'static str, value: fn(&Stats) -> f64) -> Family {
    Family { name, kind: Kind::Counter, help, value }
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&Stats) -> f64) -> Family {
    Family { name, kind: Kind::Gauge, help, value }
}

/// vLLM's names first, ours after.
const FAMILIES: &[Family] = &[
    gauge("vllm:num_requests_running", "Sequences being stepped.", |stats| sum(stats.running)),
    gauge("vllm:num_requests_waiting", "Requests not started, and sequences waiting for KV room.", |stats| {
        sum(stats.queued) + sum(stats.preempted)
    }),
    gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use by sequences, from 0 to 1.", |stats| {
        let blocks = stats.blocks;
        blocks.used as f64 / (blocks.used + blocks.cached + blocks.free).max(1) as f64
    }),
    counter("vllm:prompt_tokens_total", "Tokens of prompts, cached ones included.", |stats| {
        (stats.prompt_tokens + stats.cached_tokens) as f64
    }),
    counter("vllm:generation_tokens_total", "Tokens generated.", |stats| stats.generated_tokens as f64),
    counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", |stats| {
        (stats.prompt_tokens + stats.cached_tokens) as f64
    }),
    counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", |stats| {
        stats.cached_tokens as f64
    }),
    counter("vllm:num_preemptions_total", "Times a sequence gave up its blocks for another.", |stats| {
        stats.preemptions as f64
    }),
    counter("flint_prompt_tokens_computed_total", "Rows computed to read prompts, again after preemption.", |stats| {
        stats.prompt_tokens as f64
    }),
    counter("flint_steps_total", "Forward passes.", |stats| stats.steps as f64),
    counter("flint_forward_seconds_total", "Time in forward passes.", |stats| stats.forward_seconds),
    counter("flint_busy_seconds_total", "Time with work to do, forward passes included.", |stats| stats.busy_seconds),
    counter("flint_snapshot_written_total", "KV blocks written to disk.", |stats| stats.snapshots.written as f64),
    counter("flint_snapshot_restored_total", "KV blocks read back.", |stats| stats.snapshots.restored as f64),
    counter("flint_snapshot_lost_total", "KV blocks that could not be kept.", |stats| stats.snapshots.lost as f64),
    counter("flint_snapshot_rejected_total", "Torn or foreign files removed.", |stats| stats.snapshots.rejected as f64),
    gauge("flint_snapshot_bytes", "Bytes of KV blocks on disk.", |stats| stats.snapshots.bytes as f64),
    gauge("flint_snapshot_blocks", "KV blocks on disk.", |stats| stats.snapshots.blocks as f64),
];

/// A number of one lane.
type OfPriority = fn(&Stats, usize) -> usize;

/// A number of one drafter.
type OfDrafter = fn(DraftCount) -> u64;

/// The lanes in the order of the arrays in [`Stats`].
const LANES: [&str; 2] = ["interactive", "background"];

pub(super) fn write(page: &mut Page, engines: &[(&str, Stats)]) {
    for family in FAMILIES {
        page.family(family.name, family.kind, family.help);
        for (model, stats) in engines {
            page.sample(family.name, &[("model_name", model)], (family.value)(stats));
        }
    }
    let lanes: [(&str, &str, OfPriority); 2] = [
        ("flint_lane_running", "Sequences being stepped, by lane.", |stats, lane| stats.running[lane]),
        ("flint_lane_waiting", "Requests and sequences waiting, by lane.", |stats, lane| {
            stats.queued[lane] + stats.preempted[lane]
        }),
    ];
    for (name, help, value) in lanes {
        page.family(name, Kind::Gauge, help);
        for (model, stats) in engines {
            for (index, lane) in LANES.iter().enumerate() {
                page.sample(name, &[("model_name", model), ("lane", lane)], value(stats, index) as f64);
            }
        }
    }
    let drafts: [(&str, &str, OfDrafter); 3] = [
        ("vllm:spec_decode_num_drafts_total", "Drafts verified, by drafter.", |count| count.drafts),
        ("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens verified, by drafter.", |count| count.tokens),
        ("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens that were right, by drafter.", |count| {
            count.accepted
        }),
    ];
    for (name, help, value) in drafts {
        page.family(name, Kind::Counter, help);
        for (model, stats) in engines {
            for kind in DraftKind::ALL {
                let labels = [("model_name", *model), ("drafter", kind.name())];
                page.sample(name, &labels, value(stats.drafts.of(kind)) as f64);
            }
        }
    }
    page.family("flint_kv_blocks", Kind::Gauge, "KV blocks: in use, kept for their content, empty.");
    for (model, stats) in engines {
        let blocks = stats.blocks;
        for (state, count) in [("used", blocks.used), ("cached", blocks.cached), ("free", blocks.free)] {
            page.sample("flint_kv_blocks", &[("model_name", model), ("state", state)], count as f64);
        }
    }
    page.family("flint_recurrent_state_bytes", Kind::Gauge, "Recurrent states: in use, kept for their content, empty.");
    for (model, stats) in engines {
        let StateCounts { slots, cached, free, bytes } = stats.states;
        for (state, count) in [("used", slots - cached - free), ("cached", cached), ("free", free)] {
            let labels = [("model_name", *model), ("state", state)];
            page.sample("flint_recurrent_state_bytes", &labels, (count * bytes) as f64);
        }
    }
}

fn sum(lanes: [usize; 2]) -> f64 {
    lanes.iter().sum::<usize>() as f64
}
