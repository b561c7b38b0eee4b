//! `flint` and `flint resume`: the partner in the terminal.

use std::io::IsTerminal;

use anyhow::{Context, bail};
use clap::Args;

use agent::Partner;

use crate::partner::PartnerArgs;

/// Arguments of `flint` without a command.
#[derive(Clone, Debug, Default, Args)]
pub struct ScreenArgs {
    #[command(flatten)]
    pub partner: PartnerArgs,
    /// Lines of text instead of a drawn screen, for screen readers
    #[arg(long)]
    pub plain: bool,
    /// Draw below what the terminal shows, so that its scrollback keeps the conversation [default: `screen` of the
    /// configuration]
    #[arg(long, conflicts_with = "plain")]
    pub inline: bool,
    /// What to ask first
    #[arg(long, value_name = "PROMPT")]
    pub ask: Option<String>,
}

/// Arguments of `flint resume`.
#[derive(Clone, Debug, Args)]
pub struct ResumeArgs {
    /// The session's id, or a unique beginning of it [default: the last one of this folder]
    session: Option<String>,
    #[command(flatten)]
    pub screen: ScreenArgs,
}

/// Begins a session.
pub fn run(args: ScreenArgs) -> anyhow::Result<()> {
    open(args, None)
}

/// Goes on with a session.
pub fn resume(args: ResumeArgs) -> anyhow::Result<()> {
    let session = match args.session {
        Some(session) => session,
        None => last_here(&args.screen.partner)?,
    };
    open(args.screen, Some(session))
}

fn open(args: ScreenArgs, resume: Option<String>) -> anyhow::Result<()> {
    crate::trust::ask_once(&args.partner)?;
    let mut options = args.partner.options_of_screen()?;
    options.resume = resume;
    options.checks = true;
    let settings = &options.config.config.tui;
    let plain = args.plain || settings.plain || tui::terminal_is_dumb();
    let terminal = std::io::stdin().is_terminal() && boundary::print::stdout_is_terminal();
    if !plain && !terminal {
        bail!("the screen needs a terminal; `flint exec` works without one, and `flint --plain` needs only lines");
    }
    let inline = args.inline || options.config.config.screen == agent::config::Screen::Inline;
    let surface = match settings.alternate_screen {
        _ if inline => tui::Surface::Inline,
        true => tui::Surface::Alternate,
        false => tui::Surface::Main,
    };
    let history = (!options.ephemeral).then(|| options.state.join("prompts"));
    let screen = tui::Options {
        folder: options.root.clone(),
        plain,
        surface,
        color: tui::color_wanted(),
        history,
        ask: args.ask,
        resume: (!options.ephemeral).then(|| "flint resume".to_owned()),
        ..tui::Options::default()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (partner, events) = Partner::start(options);
        Ok(tui::run(partner.commands(), events, screen).await?)
    })
}

/// The session that was used last in the folder.
pub fn last_here(args: &PartnerArgs) -> anyhow::Result<String> {
    let root = args.root()?;
    let sessions = crate::serve::state_directory(None)?.join("sessions");
    let found = workspace::session::list(&sessions)?.into_iter().find(|line| line.folder == root);
    let found =
        found.with_context(|| format!("there is no session in {} yet; begin one with flint", root.display()))?;
    Ok(found.session)
}
