//! `berth cluster serve`: the placer, beside a manager of the engine.

use std::convert::Infallible;
use std::future::pending;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use berth_api::{Access, Server};
use berth_cluster::frame::ClusterKey;
use berth_cluster::kubernetes;
use berth_cluster::node::key_file;
use berth_cluster::placer::{self, Placer, Signed};
use berth_cluster::swarm::{Manager, Swarm};
use berth_model::Settings;
use berth_model::settings::{EngineName, PlacerSettings};
use clap::ValueEnum;
use sd_notify::NotifyState;
use tokio::sync::oneshot;

use crate::cli::Global;
use crate::commands::daemon::{notify, stop_on_signal};
use crate::{live, logging, settings};

const EXAMPLES: &str = "\
Examples:
  berth cluster serve --engine swarm
  berth --set placer.engine_socket=/tmp/docker.sock cluster serve
  berth --config /etc/berth/placer.toml cluster serve --engine kubernetes

It asks the nodes of the engine what goes on there, and says where a container can meet its deadline:
`berth nodes`, `berth place`, `berth run --cluster`. It keeps nothing on disk. Of several placers of one
swarm one acts, and the others say which; one takes over when that is gone. SIGTERM and SIGINT stop it;
what was placed stays where it is.";

/// Place containers of a cluster where their deadlines can be met
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Whose nodes they are [setting: placer.engine]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineArg>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EngineArg {
    Swarm,
    Kubernetes,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let mut settings = settings::load(global)?;
    logging::start(&settings.log)?;
    match args.engine {
        Some(EngineArg::Swarm) => settings.placer.engine = EngineName::Swarm,
        Some(EngineArg::Kubernetes) => settings.placer.engine = EngineName::Kubernetes,
        None => {}
    }
    // What was right for the engine of the file may not be for this one.
    for problem in settings.problems() {
        tracing::warn!("{problem}");
    }
    // The socket comes first: a second placer is refused before it touches anything of the first.
    let server = bind(&settings)?;
    let key = key_file::cluster(&settings.placer.key_file)?;
    let placer = Placer::new(&settings.placer, Box::new(Signed::new(key.clone())));
    let stop_rx = stop_on_signal()?;
    tracing::info!(socket = %settings.placer.socket.display(), "the placer is ready");
    notify(&[NotifyState::Ready]);
    live::runtime()?.block_on(async {
        tokio::select! {
            served = placer::serve(server.listener()?, placer.clone()) => served.context("serving the placer's socket"),
            () = placer.clone().ask_nodes() => Ok(()),
            never = shows_life() => match never {},
            ended = engine(&settings.placer, placer.clone(), key, stopped(stop_rx)) => ended,
        }
    })?;
    notify(&[NotifyState::Stopping]);
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Follows the engine until it is to stop, or fails for good.
async fn engine(
    settings: &PlacerSettings,
    placer: Arc<Placer>,
    key: ClusterKey,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let place = format!("{}:{}", hostname()?, settings.socket.display());
    match settings.engine {
        EngineName::Swarm => {
            let manager = Manager::new(&settings.engine_socket);
            Swarm::new(manager, placer, &place, settings.node_port).run(stop).await;
            Ok(())
        }
        EngineName::Kubernetes => Ok(kubernetes::serve(placer, settings, key, &place, stop).await?),
    }
}

/// With the permissions of the daemon's own.
fn bind(settings: &Settings) -> Result<Server> {
    let mode = settings.api.mode().context("api.socket_mode")?;
    let group = Some(settings.api.socket_group.clone()).filter(|group| !group.is_empty());
    Ok(Server::bind(&settings.placer.socket, &Access { mode, group })?)
}

/// All of it runs on one thread: while this is heard, the rest turns too.
async fn shows_life() -> Infallible {
    let Some(limit) = sd_notify::watchdog_enabled() else { return pending().await };
    let mut ticks = tokio::time::interval(limit / 2);
    loop {
        ticks.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

async fn stopped(stop_rx: oneshot::Receiver<()>) {
    // The sender lives in the signal thread for as long as the process does.
    let _ = stop_rx.await;
}

fn hostname() -> Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").context("reading the host's name")?;
    Ok(name.trim().to_owned())
}
