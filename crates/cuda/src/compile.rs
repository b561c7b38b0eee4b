//! Kernels from source to machine code: NVRTC compiles for the card that is present, and the result is cached on disk.
//!
//! A cached result is named by a hash of everything it depends on: the source, the definitions, the architecture and the
//! compiler's version. At most [`KEPT_MAX`] are cached, the oldest go first.

use crate::error::Error;
use cudarc::nvrtc::sys;
use sha2::{Digest, Sha256};
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Compiled kernels cached on disk; one is about 100 kB.
const KEPT_MAX: usize = 128;

/// Every file of kernels, by the name that others include it by.
const FILES: &[(&str, &str)] = &[
    ("attention.cu", include_str!("kernels/attention.cu")),
    ("attention.cuh", include_str!("kernels/attention.cuh")),
    ("attention_rows.cu", include_str!("kernels/attention_rows.cu")),
    ("common.cuh", include_str!("kernels/common.cuh")),
    ("delta.cu", include_str!("kernels/delta.cu")),
    ("delta.cuh", include_str!("kernels/delta.cuh")),
    ("decode_persistent.cu", include_str!("kernels/decode_persistent.cu")),
    ("expert_rows.cu", include_str!("kernels/expert_rows.cu")),
    ("experts.cu", include_str!("kernels/experts.cu")),
    ("flash.cu", include_str!("kernels/flash.cu")),
    ("floats.cu", include_str!("kernels/floats.cu")),
    ("formats.cuh", include_str!("kernels/formats.cuh")),
    ("gemm.cu", include_str!("kernels/gemm.cu")),
    ("gemm.cuh", include_str!("kernels/gemm.cuh")),
    ("gemm_packed.cu", include_str!("kernels/gemm_packed.cu")),
    ("gemm_packed_256.cu", include_str!("kernels/gemm_packed_256.cu")),
    ("heads.cu", include_str!("kernels/heads.cu")),
    ("heads.cuh", include_str!("kernels/heads.cuh")),
    ("kv_load.cuh", include_str!("kernels/kv_load.cuh")),
    ("persistent_attention.cuh", include_str!("kernels/persistent_attention.cuh")),
    ("persistent_chunk.cuh", include_str!("kernels/persistent_chunk.cuh")),
    ("persistent_delta.cuh", include_str!("kernels/persistent_delta.cuh")),
    ("persistent_experts.cuh", include_str!("kernels/persistent_experts.cuh")),
    ("persistent_input.cuh", include_str!("kernels/persistent_input.cuh")),
    ("persistent_kv.cuh", include_str!("kernels/persistent_kv.cuh")),
    ("persistent_phase.cuh", include_str!("kernels/persistent_phase.cuh")),
    ("persistent_product.cuh", include_str!("kernels/persistent_product.cuh")),
    ("product.cu", include_str!("kernels/product.cu")),
    ("product.cuh", include_str!("kernels/product.cuh")),
    ("product_batch.cu", include_str!("kernels/product_batch.cu")),
    ("ptx.cuh", include_str!("kernels/ptx.cuh")),
    ("ready_bits.cuh", include_str!("kernels/ready_bits.cuh")),
    ("residual_norm_quant.cu", include_str!("kernels/residual_norm_quant.cu")),
    ("ring.cuh", include_str!("kernels/ring.cuh")),
    ("route.cuh", include_str!("kernels/route.cuh")),
    ("rows.cu", include_str!("kernels/rows.cu")),
    ("rows.cuh", include_str!("kernels/rows.cuh")),
    ("shortlist.cu", include_str!("kernels/shortlist.cu")),
    ("supers.cuh", include_str!("kernels/supers.cuh")),
    ("tagged.cuh", include_str!("kernels/tagged.cuh")),
    ("units.cuh", include_str!("kernels/units.cuh")),
];

