//! `flint where`: which file and line a question is about, from the index of the folder, without a model.

use std::path::PathBuf;
use std::process::ExitCode;

use agent::shared_index::SharedIndex;
use boundary::terminal::clean_line;
use boundary::{errln, outln, print};
use clap::Args;
use index::{Located, Location};
use serde_json::json;

/// Nothing in the folder fits.
const NOTHING: u8 = 1;

/// Arguments of `flint where`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 something was found, 1 nothing has these words, 2 wrong arguments.")]
pub struct WhereArgs {
    /// What is looked for, in words or names
    #[arg(required = true)]
    question: Vec<String>,
    /// Folder to look in [default: this one]
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// At most this many places
    #[arg(short = 'n', long, default_value_t = 5)]
    limit: usize,
    /// Keep nothing of the index on disk
    #[arg(long)]
    ephemeral: bool,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// Runs `flint where`.
pub fn run(args: WhereArgs) -> anyhow::Result<ExitCode> {
    let root = args.folder.clone().unwrap_or_else(|| PathBuf::from("."));
    let root =
        root.canonicalize().map_err(|error| anyhow::anyhow!("{}: {error}; name a folder with -C", root.display()))?;
    let state = if args.ephemeral { None } else { Some(crate::serve::state_directory(None)?) };
    let index = SharedIndex::new(&root, state.as_deref());
    let question = args.question.join(" ");
    let (found, cut) = index.with_history(|index| (index.locate(&question, args.limit), index.is_cut()));
    if args.json {
        print::json_line(
            &json!({"sure": found.sure, "cut": cut, "places": found.locations.iter().map(as_json).collect::<Vec<_>>()}),
        )?;
    } else {
        show(&found, cut);
    }
    Ok(if found.locations.is_empty() { ExitCode::from(NOTHING) } else { ExitCode::SUCCESS })
}

fn as_json(one: &Location) -> serde_json::Value {
    json!({
        "path": one.path, "line": one.line, "definition": one.definition, "head": one.head, "score": one.score,
        "named": one.why.exact, "words": one.why.words, "commits": one.why.commits,
    })
}

fn show(found: &Located, cut: bool) {
    for one in &found.locations {
        outln!("{}", clean_line(&one.to_string()));
    }
    if found.locations.is_empty() {
        errln!("nothing in this folder has these words; say it in the words of the code");
    } else if !found.sure {
        errln!("not sure: these fit about as well as each other");
    }
    if cut {
        errln!("the folder holds more than is read, so something may be missing; look in a folder further down");
    }
}
