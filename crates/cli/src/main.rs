//! The `flint` binary: arguments and glue.

#[expect(dead_code, reason = "`ensure` and `default_name` are for commands to come")]
mod models;

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(name = "flint", version)]
enum Command {
    /// List, fetch, show and remove models
    Models(models::ModelsArgs),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Models(args) => models::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
