//! The client's own help for a command: read for which flags take a value, and completed by the flag it does not know.
//!
//! So a newer client's flags are understood without a list of them here.

use super::flags::{FlagSet, Takes};

/// Flags that the client understands and does not show, or not everywhere; all take a value.
const NOT_SHOWN: &[&str] =
    &["net", "net-alias", "dns-opt", "cpu-count", "cpu-percent", "io-maxbandwidth", "io-maxiops", "kernel-memory"];

const NAMES: &str = " -dl, --deadline duration";
const MEANING: &[&str] = &["Deadline of a GPU task: seconds,", "or with a unit (1500ms, 9s, 2m)"];

/// `None` if there is no flag in it: it is no such help.
pub fn flags(help: &str) -> Option<FlagSet> {
    let mut set = FlagSet::default();
    help.lines().filter_map(option).for_each(|option| set.add(option.long, option.short, option.takes));
    if set == FlagSet::default() {
        return None;
    }
    NOT_SHOWN.iter().for_each(|long| set.add(long, None, Takes::Value));
    Some(set)
}

struct Shown<'a> {
    long: &'a str,
    short: Option<char>,
    takes: Takes,
    /// Column at which what it means begins.
    meaning_at: usize,
}

/// A line such as `  -l, --label list    Set meta data on a container`. A switch has no word between its name and two spaces.
fn option(line: &str) -> Option<Shown<'_>> {
    let short =
        line.strip_prefix("  -").and_then(|rest| rest.split_once(", --")).and_then(|(short, _)| short.parse().ok());
    let named = match short {
        Some(_) => line.get("  -x, --".len()..)?,
        None => line.strip_prefix("      --")?,
    };
    let (head, meaning) = named.split_once("  ")?;
    let (long, takes) = match head.split_once(' ') {
        Some((long, _)) => (long, Takes::Value),
        None => (head, Takes::Nothing),
    };
    Some(Shown { long, short, takes, meaning_at: line.len() - meaning.trim_start().len() })
}

/// The help with berth's flag in its alphabetical place; as it is where no place is found.
pub fn with_deadline(help: &str) -> String {
    let lines = || help.split_inclusive('\n');
    let next = lines().position(|line| option(line).is_some_and(|option| option.long > "deadline"));
    let Some((next, shown)) = next.and_then(|next| Some((next, option(lines().nth(next)?)?))) else {
        return help.to_owned();
    };
    let mut names = NAMES;
    let ours = MEANING.iter().map(|meaning| {
        let line = format!("{names:<width$}{meaning}\n", width = shown.meaning_at);
        names = "";
        line
    });
    let ours: String = ours.collect();
    lines().take(next).chain([ours.as_str()]).chain(lines().skip(next)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::flags::Standing;
    use super::*;

    const HELP: &str = "\
Usage:  docker run [OPTIONS] IMAGE [COMMAND] [ARG...]

Create and run a new container from an image

Options:
      --add-host list                    Add a custom host-to-IP mapping
                                         (host:ip)
      --cgroupns string                  Cgroup namespace to use
                                         'host':    Run the container in
                                                    default-cgroupns-mode
  -d, --detach                           Run container in background and
                                         print container ID
      --health-start-interval duration   Time between running the check
  -l, --label list                       Set meta data on a container
      --rm                               Automatically remove the container
";

    #[test]
    fn a_flag_with_a_type_takes_a_value_and_others_do_not() {
        let flags = flags(HELP).unwrap();
        for (tokens, taken) in [
            ("--add-host x", 2),
            ("--rm x", 1),
            ("-d x", 1),
            ("-l x", 2),
            ("--health-start-interval x", 2),
            ("--net x", 2),
        ] {
            let tokens: Vec<String> = tokens.split(' ').map(str::to_owned).collect();
            let Standing::Flag(flag) = flags.standing(&tokens, 0) else { panic!("{tokens:?}") };
            assert_eq!(flag.tokens, taken, "{tokens:?}");
        }
        assert_eq!(super::flags("docker: no such command\n"), None);
    }

    #[test]
    fn the_flag_is_shown_where_it_belongs_and_nothing_else_changes() {
        let ours = " -dl, --deadline duration                Deadline of a GPU task: seconds,
                                         or with a unit (1500ms, 9s, 2m)
  -d, --detach ";
        assert_eq!(with_deadline(HELP), HELP.replace("  -d, --detach ", ours));
        assert_eq!(with_deadline("Usage: nothing"), "Usage: nothing");
    }
}
