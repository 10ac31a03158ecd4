//! berth as `kubectl-berth`, a plugin of kubectl: `kubectl berth nodes`, `kubectl berth place`, `kubectl berth why POD`.
//!
//! It asks the placer by way of the API server, as whoever the kubeconfig says, and changes nothing. What is shown is made by [`show`],
//! which is pure. kubectl starts a plugin with all that comes behind its name, and looks for it by that name on the path.

mod args;
mod show;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use berth_cluster::kubernetes::ask::{Access, Asker, Service};
use clap::Parser;

use crate::live;
use crate::out::{self, Stdout};
use args::{Cli, Command, Format};

/// The file name by which berth is this.
pub const PLUGIN: &str = "kubectl-berth";

const FAILED: u8 = 1;
/// As `berth admit` says no.
const NOWHERE: u8 = 6;

/// `None`: it was called by another name.
pub fn run_if_named_so() -> Option<ExitCode> {
    let called = std::env::args_os().next()?;
    if Path::new(&called).file_name()?.to_str()? != PLUGIN {
        return None;
    }
    let code = run(&Cli::parse()).unwrap_or_else(|error| {
        if !Stdout::is_closed(&error) {
            out::say(&format!("{error:#}"));
        }
        ExitCode::from(if Stdout::is_closed(&error) { 0 } else { FAILED })
    });
    Some(code)
}

fn run(cli: &Cli) -> Result<ExitCode> {
    live::runtime()?.block_on(async {
        let access = Access { kubeconfig: cli.kubeconfig.clone(), context: cli.context.clone() };
        let service = Service { namespace: cli.placer_namespace.clone(), name: cli.placer.clone() };
        let asker = Asker::new(&access, service).await?;
        match &cli.command {
            Command::Nodes(question) => nodes(&asker, question, cli).await,
            Command::Place(question) => place(&asker, question, cli).await,
            Command::Why { pod } => why(&asker, pod, cli).await,
        }
    })
}

async fn nodes(asker: &Asker, question: &args::Question, cli: &Cli) -> Result<ExitCode> {
    let nodes = asker.nodes(&question.request()).await?;
    match cli.output {
        Some(Format::Json) => Stdout::json(&nodes)?,
        None => Stdout::line(&show::nodes(&nodes))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn place(asker: &Asker, question: &args::Question, cli: &Cli) -> Result<ExitCode> {
    let nodes = asker.nodes(&question.request()).await?;
    let placed = show::Placed::of(&nodes);
    match cli.output {
        Some(Format::Json) => Stdout::json(&placed)?,
        None => Stdout::line(&placed.to_string())?,
    }
    Ok(if placed.node.is_some() { ExitCode::SUCCESS } else { ExitCode::from(NOWHERE) })
}

async fn why(asker: &Asker, pod: &str, cli: &Cli) -> Result<ExitCode> {
    let namespace = cli.namespace.as_deref().unwrap_or_else(|| asker.namespace());
    let pod = asker.pod(namespace, pod).await?;
    let wants = pod.wants()?;
    let Some(wants) = wants else {
        Stdout::line(&show::wants_nothing(&pod))?;
        return Ok(ExitCode::SUCCESS);
    };
    let nodes = asker.nodes(&wants.request()).await?;
    match cli.output {
        Some(Format::Json) => Stdout::json(&show::Why::of(&pod, &wants, &nodes))?,
        None => Stdout::line(&show::why(&pod, &wants, &nodes))?,
    }
    Ok(ExitCode::SUCCESS)
}
