//! Writes the tiny models to a folder, for a look at them with other tools: `cargo run -p testkit --example tiny -- DIR`.

use kernels::Format;
use testkit::models::{Tiny, hybrids, mistral3};

fn main() -> std::io::Result<()> {
    let folder = std::path::PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".into()));
    for architecture in ["llama", "qwen2", "qwen3", "qwen3moe"] {
        for (name, scaling) in [("plain", None), ("linear", Some(("linear", 4.0))), ("yarn", Some(("yarn", 4.0)))] {
            let tiny = Tiny { architecture, scaling, ..Tiny::default() };
            tiny.writer().write(&folder.join(format!("{architecture}-{name}.gguf")))?;
        }
    }
    for (name, tiny) in hybrids() {
        tiny.writer().write(&folder.join(format!("hybrid-{name}.gguf")))?;
    }
    mistral3().writer().write(&folder.join("mistral3-yarn.gguf"))?;
    for format in Format::ALL {
        let tiny = Tiny { format, ..Tiny::default() };
        tiny.writer().write(&folder.join(format!("llama-{}.gguf", format.name())))?;
    }
    Ok(())
}
