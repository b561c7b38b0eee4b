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

/// Unix seconds as RFC 3339 writes them, in UTC (Hinnant, "chrono-compatible low-level date algorithms").
pub fn timestamp(seconds: u64) -> String {
    let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_are_written_as_clients_read_them() {
        assert_eq!(super::timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(super::timestamp(1_709_251_199), "2024-02-29T23:59:59Z");
    }

    #[test]
    fn identities_differ_and_carry_their_prefix() {
        let ids: std::collections::HashSet<String> = (0..10_000).map(|_| super::new("msg")).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| id.starts_with("msg_") && id.len() == 48));
    }
}
