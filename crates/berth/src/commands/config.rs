//! `berth config`: check, print and explain the settings.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cli::Global;
use crate::out::Stdout;
use crate::{manual, settings};

const EXAMPLES: &str = "\
Examples:
  berth config check ./berth.toml
  berth config print               what would be used here, all layers together
  berth config default > berth.toml";

/// Check, print or explain the settings
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check a file; everything that is wrong is printed, and the exit code is 2
    #[command(after_help = "Examples:\n  berth config check\n  berth config check ./berth.toml")]
    Check {
        /// The file [default: the one that would be used]
        file: Option<PathBuf>,
    },
    /// Print the settings that would be used: file, then --set, then other options
    #[command(after_help = "Examples:\n  berth config print\n  berth config print --set docker.mode=off")]
    Print,
    /// Print all settings with their defaults and what they mean
    #[command(after_help = "Examples:\n  berth config default > /etc/berth/berth.toml")]
    Default,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    match &args.command {
        Command::Check { file } => check(file.clone(), global)?,
        Command::Print => Stdout::text(&toml::to_string(&settings::load(global)?).context("writing the settings")?)?,
        Command::Default => Stdout::text(&manual::commented_default())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn check(file: Option<PathBuf>, global: &Global) -> Result<()> {
    let config = file.or_else(|| global.config.clone());
    settings::load(&Global { config: config.clone(), ..global.clone() })?;
    match config {
        Some(path) => Stdout::line(&format!("{}: no mistakes", path.display())),
        None if std::path::Path::new(settings::DEFAULT_FILE).exists() => {
            Stdout::line(&format!("{}: no mistakes", settings::DEFAULT_FILE))
        }
        None => Stdout::line(&format!("there is no {}: the defaults are used", settings::DEFAULT_FILE)),
    }
}
