//! `berth nodes`: the nodes of the cluster, best first, each with why it would take a container or not.

pub mod table;

use std::process::ExitCode;

use anyhow::Result;
use berth_model::cluster::api::{Nodes, PlaceRequest, Waiting};
use berth_model::{Settings, Span};
use jiff::Timestamp;

use super::place::Question;
use crate::asking::ask_placer;
use crate::cli::Global;
use crate::columns::printable;
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use crate::words::deadline::brief;
use crate::{live, logging, settings};

const EXAMPLES: &str = "\
Examples:
  berth nodes                                    every node, the best for any container first
  berth nodes --deadline 9s --image solver:3     the best for one with this deadline
  berth nodes --memory 20GiB --watch
  berth nodes --json | jq '.nodes[] | select(.why_not == null) | .node'

FREE is the most that is free on one of its GPUs. DEADLINES and OTHERS are tenants with and
without one. COMING is what was placed there and has not been seen there yet. AGE is that of its
last report. What goes by the engine's constraints `berth place --explain` tells.

Exit codes: 0 done; 1 failed, or no placer answers; 2 wrong command line or settings;
4 not allowed: the socket may not be opened.";

const HOME_AND_CLEAR: &str = "\u{1b}[H\u{1b}[2J";
/// Of those that wait, so many are told of in words.
const MOST_WAITING: usize = 20;

/// Show the nodes of the cluster, and why each would take a container or not
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    question: Question,
    /// Show it again and again [default interval: 1s, at least 100ms]
    #[arg(long, value_name = "INTERVAL", num_args = 0..=1, default_missing_value = "1s", value_parser = live::interval)]
    watch: Option<Span>,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let question = args.question.request();
    match args.watch {
        Some(interval) => watch(args, &settings, &question, interval)?,
        None => show(args, &nodes(&settings, &question)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn nodes(settings: &Settings, question: &PlaceRequest) -> Result<Nodes> {
    Ok(ask_placer(settings, |client| async move { client.nodes(question).await })??)
}

/// Until somebody ends it. A placer that goes away is waited for.
fn watch(args: &Args, settings: &Settings, question: &PlaceRequest, interval: Span) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    loop {
        let told = nodes(settings, question);
        if Stdout::is_terminal() && !args.json {
            Stdout::text(HOME_AND_CLEAR)?;
        }
        match told {
            Ok(told) => show(args, &told)?,
            Err(error) => say(&format!("{error:#}; trying again")),
        }
        if interrupt.sleep(interval.get()).is_err() {
            return Ok(());
        }
    }
}

fn show(args: &Args, told: &Nodes) -> Result<()> {
    match args.json {
        true if args.watch.is_some() => Stdout::line(&serde_json::to_string(told)?),
        true => Stdout::json(told),
        false => Stdout::text(&text(told, Stdout::width(), Timestamp::now())),
    }
}

/// The table, a line that sums it up, who waits, and why nothing is placed where that is so.
fn text(told: &Nodes, width: Option<usize>, now: Timestamp) -> String {
    let takers = told.nodes.iter().filter(|node| node.why_not.is_none()).count();
    let (engine, strategy) = (&told.engine, told.strategy.as_str());
    let summary = match told.nodes.len() {
        0 => format!("{engine} has told of no nodes\n"),
        all => {
            let table = crate::table::render(table::columns(&told.nodes, width));
            format!("{table}\n{takers} of {all} nodes of {engine} would take it (strategy {strategy})\n")
        }
    };
    let idle = told.idle.as_ref().map(|idle| format!("This placer places nothing: {}\n", printable(idle)));
    summary + &waiting(&told.waiting, now) + &idle.unwrap_or_default()
}

/// Who is to run and has no place, for how long by now, and why; empty where nobody is.
fn waiting(waiting: &[Waiting], now: Timestamp) -> String {
    let head = match waiting.len() {
        0 => return String::new(),
        1 => "\n1 service waits:\n".to_owned(),
        all => format!("\n{all} services wait:\n"),
    };
    let line = |Waiting { name, since, why }: &Waiting| {
        let since = since.map(|since| format!(" for {}", brief(now.duration_since(since).as_secs_f64().max(0.0))));
        format!("  {}{}: {}\n", printable(name), since.unwrap_or_default(), printable(why))
    };
    let more = waiting.len().saturating_sub(MOST_WAITING);
    let rest = (more > 0).then(|| format!("  and {more} more, which --json tells\n"));
    head + &waiting.iter().take(MOST_WAITING).map(line).collect::<String>() + &rest.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use berth_model::cluster::Strategy;

    use super::*;
    use crate::commands::place::samples;

    #[test]
    fn the_best_first_then_why_not() {
        let told = Nodes {
            engine: "swarm".into(),
            strategy: Strategy::Fit,
            idle: None,
            nodes: samples::nodes(),
            waiting: Vec::new(),
        };
        insta::assert_snapshot!(text(&told, None, Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn who_waits_is_told_with_since_when_and_why() {
        let why = "nobody takes it: drained, stale".to_owned();
        let one = Waiting { name: "solver".into(), since: Some(Timestamp::UNIX_EPOCH), why };
        let now = Timestamp::from_second(125).unwrap();
        let told = waiting(std::slice::from_ref(&one), now);
        let expected = format!("\n1 service waits:\n  solver for {}: nobody takes it: drained, stale\n", brief(125.0));
        assert_eq!(told, expected);
        let unknown = Waiting { since: None, ..one };
        let many = waiting(&vec![unknown; MOST_WAITING + 3], now);
        assert!(many.starts_with("\n23 services wait:\n  solver: nobody takes it"), "{many}");
        assert!(many.ends_with("\n  and 3 more, which --json tells\n"), "{many}");
        assert_eq!(waiting(&[], now), "");
    }

    #[test]
    fn without_nodes_it_says_so_and_why_nothing_is_placed() {
        let told = Nodes {
            engine: "swarm".into(),
            strategy: Strategy::Fit,
            idle: None,
            nodes: Vec::new(),
            waiting: Vec::new(),
        };
        assert_eq!(text(&told, None, Timestamp::UNIX_EPOCH), "swarm has told of no nodes\n");
        let idle = Nodes { idle: Some("it has not read the swarm yet".into()), ..told };
        let expected = "swarm has told of no nodes\nThis placer places nothing: it has not read the swarm yet\n";
        assert_eq!(text(&idle, None, Timestamp::UNIX_EPOCH), expected);
    }
}
