//! `berth place`: where a container would go, and why not elsewhere. Nothing is placed, reserved or started by it.

#[cfg(test)]
pub mod samples;

use std::process::ExitCode;

use anyhow::Result;
use berth_cluster::placer::constraint::{Constraint, InvalidConstraint};
use berth_model::cluster::api::{PlaceAnswer, PlaceRequest};
use berth_model::deadline::Unit;
use berth_model::{Bytes, Deadline};

use super::admit::units;
use super::nodes::table;
use crate::asking::ask_placer;
use crate::cli::Global;
use crate::columns::printable;
use crate::out::Stdout;
use crate::{logging, settings};

const EXAMPLES: &str = "\
Examples:
  berth place --deadline 9s --memory 20GiB --image solver:3
  berth place --deadline 2s --unit burst --takes 300ms
  berth place --memory 40GiB --gpus 2 --constraint node.labels.rack==a
  berth place --deadline 9s --image solver:3 --explain     with why each node would take it or not
  berth place --deadline 9s --image solver:3 --json | jq -r .choice.node

How long it takes is known from what nodes have run of the same image, or told with --takes. It is a
dry run: `berth run --cluster` places.

Exit codes: 0 there is a place; 6 no node takes it; 1 failed, or no placer answers;
2 wrong command line or settings; 4 not allowed: the socket may not be opened.";

/// Nobody takes it, as `berth admit` and `berth run --cluster` say it.
const NOBODY: u8 = 6;

/// Say where in the cluster a container would go, and why not elsewhere
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    question: Question,
    /// The engine's own constraint, such as `node.labels.rack==a`; may be repeated
    #[arg(long = "constraint", value_name = "CONSTRAINT", value_parser = constraint)]
    constraints: Vec<String>,
    /// Tell of every node why it would take it or not
    #[arg(long)]
    explain: bool,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

/// What a container needs.
#[derive(Debug, clap::Args)]
pub struct Question {
    /// How long it may take: seconds, or with a unit (1500ms, 9s, 2m)
    #[arg(long, value_name = "DEADLINE", allow_negative_numbers = true)]
    deadline: Option<Deadline>,
    /// What the deadline is for: one task, or each burst of a server
    #[arg(long, value_name = "UNIT", default_value = "task", value_parser = units())]
    unit: Unit,
    /// GPU memory it needs, such as 20GiB
    #[arg(long, value_name = "AMOUNT")]
    memory: Option<Bytes>,
    /// GPUs it needs on one node
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    gpus: u32,
    /// Its image, whose history tells how long it takes
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// GPU time it takes by itself, instead of what the history says
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true)]
    takes: Option<Deadline>,
}

impl Question {
    pub fn request(&self) -> PlaceRequest {
        PlaceRequest {
            deadline: self.deadline,
            unit: self.unit,
            memory_bytes: self.memory,
            gpus: self.gpus,
            image: self.image.clone(),
            takes: self.takes,
            constraints: Vec::new(),
            detail: false,
        }
    }
}

/// As it was written, if the placer can read it.
fn constraint(text: &str) -> Result<String, InvalidConstraint> {
    text.parse::<Constraint>().map(|_| text.to_owned())
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let request =
        PlaceRequest { constraints: args.constraints.clone(), detail: args.explain, ..args.question.request() };
    let answer = ask_placer(&settings, |client| async move { client.place(&request).await })??;
    if args.json {
        Stdout::json(&answer)?
    } else {
        Stdout::text(&text(&answer, Stdout::width()))?
    }
    Ok(if answer.choice.is_some() { ExitCode::SUCCESS } else { ExitCode::from(NOBODY) })
}

