//! `docker berth …`: the stand-in's `run`, `create` and `ps` as a plugin of the client, for those who leave `docker` as it is; and
//! `service create`, which places.
//!
//! The client starts a plugin with its own global flags, then the plugin's name, then the rest. What is left without the name is
//! a command line of the client.

use std::ffi::OsString;

use super::command;

/// The word by which the client asks a plugin what it is.
const METADATA: &str = "docker-cli-plugin-metadata";
const NAME: &str = "berth";

const HELP: &str = "\
Usage:  docker berth COMMAND

Containers with deadlines: how long each of their GPU tasks may take

Commands:
  run             Create and run a new container from an image
  create          Create a new container
  ps              List containers, with their deadlines
  service create  Create a new service on the node where its deadline can be met

`run` and `create` take all flags of `docker run` and `docker create`, and one more:

 -dl, --deadline duration   Deadline of a GPU task: seconds, or with a unit (1500ms, 9s, 2m)

`service create` takes all flags of `docker service create`, and --deadline, --memory, --takes, --unit, --gpus and --explain.

Examples:
  docker berth run --deadline 9s --gpus all IMAGE
  docker berth create -dl 9 --name solver IMAGE
  docker berth ps -a
  docker berth service create --deadline 9s --memory 20GiB --name solver IMAGE

berth judges every GPU task by it: `berth ps`, `berth history NAME`.
";

/// What the client wants of the plugin.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    /// To be told this.
    Text(String),
    /// The command line that the client itself is to be started with, but for deadlines.
    Client(Vec<OsString>),
    /// A service with a place: the client's global flags, and what stands behind `service create`.
    Service { globals: Vec<OsString>, args: Vec<OsString> },
    /// Something that there is not.
    Nothing { word: String },
}

pub fn wanted(args: &[OsString]) -> Wanted {
    let tokens: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    if tokens.first().is_some_and(|word| word == METADATA) {
        return Wanted::Text(metadata());
    }
    let word = |at: usize| tokens.get(at).map(String::as_str);
    if let (Some("__complete" | "__completeNoDesc"), Some(NAME)) = (word(0), word(1)) {
        return completion(args, word(3).is_some());
    }
    let name_at = command::behind_globals(&tokens).map(|(at, _)| at).filter(|at| word(*at) == Some(NAME));
    let Some(at) = name_at else { return Wanted::Text(HELP.to_owned()) };
    match word(at + 1) {
        Some("run" | "create" | "ps") => Wanted::Client(without(args, at)),
        Some("service") if word(at + 2) == Some("create") => {
            Wanted::Service { globals: args[..at].to_vec(), args: args[at + 3..].to_vec() }
        }
        Some("service") => {
            Wanted::Nothing { word: format!("service {}", word(at + 2).unwrap_or_default()).trim_end().to_owned() }
        }
        None | Some("help" | "--help" | "-h") => Wanted::Text(HELP.to_owned()),
        Some(word) => Wanted::Nothing { word: word.to_owned() },
    }
}

fn without(args: &[OsString], at: usize) -> Vec<OsString> {
    [&args[..at], &args[at + 1..]].concat()
}

/// Of the commands, or by the client's own, once there is one.
fn completion(args: &[OsString], has_command: bool) -> Wanted {
    match has_command {
        true => Wanted::Client(without(args, 1)),
        // 4: no files.
        false => Wanted::Text("run\ncreate\nps\nservice\n:4\n".to_owned()),
    }
}

fn metadata() -> String {
    let metadata = serde_json::json!({
        "SchemaVersion": "0.1.0",
        "Vendor": "berth",
        "Version": env!("CARGO_PKG_VERSION"),
        "ShortDescription": "Containers with deadlines for their GPU tasks",
        "URL": env!("CARGO_PKG_REPOSITORY"),
    });
    format!("{metadata}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Wanted {
        wanted(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    fn client(line: &str) -> Wanted {
        Wanted::Client(line.split(' ').map(OsString::from).collect())
    }

    #[test]
    fn its_name_is_left_out_and_the_global_flags_stay() {
        assert_eq!(asked("berth run -dl 9 image"), client("run -dl 9 image"));
        assert_eq!(asked("-H unix:///x --context=berth berth ps -a"), client("-H unix:///x --context=berth ps -a"));
        assert_eq!(asked("berth create berth run"), client("create berth run"));
        assert_eq!(asked("__complete berth run --na"), client("__complete run --na"));
    }

    #[test]
    fn a_service_is_placed_with_the_global_flags_before_it() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let wanted = Wanted::Service { globals: words("-H unix:///x"), args: words("--deadline 9s image") };
        assert_eq!(asked("-H unix:///x berth service create --deadline 9s image"), wanted);
    }

    #[test]
    fn what_there_is_not_is_told_by_its_name() {
        assert_eq!(asked("berth rm x"), Wanted::Nothing { word: "rm".into() });
        assert_eq!(asked("berth service ls"), Wanted::Nothing { word: "service ls".into() });
        assert_eq!(asked("--tls berth container run x"), Wanted::Nothing { word: "container".into() });
    }

    #[test]
    fn the_client_is_told_what_it_is() {
        let Wanted::Text(text) = asked(METADATA) else { panic!("no metadata") };
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((told["SchemaVersion"].as_str(), told["Vendor"].as_str()), (Some("0.1.0"), Some("berth")));
        for line in ["berth", "berth --help", "-D berth -h", "berth help"] {
            assert_eq!(asked(line), Wanted::Text(HELP.to_owned()), "{line}");
        }
    }
}
