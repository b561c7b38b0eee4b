//! The `flint` binary: arguments and glue.

mod bandwidth;
mod bench;
mod device;
mod doctor;
mod load;
mod models;
mod run;
mod selftest;
mod serve;

use std::process::ExitCode;

use clap::Parser;

/// Real-time coding models on your own hardware.
#[derive(Parser)]
#[command(name = "flint", version)]
enum Command {
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
    /// Compare every kernel of a device with its oracle
    Selftest(selftest::SelftestArgs),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Run(args) => run::run(args),
        Command::Serve(args) => serve::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::run(args).map(|()| ExitCode::SUCCESS),
        Command::Models(args) => models::run(args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(args).map(|()| ExitCode::SUCCESS),
        Command::Selftest(args) => selftest::run(args).map(|()| ExitCode::SUCCESS),
    };
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
