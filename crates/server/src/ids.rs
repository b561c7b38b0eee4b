//! Names for things that travel: a prefix and 128 bits nobody can guess, and the clock that stamps them.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A new identity such as `resp_00c3...`: time first, so that a list of them is in order.
pub fn new(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    // The keys of a RandomState come from the system's entropy, new ones for every thread and call.
    let random = |salt: u64| {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(nanoseconds ^ salt);
        hasher.write_u64(count);
        hasher.finish()
    };
    format!("{prefix}_{:012x}{:016x}{:016x}", nanoseconds >> 16, random(1), random(2))
}

/// Unix seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    #[test]
    fn identities_differ_and_carry_their_prefix() {
        let ids: std::collections::HashSet<String> = (0..10_000).map(|_| super::new("msg")).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.starts_with("msg_") && id.len() == 48));
    }
}
