//! `flint sandbox`: one command under the rules the partner's commands run under, to see what they allow.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use agent::config::{Config, Sources};
use anyhow::Context;
use clap::Args;
use sandbox::{CommandSpec, Output, Sandbox};

/// Arguments of `flint sandbox`.
#[derive(Args)]
pub struct SandboxArgs {
    /// The folder to work in, which is the workspace
    #[arg(short = 'C', long = "cd", value_name = "DIR")]
    folder: Option<PathBuf>,
    /// read-only, workspace-write or danger-full-access [default: as configured]
    #[arg(short, long = "sandbox", value_name = "MODE")]
    sandbox: Option<String>,
    /// A profile of the configuration
    #[arg(short, long, value_name = "NAME")]
    profile: Option<String>,
    /// Another value for a key of the configuration
    #[arg(short = 'c', long = "config", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Ends the command after this many seconds
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// The command, with its arguments; without one, says what is enforced here. Its standard input is empty
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Runs the command and exits as it does.
pub fn run(args: SandboxArgs) -> anyhow::Result<ExitCode> {
    let folder = match &args.folder {
        Some(folder) => folder.canonicalize().with_context(|| format!("there is no folder {}", folder.display()))?,
        None => std::env::current_dir().context("the current folder is gone; choose one with -C")?,
    };
    let mut sources = Sources::of_process(&folder);
    sources.profile = args.profile;
    sources.overrides = args.overrides;
    sources.overrides.extend(args.sandbox.map(|mode| format!("sandbox_mode={mode}")));
    let loaded = Config::load(&sources)?;
    for warning in &loaded.warnings {
        errln!("warning: {warning}");
    }
    let policy = loaded.sandbox_policy(&folder);
    let sandbox = Sandbox::detect();
    if args.command.is_empty() {
        outln!("{}", sandbox.describe(&policy));
        for root in &policy.writable {
            outln!("writable   {}", root.display());
        }
        for path in policy.protected.iter().filter(|path| path.exists()) {
            outln!("protected  {}", path.display());
        }
        outln!("network    {}", if policy.network { "yes" } else { "no" });
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(why) = &policy.narrowed {
        boundary::errln!("warning: {why}");
    }
    let mut command = CommandSpec::arguments(args.command, folder);
    command.timeout = args.timeout.map(std::time::Duration::from_secs);
    command.output_bytes_max = usize::MAX;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // What the command prints is its own where a program reads it; a terminal must not obey it.
        let mut stdout = boundary::print::stdout().exact_unless_terminal();
        let mut stderr = boundary::print::stderr().exact_unless_terminal();
        let mut running = sandbox.spawn(&command, &policy)?;
        while let Some(output) = running.next().await {
            match output {
                Output::Stdout(bytes) => stdout.write_all(&bytes)?,
                Output::Stderr(bytes) => stderr.write_all(&bytes)?,
            }
        }
        let ended = running.end().await?;
        if ended.timed_out {
            errln!("ended after {} s", ended.took.as_secs());
        }
        for (from, to) in &ended.moved {
            errln!("{} is a protected name; what was made there is now {}", from.display(), to.display());
        }
        for (path, why) in &ended.stuck {
            let path = path.display();
            boundary::errln!("warning: {path} was made by the command and cannot be moved ({why}); remove it by hand");
        }
        if let Some(what) = &ended.limit {
            boundary::errln!("ended: {what}");
        }
        Ok(ExitCode::from(u8::try_from(ended.shell_code() & 0xff).unwrap_or(1)))
    })
}
