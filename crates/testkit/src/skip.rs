//! Tests that do not run say so, and where everything should be there (`CI=true`) that is a failure: a check that is skipped
//! without a word looks green.

/// What no machine of ours need have, or what was not asked for. Everything else should be there.
const ACCEPTED: &[&str] = &["there is no card", "there is a card", "not due", "takes ", "writes ", "set FLINT_TEST_"];

/// Says why a test does not run.
///
/// # Panics
///
/// Under `CI=true`, unless the reason begins like one that is accepted.
pub fn skipped(why: &str) {
    println!("skipped: {why}");
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!strict || is_accepted(why), "under CI this may not be skipped: {why}");
}

/// Whether a group of slow tests that runs by default is due: `.ci/run` names those that are.
pub fn is_due(group: &str) -> bool {
    let due = std::env::var("FLINT_TEST_GROUPS").map_or(true, |due| due.split_whitespace().any(|name| name == group));
    if !due {
        skipped("not due");
    }
    due
}

fn is_accepted(why: &str) -> bool {
    ACCEPTED.iter().any(|start| why.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::is_accepted;

    #[test]
    fn only_what_need_not_be_there_is_accepted() {
        assert!(
            is_accepted("there is no card: libcuda.so was not found") && is_accepted("set FLINT_TEST_CLIENTS=1 to")
        );
        assert!(!is_accepted("smollm2-135m.gguf is missing") && !is_accepted("g++ was not found"));
    }
}
