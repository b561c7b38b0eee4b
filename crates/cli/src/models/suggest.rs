//! `flint models suggest`: which models fit this machine and how fast they can be, before anything is fetched.
//!
//! A decoder reads what a token needs of its weights once for each token, so the speed of memory bounds it. The bound of the
//! CPU is measured here; a card's is its maker's to state, so there only the fit is told.

use hub::{Advice, Entry, Store};
use model::config::ConfigError;
use model::gguf::Gguf;
use model::{Config, ConfigOptions};
use serde_json::{Value, json};

/// A context of everyday work, and a long one.
const CONTEXTS: [u32; 2] = [8 << 10, 128 << 10];
/// The share of memory that a model may take: the system and other programs need the rest.
const SHARE: f64 = 0.9;

/// What this machine has.
struct Machine {
    /// GB of memory.
    memory: f64,
    /// GB/s that all cores read.
    bandwidth: f64,
    /// Name and GB of the card.
    card: Option<(String, f64)>,
}

/// One model on this machine.
struct Fit<'a> {
    entry: &'a Entry,
    advice: &'a Advice,
    /// GB at each of [`CONTEXTS`], as far as the model's own goes.
    memory: [Option<f64>; 2],
    on_card: bool,
    on_cpu: bool,
    /// Tokens a second that the CPU's memory allows.
    rate_max: f64,
    runs: bool,
}

impl Machine {
    fn measure() -> Machine {
        let card = || {
            let device = cuda::Device::open(0).ok()?;
            let facts = device.facts();
            Some((facts.name.clone(), facts.memory_bytes as f64 / 1e9))
        };
        Machine {
            memory: load::machine::memory("MemTotal").map_or(0.0, |bytes| bytes as f64 / 1e9),
            bandwidth: load::bandwidth::read_bandwidth(load::cores()),
            card: card(),
        }
    }

    fn fit<'a>(&self, entry: &'a Entry, advice: &'a Advice) -> Fit<'a> {
        let memory = CONTEXTS.map(|context| (context <= entry.context).then(|| advice.memory(context)));
        let least = advice.memory(CONTEXTS[0].min(entry.context));
        let within = |room: f64| least <= room * SHARE;
        Fit {
            entry,
            advice,
            memory,
            on_card: self.card.as_ref().is_some_and(|(_, room)| within(*room)),
            on_cpu: within(self.memory),
            rate_max: advice.rate_max(self.bandwidth),
            runs: knows(&entry.architecture),
        }
    }
}

/// Whether this version runs an architecture: asked of the reader of files itself, with a file that says nothing else.
pub fn knows(architecture: &str) -> bool {
    let text = |text: &str, bytes: &mut Vec<u8>| {
        bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    };
    let mut bytes = b"GGUF".to_vec();
    bytes.extend_from_slice(&3u32.to_le_bytes());
    bytes.extend_from_slice(&0u64.to_le_bytes());
    bytes.extend_from_slice(&1u64.to_le_bytes());
    text("general.architecture", &mut bytes);
    // The type of a text.
    bytes.extend_from_slice(&8u32.to_le_bytes());
    text(architecture, &mut bytes);
    // The reader takes no more memory than a file has bytes, so this one claims to go on.
    match Gguf::parse(&bytes, 1 << 20) {
        Ok(gguf) => !matches!(Config::new(&gguf, ConfigOptions::default()), Err(ConfigError::Architecture(_))),
        // Whether it runs is then for the file itself to say.
        Err(_) => true,
    }
}

