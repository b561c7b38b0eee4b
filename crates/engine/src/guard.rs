//! Calls into code the engine was handed with a request, so that a panic there ends that request and not the engine.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `call`; a panic becomes an error that says whose it was.
///
/// Whoever gets the error must not use what `call` touched again, other than to drop it: that is what makes asserting
/// unwind safety right.
pub(crate) fn guard<T>(whose: &str, call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        format!("the {whose} of this request panicked: {}", text.unwrap_or("no message"))
    })
}

#[cfg(test)]
mod tests {
    use super::guard;

    #[test]
    fn panics_become_errors_with_their_message() {
        let number = 7;
        assert_eq!(guard("drafter", || number), Ok(7));
        let plain = guard("drafter", || -> u32 { panic!("plain") });
        assert_eq!(plain.unwrap_err(), "the drafter of this request panicked: plain");
        let built = guard("waker", || -> u32 { panic!("number {number}") });
        assert_eq!(built.unwrap_err(), "the waker of this request panicked: number 7");
    }
}
