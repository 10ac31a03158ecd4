//! `berth run`: a container with a deadline, on this host or on the node of a swarm where it can be met.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::Global;
use crate::docker_cli::{self, placing, service::Kind};
use crate::{logging, settings};

const EXAMPLES: &str = "\
Examples:
  berth run --cluster --deadline 9s --memory 20GiB IMAGE
  berth run --cluster --deadline 2s --unit burst --name server IMAGE
  berth run --cluster --deadline 9s --takes 3s --constraint node.labels.rack==a --explain IMAGE
  berth run -dl 9 --gpus all IMAGE
  berth run --kernel-level --gpus all --label berth.slo.latency=p99:10ms IMAGE

With --cluster, before the image, the placer (`berth cluster serve`) chooses a node of the swarm and
a GPU there, and a service is made that runs once (`docker service create --restart-condition
none --detach`), with a constraint on that node. Flags of its own:
  --deadline DURATION   how long a unit of its work may take: 9s, 1500ms
  --memory AMOUNT       GPU memory it needs: 20GiB
  --takes DURATION      GPU time a unit takes by itself, instead of what the image's history says
  --unit task|burst     what the deadline is for [default: task]
  --gpus N              GPUs it needs on one node [default: 1]
  --explain             tell of every node why it would take it or not
All others are those of `docker service create`, and go to it as they are. Without --cluster it is
`docker berth run`: on this host, with the flags of `docker run`, -dl, and --kernel-level, which has its
kernels ordered among those of others (`berth slo`).

Exit codes: 6 no node takes it, nothing was created; 125 wrong flags; 1 no placer answers; else
those of the docker client.";

/// Run a container with a deadline, here or where a cluster can meet it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// On the node of the swarm where its deadline can be met
    #[arg(long)]
    cluster: bool,
    /// Flags, image, and command with arguments, as for the docker client
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    if !args.cluster && !placing::is_for_cluster(&args.args) {
        let run = [&[OsString::from("run")], &args.args[..]].concat();
        return Ok(docker_cli::run_here(&run, global.clone()));
    }
    let settings = settings::load(global)?;
    logging::start(&settings.log)?;
    Ok(placing::create(&[], &args.args, Kind::OneShot, settings.placer.socket))
}
