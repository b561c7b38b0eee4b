//! `lab`: measurements for whoever works on kernels, without the engine and without a server.
//!
//! `lab card SHAPE...` times steps of known shapes on a card, `lab depth MODEL.gguf DEPTH COUNT` decodes at a depth for
//! `bench/depth/alternate.py`.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, reason = "its own words and files")]
#![allow(clippy::unwrap_used, reason = "a measuring tool may end with its first error")]

mod card;
mod depth;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((name, rest)) if name == "card" => card::run(rest),
        Some((name, rest)) if name == "depth" => depth::run(rest),
        _ => panic!("lab card SHAPE... | lab depth MODEL.gguf DEPTH COUNT"),
    }
}
