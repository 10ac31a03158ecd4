//! `berth guard`: started by the daemon, never by people; undoes the daemon's holds if it dies.

use std::process::ExitCode;

use anyhow::Result;

use crate::guard;

/// Undo the daemon's holds if it dies (the daemon starts this itself)
#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> Result<ExitCode> {
    guard::run()?;
    Ok(ExitCode::SUCCESS)
}
