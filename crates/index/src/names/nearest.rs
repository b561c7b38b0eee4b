//! Names that exist and are nearly like one that does not.

use std::collections::HashSet;

use crate::terms;

/// Names that are told, and how near they must be.
const TOLD_MAX: usize = 3;
const NEAR: f64 = 0.84;

/// Letters of a part that two names must share to be compared.
const SHARED: usize = 3;

/// How many of their parts two names must share that are spelled otherwise, and what that counts beside the spelling.
const PARTS_SHARE: f64 = 0.5;

/// The names among `known` that are nearest, the best first.
pub(super) fn of<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let lower = name.to_lowercase();
    let parts = |name: &str| terms::parts(name).iter().map(|part| part.to_lowercase()).collect::<Vec<String>>();
    let wanted = parts(name);
    let begins: String = lower.chars().take(SHARED).collect();
    let mut seen = HashSet::new();
    let mut scored: Vec<(f64, &str)> = Vec::new();
    for other in known.filter(|other| other.len() <= 2 * name.len() + 4 && 2 * other.len() + 4 >= name.len()) {
        if other == name || other.len() < 2 {
            continue;
        }
        let other_lower = other.to_lowercase();
        let near = other_lower.starts_with(&begins)
            || wanted.iter().any(|part| part.len() >= SHARED && other_lower.contains(part.as_str()));
        if !near || !seen.insert(other) {
            continue;
        }
        let others = parts(other);
        let shared = wanted.iter().filter(|part| others.contains(part)).count() * 2;
        let of_parts = shared as f64 / (wanted.len() + others.len()).max(1) as f64;
        let spelled = strsim::jaro_winkler(&lower, &other_lower);
        if spelled >= NEAR || of_parts >= PARTS_SHARE && wanted.len() > 1 {
            scored.push((spelled + PARTS_SHARE * of_parts, other));
        }
    }
    scored.sort_by(|one, two| two.0.total_cmp(&one.0).then(one.1.cmp(two.1)));
    scored.into_iter().take(TOLD_MAX).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_nearest_come_first() {
        let known = ["total_price", "price_total", "parse_header", "parse_body", "total", "unrelated", "x"];
        let check = |name: &str, expected: &[&str]| assert_eq!(super::of(name, known.into_iter()), expected, "{name}");
        check("total_prices", &["total_price", "total", "price_total"]);
        check("parse_head", &["parse_header", "parse_body"]);
        check("quux", &[]);
    }
}
