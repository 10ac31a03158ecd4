//! One file per command.

pub mod admit;
pub mod bench;
pub mod cluster;
pub mod completions;
pub mod config;
pub mod daemon;
pub mod deadline;
pub mod demo;
pub mod docker_shim;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod feedback;
pub mod guard;
pub mod history;
pub mod hold;
pub mod load;
pub mod nodes;
pub mod place;
pub mod policy;
pub mod ps;
pub mod release;
pub mod run;
pub mod series;
pub mod sim;
pub mod slo;
pub mod top;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Cli, Command};

pub fn run(cli: Cli) -> Result<ExitCode> {
    let global = cli.global;
    match cli.command {
        Command::Demo(args) => demo::run(&args, &global),
        Command::Daemon(args) => daemon::run(&args, &global),
        Command::Ps(args) => ps::run(&args, &global),
        Command::Top(args) => top::run(&args, &global),
        Command::Hold(args) => hold::run(&args, &global),
        Command::Explain(args) => explain::run(&args, &global),
        Command::Policy(args) => policy::run(&args, &global),
        Command::Deadline(args) => deadline::run(&args, &global),
        Command::Slo(args) => slo::run(&args, &global),
        Command::Admit(args) => admit::run(&args, &global),
        Command::Release(args) => release::run(&args, &global),
        Command::Nodes(args) => nodes::run(&args, &global),
        Command::Place(args) => place::run(&args, &global),
        Command::Cluster(args) => cluster::run(&args, &global),
        Command::Run(args) => run::run(&args, &global),
        Command::Guard(args) => guard::run(&args),
        Command::DockerShim(args) => docker_shim::run(&args),
        Command::Events(args) => events::run(&args, &global),
        Command::History(args) => history::run(&args, &global),
        Command::Series(args) => series::run(&args, &global),
        Command::Feedback(args) => feedback::run(&args, &global),
        Command::Doctor(args) => doctor::run(&args, &global),
        Command::Config(args) => config::run(&args, &global),
        Command::Sim(args) => sim::run(&args),
        Command::Load(args) => Ok(load::run(*args)),
        Command::Bench(args) => bench::run(&args, &global),
        Command::Completions(args) => completions::run(&args),
    }
}
