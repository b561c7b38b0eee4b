//! `flint undo`: the way back without a screen, for scripts and after a crash of `flint exec`.

use std::process::ExitCode;

use agent::{Command, Decision, Event, Partner};
use clap::Args;

use crate::partner::PartnerArgs;
use crate::screen::last_here;

/// Something was left as it is.
const LEFT: u8 = 1;

/// Arguments of `flint undo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 everything of the turn was taken back, 1 something was left as it is and named, or \
                        there is nothing to undo, 2 wrong arguments."
)]
pub struct UndoArgs {
    /// The session's id, or a unique beginning of it [default: the last one of this folder]
    session: Option<String>,
    #[command(flatten)]
    pub partner: PartnerArgs,
    /// Also take back what others changed since; what is there now is kept, and --redo brings it again
    #[arg(long)]
    force: bool,
    /// Take back the last undo instead
    #[arg(long)]
    redo: bool,
}

/// Runs the command.
pub fn run(args: UndoArgs) -> anyhow::Result<ExitCode> {
    let mut options = args.partner.options_without_model()?;
    options.resume = Some(match args.session {
        Some(session) => session,
        None => last_here(&args.partner)?,
    });
    let force = args.force;
    let command = if args.redo { Command::Redo { force } } else { Command::Undo { force } };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (partner, mut events) = Partner::start(options);
        let mut diffs = std::collections::HashMap::new();
        let (mut begun, mut left) = (false, true);
        while let Some(event) = events.recv().await {
            match event {
                Event::SessionOpened { .. } => {
                    partner.send(Command::Status).await;
                    partner.send(command.clone()).await;
                    partner.send(Command::Shutdown).await;
                }
                // What was said before is about the session, what comes now about the way back.
                Event::Status(_) => (begun, left) = (true, false),
                Event::EditGrew { edit, diff, .. } => drop(diffs.insert(edit, diff)),
                // Nobody is there to ask: what others changed since stays, and is shown.
                Event::ApprovalAsked(asked) => {
                    partner.send(Command::Decide { ask: asked.ask, decision: Decision::No }).await;
                }
                Event::EditFailed { edit, path, .. } | Event::EditApplied { edit, path, .. } => {
                    print(&format!("{}\n{}", path.display(), diffs.remove(&edit).unwrap_or_default()));
                }
                Event::Restored { what, paths, .. } => {
                    for path in paths {
                        print(&format!("{what}: {}", path.display()));
                    }
                }
                Event::Notice { text } => boundary::errln!("{text}"),
                Event::Trouble { text } => {
                    boundary::errln!("{text}");
                    left = true;
                    if !begun {
                        partner.send(Command::Shutdown).await;
                    }
                }
                Event::Closed => break,
                _ => {}
            }
        }
        Ok(ExitCode::from(if left { LEFT } else { 0 }))
    })
}

fn print(text: &str) {
    boundary::outln!("{}", text.trim_end());
}
