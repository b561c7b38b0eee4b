//! Writes a model again with every matrix in half precision, for comparing backends where nothing is rounded to 8 bits:
//! `cargo run --release -p model --example halves -- MODEL.gguf HALVES.gguf`, then `flint bench agree -m HALVES.gguf`.
#![allow(clippy::unwrap_used)]

fn main() {
    let paths: Vec<std::path::PathBuf> = std::env::args_os().skip(1).map(Into::into).collect();
    let [from, to] = &paths[..] else { panic!("halves MODEL.gguf HALVES.gguf") };
    testkit::gguf::write_as(from, to, kernels::Format::F16).unwrap();
}
