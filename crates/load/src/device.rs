//! Where a model computes: the choice a user makes, and a backend from it.

use std::path::Path;

use anyhow::{Context, bail};
use model::{Backend, Config, CpuModel, CpuOptions, CudaModel, CudaOptions, LoadError};

/// What `--device` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A card if there is one that can, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The card of this number.
    Cuda(usize),
}

/// Reads `auto`, `cpu`, `cuda` or `cuda:N`.
pub fn device_choice(text: &str) -> Result<DeviceChoice, String> {
    let number = |number: &str| number.parse().map(DeviceChoice::Cuda).ok();
    let choice = match text {
        "auto" => Some(DeviceChoice::Auto),
        "cpu" => Some(DeviceChoice::Cpu),
        "cuda" => Some(DeviceChoice::Cuda(0)),
        _ => text.strip_prefix("cuda:").and_then(number),
    };
    choice.ok_or_else(|| "it is auto, cpu, cuda or cuda:N".to_owned())
}

/// A model that was loaded.
pub struct Opened {
    /// To be stepped.
    pub backend: Box<dyn Backend>,
    /// The CPU kernels in use, or the card.
    pub kernels: String,
    /// Whether it is on a card.
    pub on_card: bool,
}

/// Loads a file where the user wants it.
pub fn open(path: &Path, choice: DeviceChoice, cpu: CpuOptions) -> anyhow::Result<Opened> {
    let card = match choice {
        DeviceChoice::Cpu => return on_cpu(path, cpu),
        DeviceChoice::Cuda(card) => return on_card(path, card, cpu),
        DeviceChoice::Auto => 0,
    };
    // No card, or no compiler for it, is nothing to speak of when nobody asked for one; `flint doctor` says it.
    if cuda::Device::count().is_err() || cuda::nvrtc_version().is_err() {
        return on_cpu(path, cpu);
    }
    match on_card(path, card, cpu) {
        Err(error) if is_about_card(&error) => {
            errln!("note: the CPU is used: {error:#}");
            on_cpu(path, cpu)
        }
        opened => opened,
    }
}

fn on_cpu(path: &Path, options: CpuOptions) -> anyhow::Result<Opened> {
    let model = CpuModel::load(path, options)?;
    let kernels = model.kernels().to_owned();
    Ok(Opened { backend: Box::new(model), kernels, on_card: false })
}

fn on_card(path: &Path, card: usize, cpu: CpuOptions) -> anyhow::Result<Opened> {
    let model = CudaModel::load(path, card_options(card, cpu))?;
    Ok(opened(model))
}

/// The shape of a known model.
pub fn shape(name: &str) -> anyhow::Result<Config> {
    let known = || format!("there is no shape `{name}`; known are {}", model::cuda::SHAPES.join(", "));
    model::cuda::shape(name).with_context(known)
}

/// A model of this shape with random weights, made on a card.
pub fn open_random(config: Config, choice: DeviceChoice, cpu: CpuOptions) -> anyhow::Result<Opened> {
    let card = match choice {
        DeviceChoice::Cpu => bail!("random weights are made on a card; use --device cuda"),
        DeviceChoice::Auto => 0,
        DeviceChoice::Cuda(card) => card,
    };
    Ok(opened(CudaModel::random(config, card_options(card, cpu))?))
}

fn opened(model: CudaModel) -> Opened {
    let kernels = format!("cuda, {}", model.card().name);
    Opened { backend: Box::new(model), kernels, on_card: true }
}

/// Places in memory that single steps are tried in while a model is loaded: 0.2 s for the 1.5B, 0.4 for the 7B (H200).
const PLACEMENTS: usize = 16;

fn card_options(card: usize, cpu: CpuOptions) -> CudaOptions {
    CudaOptions {
        card,
        kv_tokens: cpu.kv_tokens,
        kv_type: cpu.kv_type,
        config: cpu.config,
        threads: cpu.threads,
        times: false,
        placements: PLACEMENTS,
    }
}

/// Whether the file is not to blame.
fn is_about_card(error: &anyhow::Error) -> bool {
    error.is::<cuda::Error>()
        || matches!(error.downcast_ref::<LoadError>(), Some(LoadError::Card(_) | LoadError::NotOnCard(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices() {
        assert_eq!(device_choice("cuda:3"), Ok(DeviceChoice::Cuda(3)));
        assert_eq!(device_choice("cuda"), Ok(DeviceChoice::Cuda(0)));
        assert!(device_choice("cuda:").is_err() && device_choice("gpu").is_err());
    }
}
