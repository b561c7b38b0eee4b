//! What the system tells of itself. Everything here may be unknown.
#![allow(clippy::disallowed_methods, reason = "the system's own files")]

use std::path::Path;

use crate::kilobytes;

/// Where Linux says when it gives huge pages.
pub const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The processor, as it names itself.
pub fn cpu_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Features of the processor that kernels ask for.
#[cfg(target_arch = "x86_64")]
pub fn features() -> Vec<&'static str> {
    let features = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("bmi2", is_x86_feature_detected!("bmi2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vl", is_x86_feature_detected!("avx512vl")),
        ("avx512dq", is_x86_feature_detected!("avx512dq")),
        ("avx512vnni", is_x86_feature_detected!("avx512vnni")),
    ];
    features.into_iter().filter_map(|(name, found)| found.then_some(name)).collect()
}

/// There are no kernels for other processors yet, so nothing is asked for.
#[cfg(not(target_arch = "x86_64"))]
pub fn features() -> Vec<&'static str> {
    Vec::new()
}

/// Bytes behind a key of `/proc/meminfo`.
pub fn memory(key: &str) -> Option<u64> {
    kilobytes(Path::new("/proc/meminfo"), key)
}

/// The setting in use: the one in brackets in `always [madvise] never`.
pub fn huge_pages() -> Option<String> {
    let text = std::fs::read_to_string(HUGE_PAGES).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}
