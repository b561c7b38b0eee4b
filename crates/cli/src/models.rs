//! `flint models`: what there is, what is here, and how to get and remove it.
//!
//! Thin on purpose: it turns arguments into calls of the hub and answers into text or JSON.

mod search;
mod suggest;

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::{Args, Subcommand};
use hub::{Entry, Presence, Source, Store, format_bytes};
use load::fetch;
use serde_json::{Value, json};

/// Arguments of `flint models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    #[command(subcommand)]
    command: ModelsCommand,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// List the models that can be asked for by name, and which of them are here
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Say which models fit this machine and how fast they can be; nothing is fetched
    Suggest {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Search Hugging Face for GGUF files
    Search {
        /// A word of a name, or hf:OWNER/NAME for the files of one
        word: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Fetch a model, or check and repair the copy that is here
    Pull {
        /// Name of the model, or hf:OWNER/NAME/FILE.gguf [default: the catalogue's default]
        name: Option<String>,
        /// Use only what is already here
        #[arg(long)]
        offline: bool,
    },
    /// Show what is known of a model
    Show {
        /// Name of the model
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the path of a model's checked file
    Path {
        /// Name of the model, or path to a GGUF file
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete a model and whatever an unfinished pull left of it
    Rm {
        /// Name of the model
        name: String,
        /// Forget its sha256 too, so that another file is accepted when it is fetched again
        #[arg(long)]
        forget: bool,
    },
}

/// Runs `flint models`.
pub fn run(args: ModelsArgs) -> anyhow::Result<()> {
    let store = Store::open()?;
    match args.command {
        ModelsCommand::List { json } => list(&store, json),
        ModelsCommand::Suggest { json } => suggest::run(&store, json),
        ModelsCommand::Search { word, json } => search::run(&store, &word, json),
        ModelsCommand::Pull { name, offline } => pull(&store, name.as_deref(), offline),
        ModelsCommand::Show { name, json } => show(&store, &name, json),
        ModelsCommand::Path { name, json } => path(&store, &name, json),
        ModelsCommand::Rm { name, forget } => remove(&store, &name, forget),
    }
}

/// Says what a model that is not here costs and who publishes it. With `asks` a person who is there decides.
pub fn tell_of_fetch(store: &Store, name: &str, asks: bool) -> anyhow::Result<()> {
    let Ok(entry) = &store.find(name) else { return Ok(()) };
    let presence = store.presence(entry);
    if matches!(presence, Presence::Installed { .. }) || hub::HuggingFace::from_env().has(entry) {
        return Ok(());
    }
    check_runs(entry)?;
    let size = size_in_words(entry, presence);
    let from: Vec<String> = entry.sources.iter().map(Source::who).collect();
    errln!("The model {} ({size}, licence {}) is not on this machine yet.", entry.name, entry.licence);
    errln!("It comes from {}.", from.join("; where that cannot be reached, from "));
    errln!("The file is checked against its sha256 and stays in {}.", store.root().display());
    if asks && crate::trust::someone_is_there() && !crate::trust::ask("Fetch it now?")? {
        anyhow::bail!(
            "nothing was fetched; `flint models list` shows the models, and `flint -m NAME` uses another one"
        );
    }
    Ok(())
}

/// Refuses to fetch what could not be loaded then.
fn check_runs(entry: &Entry) -> anyhow::Result<()> {
    if entry.architecture.is_empty() || entry.embeds || suggest::knows(&entry.architecture) {
        return Ok(());
    }
    anyhow::bail!(
        "this version of Flint does not run {} ({}), so nothing was fetched; `flint models suggest` shows what it runs",
        entry.name,
        entry.architecture
    )
}

/// The models that can write, for the partner's `/model`.
pub fn known() -> Vec<agent::KnownModel> {
    let Ok(store) = Store::open() else { return Vec::new() };
    let described = |entry: &Entry| {
        let presence = store.presence(entry);
        agent::KnownModel {
            name: entry.name.clone(),
            aliases: entry.aliases.clone(),
            here: matches!(presence, Presence::Installed { .. }),
            size: size_in_words(entry, presence),
            source: entry.sources.first().map(Source::who).unwrap_or_default(),
        }
    };
    store.catalogue().entries().iter().filter(|entry| !entry.embeds).map(described).collect()
}

fn list(store: &Store, json: bool) -> anyhow::Result<()> {
    let entries = store.catalogue().entries();
    if json {
        return print_json(&Value::Array(entries.iter().map(|entry| described(store, entry)).collect()));
    }
    let row = |cells: [&str; 6]| {
        let [name, parameters, quantisation, context, size, state] = cells;
        let text = format!("{name:<22} {parameters:<20} {quantisation:<13} {context:>8} {size:>9}  {state}");
        outln!("{}", text.trim_end());
    };
    row(["NAME", "PARAMETERS", "QUANTISATION", "CONTEXT", "SIZE", "STATE"]);
    for entry in entries {
        let presence = store.presence(entry);
        let mut state = vec![presence_text(presence)];
        if entry.name == store.catalogue().default_name() {
            state.push("default".to_owned());
        }
        if check_runs(entry).is_err() {
            state.push("not run by this version".to_owned());
        }
        state.retain(|text| !text.is_empty());
        row([
            &entry.name,
            &entry.parameters,
            &entry.quantisation,
            &entry.context.to_string(),
            &size_of(entry, presence).map_or("?".to_owned(), format_bytes),
            &state.join(", "),
        ]);
    }
    Ok(())
}

fn pull(store: &Store, name: Option<&str>, offline: bool) -> anyhow::Result<()> {
    let name = name.unwrap_or(store.catalogue().default_name());
    let (name, entry) = match hub::Reference::parse(name) {
        None => (name.to_owned(), store.find(name)?),
        Some(reference) => {
            let reference = search::file_of(reference?)?;
            (reference.to_string(), reference.entry()?)
        }
    };
    if !matches!(store.presence(&entry), Presence::Installed { .. }) {
        check_runs(&entry)?;
    }
    let path = fetch::pull(store, &entry, offline, &[])?;
    errln!("{name}: checked, {}", format_bytes(std::fs::metadata(&path)?.len()));
    print_path(&path)
}

fn show(store: &Store, name: &str, json: bool) -> anyhow::Result<()> {
    let entry = &store.find(name)?;
    if json {
        return print_json(&described(store, entry));
    }
    let unknown = || "unknown until pulled".to_owned();
    let presence = store.presence(entry);
    let sha256 = entry.sha256.clone().or_else(|| store.recorded_sha256(entry));
    let line = |label: &str, value: &str| outln!("{label:<13} {value}");
    line("name", &entry.name);
    line("aliases", &entry.aliases.join(", "));
    line("parameters", &entry.parameters);
    line("quantisation", &entry.quantisation);
    line("context", &format!("{} tokens", entry.context));
    line("licence", &entry.licence);
    if let Some(advice) = &entry.advice {
        line("good for", &advice.about);
        line("style", style(entry));
        line("thinks", &advice.thinks);
        let at = |context: u32| format!("{:.1} GB at {} tokens of context", advice.memory(context), context);
        let contexts = [8 << 10, 128 << 10].into_iter().filter(|context| *context <= entry.context);
        line("memory", &contexts.map(at).collect::<Vec<String>>().join(", "));
    }
    line("bytes", &size_of(entry, presence).map_or_else(unknown, |bytes| bytes.to_string()));
    line("sha256", &sha256.unwrap_or_else(unknown));
    for (index, source) in entry.sources.iter().enumerate() {
        line(if index == 0 { "sources" } else { "" }, &format!("{}. {source}", index + 1));
    }
    let state = presence_text(presence);
    line("state", if state.is_empty() { "not here" } else { &state });
    if matches!(presence, Presence::Installed { .. }) {
        line("path", &store.model_path(entry).display().to_string());
    }
    Ok(())
}

fn path(store: &Store, name: &str, json: bool) -> anyhow::Result<()> {
    let resolved = store.resolve(name)?;
    if json {
        let name = resolved.entry.map(|entry| entry.name.as_str());
        return print_json(&json!({ "name": name, "path": resolved.path }));
    }
    print_path(&resolved.path)
}

fn remove(store: &Store, name: &str, forget: bool) -> anyhow::Result<()> {
    let entry = &store.find(name)?;
    match store.remove(entry)? {
        0 => errln!("{}: there was nothing to remove", entry.name),
        bytes => errln!("{}: removed, {} freed", entry.name, format_bytes(bytes)),
    }
    if forget && store.forget(entry)? {
        errln!("{}: its sha256 is forgotten; the next file that its source publishes is accepted", entry.name);
    }
    Ok(())
}

fn style(entry: &Entry) -> &'static str {
    match entry.style {
        hub::Style::Pair => "pair",
        hub::Style::Agent => "agent",
    }
}

/// The size of a file, or about how large it will be where nobody has measured it.
fn size_in_words(entry: &Entry, presence: Presence) -> String {
    let billions = entry.parameters.split('B').next().and_then(|number| number.trim().parse::<f64>().ok());
    match (size_of(entry, presence), billions) {
        (Some(bytes), _) => format_bytes(bytes),
        (None, _) if entry.advice.is_some() => {
            format!("about {:.0} GB", entry.advice.as_ref().map_or(0.0, |advice| advice.gigabytes).max(1.0))
        }
        // Files of 7 to 33 billion weights in this format have 4.8 to 4.9 bits for each, smaller ones up to 6.
        (None, Some(billions)) if entry.quantisation == "Q4_K_M" => format!("about {:.0} GB", billions * 5.0 / 8.0),
        (None, _) => "size not known".to_owned(),
    }
}

fn size_of(entry: &Entry, presence: Presence) -> Option<u64> {
    match presence {
        Presence::Installed { bytes } => entry.bytes.or(Some(bytes)),
        Presence::Partial { .. } | Presence::Absent => entry.bytes,
    }
}

fn presence_text(presence: Presence) -> String {
    match presence {
        Presence::Absent => String::new(),
        Presence::Partial { bytes } => format!("partly here ({})", format_bytes(bytes)),
        Presence::Installed { .. } => "here".to_owned(),
    }
}

fn described(store: &Store, entry: &Entry) -> Value {
    let presence = store.presence(entry);
    let (state, partial_bytes) = match presence {
        Presence::Absent => ("absent", None),
        Presence::Partial { bytes } => ("partial", Some(bytes)),
        Presence::Installed { .. } => ("installed", None),
    };
    json!({
        "name": entry.name,
        "aliases": entry.aliases,
        "parameters": entry.parameters,
        "quantisation": entry.quantisation,
        "context": entry.context,
        "licence": entry.licence,
        "style": style(entry),
        "about": entry.advice.as_ref().map(|advice| &advice.about),
        "thinks": entry.advice.as_ref().map(|advice| &advice.thinks),
        "bytes": size_of(entry, presence),
        "sha256": entry.sha256.clone().or_else(|| store.recorded_sha256(entry)),
        "sources": entry.sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "default": entry.name == store.catalogue().default_name(),
        "state": state,
        "partial_bytes": partial_bytes,
        "path": (state == "installed").then(|| store.model_path(entry)),
    })
}

/// A path for a script: as it is, but on a terminal.
fn print_path(path: &Path) -> anyhow::Result<()> {
    let mut out = boundary::print::stdout().exact_unless_terminal();
    out.write_all(path.as_os_str().as_bytes())?;
    Ok(out.write_all(b"\n")?)
}

fn print_json(value: &Value) -> anyhow::Result<()> {
    Ok(boundary::print::json_line(&serde_json::to_string_pretty(value)?)?)
}
