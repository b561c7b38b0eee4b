//! The real screen in a real terminal with a real model: what a person sees and does.
//!
//! Where the words do not matter the model is `smollm2-135m`. Tests that need an edit use `qwen2.5-coder-1.5b`, take
//! minutes on two cores that do nothing else, and run with `FLINT_TEST_CODER=1`; without it they say so and pass. With it
//! stopping and resizing are done on the large model as well.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)] // The tests' own files and words.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests too: a panic is how they fail.

mod commands;
mod commit;
mod edits;
mod first;
mod fixture;
mod inline;
mod picture;
mod pictures;
#[path = "../common/provider.rs"]
mod provider;
mod screen;
#[path = "../common/scripted.rs"]
mod scripted;
mod talk;
mod world;
mod worst;

const SMALL: &str = "smollm2-135m";
const CODER: &str = "qwen2.5-coder-1.5b";

/// Whether tests with the large model are wanted.
fn coder_wanted() -> bool {
    std::env::var_os("FLINT_TEST_CODER").is_some_and(|value| !value.is_empty())
}

/// The model for tests in which any will do.
fn any_model() -> &'static str {
    if coder_wanted() { CODER } else { SMALL }
}

/// Whether a test that takes minutes is to run.
fn slow(name: &str) -> bool {
    let wanted = coder_wanted();
    if !wanted {
        eprintln!("{name}: not run; FLINT_TEST_CODER=1 runs it");
    }
    wanted
}
