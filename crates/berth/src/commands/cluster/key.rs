//! `berth cluster key`: makes the cluster's key, and from it the key of each node.
//!
//! Keys go into files and are never printed: what is on a terminal is in its history.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use berth_cluster::frame::{ClusterKey, KEY_BYTES, KeyFile};
use berth_cluster::node::key_file;
use berth_model::cluster::{InvalidNodeId, NodeId};
use clap::Subcommand;
use serde::Serialize;

use crate::cli::Global;
use crate::out::Stdout;
use crate::settings;

const EXAMPLES: &str = "\
Examples:
  berth cluster key new
  berth cluster key node worker-1 --out worker-1.key

A node knows its own key alone: who breaks into one can speak for no other. The placer knows the
cluster's, and derives all others from it.";

const NEW_EXAMPLES: &str = "\
Examples:
  berth cluster key new
  berth cluster key new --out ./cluster.key

With --force the old key is lost: every node must then be given a new one of its own.";

const NODE_EXAMPLES: &str = "\
Examples:
  berth cluster key node worker-1
  berth cluster key node $(docker node inspect worker-1 --format '{{.ID}}') --out node.key
  scp node.key worker-1:/etc/berth/node.key

NAME is what the engine calls the node: Swarm's node id, or Kubernetes' node name. The same cluster's
key and NAME give the same key each time.";

/// Make the keys by which the placer and the nodes know each other
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the key of a new cluster
    #[command(after_help = NEW_EXAMPLES)]
    New {
        /// File to write, which only its owner may read [default: the setting placer.key_file]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        how: How,
    },
    /// Make the key of one node
    #[command(after_help = NODE_EXAMPLES)]
    Node {
        /// What the engine calls the node
        #[arg(value_parser = named)]
        name: NodeId,
        /// File with the key of the cluster [default: the setting placer.key_file]
        #[arg(long, value_name = "FILE")]
        cluster_key: Option<PathBuf>,
        /// File to write, which only its owner may read [default: ./NAME.key]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Debug, clap::Args)]
struct How {
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// Print what was written as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Written<'a> {
    file: &'a Path,
    /// `None`: it is the cluster's.
    node: Option<&'a NodeId>,
}

/// No engine calls a node `..`, and a file by that name is easily lost.
fn named(text: &str) -> Result<NodeId, String> {
    let node: NodeId = text.parse().map_err(|error: InvalidNodeId| error.to_string())?;
    let begins_well = text.starts_with(|first: char| first.is_ascii_alphanumeric());
    begins_well.then_some(node).ok_or_else(|| "the name of a node begins with a letter or a digit".to_owned())
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let placers = || -> Result<PathBuf> { Ok(settings::load(global)?.placer.key_file) };
    match &args.command {
        Command::New { out, how } => {
            let file = out.clone().map_or_else(placers, Ok)?;
            let mut bytes = [0; KEY_BYTES];
            getrandom::fill(&mut bytes).context("asking the kernel for a random key")?;
            key_file::write(&file, &KeyFile::Cluster(ClusterKey::new(bytes)), how.force)?;
            told(&Written { file: &file, node: None }, how)?;
        }
        Command::Node { name, cluster_key, out, how } => {
            let cluster = key_file::cluster(&cluster_key.clone().map_or_else(placers, Ok)?)?;
            let file = out.clone().unwrap_or_else(|| format!("{name}.key").into());
            let key = KeyFile::Node { node: name.clone(), key: cluster.node(name) };
            key_file::write(&file, &key, how.force)?;
            told(&Written { file: &file, node: Some(name) }, how)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn told(written: &Written<'_>, how: &How) -> Result<()> {
    if how.json {
        return Stdout::json(written);
    }
    let file = written.file.display();
    Stdout::line(&match written.node {
        None => format!("{file} holds the key of the cluster: keep it where the placer runs, and nowhere else"),
        Some(node) => format!("{file} holds the key of {node}: take it there, as its cluster.key_file"),
    })
}
