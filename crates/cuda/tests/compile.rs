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
        assert!(kernels >= 35, "{kernels} compiled kernels were kept");
        return;
    }
    println!("NVRTC {:?}", nvrtc_version().unwrap());
    let all: Vec<Format> = Format::ALL.into_iter().filter(|&format| cuda::pack::is_supported(format)).collect();
    let mix = vec![Format::Q4_K, Format::Q6_K];
    let check_with = |source: Source, formats: &[Format], tiles, (head, heads, kv_heads), kv8, architecture: &str| {
        // With 32 heads it is a mixture of experts and wider than a norm is for one super-block per warp.
        let (columns, experts, formats) = (heads * 160, heads == 32, formats.to_vec());
        let (multiprocessors, times) = (132, false);
        let options = KernelsOptions { formats, head, heads, kv_heads, kv8, columns, experts, multiprocessors, times };
        let code = compile(source, &options.definitions(source, tiles), architecture).unwrap();
        assert!(code.starts_with(b"\x7fELF"), "{} is machine code", source.name());
    };
    let check = |source, formats: &[Format], tiles, shape, architecture: &str| {
        check_with(source, formats, tiles, shape, false, architecture);
    };
    // The shapes of the models in the catalogue and of the self test.
    let shapes = [(128, 12, 2), (128, 28, 4), (64, 14, 2), (64, 9, 3), (80, 4, 4)];
    for architecture in ["sm_80", "sm_90a"] {
        for shape in shapes {
            for source in [Source::Attention, Source::Heads, Source::Flash] {
                check(source, &all, 0, shape, architecture);
            }
        }
        for source in [Source::Product, Source::Floats, Source::Rows, Source::Gemm] {
            check(source, &all, 1, shapes[0], architecture);
        }
        for tiles in [1, 2, 3, 4] {
            check(Source::Several, &mix, tiles, shapes[0], architecture);
        }
    }
    for source in [Source::Attention, Source::Heads, Source::Flash, Source::Token] {
        check_with(source, &mix, 1, shapes[0], true, "sm_90a");
    }
    check_with(Source::Token, &mix, 1, (128, 32, 4), true, "sm_90a");
    check(Source::Several, &all, 2, shapes[0], "sm_80");
    check(Source::Token, &mix, 1, shapes[0], "sm_90a");
    // Queries of a mixture of experts, eight for a KV head.
    check(Source::Token, &mix, 1, (128, 32, 4), "sm_90a");
    check(Source::Token, &[Format::Q4_1, Format::Q8_0], 1, shapes[3], "sm_90a");
}
