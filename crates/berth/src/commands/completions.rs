//! `berth completions`: what the shell needs to complete berth's commands and options.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::out::Stdout;

const EXAMPLES: &str = "\
Examples:
  berth completions bash > /etc/bash_completion.d/berth
  berth completions zsh > ~/.zfunc/_berth
  berth completions fish > ~/.config/fish/completions/berth.fish";

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    shell: Shell,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "berth", &mut script);
    Stdout::text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
