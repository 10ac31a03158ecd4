//! What becomes of a command line: passed on as it is, unless it gives a deadline or lists containers.
//!
//! Pure: what has to be asked of others is asked through [`Asks`].

use std::ffi::OsString;

use super::command::{self, Command, Verb};
use super::deadline::{self, WrongDeadline};
use super::flags::FlagSet;
use super::kernel_level::{self, Found, Image, Offer, Preload};
use super::ps::{self, SetDeadline};

/// What is known outside: by the client about itself, and by berth's daemon.
pub trait Asks {
    /// The flags of a command that makes containers; `None` if its help cannot be read.
    fn flags(&self, of: Verb) -> Option<FlagSet>;
    /// Whether its settings, in this directory if one is named, say how `docker ps` looks.
    fn formats_ps(&self, config: Option<&str>) -> bool;
    /// What containers that take part at the level of kernels are given here; an error says why nothing.
    fn kernel_level(&self) -> Result<Offer, String>;
    /// Of an image that the engine has; `globals` stand before the command. `None`: it has none such yet.
    fn image(&self, globals: &[OsString], image: &str) -> Option<Image>;
    /// What a container is to preload by what its command line says of that.
    fn preload(&self, said: &Preload) -> Option<String>;
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
    /// The same, when this has been told.
    Telling(String, Vec<OsString>),
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
    let asked = kernel_level::find(own, &flags);
    if !asked.at.is_empty() {
        return take_part(args, args_at, &asked, words, client);
    }
    let found = deadline::find(own, &flags).map_err(|why| Refusal::Deadline { words, why })?;
    let (is_help, mut args) = (found.is_help, args.to_vec());
    let Some(label) = found.label else { return Ok(if is_help { Plan::Help(args) } else { Plan::AsIs }) };
    let tokens = args_at + label.at..args_at + label.at + label.tokens;
    // The client shows flags that are given otherwise than others.
    args.splice(tokens, (!is_help).then_some(label.by.into()));
    Ok(if is_help { Plan::Help(args) } else { Plan::With(args) })
}

/// Takes the flag away, puts in what it stands for, and goes on from there: a deadline may be given, too.
fn take_part(
    args: &[OsString],
    args_at: usize,
    asked: &Found,
    words: String,
    client: &impl Asks,
) -> Result<Plan, Refusal> {
    let (mut args, mut told) = (args.to_vec(), None);
    if asked.is_on {
        let offer = client.kernel_level().map_err(|why| Refusal::KernelLevel { words: words.clone(), why })?;
        let globals = &args[..args_at - words.split(' ').count()];
        let image = asked.image.as_deref().map(|name| (name, client.image(globals, name)));
        told = image.as_ref().and_then(|(name, image)| remark(name, image.as_ref()));
        let image = image.and_then(|(_, image)| image).unwrap_or_default();
        if !image.is_musl {
            let own = client.preload(&asked.preload).or(image.preload);
            let given = asked.instead(&offer, own.as_deref()).into_iter().map(OsString::from);
            args.splice(args_at + asked.end..args_at + asked.end, given);
        }
    }
    for at in asked.at.iter().rev() {
        args.remove(args_at + at);
    }
    let planned = match plan(&args, client)? {
        Plan::AsIs => Plan::With(args),
        further => further,
    };
    Ok(match (told, planned) {
        (Some(told), Plan::With(args)) => Plan::Telling(told, args),
        (_, planned) => planned,
    })
}

/// What somebody should know who asks for it with this image.
fn remark(name: &str, image: Option<&Image>) -> Option<String> {
    match image {
        None => Some(format!(
            "--kernel-level: {name} is not here yet, so what it preloads itself is not known, and not preloaded"
        )),
        Some(Image { is_musl: true, .. }) => Some(format!(
            "--kernel-level: {name} is made with musl, for which there is no library of berth's: it is started without, and \
             nobody waits for it or yields to it"
        )),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests;
