//! What becomes of a command line: passed on as it is, unless it gives a deadline or lists containers.
//!
//! Pure: what has to be asked of others is asked through [`Asks`].

use std::ffi::OsString;

use super::command::{self, Command, Verb};
use super::deadline::{self, WrongDeadline};
use super::flags::FlagSet;
use super::kernel_level::{self, Offer};
use super::ps::{self, SetDeadline};

/// What is known outside: by the client about itself, and by berth's daemon.
pub trait Asks {
    /// The flags of a command that makes containers; `None` if its help cannot be read.
    fn flags(&self, of: Verb) -> Option<FlagSet>;
    /// Whether its settings, in this directory if one is named, say how `docker ps` looks.
    fn formats_ps(&self, config: Option<&str>) -> bool;
    /// What containers that take part at the level of kernels are given here; an error says why nothing.
    fn kernel_level(&self) -> Result<Offer, String>;
    /// Deadlines that people have set since their containers were made.
    fn set_deadlines(&self) -> Vec<SetDeadline>;
}

/// What to start the client with, behind its name.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    AsIs,
    With(Vec<OsString>),
    /// The same, and its help is completed.
    Help(Vec<OsString>),
}

/// Why nothing is started.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{why}")]
    Deadline { words: String, why: WrongDeadline },
    #[error("--kernel-level: {why}")]
    KernelLevel { words: String, why: String },
    #[error("a flag of berth's is given, and the help of 'docker {words}' does not tell which flags take a value")]
    NoFlags { words: String },
}

impl Refusal {
    /// As the client tells it.
    pub fn told(&self, group: &str) -> String {
        let (Refusal::Deadline { words, .. } | Refusal::KernelLevel { words, .. } | Refusal::NoFlags { words }) = self;
        let command = format!("docker {group}{words}");
        format!(
            "{self}\n\nUsage:  {command} [OPTIONS] IMAGE [COMMAND] [ARG...]\n\nRun '{command} --help' for more information"
        )
    }
}

/// `args`: everything behind the program's name.
pub fn plan(args: &[OsString], client: &impl Asks) -> Result<Plan, Refusal> {
    let tokens: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    match command::find(&tokens) {
        None => Ok(Plan::AsIs),
        Some(command) if command.verb == Verb::Ps => Ok(listing(args, &tokens, &command, client)),
        Some(command) => creation(args, &tokens, command, client),
    }
}

fn listing(args: &[OsString], tokens: &[String], command: &Command, client: &impl Asks) -> Plan {
    match ps::table(&tokens[command.args_at..]) {
        Some(table) if !client.formats_ps(command.config.as_deref()) => {
            let mut args = args.to_vec();
            let format = table.format(&client.set_deadlines());
            args.splice(command.args_at..command.args_at, ["--format".into(), format.into()]);
            Plan::With(args)
        }
        _ => Plan::AsIs,
    }
}

fn creation(args: &[OsString], tokens: &[String], command: Command, client: &impl Asks) -> Result<Plan, Refusal> {
    let Command { verb, words, args_at, .. } = command;
    let own = &tokens[args_at..];
    let may_have_one = deadline::may_be_in(own) || kernel_level::may_be_in(own);
    if !may_have_one && !own.iter().any(|token| token == "--help") {
        return Ok(Plan::AsIs);
    }
    let flags = match client.flags(verb) {
        Some(flags) => flags,
        None if may_have_one => return Err(Refusal::NoFlags { words }),
        None => return Ok(Plan::AsIs),
    };
    if let Some(at) = kernel_level::find(own, &flags).first() {
        return take_part(args, args_at + at, words, client);
    }
    let found = deadline::find(own, &flags).map_err(|why| Refusal::Deadline { words, why })?;
    let (is_help, mut args) = (found.is_help, args.to_vec());
    let Some(label) = found.label else { return Ok(if is_help { Plan::Help(args) } else { Plan::AsIs }) };
    let tokens = args_at + label.at..args_at + label.at + label.tokens;
    // The client shows flags that are given otherwise than others.
    args.splice(tokens, (!is_help).then_some(label.by.into()));
    Ok(if is_help { Plan::Help(args) } else { Plan::With(args) })
}

/// Puts in its place what the flag at `at` stands for, and goes on from there: a deadline may be given, too.
fn take_part(args: &[OsString], at: usize, words: String, client: &impl Asks) -> Result<Plan, Refusal> {
    let offer = client.kernel_level().map_err(|why| Refusal::KernelLevel { words, why })?;
    let mut args = args.to_vec();
    args.splice(at..=at, kernel_level::instead(&offer).into_iter().map(OsString::from));
    match plan(&args, client)? {
        Plan::AsIs => Ok(Plan::With(args)),
        further => Ok(further),
    }
}

#[cfg(test)]
mod tests;
