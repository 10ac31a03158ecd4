//! `berth cluster sim`: the rules of placement on a cluster in virtual time.

mod costs;

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use berth_model::cluster::Order;
use berth_model::time::Span;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;

use crate::cluster_sim::{self, Outcome, Progress, Rule, Setup, Way};
use crate::interrupt::Interrupt;
use crate::out::{Stdout, say};
use costs::Costs;

const EXAMPLES: &str = "\
Examples:
  berth cluster sim --nodes 1000
  berth cluster sim --nodes 50 --load 95 --strategy paper
  berth cluster sim --nodes 50 --failures 10 --report-loss 20
  berth cluster sim --nodes 10000 --lasts 60s --json | jq .utilisation
  berth cluster sim --nodes 50 --costs                  what reports cost at a hundred to a hundred thousand nodes

Everything happens in virtual time: containers come at random, nodes report what they have, and the
placer's own list of nodes says where each goes. The same command gives the same figures.
Ctrl-C ends it and prints what there is by then.";

/// What is told while it runs: so many times in all.
const TOLD: f64 = 10.0;

/// Run the rules of placement on simulated nodes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Nodes of the cluster
    #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    nodes: u32,
    /// GPUs of each node
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    gpus: u32,
    /// GPU seconds that come in a hundred, over all GPUs
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    load: u32,
    /// Who places
    #[arg(long, value_name = "NAME", default_value = "fit", value_parser = ways())]
    strategy: Way,
    /// Of places that would do, the emptiest or the fullest
    #[arg(long, value_name = "ORDER", default_value = "spread", value_parser = orders())]
    order: Order,
    /// How each GPU is shared; `off`: by all at once, as without berth
    #[arg(long, value_name = "NAME", default_value = "edf", value_parser = rules())]
    policy: Rule,
    /// What is drawn at random
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// For how long containers come
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    lasts: Span,
    #[command(flatten)]
    faults: Faults,
    /// Also measure what reports cost here, and what that makes of a hundred to a hundred thousand nodes
    #[arg(long)]
    costs: bool,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

/// As JSON.
#[derive(Debug, Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    costs: Option<&'a Costs>,
}

/// What nodes and the network do to reports.
#[derive(Debug, clap::Args)]
pub struct Faults {
    /// Between two reports of a node
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = at_least_a_millisecond)]
    report_every: Span,
    /// Of the reports that are made, how many are lost
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    report_loss: u8,
    /// A node whose last report is older than this gets nothing
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    stale_after: Span,
    /// Nodes that are lost for a minute, one after another
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    failures: u32,
}

impl Faults {
    /// Everything else as it is by itself.
    pub fn setup(&self) -> Setup {
        Setup {
            report_every: self.report_every.get(),
            report_loss: f64::from(self.report_loss) / 100.0,
            stale_after: self.stale_after.get(),
            failures: self.failures as usize,
            ..Setup::default()
        }
    }
}

fn at_least_a_millisecond(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: berth_model::time::InvalidSpan| error.to_string())?;
    if span.get() < Duration::from_millis(1) { Err("it must be at least 1ms".to_owned()) } else { Ok(span) }
}

fn ways() -> impl TypedValueParser<Value = Way> {
    let named = |name: String| Way::ALL.into_iter().find(|way| way.as_str() == name).unwrap_or(Way::Fit);
    PossibleValuesParser::new(Way::ALL.map(Way::as_str)).map(named)
}

fn orders() -> impl TypedValueParser<Value = Order> {
    PossibleValuesParser::new(["spread", "pack"]).map(|name| if name == "pack" { Order::Pack } else { Order::Spread })
}

