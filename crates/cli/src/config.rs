//! `flint config`: what is configured and where each value came from, and which keys there are.

use std::io::Write;
use std::path::PathBuf;

use agent::config::{ByProject, Config, KEYS, Key, Kind, Loaded, Setting, Sources};
use anyhow::Context;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Arguments of `flint config`.
#[derive(Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Show every value that is set, and where it came from
    Show(ShowArgs),
    /// List every key, what it takes and what it does
    Keys,
}

#[derive(Args)]
struct ShowArgs {
    /// For programs
    #[arg(long)]
    json: bool,
    /// As seen from this folder
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// A profile of the configuration
    #[arg(short, long, value_name = "NAME")]
    profile: Option<String>,
    /// Another value for a key of the configuration
    #[arg(short = 'c', long = "config", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Does what the arguments say.
pub fn run(args: ConfigArgs) -> anyhow::Result<()> {
    match args.action {
        Action::Show(args) => show(args),
        Action::Keys => keys(),
    }
}

fn show(args: ShowArgs) -> anyhow::Result<()> {
    let folder = match &args.folder {
        Some(folder) => folder.canonicalize().with_context(|| format!("there is no folder {}", folder.display()))?,
        None => std::env::current_dir().context("the current folder is gone; choose one with -C")?,
    };
    let mut sources = Sources::of_process(folder);
    sources.profile = args.profile;
    sources.overrides = args.overrides;
    let loaded = Config::load(&sources)?;
    let mut out = boundary::print::stdout();
    if args.json {
        return Ok(boundary::print::json_line(&serde_json::to_string_pretty(&as_json(&loaded, &sources))?)?);
    }
    let rows: Vec<(String, String, String)> = loaded
        .settings
        .iter()
        .map(|(key, setting)| (key.clone(), value(key, setting).to_string(), setting.origin.to_string()))
        .collect();
    let width = |column: fn(&(String, String, String)) -> &String| rows.iter().map(|r| column(r).chars().count()).max();
    let (keys, values) = (width(|row| &row.0).unwrap_or(0), width(|row| &row.1).unwrap_or(0).min(40));
    for (key, value, origin) in &rows {
        writeln!(out, "{key:keys$}  {value:values$}  {origin}")?;
    }
    for warning in &loaded.warnings {
        errln!("warning: {warning}");
    }
    if let Some(file) = sources.user_file().filter(|file| !file.exists()) {
        errln!("Your own settings would stand in {}; `flint config keys` lists what there is.", file.display());
    }
    Ok(())
}

/// Headers often carry keys, and what is printed gets pasted into reports.
fn value(key: &str, setting: &Setting) -> Value {
    if key.contains(".http_headers.") || key.contains(".query_params.") {
        return Value::from("...");
    }
    serde_json::to_value(&setting.value).unwrap_or_default()
}

fn as_json(loaded: &Loaded, sources: &Sources) -> Value {
    let settings: serde_json::Map<String, Value> = loaded
        .settings
        .iter()
        .map(|(key, setting)| {
            (key.clone(), json!({"value": value(key, setting), "origin": setting.origin.to_string()}))
        })
        .collect();
    json!({
        "settings": settings,
        "profiles": loaded.profiles,
        "files": loaded.files,
        "user_file": sources.user_file(),
        "trust": {"folder": loaded.trust.root, "standing": loaded.trust.standing, "ignored": loaded.trust.ignored},
        "warnings": loaded.warnings,
    })
}

fn keys() -> anyhow::Result<()> {
    let mut out = boundary::print::stdout();
    for key in KEYS {
        writeln!(out, "{} = {}", key.path.replace('*', "NAME"), takes(key))?;
        let default = if key.default.is_empty() { String::new() } else { format!("; default {}", key.default) };
        let project = match key.by_project {
            ByProject::Free => "; a project may set it once its folder is trusted",
            ByProject::Stricter => "; a project may only make it stricter",
            ByProject::Never => "; not for projects",
        };
        writeln!(out, "    {}{default}{project}", key.about)?;
    }
    Ok(writeln!(out, "\nAll but `profiles` may also stand in a profile: [profiles.NAME]")?)
}

fn takes(key: &Key) -> String {
    match key.kind {
        Kind::Text => "\"...\"".to_owned(),
        Kind::Choice(choices) => choices.iter().map(|choice| format!("{choice:?}")).collect::<Vec<_>>().join(" | "),
        Kind::Count => "a whole number".to_owned(),
        Kind::Number(low, high) => format!("a number from {low} to {high}"),
        Kind::Flag => "true | false".to_owned(),
        Kind::Texts => "[\"...\", ...]".to_owned(),
    }
}
