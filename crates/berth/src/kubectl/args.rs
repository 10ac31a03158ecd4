//! The plugin's command line.

use std::path::PathBuf;

use berth_cluster::kubernetes::annotations;
use berth_model::cluster::api::PlaceRequest;
use berth_model::deadline::{Deadline, Unit};
use berth_model::quantity::Bytes;
use clap::{Parser, Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  kubectl berth nodes                              every node, and whether it would take a pod
  kubectl berth nodes --deadline 9s --memory 20Gi  for a pod like that, best first
  kubectl berth place --deadline 9s --image solver:3
  kubectl berth why trainer -n team-a              which node would take the pod, and why not the others

Exit codes: 0 done; 1 failed; 2 wrong command line; 6 `place`: no node takes it.";

/// Where pods with deadlines can go, and why not elsewhere
#[derive(Debug, Parser)]
#[command(name = "kubectl berth", bin_name = "kubectl berth", version, after_help = EXAMPLES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
    /// File that says where the API server is and who asks
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Context of that file
    #[arg(long, value_name = "NAME", global = true)]
    pub context: Option<String>,
    /// Namespace of the pod
    #[arg(long, short, value_name = "NAME", global = true)]
    pub namespace: Option<String>,
    /// Service of the placer
    #[arg(long, value_name = "NAME", default_value = "berth-placer", global = true)]
    pub placer: String,
    /// Namespace of that service
    #[arg(long, value_name = "NAME", default_value = "berth-system", global = true)]
    pub placer_namespace: String,
    /// Machine-readable
    #[arg(long, short, value_name = "FORMAT", global = true)]
    pub output: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the nodes, best first, with why they would not take a pod
    Nodes(Question),
    /// Say which node a pod would go to; nothing is placed
    Place(Question),
    /// Say which nodes would take a pod, and why not the others
    Why {
        /// Name of the pod
        pod: String,
    },
}

/// What the pod wants.
#[derive(Debug, Default, clap::Args)]
pub struct Question {
    /// How long a unit of its work may take: 9s, 1500ms, 2m
    #[arg(long, value_name = "DURATION")]
    deadline: Option<Deadline>,
    /// What the deadline is for: task or burst
    #[arg(long, value_name = "UNIT", value_parser = annotations::unit)]
    unit: Option<Unit>,
    /// GPU memory it needs: 20Gi
    #[arg(long, value_name = "AMOUNT", value_parser = annotations::memory)]
    memory: Option<Bytes>,
    /// GPUs it needs
    #[arg(long, value_name = "NUMBER", value_parser = annotations::gpus, default_value = "1")]
    gpus: u32,
    /// Its image, whose history tells how long it takes
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// How long a unit takes alone, where that is known better
    #[arg(long, value_name = "DURATION")]
    takes: Option<Deadline>,
}

impl Question {
    pub fn request(&self) -> PlaceRequest {
        PlaceRequest {
            deadline: self.deadline,
            unit: self.unit.unwrap_or(Unit::Task),
            memory_bytes: self.memory,
            gpus: self.gpus.max(1),
            image: self.image.clone(),
            takes: self.takes,
            constraints: Vec::new(),
            detail: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("kubectl-berth").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_question_is_what_was_written() {
        let cli = parsed("place --deadline 9s --memory 20Gi --gpus 2 --image a:1 -o json").unwrap();
        let Command::Place(question) = cli.command else { panic!("{cli:?}") };
        let request = question.request();
        assert_eq!((request.gpus, request.memory_bytes), (2, Some(Bytes(20 << 30))));
        assert_eq!(request.deadline.map(Deadline::seconds), Some(9.0));
        assert_eq!(cli.output, Some(Format::Json));
    }

    #[test]
    fn a_slip_of_the_pen_is_told_with_what_would_be_right() {
        let told = parsed("place --memory 20gb").unwrap_err().to_string();
        assert!(told.contains("`512Mi`"), "{told}");
        parsed("place --deadline -1").unwrap_err();
        parsed("why").unwrap_err();
    }
}
