//! `flint trust`, and the question before the screen: whose folder this is.

use std::io::{BufRead, IsTerminal, Read, Write};
use std::path::PathBuf;

use agent::config::{Config, ProjectTrust, Sources, state_dir};
use agent::trust::{Standing, Trust};
use anyhow::{Context, bail};
use boundary::terminal::clean_line;
use boundary::{err, errln, outln, print};
use clap::Args;
use hub::{Presence, Store, format_bytes};
use serde_json::{Value, json};

use crate::partner::PartnerArgs;

/// Longest answer to a question that is read.
const ANSWER_BYTES_MAX: u64 = 256;
/// Settings shown with a question; the rest is counted.
const SHOWN_MAX: usize = 20;

/// Arguments of `flint trust`.
#[derive(Debug, Args)]
#[command(
    after_help = "What is trusted is the repository a folder is in (or the folder itself where there is none) with the \
                  settings it has now: one that changes later has no effect until you trust it again. Repositories \
                  inside of a trusted one are not trusted with it."
)]
pub struct TrustArgs {
    /// The folder [default: this one]
    folder: Option<PathBuf>,
    /// List what you said about folders so far
    #[arg(long, conflicts_with_all = ["remove", "folder"])]
    list: bool,
    /// Stop trusting the folder
    #[arg(long)]
    remove: bool,
    /// Show whether the folder is trusted, and change nothing
    #[arg(long, conflicts_with_all = ["remove", "list"])]
    show: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `flint trust`.
pub fn run(args: TrustArgs) -> anyhow::Result<()> {
    if args.list {
        return list(args.json);
    }
    let folder = args.folder.clone().unwrap_or_else(|| PathBuf::from("."));
    if args.remove && !folder.exists() {
        // A folder that is gone can still be forgotten, by the path in the list.
        let sources = Sources::of_process(std::env::temp_dir());
        let known = Trust::remove(state_dir(&sources.env).as_deref(), &folder)?;
        return said(&args, &folder.display().to_string(), if known { "no longer trusted" } else { "not known" });
    }
    let sources = sources(folder)?;
    let state = state_dir(&sources.env);
    let project = Config::load(&sources)?.trust;
    if args.remove {
        Trust::remove(state.as_deref(), &project.root)?;
    } else if !args.show {
        Trust::set(state.as_deref(), &project.root, &project.files, true)?;
    }
    // Read again, so that what is said is what holds.
    let loaded = Config::load(&sources)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&described(&loaded.trust))?);
        return Ok(());
    }
    outln!("{}", clean_line(&format!("{}: {}", loaded.trust.root.display(), standing(&loaded.trust))));
    for (key, setting) in loaded.settings.iter().filter(|(key, _)| loaded.is_projects(key)) {
        outln!("  {}", clean_line(&format!("{key} = {} ({})", json!(setting.value), setting.origin)));
    }
    Ok(())
}

fn said(args: &TrustArgs, folder: &str, how: &str) -> anyhow::Result<()> {
    match args.json {
        true => outln!("{}", json!({"folder": folder, "standing": how})),
        false => outln!("{}", clean_line(&format!("{folder}: {how}"))),
    }
    Ok(())
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let sources = Sources::of_process(std::env::temp_dir());
    let trust = Trust::read(state_dir(&sources.env).as_deref())?;
    let mut out = print::stdout();
    if as_json {
        let entry = |(folder, entry): (&PathBuf, &agent::trust::Entry)| {
            let files: Vec<&PathBuf> = entry.files.keys().collect();
            json!({"folder": folder, "trusted": entry.trusted, "since": entry.since, "files": files})
        };
        let all: Vec<Value> = trust.folders().iter().map(entry).collect();
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
    }
    for (folder, entry) in trust.folders() {
        let how = if entry.trusted { "trusted" } else { "declined" };
        writeln!(out, "{how:<9} {}", clean_line(&folder.display().to_string()))?;
    }
    Ok(())
}

fn sources(folder: PathBuf) -> anyhow::Result<Sources> {
    let root = folder.canonicalize().with_context(|| format!("there is no folder {}", folder.display()))?;
    if !root.is_dir() {
        bail!("{} is not a folder", root.display());
    }
    Ok(Sources::of_process(root))
}

/// How the folder of this process stands, where its configuration can be read.
pub fn here() -> Option<ProjectTrust> {
    Config::load(&sources(PathBuf::from(".")).ok()?).ok().map(|loaded| loaded.trust)
}

/// How a folder stands, in words.
pub fn standing(project: &ProjectTrust) -> String {
    match (project.standing, project.files.is_empty()) {
        (Standing::Untrusted, true) => "not trusted; it has no settings of its own".to_owned(),
        (Standing::Trusted, _) => Standing::Trusted.to_string(),
        (other, _) => format!("{other}; `flint trust` changes that"),
    }
}

/// The same for programs.
pub fn described(project: &ProjectTrust) -> Value {
    let files: Vec<&PathBuf> = project.files.keys().collect();
    json!({
        "folder": project.root,
        "standing": project.standing,
        "trusted": project.standing == Standing::Trusted,
        "files": files,
        "ignored": project.ignored,
    })
}

/// Before the screen: asks whether the folder's own settings may hold, once for each state of them. Where nobody can be
/// asked they are ignored, and a notice says so.
pub fn ask_once(args: &PartnerArgs) -> anyhow::Result<()> {
    let sources = args.sources()?;
    let project = Config::load(&sources)?.trust;
    let settled = matches!(project.standing, Standing::Trusted | Standing::Declined);
    if settled || project.ignored.is_empty() || !someone_is_there() {
        return Ok(());
    }
    errln!("{}", clean_line(&format!("{} has settings of its own:", project.root.display())));
    for ignored in project.ignored.iter().take(SHOWN_MAX) {
        errln!("  {}", clean_line(&format!("{} = {}", ignored.key, json!(ignored.value))));
    }
    if let Some(more @ 1..) = project.ignored.len().checked_sub(SHOWN_MAX) {
        errln!("  and {more} more");
    }
    if project.standing == Standing::Changed {
        errln!("They changed since you trusted this folder.");
    }
    let yes = ask("They have no effect unless you trust whoever wrote them. Trust this folder?")?;
    let told = Trust::set(state_dir(&sources.env).as_deref(), &project.root, &project.files, yes);
    if let Err(error) = told {
        errln!("{error}");
    }
    Ok(())
}

/// Whether a model that a project names may be fetched when it is not here: only when somebody says so.
pub fn may_fetch(store: &Store, name: &str) -> anyhow::Result<()> {
    let Ok(entry) = store.catalogue().find(name) else { return Ok(()) };
    if matches!(store.presence(entry), Presence::Installed { .. }) {
        return Ok(());
    }
    let name = &entry.name;
    let size = entry.bytes.map(|bytes| format!(" ({})", format_bytes(bytes))).unwrap_or_default();
    if someone_is_there() && ask(&format!("This project wants the model {name}{size}, which is not here. Fetch it?"))? {
        return Ok(());
    }
    bail!(
        "this project wants the model {name}, which is not here, and Flint fetches no model only because a project names it; fetch \
         it with `flint models pull {name}`, or choose another with -m"
    )
}

/// Whether a person sits at a terminal and can be asked.
pub fn someone_is_there() -> bool {
    std::io::stdin().is_terminal() && print::stderr_is_terminal() && print::stdout_is_terminal()
}

/// A question whose answer is no unless it is yes.
pub fn ask(question: &str) -> anyhow::Result<bool> {
    err!("{} [y/N] ", clean_line(question));
    print::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
