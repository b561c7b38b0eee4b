//! `flint` without a command: the partner in the terminal.

use std::io::IsTerminal;

use agent::Partner;
use agent::config::Persistence;
use anyhow::bail;
use clap::Args;

use crate::partner::PartnerArgs;

/// Arguments of `flint` without a command.
#[derive(Debug, Args)]
pub struct ScreenArgs {
    #[command(flatten)]
    partner: PartnerArgs,
    /// Lines only, for screen readers and simple terminals
    #[arg(long)]
    plain: bool,
    /// Go on with a session; without a name, choose one
    #[arg(long, value_name = "SESSION", num_args = 0..=1, default_missing_value = "")]
    resume: Option<String>,
}

/// Runs the partner's screen until the person leaves.
pub fn run(args: ScreenArgs) -> anyhow::Result<()> {
    let mut options = args.partner.options()?;
    let settings = options.config.config.tui.clone();
    let plain = args.plain || settings.plain || tui::terminal_is_dumb();
    if !plain && !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        bail!("the screen needs a terminal; `flint exec` works without one, and `flint --plain` needs only lines");
    }
    let choose = args.resume.as_deref() == Some("");
    options.resume = args.resume.filter(|session| !session.is_empty());
    let kept = !options.ephemeral && options.config.config.history.persistence == Persistence::SaveAll;
    let screen = tui::Options {
        folder: options.root.clone(),
        plain,
        main_screen: !settings.alternate_screen,
        color: tui::color_wanted(),
        history: kept.then(|| options.state.join("history")),
        ask: choose.then(|| "/resume".to_owned()),
        resume: kept.then(|| "flint --resume".to_owned()),
        ..tui::Options::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (partner, events) = Partner::start(options);
        tui::run(partner.commands(), events, screen).await
    })?;
    // Whatever still reads the terminal must not keep the shell waiting.
    runtime.shutdown_background();
    Ok(())
}