fn rules() -> impl TypedValueParser<Value = Rule> {
    PossibleValuesParser::new(["edf", "fifo", "off"]).map(|name| match name.as_str() {
        "fifo" => Rule::Fifo,
        "off" => Rule::Share,
        _ => Rule::Edf,
    })
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let setup = Setup {
        way: args.strategy,
        order: args.order,
        nodes: args.nodes as usize,
        gpus_each: args.gpus as usize,
        rule: args.policy,
        load: f64::from(args.load) / 100.0,
        seed: args.seed,
        lasts: args.lasts.get(),
        ..args.faults.setup()
    };
    let interrupt = Interrupt::listen()?;
    let mut said = 0.0;
    let outcome = cluster_sim::run(&setup, &mut |progress| {
        if progress.seconds >= said + progress.of_seconds / TOLD {
            said = progress.seconds;
            say(&line(progress));
        }
        if interrupt.noted().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    let costs = if args.costs { Some(Costs::measure(&outcome)?) } else { None };
    if args.json {
        Stdout::json(&Told { outcome: &outcome, costs: costs.as_ref() })?;
    } else {
        Stdout::text(&text(&setup, &outcome))?;
        costs.iter().try_for_each(|costs| Stdout::text(&format!("\n{}", costs.to_text())))?;
    }
    interrupt.check()?;
    Ok(ExitCode::SUCCESS)
}

/// `120 s of 600 s: 843 containers came, 4 wait for a place; 12 of 2041 deadlines missed`. After that nobody comes any more, and those that
/// are there are waited for.
fn line(progress: &Progress) -> String {
    let Progress { seconds, of_seconds, containers, waiting, deadlines } = progress;
    let when = match seconds > of_seconds {
        true => format!("{:.0} s after the {of_seconds:.0} s", seconds - of_seconds),
        false => format!("{seconds:.0} s of {of_seconds:.0} s"),
    };
    format!(
        "{when}: {containers} containers came, {waiting} wait for a place; {} of {} deadlines missed",
        deadlines.missed, deadlines.deadlines
    )
}

fn text(setup: &Setup, outcome: &Outcome) -> String {
    let pct = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", share * 100.0));
    let of = |missed: cluster_sim::Missed| {
        format!("{} of {} missed, {}", missed.missed, missed.deadlines, pct(missed.rate()))
    };
    let Outcome { nodes, gpus, seconds, traffic, .. } = outcome;
    let waited = outcome.waited_seconds.map_or_else(String::new, |seconds| format!(", {seconds:.1} s on average"));
    let cut = if outcome.is_complete { "" } else { ", cut short" };
    let stay =
        outcome.stay_over_alone.map_or_else(|| "-".to_owned(), |stay| format!("{stay:.1} times as long as alone"));
    let per_second = |count: u64| count as f64 / seconds.max(1e-9) / *nodes as f64;
    let mut facts = vec![
        ("cluster", format!("{nodes} nodes, {gpus} GPUs, load {:.0} %, {seconds:.0} s{cut}", setup.load * 100.0)),
        ("placed by", outcome.way.as_str().to_owned()),
        ("containers", outcome.containers.to_string()),
        ("deadlines", of(outcome.all())),
        ("  tasks", of(outcome.tasks)),
        ("  bursts", of(outcome.bursts)),
        ("  alone", format!("{} of them would be missed even alone on a GPU", outcome.all().lost)),
        ("no deadline", stay),
        ("GPUs used", pct(outcome.utilisation)),
        ("waited", format!("{} found no place at once{waited}", outcome.waited)),
        (
            "reports",
            format!(
                "{:.2} a second of a node, {:.2} with news; {:.2} changes",
                per_second(traffic.reports),
                per_second(traffic.changed),
                per_second(traffic.changes)
            ),
        ),
    ];
    facts.extend(failed(outcome).map(|failed| ("failed", failed)));
    facts.into_iter().map(|(what, value)| format!("{what:<12}  {value}\n")).collect()
}

/// What should not have been; `None` where nothing was.
fn failed(outcome: &Outcome) -> Option<String> {
    let counts = [
        (outcome.never_placed, "never placed"),
        (outcome.displaced, "on a node that was lost"),
        (outcome.placed_on_lost, "placed on a node that was lost already"),
        (outcome.placed_on_stale, "placed on a node whose report was too old"),
    ];
    let told: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_it_in_words() {
        let setup = Setup { nodes: 4, lasts: Duration::from_secs(60), failures: 1, ..Setup::default() };
        let outcome = cluster_sim::run(&setup, &mut |_| ControlFlow::Continue(()));
        let mut outcome = Outcome { seconds: 84.0, ..outcome };
        outcome.tasks = cluster_sim::Missed { deadlines: 200, missed: 3, lost: 1 };
        outcome.bursts = cluster_sim::Missed { deadlines: 1_000, missed: 9, lost: 0 };
        (outcome.containers, outcome.waited, outcome.waited_seconds) = (240, 7, Some(1.5));
        (outcome.stay_over_alone, outcome.utilisation) = (Some(1.7), Some(0.7812));
        (outcome.displaced, outcome.placed_on_lost, outcome.never_placed) = (5, 1, 0);
        (outcome.traffic.reports, outcome.traffic.changed, outcome.traffic.changes) = (336, 200, 500);
        insta::assert_snapshot!(text(&setup, &outcome));
    }

    #[test]
    fn how_far_it_is_in_one_line() {
        let deadlines = cluster_sim::Missed { deadlines: 2_041, missed: 12, lost: 0 };
        let progress = Progress { seconds: 120.0, of_seconds: 600.0, containers: 843, waiting: 4, deadlines };
        assert_eq!(
            line(&progress),
            "120 s of 600 s: 843 containers came, 4 wait for a place; 12 of 2041 deadlines missed"
        );
        let later = Progress { seconds: 840.0, ..progress };
        assert!(line(&later).starts_with("240 s after the 600 s: 843 containers came"), "{}", line(&later));
    }
}
