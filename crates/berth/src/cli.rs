//! The command line: one enum of commands, and the options all of them share.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::commands::{
    admit, bench, cluster, completions, config, daemon, deadline, demo, docker_shim, doctor, events, explain, feedback,
    guard, history, hold, load, nodes, place, policy, ps, release, run, series, sim, slo, top,
};

const EXAMPLES: &str = "\
Examples:
  berth demo                       see it at work on simulated GPUs
  berth doctor                     what this host can do, and what is missing
  berth ps                         who is on the GPUs now
  berth top                        the same, live
  berth daemon                     watch for others: API, metrics, task table
  berth policy set fifo            let tenants that contend take turns; `off` ends it
  berth explain NAME               why a tenant waits
  berth history NAME               what was done to it, and why
  berth deadline set NAME 9s       give it a deadline; `berth deadline show` tells how it does
  berth admit --deadline 9s --image X    whether one more deadline would be met
  berth nodes                      the nodes of a cluster, and why each would take a container or not
  berth place --deadline 9s --image X    where in the cluster it would go
  berth hold NAME                  keep a tenant off the GPUs; `berth release NAME` lets it go

Exit codes: 0 done; 1 failed; 2 wrong command line or settings; others are told with the command.
Settings: /etc/berth/berth.toml; `berth config default` prints all of them with what they mean.";

/// See who uses which GPU, and let those who would slow each other down take turns
#[derive(Debug, Parser)]
#[command(name = "berth", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Where settings come from. The file is read first, then `--set` in order, then the others.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Settings")]
pub struct Global {
    /// Settings file [default: /etc/berth/berth.toml, if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Socket of the daemon [setting: api.socket]
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// What to log, such as `debug` or `berth_host=debug,info` [setting: log.level]
    #[arg(long, global = true, value_name = "FILTER")]
    pub log: Option<String>,
    /// Override one setting, such as `monitor.fast_interval=10ms`; may be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Args),
    Daemon(daemon::Args),
    Ps(ps::Args),
    Run(run::Args),
    Top(top::Args),
    Hold(hold::Args),
    Release(release::Args),
    Explain(explain::Args),
    Policy(policy::Args),
    Deadline(deadline::Args),
    Slo(slo::Args),
    Admit(admit::Args),
    Nodes(nodes::Args),
    Place(place::Args),
    Cluster(cluster::Args),
    Events(events::Args),
    History(history::Args),
    Series(series::Args),
    Feedback(feedback::Args),
    Doctor(doctor::Args),
    Config(config::Args),
    Sim(sim::Args),
    Load(Box<load::Args>),
    Bench(bench::Args),
    DockerShim(docker_shim::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Guard(guard::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Every command and subcommand people see, with its path.
    fn all(command: &clap::Command, path: &str) -> Vec<(String, clap::Command)> {
        let mut found = vec![(path.to_owned(), command.clone())];
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
            found.extend(all(sub, &format!("{path} {}", sub.get_name())));
        }
        found
    }

    #[test]
    fn every_help_says_what_the_command_does_and_shows_an_example_of_it() {
        for (path, mut command) in all(&Cli::command(), "berth") {
            let help = command.render_long_help().to_string();
            assert!(command.get_about().is_some(), "{path} says nothing about itself");
            let examples = help.split("Examples:\n").nth(1).unwrap_or_else(|| panic!("{path} has no examples"));
            let is_shown = path.split(' ').all(|word| examples.lines().next().is_some_and(|line| line.contains(word)));
            assert!(is_shown, "the first example of {path} is of something else: {examples}");
        }
    }

    #[test]
    fn the_help_texts() {
        let mut root = Cli::command().term_width(100);
        root.build();
        let texts: Vec<String> = all(&root, "berth")
            .into_iter()
            .filter(|(path, _)| !path.starts_with("berth load"))
            .map(|(path, command)| format!("==== {path}\n{}", command.term_width(100).render_help()))
            .collect();
        insta::assert_snapshot!(texts.join("\n"));
    }
}
