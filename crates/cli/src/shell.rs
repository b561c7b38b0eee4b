//! `flint completions` and `flint man`: what shells and `man` want to know, made from the definition of the command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

/// Arguments of `flint completions`.
#[derive(Args)]
pub struct CompletionsArgs {
    /// The shell to print them for
    shell: Shell,
}

/// Arguments of `flint man`.
#[derive(Args)]
pub struct ManArgs {
    /// Write a page for every command into this folder; without it the page of `flint` itself is printed
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs, mut command: clap::Command) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "flint", &mut text);
    print(&text)
}

/// Prints or writes manual pages.
pub fn man(args: &ManArgs, command: clap::Command) -> anyhow::Result<()> {
    let Some(folder) = &args.folder else {
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text)?;
        return print(&text);
    };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    clap_mangen::generate_to(command, folder).with_context(|| format!("cannot write to {}", folder.display()))
}

fn print(text: &[u8]) -> anyhow::Result<()> {
    let mut out = boundary::print::stdout();
    out.write_all(text)?;
    Ok(out.flush()?)
}