/// Prints what fits, the strongest first.
pub fn run(store: &Store, json: bool) -> anyhow::Result<()> {
    let machine = Machine::measure();
    let entries = store.catalogue().entries().iter().filter(|entry| !entry.embeds);
    let mut fits: Vec<Fit> = entries.filter_map(|entry| Some(machine.fit(entry, entry.advice.as_ref()?))).collect();
    // A card that holds a model is what to use; then what the CPU can keep up with.
    fits.sort_by(|a, b| {
        let order = |fit: &Fit| (fit.runs, fit.on_card, fit.on_cpu, fit.advice.gigabytes);
        order(b).partial_cmp(&order(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    if json {
        let rows: Vec<Value> = fits.iter().map(described).collect();
        let card = machine.card.as_ref().map(|(name, memory)| json!({"name": name, "memory_gb": memory}));
        return super::print_json(&json!({
            "machine": {"memory_gb": machine.memory, "bandwidth_gb_s": machine.bandwidth, "card": card},
            "models": rows,
        }));
    }
    outln!("This machine has {:.0} GB of memory, read at {:.1} GB/s by all cores.", machine.memory, machine.bandwidth);
    match &machine.card {
        Some((name, memory)) => outln!("Its card is a {name} with {memory:.0} GB."),
        None => outln!("It has no card that Flint can use."),
    }
    let row = |cells: [&str; 6]| {
        let [name, at_8k, at_128k, place, rate, about] = cells;
        outln!("{}", format!("{name:<20} {at_8k:>8} {at_128k:>8}  {place:<8} {rate:>9}  {about}").trim_end());
    };
    outln!("");
    row(["NAME", "8K", "128K", "FITS", "CPU", "GOOD FOR"]);
    for fit in fits.iter().filter(|fit| fit.runs && (fit.on_card || fit.on_cpu)) {
        let place = if fit.on_card { "the card" } else { "the CPU" };
        let rate = if fit.on_cpu { format!("<{}/s", rounded(fit.rate_max)) } else { String::new() };
        row([&fit.entry.name, &gigabytes(fit.memory[0]), &gigabytes(fit.memory[1]), place, &rate, &fit.advice.about]);
    }
    let list = |wanted: &dyn Fn(&Fit) -> bool| {
        let names: Vec<&str> = fits.iter().filter(|fit| wanted(fit)).map(|fit| fit.entry.name.as_str()).collect();
        names.join(", ")
    };
    let too_large = list(&|fit| fit.runs && !fit.on_card && !fit.on_cpu);
    let not_yet = list(&|fit| !fit.runs);
    outln!("");
    if !too_large.is_empty() {
        outln!("Too large here: {too_large}.");
    }
    if !not_yet.is_empty() {
        outln!("Not run by this version: {not_yet}.");
    }
    outln!(
        "8K and 128K are GB in use with so many tokens of context. CPU is what its memory lets no engine exceed, in"
    );
    outln!("tokens a second. `flint models pull NAME` fetches one; `flint models show NAME` says more.");
    Ok(())
}

fn described(fit: &Fit) -> Value {
    json!({
        "name": fit.entry.name,
        "runs": fit.runs,
        "fits_card": fit.on_card,
        "fits_cpu": fit.on_cpu,
        "gigabytes": fit.advice.gigabytes,
        "gigabytes_8k": fit.memory[0],
        "gigabytes_128k": fit.memory[1],
        "cpu_tokens_per_second_max": fit.rate_max,
        "style": super::style(fit.entry),
        "thinks": fit.advice.thinks,
        "about": fit.advice.about,
    })
}

fn gigabytes(memory: Option<f64>) -> String {
    memory.map_or_else(|| "-".to_owned(), |memory| format!("{memory:.1}"))
}

fn rounded(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_what_the_reader_of_files_takes() {
        assert!(knows("qwen2") && knows("llama") && knows("qwen3moe"));
        assert!(!knows("nosuch") && !knows("deepseek2"));
    }

    #[test]
    fn fits_follow_from_memory_and_bandwidth() {
        let catalogue = hub::Catalogue::built_in().unwrap();
        let machine = Machine { memory: 24.0, bandwidth: 35.0, card: Some(("Card".to_owned(), 6.0)) };
        let fit = |name: &str| {
            let entry = catalogue.find(name).unwrap();
            let fit = machine.fit(entry, entry.advice.as_ref().unwrap());
            (fit.on_card, fit.on_cpu, fit.rate_max)
        };
        let (card, cpu, rate) = fit("qwen2.5-coder-1.5b");
        assert!(card && cpu && (35.0..37.0).contains(&rate), "{rate}");
        let (card, cpu, rate) = fit("qwen3-coder-30b-a3b");
        assert!(!card && cpu && (17.0..19.0).contains(&rate), "{rate}");
        assert_eq!((fit("qwen3-coder-next").0, fit("qwen3-coder-next").1), (false, false));
    }
}