fn text(answer: &PlaceAnswer, width: Option<usize>) -> String {
    let mut lines = vec![verdict(answer)];
    lines.extend(answer.idle.as_ref().map(|idle| format!("This placer places nothing: {idle}")));
    let mut reasons: Vec<(&String, &u32)> = answer.refusals.0.iter().collect();
    reasons.sort_by_key(|(word, count)| (std::cmp::Reverse(**count), *word));
    if !reasons.is_empty() {
        lines.extend([String::new(), format!("{} would not take it:", nodes(answer.refusals.total()))]);
        lines.extend(reasons.iter().map(|(word, count)| format!("  {count:>6}  {word}")));
    }
    let lines: String = lines.iter().map(|line| printable(line) + "\n").collect();
    match answer.nodes.is_empty() {
        true => lines,
        false => format!("{lines}\n{}", crate::table::render(table::columns(&answer.nodes, width))),
    }
}

/// `yes: on worker-1, GPU-…, the best of 12 nodes that would take it`.
fn verdict(answer: &PlaceAnswer) -> String {
    let Some(choice) = &answer.choice else {
        return match answer.refusals.total() {
            0 => "no: the cluster has no nodes".to_owned(),
            all => format!("no: none of {} would take it", nodes(all)),
        };
    };
    let node = answer.name.as_deref().unwrap_or(choice.node.as_str());
    let gpus: Vec<&str> = choice.gpus.iter().map(|gpu| gpu.0.as_str()).collect();
    let best = match answer.candidates {
        0 | 1 => "the only node that would take it".to_owned(),
        some => format!("the best of {} that would take it", nodes(some)),
    };
    format!("yes: on {node}, {}: {best}", gpus.join(", "))
}

fn nodes(count: u32) -> String {
    if count == 1 { "1 node".to_owned() } else { format!("{count} nodes") }
}

#[cfg(test)]
mod tests {
    use berth_model::cluster::{Choice, Refusals};

    use super::*;

    fn answer() -> PlaceAnswer {
        let nodes = samples::nodes();
        let mut refusals = Refusals::default();
        nodes.iter().filter_map(|node| node.why_not.as_ref()).for_each(|why| refusals.add(why));
        let gpus = nodes[0].report.iter().flat_map(|report| &report.gpus).take(1).map(|gpu| gpu.uuid.clone());
        let choice = Some(Choice { node: nodes[0].node.clone(), gpus: gpus.collect() });
        PlaceAnswer { idle: None, choice, name: nodes[0].name.clone(), candidates: 2, refusals, nodes }
    }

    #[test]
    fn the_choice_then_how_many_were_refused_for_what_then_every_node() {
        insta::assert_snapshot!(text(&answer(), None));
    }

    #[test]
    fn without_detail_there_are_counts_alone() {
        let told = text(&PlaceAnswer { nodes: Vec::new(), ..answer() }, None);
        assert!(told.starts_with("yes: on worker-1, GPU-"), "{told}");
        assert!(told.contains("\n4 nodes would not take it:\n") && !told.contains("NODE"), "{told}");
    }

    #[test]
    fn a_placer_that_does_not_act_says_so_beside_its_answer() {
        let idle = Some("n9 places for this swarm".to_owned());
        let told = text(&PlaceAnswer { idle, nodes: Vec::new(), ..answer() }, None);
        assert_eq!(told.lines().nth(1), Some("This placer places nothing: n9 places for this swarm"), "{told}");
    }

    #[test]
    fn a_node_without_another_name_goes_by_its_id() {
        let told = text(&PlaceAnswer { name: None, ..answer() }, None);
        assert!(told.starts_with("yes: on 24ifsmvkjbyhk9xkblj1w4s2u, GPU-"), "{told}");
    }

    #[test]
    fn nobody_takes_it_or_there_is_nobody() {
        let nobody = PlaceAnswer { choice: None, candidates: 0, nodes: Vec::new(), ..answer() };
        assert!(text(&nobody, None).starts_with("no: none of 4 nodes would take it\n"), "{}", text(&nobody, None));
        let empty = PlaceAnswer { refusals: Refusals::default(), ..nobody };
        assert_eq!(text(&empty, None), "no: the cluster has no nodes\n");
    }
}