/// One kernel source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Matrix times one row.
    Product,
    /// Matrix times several rows.
    ProductBatch,
    /// Matrix of floats times one or several rows.
    Floats,
    /// Attention of single rows.
    Attention,
    /// Keys and values into the cache.
    Heads,
    /// Embeddings, picks, norms.
    Rows,
    /// Matrix times many rows.
    Gemm,
    /// The same from packed weights, and many rows through experts.
    GemmPacked,
    /// Attention of many rows.
    Flash,
    /// Gated DeltaNet of several rows and of prompts.
    Delta,
    /// A whole step of one row; compute capability 9.0 and up.
    DecodePersistent,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 11] = [
        Source::Product,
        Source::ProductBatch,
        Source::Floats,
        Source::Attention,
        Source::Heads,
        Source::Rows,
        Source::Gemm,
        Source::GemmPacked,
        Source::Flash,
        Source::Delta,
        Source::DecodePersistent,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Source::Product => "product",
            Source::ProductBatch => "product_batch",
            Source::Floats => "floats",
            Source::Attention => "attention",
            Source::Heads => "heads",
            Source::Rows => "rows",
            Source::Gemm => "gemm",
            Source::GemmPacked => "gemm_packed",
            Source::Flash => "flash",
            Source::Delta => "delta",
            Source::DecodePersistent => "decode_persistent",
        }
    }

    /// The files with its kernels.
    fn files(self) -> &'static [&'static str] {
        match self {
            Source::Product => &["product.cu"],
            Source::ProductBatch => &["product_batch.cu", "experts.cu", "residual_norm_quant.cu"],
            Source::Floats => &["floats.cu"],
            Source::Attention => &["attention.cu", "attention_rows.cu"],
            Source::Heads => &["heads.cu"],
            Source::Rows => &["rows.cu", "shortlist.cu"],
            Source::Gemm => &["gemm.cu"],
            Source::GemmPacked => &["gemm_packed.cu", "gemm_packed_256.cu", "expert_rows.cu"],
            Source::Flash => &["flash.cu"],
            Source::Delta => &["delta.cu"],
            Source::DecodePersistent => &["decode_persistent.cu"],
        }
    }

    /// Its whole text: each file once, after what it includes.
    fn text(self) -> String {
        let (mut text, mut included) = (String::new(), Vec::new());
        self.files().iter().for_each(|name| include(name, &mut text, &mut included));
        text
    }
}

