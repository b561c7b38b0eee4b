//! The `flint` binary: arguments and glue.

mod bandwidth;
mod bench;
mod doctor;
mod exec;
mod load;
mod models;
mod partner;
mod run;
mod screen;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Real-time coding models on your own hardware. Without a command: the coding partner, in this folder.
#[derive(Parser)]
#[command(name = "flint", version, args_conflicts_with_subcommands = true)]
struct Flint {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    screen: screen::ScreenArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Do one task without a screen: edit files, print the diff
    Exec(Box<exec::ExecArgs>),
    /// End the private server that the partner leaves warm
    Stop,
    /// Ask a model: one prompt, or a conversation when there is none
    Run(run::RunArgs),
    /// Serve models to editors, agents and other clients
    Serve(Box<serve::ServeArgs>),
    /// Measure speed against this machine's memory and against peers
    Bench(bench::BenchArgs),
    /// List, fetch, show and remove models
    Models(models::ModelsArgs),
    /// Show what this machine offers and what stands in the way
    Doctor(doctor::DoctorArgs),
}

fn main() -> ExitCode {
    if let Some(code) = agent::sandbox::enter(std::env::args_os()) {
        return ExitCode::from(code);
    }
    let flint = Flint::parse();
    let Some(command) = flint.command else {
        return finish(screen::run(flint.screen).map(|()| ExitCode::SUCCESS));
    };
    let result = match command {
        Command::Exec(args) => exec::run(*args),
        Command::Stop => partner::stop().map(|()| ExitCode::SUCCESS),
        Command::Run(args) => run::run(args),
        Command::Serve(args) => serve::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::run(args).map(|()| ExitCode::SUCCESS),
        Command::Models(args) => models::run(args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(args).map(|()| ExitCode::SUCCESS),
    };
    finish(result)
}

fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whoever read our output has had enough, as in `flint run ... | head -1`. That is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
