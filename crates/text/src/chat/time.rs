//! `strftime_now` for templates that tell the model which day it is. The time itself comes from the caller.

use minijinja::{Error, ErrorKind};

const DAY_SECONDS: u64 = 86_400;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Last second of the year 9999, beyond which no calendar of ours is right.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Formats a time in UTC with the directives that templates use.
pub(super) fn format(format: &str, unix_seconds: u64) -> Result<String, Error> {
    let seconds = unix_seconds.min(SECONDS_MAX);
    let days = seconds / DAY_SECONDS;
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds % DAY_SECONDS / 3600, seconds % 3600 / 60, seconds % 60);
    let month_name = MONTHS[month as usize - 1];
    let weekday = WEEKDAYS[(days as usize + 4) % 7];
    let mut text = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => text += &year.to_string(),
            Some('y') => text += &format!("{:02}", year % 100),
            Some('m') => text += &format!("{month:02}"),
            Some('d') => text += &format!("{day:02}"),
            Some('B') => text += month_name,
            Some('b') => text += &month_name[..3],
            Some('A') => text += weekday,
            Some('a') => text += &weekday[..3],
            Some('H') => text += &format!("{hour:02}"),
            Some('M') => text += &format!("{minute:02}"),
            Some('S') => text += &format!("{second:02}"),
            Some('%') => text.push('%'),
            other => {
                let directive = other.map(String::from).unwrap_or_default();
                return Err(Error::new(ErrorKind::InvalidOperation, format!("strftime: unknown %{directive}")));
            }
        }
    }
    Ok(text)
}

/// Year, month and day of a day counted from 1970-01-01, by the usual count of eras of 400 years from March 1st.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
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
