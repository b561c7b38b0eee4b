//! The `flint` binary: arguments and glue.
#![cfg_attr(not(test), deny(clippy::disallowed_macros, clippy::disallowed_methods))]
#![cfg_attr(test, allow(clippy::disallowed_macros, clippy::disallowed_methods))]

// `outln!` and `errln!`, which clean what they print, take the place of `println!` and `eprintln!` everywhere.
#[macro_use]
extern crate boundary;

mod attempt;
mod config;
mod doctor;
mod exec;
mod locate;
mod models;
mod partner;
mod run;
mod sandbox;
mod screen;
mod selftest;
mod serve;
mod shell;
mod trust;
mod undo;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Real-time coding on your own hardware: without a command, the partner in this terminal
#[derive(Parser)]
#[command(name = "flint", version = env!("FLINT_VERSION"))]
struct Arguments {
    #[command(flatten)]
    screen: screen::ScreenArgs,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Do one task without a screen: edit files, print the diff
    Exec(Box<exec::ExecArgs>),
    /// Make several candidates for a task, check each, offer the smallest that passes
    Try(Box<attempt::TryArgs>),
    /// Go on with an earlier session
    Resume(Box<screen::ResumeArgs>),
    /// Say in which file and line something is, without a model
    Where(locate::WhereArgs),
    /// Take back the files of the last turn of a session, also of one that crashed
    Undo(Box<undo::UndoArgs>),
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
    /// Show the configuration and where each value came from
    Config(config::ConfigArgs),
    /// Trust the folder worked in, so that its own settings take effect; list trusted folders, or stop trusting one
    Trust(trust::TrustArgs),
    /// Run one command in the sandbox, or say what it enforces here
    Sandbox(sandbox::SandboxArgs),
    /// Print the completions of a shell
    Completions(shell::CompletionsArgs),
    /// Print or write manual pages
    Man(shell::ManArgs),
    /// Print the licences of the packages in this binary
    Licenses,
    /// Compare every kernel of a device with its oracle
    Selftest(selftest::SelftestArgs),
}

fn main() -> ExitCode {
    // The sandbox starts this program again, and must find nothing opened and no thread started.
    if let Some(code) = ::sandbox::enter(std::env::args_os()) {
        return ExitCode::from(code);
    }
    // So do chat templates and schemas, which run within limits in a process of their own.
    if let Some(code) = text::confined::enter(std::env::args_os()) {
        return ExitCode::from(code);
    }
    boundary::print::clean_panics();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return explain(&error),
    };
    let Some(mut command) = arguments.command else {
        return exit(screen::run(arguments.screen).map(|()| ExitCode::SUCCESS));
    };
    if let Err(error) = take_before(&mut command, arguments.screen) {
        return explain(&error);
    }
    exit(match command {
        Command::Exec(args) => exec::run(*args),
        Command::Try(args) => attempt::run(*args),
        Command::Resume(args) => screen::resume(*args).map(|()| ExitCode::SUCCESS),
        Command::Where(args) => locate::run(args),
        Command::Undo(args) => undo::run(*args),
        Command::Stop => partner::stop().map(|()| ExitCode::SUCCESS),
        Command::Run(args) => run::run(args),
        Command::Serve(args) => serve::run(*args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::run(args, env!("FLINT_VERSION")).map(|()| ExitCode::SUCCESS),
        Command::Models(args) => models::run(args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => doctor::run(args).map(|()| ExitCode::SUCCESS),
        Command::Config(args) => config::run(args).map(|()| ExitCode::SUCCESS),
        Command::Trust(args) => trust::run(args).map(|()| ExitCode::SUCCESS),
        Command::Sandbox(args) => sandbox::run(args),
        Command::Completions(args) => shell::completions(&args, Arguments::command()).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => shell::man(&args, Arguments::command()).map(|()| ExitCode::SUCCESS),
        Command::Licenses => licenses().map(|()| ExitCode::SUCCESS),
        Command::Selftest(args) => selftest::run(args).map(|()| ExitCode::SUCCESS),
    })
}

/// Gives a command of the partner the arguments that stood before its name.
fn take_before(command: &mut Command, mut before: screen::ScreenArgs) -> Result<(), clap::Error> {
    if let Command::Resume(args) = command {
        args.screen.plain |= std::mem::take(&mut before.plain);
        args.screen.inline |= std::mem::take(&mut before.inline);
        args.screen.ask = args.screen.ask.take().or(before.ask.take());
    }
    let takes = match command {
        Command::Exec(args) => Some(&mut args.partner),
        Command::Try(args) => Some(&mut args.partner),
        Command::Resume(args) => Some(&mut args.screen.partner),
        Command::Undo(args) => Some(&mut args.partner),
        _ => None,
    };
    let refused = |what: &str| {
        let text = format!("{what} must come after the name of this command");
        Err(Arguments::command().error(clap::error::ErrorKind::ArgumentConflict, text))
    };
    if before.plain || before.inline || before.ask.is_some() {
        return refused("--plain, --inline and --ask");
    }
    match takes {
        Some(partner) => partner.take_before(before.partner),
        None if before.partner.is_empty() => {}
        None => return refused("the partner's arguments"),
    }
    Ok(())
}

/// Flint's own licence, and those of the packages in it with their copyright notices.
fn licenses() -> anyhow::Result<()> {
    let mut out = boundary::print::stdout();
    out.write_all(include_bytes!("../../../LICENSE"))?;
    out.write_all(b"\n")?;
    out.write_all(include_bytes!("../third-party.txt"))?;
    Ok(out.flush()?)
}

/// Prints help, or what is wrong with the arguments, which quotes them: so it is cleaned like everything else.
fn explain(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        err!("{}", error.render());
    } else {
        out!("{}", error.render());
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn exit(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            errln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whoever read our output has had enough, as in `flint run ... | head -1`. That is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
