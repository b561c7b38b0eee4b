//! Every kernel compiles, on a machine without a card: NVRTC comes from its Python package.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test whose surroundings fail should fail")]

use cuda::{KernelsOptions, Source, compile, nvrtc_version};
use kernels::Format;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

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
    if std::env::var("FLINT_TEST_GROUPS").is_ok_and(|due| !due.split_whitespace().any(|name| name == "kernel-compiles"))
    {
        return println!("skipped: not due");
    }
    if std::env::var_os("FLINT_NVRTC").is_none() {
        let Some(library) = nvrtc() else {
            // A check that is skipped without a word looks green.
            return assert!(
                std::env::var("CI").map_or(true, |value| value != "true"),
                "under CI this may not be skipped"
            );
        };
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
    let wanted = Mutex::new(wanted().into_iter());
    let work = || {
        loop {
            let Some((source, definitions, architecture)) = wanted.lock().unwrap().next() else { return };
            let code = compile(source, &definitions, architecture).unwrap();
            assert!(code.starts_with(b"\x7fELF"), "{} is machine code", source.name());
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(work))));
}

/// Sources with their definitions and the architecture they are compiled for.
fn wanted() -> Vec<(Source, Vec<String>, &'static str)> {
    let all: Vec<Format> = Format::ALL.into_iter().filter(|&format| cuda::pack::is_supported(format)).collect();
    let mix = vec![Format::Q4_K, Format::Q6_K];
    let of_kv = |source: Source, formats: &[Format], tiles, (head, heads, kv_heads), kv8, architecture| {
        // With 32 heads it is a mixture of experts and wider than a norm is for one super-block per warp.
        let (columns, experts, formats) = (heads * 160, heads == 32, formats.to_vec());
        let (multiprocessors, times) = (132, false);
        // Long heads come with gates and with states.
        let (long, experts) = (head == 256, experts || heads == 16);
        let options = KernelsOptions {
            formats,
            head,
            heads,
            kv_heads,
            kv8,
            columns: if heads == 16 { 2048 } else { columns },
            experts,
            shared: long && experts,
            gated: long,
            delta: long,
            multiprocessors,
            times,
        };
        (source, options.definitions(source, tiles), architecture)
    };
    let of = |source, formats: &[Format], tiles, shape, architecture| {
        of_kv(source, formats, tiles, shape, false, architecture)
    };
    // The shapes of the models in the catalogue and of the self test.
    let shapes = [(128, 12, 2), (128, 28, 4), (64, 14, 2), (64, 9, 3), (80, 4, 4)];
    // What takes longest comes first, so that nobody waits for it at the end. A mixture of experts has eight queries for a KV head.
    let mut wanted = vec![
        of_kv(Source::DecodePersistent, &mix, 1, (128, 32, 4), true, "sm_90a"),
        of(Source::DecodePersistent, &mix, 1, (128, 32, 4), "sm_90a"),
        of_kv(Source::DecodePersistent, &mix, 1, shapes[0], true, "sm_90a"),
        of(Source::DecodePersistent, &mix, 1, shapes[0], "sm_90a"),
        of(Source::DecodePersistent, &[Format::Q4_1, Format::Q8_0], 1, shapes[3], "sm_90a"),
        of(Source::DecodePersistent, &mix, 1, (256, 16, 2), "sm_90a"),
        of(Source::DecodePersistent, &mix, 1, (256, 24, 4), "sm_90a"),
        of_kv(Source::DecodePersistent, &mix, 1, (256, 16, 2), true, "sm_90a"),
        of(Source::GemmPacked, &all, 0, shapes[0], "sm_90a"),
        of(Source::ProductBatch, &all, 2, shapes[0], "sm_80"),
        of(Source::GemmPacked, &mix, 0, shapes[0], "sm_80"),
    ];
    let attending = [Source::Attention, Source::Heads, Source::Flash];
    for architecture in ["sm_80", "sm_90a"] {
        wanted.extend([1, 2, 3, 4].map(|tiles| of(Source::ProductBatch, &mix, tiles, shapes[0], architecture)));
        let plain = [Source::Product, Source::Floats, Source::Rows, Source::Gemm];
        wanted.extend(plain.map(|source| of(source, &all, 1, shapes[0], architecture)));
        wanted.push(of(Source::Delta, &mix, 1, (256, 16, 2), architecture));
        for shape in shapes.into_iter().chain([(256, 16, 2), (256, 24, 4)]) {
            wanted.extend(attending.map(|source| of(source, &all, 0, shape, architecture)));
        }
    }
    wanted.extend(attending.map(|source| of_kv(source, &mix, 1, shapes[0], true, "sm_90a")));
    wanted
}
