//! `strftime_now` for templates that tell the model which day it is. The time itself comes from the caller.

use minijinja::{Error, ErrorKind};
use time::OffsetDateTime;
use time::format_description::parse_strftime_borrowed;

/// Last second of the year 9999, the last that there are dates for.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Formats a time in UTC with the directives of `strftime`.
pub(super) fn format(format: &str, unix_seconds: u64) -> Result<String, Error> {
    let fail = |error: String| Error::new(ErrorKind::InvalidOperation, format!("strftime: {format:?}: {error}"));
    let items = parse_strftime_borrowed(format).map_err(|error| fail(error.to_string()))?;
    let time = OffsetDateTime::from_unix_timestamp(unix_seconds.min(SECONDS_MAX) as i64);
    time.map_err(|error| fail(error.to_string()))?.format(&items).map_err(|error| fail(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let check = |seconds, text| assert_eq!(format("%A %d %b %Y %H:%M:%S", seconds).unwrap(), text);
        check(0, "Thursday 01 Jan 1970 00:00:00");
        check(951_782_399, "Monday 28 Feb 2000 23:59:59");
        check(951_782_400, "Tuesday 29 Feb 2000 00:00:00");
        check(1_735_689_599, "Tuesday 31 Dec 2024 23:59:59");
        assert!(format("%Q", 0).unwrap_err().to_string().contains("%Q"));
    }
}
