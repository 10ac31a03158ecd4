//! Which command of the client a command line is, if it is one that berth has something to do with.

use super::flags::{FlagSet, Name, Standing, Takes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Run,
    Create,
    Ps,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    pub verb: Verb,
    /// As it was written: `run`, `container run`.
    pub words: String,
    /// Index of the first token behind the words.
    pub args_at: usize,
    /// The client's directory of settings, if the command line names one.
    pub config: Option<String>,
}

/// What stands before any command, in every version of the client. One that has more is passed through.
fn globals() -> FlagSet {
    FlagSet::default()
        .with("config", None, Takes::Value)
        .with("context", Some('c'), Takes::Value)
        .with("debug", Some('D'), Takes::Nothing)
        .with("host", Some('H'), Takes::Value)
        .with("log-level", Some('l'), Takes::Value)
        .with("tls", None, Takes::Nothing)
        .with("tlscacert", None, Takes::Value)
        .with("tlscert", None, Takes::Value)
        .with("tlskey", None, Takes::Value)
        .with("tlsverify", None, Takes::Nothing)
}

/// `tokens`: everything behind the program's name. `None`: not berth's business.
pub fn find(tokens: &[String]) -> Option<Command> {
    let (at, config) = behind_globals(tokens)?;
    let word = |at: usize| tokens.get(at).map(String::as_str);
    let (verb, length) = match (word(at)?, word(at + 1)) {
        ("run", _) => (Verb::Run, 1),
        ("create", _) => (Verb::Create, 1),
        ("ps", _) => (Verb::Ps, 1),
        ("container", Some("run")) => (Verb::Run, 2),
        ("container", Some("create")) => (Verb::Create, 2),
        ("container", Some("ls" | "list" | "ps")) => (Verb::Ps, 2),
        _ => return None,
    };
    Some(Command { verb, words: tokens[at..at + length].join(" "), args_at: at + length, config })
}

/// Where the first word stands, and the directory of settings that was named before it.
pub fn behind_globals(tokens: &[String]) -> Option<(usize, Option<String>)> {
    let (globals, mut at, mut config) = (globals(), 0, None);
    loop {
        match globals.standing(tokens, at) {
            Standing::Unknown => return None,
            // `docker -- run` is no command of the client.
            Standing::Operand(end) => return (end == at).then_some((at, config)),
            Standing::Flag(flag) => {
                if flag.name == Name::Long("config") {
                    config = flag.value.map(str::to_owned);
                }
                at += flag.tokens;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Option<(Verb, usize)> {
        let tokens: Vec<String> = line.split(' ').map(str::to_owned).collect();
        find(&tokens).map(|command| (command.verb, command.args_at))
    }

    #[test]
    fn a_command_is_found_behind_global_flags() {
        assert_eq!(found("run x"), Some((Verb::Run, 1)));
        assert_eq!(found("-H unix:///x --tls -D create x"), Some((Verb::Create, 5)));
        assert_eq!(found("-DH unix:///x --context=a -cb -l debug ps"), Some((Verb::Ps, 7)));
        assert_eq!(found("--config /x container list -a"), Some((Verb::Ps, 4)));
        assert_eq!(found("container run x"), Some((Verb::Run, 2)));
    }

    #[test]
    fn what_is_another_command_or_not_understood_is_none_of_ours() {
        for line in [
            "",
            "version",
            "-v run",
            "--version run",
            "--help run",
            "container",
            "container rm x",
            "container --help run",
            "compose run x",
            "service ps x",
            "-- run x",
            "--new-flag run x",
            "stack ps x",
            "compose ps",
            "image ls",
            "help run",
        ] {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn the_settings_of_the_client_are_where_its_flag_says() {
        let tokens = ["--config=/a", "--config", "/b", "ps"].map(str::to_owned);
        assert_eq!(find(&tokens).unwrap().config.as_deref(), Some("/b"));
    }
}
