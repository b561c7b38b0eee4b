//! What can go wrong on a card, worded for the person in front of it.

use std::path::PathBuf;

/// Why the card could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver's library is not there.
    #[error("no NVIDIA driver was found (libcuda.so.1); install the driver of your card, or use `--device cpu`")]
    NoDriver,
    /// The driver is there, a card is not.
    #[error("the NVIDIA driver sees no card; check `nvidia-smi`, or use `--device cpu`")]
    NoCard,
    /// There are fewer cards than asked for.
    #[error("there is no card {wanted}: the driver sees {found}, numbered from 0")]
    NoSuchCard {
        /// The number asked for.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// The card is too old for the kernels.
    #[error("{name} has compute capability {major}.{minor}; 8.0 or newer is needed, use `--device cpu`")]
    TooOld {
        /// The card.
        name: String,
        /// Its capability.
        major: u32,
        /// Its capability.
        minor: u32,
    },
    /// The compiler's library is not there.
    #[error(
        "NVRTC was not found (libnvrtc.so.13 or .12); it comes with the CUDA toolkit and with \
         `pip install nvidia-cuda-nvrtc`; FLINT_NVRTC may name the file"
    )]
    NoCompiler,
    /// A kernel did not compile.
    #[error("kernel `{name}` did not compile for {architecture}:\n{log}")]
    Compile {
        /// Which source.
        name: &'static str,
        /// For what.
        architecture: String,
        /// What the compiler said.
        log: String,
    },
    /// The card's memory is full.
    #[error("the card has {free} MiB free and {wanted} MiB are needed; ask for a smaller --context or a smaller model")]
    OutOfMemory {
        /// MiB asked for.
        wanted: usize,
        /// MiB free.
        free: usize,
    },
    /// The compiled kernels cannot be cached.
    #[error("compiled kernels cannot be held in {}: {source}", path.display())]
    Cache {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A call of the driver failed.
    #[error("{call}: {text}; if it happens again, `nvidia-smi` and the kernel's log say what the card is up to")]
    Driver {
        /// The call.
        call: &'static str,
        /// What the driver says.
        text: String,
    },
    /// The kernels do not do this yet.
    #[error("{0} does not run on the card yet; use `--device cpu`")]
    Unsupported(String),
}
