//! Names for things that travel: a prefix and 128 bits nobody can guess, and the clock that stamps them.

use std::time::{SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A new identity such as `resp_00c3...`: time first, so that a list of them is in order, then 128 bits of the system's
/// randomness.
pub fn new(prefix: &str) -> String {
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the system has random numbers");
    format!("{prefix}_{:012x}{:032x}", nanoseconds >> 16, u128::from_le_bytes(random))
}

/// Unix seconds.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// Unix seconds as RFC 3339 writes them, in UTC.
pub fn timestamp(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
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
