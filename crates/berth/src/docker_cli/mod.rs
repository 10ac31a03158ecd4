//! berth under other names: as `docker`, a stand-in for the docker client that knows deadlines, and as `docker-berth`, a plugin of it.
//!
//! A command line goes through [`plan`], which is pure; what comes out is what the client is started with. The process *becomes*
//! the client wherever it can, so that exit code, terminal, signals and standard input are the client's own.
//! [docs/docker.md](../../../../docs/docker.md) tells users what differs.

pub mod client;
mod command;
mod deadline;
mod flags;
mod help;
mod image;
mod kernel_level;
pub mod placing;
mod plan;
mod plugin;
mod ps;
pub mod service;
mod set;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitCode;

use crate::cli::Global;
use crate::out::Stdout;
use client::Client;
use plan::{Plan, Refusal};
use plugin::Wanted;

/// File names by which berth is something else.
pub const STAND_IN: &str = "docker";
pub const PLUGIN: &str = "docker-berth";

const FAILED: u8 = 1;
/// The client's code for a wrong flag, and for whatever else keeps a container from being started.
const REFUSED: u8 = 125;
/// A shell's codes for a program that cannot be started, and for one that there is not.
const NOT_STARTED: u8 = 126;
const NOT_FOUND: u8 = 127;

/// `None`: it was called by its own name.
pub fn run_if_named_so() -> Option<ExitCode> {
    let mut args = std::env::args_os();
    let called = args.next()?;
    let args: Vec<OsString> = args.collect();
    match Path::new(&called).file_name()?.to_str()? {
        STAND_IN => Some(start(&called, &args, "", Global::default())),
        PLUGIN => Some(plugin(&args)),
        _ => None,
    }
}

fn plugin(args: &[OsString]) -> ExitCode {
    match plugin::wanted(args) {
        Wanted::Text(text) => show(&text),
        Wanted::Client(args) => run_here(&args, Global::default()),
        Wanted::Service { globals, args } => placing::from_plugin(&globals, &args),
        Wanted::Nothing { word } => {
            say(&format!(
                "docker: unknown command: docker berth {word}\n\nRun 'docker berth --help' for more information"
            ));
            ExitCode::from(FAILED)
        }
    }
}

/// A command of the client, with deadlines, on this host. Settings are those that `global` names.
pub fn run_here(args: &[OsString], global: Global) -> ExitCode {
    start(STAND_IN.as_ref(), args, "berth ", global)
}

/// `group`: words that people write before the command, for what they are told about it.
fn start(called: &OsStr, args: &[OsString], group: &str, global: Global) -> ExitCode {
    let client = match Client::find() {
        Ok(client) => client.by(global),
        Err(error) => return failed(&error, NOT_FOUND),
    };
    let error = match plan::plan(args, &client) {
        Ok(Plan::AsIs) => client.become_it(called, args),
        Ok(Plan::With(args)) => client.become_it(called, &args),
        Ok(Plan::Telling(words, args)) => {
            say(&words);
            client.become_it(called, &args)
        }
        Ok(Plan::Help(args)) => match client.output(called, &args) {
            Ok(output) => {
                let shown = show(&help::with_deadline(&String::from_utf8_lossy(&output.stdout)));
                return if output.status.success() { shown } else { code(output.status) };
            }
            Err(error) => error,
        },
        Err(refusal) => return refused(&refusal, group),
    };
    failed(&format!("{}: {error}", client.path().display()), NOT_STARTED)
}

fn refused(refusal: &Refusal, group: &str) -> ExitCode {
    say(&refusal.told(group));
    ExitCode::from(REFUSED)
}

fn failed(why: &dyn std::fmt::Display, code: u8) -> ExitCode {
    say(&format!("docker: {why}"));
    ExitCode::from(code)
}

/// As a shell counts it: a signal is 128 and its number.
fn code(status: std::process::ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

/// A reader that has gone is no failure.
fn show(text: &str) -> ExitCode {
    match Stdout::text(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if Stdout::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => failed(&format!("{error:#}"), FAILED),
    }
}

fn say(text: &str) {
    // If nobody listens there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{text}");
}