fn include(name: &str, text: &mut String, included: &mut Vec<&'static str>) {
    let &(name, file) = FILES.iter().find(|(file, _)| *file == name).expect("kernels include what is in the list");
    if included.contains(&name) {
        return;
    }
    included.push(name);
    for line in file.lines() {
        let other = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        match other.filter(|other| other.contains(".cu")) {
            Some(other) => include(other, text, included),
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
}

/// The compiler's option for a compute capability, with what only that one has where there is such a thing.
pub fn architecture_option(capability: (u32, u32)) -> String {
    let own = if capability >= (9, 0) { "a" } else { "" };
    format!("sm_{}{}{own}", capability.0, capability.1)
}

/// Opens NVRTC and says its version. `FLINT_NVRTC` may name the library's file, where it is not on the search path.
pub fn nvrtc_version() -> Result<(i32, i32), Error> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    let present = PRESENT.get_or_init(|| {
        if let Some(path) = std::env::var_os("FLINT_NVRTC").map(PathBuf::from) {
            open_for_good(&path);
        }
        // SAFETY: the library is the compiler; its initialisers are made to be run.
        unsafe { sys::is_culib_present() }
    });
    if !present {
        return Err(Error::NoCompiler);
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is open and the pointers are to live integers.
    let result = unsafe { sys::nvrtcVersion(&mut major, &mut minor) };
    if result == sys::nvrtcResult::NVRTC_SUCCESS { Ok((major, minor)) } else { Err(Error::NoCompiler) }
}

/// Opens a library and the built-ins beside it, which it looks for by name, so that the search by name finds both.
fn open_for_good(path: &Path) {
    let beside = path.parent().and_then(|directory| std::fs::read_dir(directory).ok()).into_iter().flatten();
    let is_builtins = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("libnvrtc-builtins.so");
    let builtins = beside.flatten().filter(|entry| is_builtins(&entry.file_name())).map(|entry| entry.path());
    for library in builtins.chain([path.to_path_buf()]) {
        // SAFETY: the library is the compiler the user named; its initialisers are made to be run.
        let library = unsafe { libloading::Library::new(library) };
        // It must stay open; one that cannot be opened shows when the compiler is asked for.
        std::mem::forget(library);
    }
}

/// Machine code of a source for an architecture, with preprocessor definitions such as `HEAD=128`.
pub fn compile(source: Source, definitions: &[String], architecture: &str) -> Result<Vec<u8>, Error> {
    let (major, minor) = nvrtc_version()?;
    let text = source.text();
    let options = options(definitions, architecture);
    let mut hash = Sha256::new();
    hash.update(format!("{major}.{minor}\n{}\n{text}", options.join("\n")));
    let name = format!("{}-{architecture}-{}.cubin", source.name(), hex(&hash.finalize()[..12]));
    let held = directory().map(|directory| directory.join(name));
    if let Some(bytes) = held.as_ref().and_then(|path| std::fs::read(path).ok()).filter(|bytes| !bytes.is_empty()) {
        return Ok(bytes);
    }
    let bytes = compile_now(source, &text, &options, architecture)?;
    if let Some(path) = held {
        keep(&path, &bytes).map_err(|error| Error::Cache { path, source: error })?;
    }
    Ok(bytes)
}

fn options(definitions: &[String], architecture: &str) -> Vec<String> {
    let mut options = vec![format!("--gpu-architecture={architecture}"), "--std=c++17".to_owned()];
    options.push("--generate-line-info".to_owned());
    options.push("--define-macro=INFINITY=__int_as_float(0x7f800000)".to_owned());
    options.extend(definitions.iter().map(|definition| format!("--define-macro={definition}")));
    options.extend(watched().then(|| "--define-macro=WATCHED".to_owned()));
    options
}

/// Whether `FLINT_CUDA_WATCHED` says that a tool watches every access to shared memory. Such tools put in code that needs registers
/// where kernels have given theirs away, so none do, and the one-token kernel, which they cannot follow, does not run (ARCHITECTURE.md).
pub(crate) fn watched() -> bool {
    std::env::var_os("FLINT_CUDA_WATCHED").is_some_and(|value| !value.is_empty())
}

fn compile_now(source: Source, text: &str, options: &[String], architecture: &str) -> Result<Vec<u8>, Error> {
    let c = |text: &str| CString::new(text).expect("sources and options have no zero bytes");
    let (text, name) = (c(text), c(&format!("{}.cu", source.name())));
    let options: Vec<CString> = options.iter().map(|option| c(option)).collect();
    let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let fail = |log: String| Error::Compile { name: source.name(), architecture: architecture.to_owned(), log };
    let mut persistent = std::ptr::null_mut();
    let (none, no_names) = (std::ptr::null(), std::ptr::null());
    // SAFETY: all strings end with a zero and live through the calls; buffers have the sizes the compiler asked for.
    unsafe {
        let made = sys::nvrtcCreateProgram(&mut persistent, text.as_ptr(), name.as_ptr(), 0, none, no_names);
        if made != sys::nvrtcResult::NVRTC_SUCCESS {
            return Err(fail(format!("{made:?}")));
        }
        let result = sys::nvrtcCompileProgram(persistent, pointers.len() as i32, pointers.as_ptr());
        let mut size = 0;
        let output = if result == sys::nvrtcResult::NVRTC_SUCCESS {
            sys::nvrtcGetCUBINSize(persistent, &mut size);
            let mut bytes = vec![0u8; size];
            sys::nvrtcGetCUBIN(persistent, bytes.as_mut_ptr().cast());
            Ok(bytes)
        } else {
            sys::nvrtcGetProgramLogSize(persistent, &mut size);
            let mut log = vec![0u8; size];
            sys::nvrtcGetProgramLog(persistent, log.as_mut_ptr().cast());
            Err(fail(String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned()))
        };
        sys::nvrtcDestroyProgram(&mut persistent);
        output
    }
}

/// Where compiled kernels are cached: the user's cache directory. Without a home they are compiled every time.
fn directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("flint").join("kernels"))
}

/// Writes under another name first, so that no reader sees half a file.
fn keep(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().expect("the path has the cache directory as parent");
    std::fs::create_dir_all(directory)?;
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&partial, bytes)?;
    std::fs::rename(&partial, path)?;
    let mut held: Vec<_> = std::fs::read_dir(directory)?
        .filter_map(|entry| entry.ok())
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    held.sort();
    for (_, old) in held.iter().take(held.len().saturating_sub(KEPT_MAX)) {
        // Another process may have removed it already.
        let _ = std::fs::remove_file(old);
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
