//! A card for machines that have none: the emulator of the cuda crate.
//!
//! It takes the place of the driver's and the compiler's libraries, so what runs on it is the real program with the real kernels.
//! A program finds libraries when it starts, so it is a child process that gets the card.

use std::path::Path;
use std::process::Command;

/// The emulated card's name, as the driver gives it.
pub const EMULATED: &str = "emulated card";

/// A command that runs `program` on an emulated card, which is built under `folder`. Where there can be none it says why on
/// standard output.
pub fn emulated(program: &Path, folder: &Path) -> Option<Command> {
    let is_host = cfg!(all(target_os = "linux", target_arch = "x86_64"));
    if !is_host || Command::new("g++").arg("--version").output().is_err() {
        crate::skip::skipped("an emulated card needs 64-bit Linux on x86 and g++");
        return None;
    }
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../cuda/emulator/run"));
    command.arg(program).env("EMULATED_CARD_FOLDER", folder).env("EMULATED_CARD_BLOCKS", "12");
    Some(command)
}
