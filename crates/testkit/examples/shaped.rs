//! Writes a model of a real shape with random weights: `cargo run -p testkit --example shaped -- SHAPE LAYERS OUT.gguf`.
//!
//! Of the shape's layers only the first LAYERS are written, so that a file fits where the whole model does not.

use testkit::shaped::shaped;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [shape, layers, out] = &arguments[..] else {
        return Err(std::io::Error::other("give SHAPE LAYERS OUT.gguf"));
    };
    let known = || std::io::Error::other(format!("known shapes are {}", model::cuda::SHAPES.join(", ")));
    let mut config = model::cuda::shape(shape).ok_or_else(known)?;
    config.layers = layers.parse().map_err(std::io::Error::other)?;
    config.kinds.truncate(config.layers);
    shaped(&config).write(std::path::Path::new(out))
}
