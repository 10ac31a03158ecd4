//! The one binary. Reads the command line, runs one command, turns its result into an exit code.
//!
//! Exit codes: 0 done; 1 it failed, or `berth doctor` found that observing is not possible; 2 the command line or the
//! settings are wrong; 3 `berth ps` could look at nothing; 4 it is not allowed; 5 no such tenant; 6 and 7 `berth admit` says no, or that it is not known; 128 and a signal's number: `berth demo` or `berth bench` was told to end before it was done.
//! `berth load` has codes of its own, see its help.

mod asking;
mod bench;
mod cli;
mod cluster_sim;
mod columns;
mod commands;
mod countdown;
mod demo;
mod docker_cli;
mod engine;
mod guard;
mod interrupt;
mod kubectl;
mod live;
mod logging;
mod manual;
mod mps;
mod node;
mod on_record;
mod out;
mod pods;
mod settings;
mod sight;
mod stage;
mod table;
#[cfg(test)]
mod testing;
mod tui;
mod words;

use std::process::ExitCode;

use clap::Parser;

use asking::AskError;
use cli::Cli;
use interrupt::Interrupted;
use out::Stdout;
use settings::SettingsError;

const FAILED: u8 = 1;
const WRONG_INPUT: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = docker_cli::run_if_named_so().or_else(kubectl::run_if_named_so) {
        return code;
    }
    match commands::run(Cli::parse()) {
        Ok(code) => code,
        // The reader has gone, as in `berth ps | head -1`: nothing is left to do, and nothing went wrong.
        Err(error) if Stdout::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            out::say(format!("{error:#}").trim_end());
            ExitCode::from(code_of(&error))
        }
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Interrupted>() {
        Some(interrupted) => interrupted.exit_code(),
        None if error.is::<SettingsError>() => WRONG_INPUT,
        None => error.downcast_ref().map_or(FAILED, AskError::exit_code),
    }
}
