//! `berth admit`: whether one more deadline would be met. It is only told: nobody is started or turned away.

use std::process::ExitCode;

use anyhow::Result;
use berth_model::control::{Admission, Candidate, DueWork, Fits, GpuAdmission};
use berth_model::deadline::Unit;
use berth_model::settings::PolicyName;
use berth_model::{Deadline, GpuIndex};
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::asking::ask;
use crate::cli::Global;
use crate::columns::printable;
use crate::out::Stdout;
use crate::words::deadline::brief;
use crate::{logging, settings, words};

const EXAMPLES: &str = "\
Examples:
  berth admit --deadline 9s --image pytorch:2
  berth admit --deadline 9s --takes 3s --gpu 0
  berth admit --deadline 2s --unit burst --image server:1 --owner ada --json | jq .fits
  berth admit --deadline 9s --image pytorch:2 && docker run -dl 9 pytorch:2

How long it takes is known from tasks of the same image (or command, or owner) before, or told with
--takes. With everybody in the order of earliest deadlines first (policy `edf`), what is due by each
instant must fit into the time until then:
  yes      even if everybody takes as long as nine in ten do
  no       not even if everybody takes no longer than usual
  unknown  it depends on that, or of somebody it is not known how long it takes
Memory is not looked at.

Exit codes: 0 yes; 6 no; 7 unknown; 1 failed, or there is no daemon; 2 wrong command line or settings;
4 not allowed: the socket may not be opened.
";

const NO: u8 = 6;
const UNKNOWN: u8 = 7;

/// Say whether one more deadline would be met
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// How long it may take: seconds, or with a unit (1500ms, 9s, 2m)
    #[arg(long, value_name = "DEADLINE", allow_negative_numbers = true)]
    deadline: Deadline,
    /// Its image, as in `berth history`
    #[arg(long, value_name = "IMAGE", required_unless_present_any = ["command", "takes"])]
    image: Option<String>,
    /// Its command with arguments, as in `berth ps --json`
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// Its owner: whose tasks tell how long it takes, and whose bounds apply
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// GPU time it takes by itself, instead of what the history says
    #[arg(long, value_name = "DURATION", allow_negative_numbers = true)]
    takes: Option<Deadline>,
    /// On this GPU only
    #[arg(long, value_name = "N")]
    gpu: Option<u32>,
    /// What the deadline is for: one task, or each burst of a server
    #[arg(long, value_name = "UNIT", default_value = "task", value_parser = units())]
    unit: Unit,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

pub fn units() -> impl TypedValueParser<Value = Unit> {
    PossibleValuesParser::new([Unit::Task, Unit::Burst].map(Unit::as_str))
        .map(|word| if word == Unit::Burst.as_str() { Unit::Burst } else { Unit::Task })
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let candidate = Candidate {
        deadline: args.deadline,
        unit: args.unit,
        image: args.image.clone(),
        command: args.command.clone(),
        owner: args.owner.clone(),
        takes: args.takes,
        gpu: args.gpu.map(GpuIndex),
    };
    let admission = ask(&settings, |client| async move { client.admit(&candidate).await })??;
    if args.json {
        Stdout::json(&admission)?;
    } else {
        Stdout::text(&text(&admission, args.takes))?;
    }
    Ok(match admission.fits {
        Fits::Yes => ExitCode::SUCCESS,
        Fits::No => ExitCode::from(NO),
        Fits::Unknown => ExitCode::from(UNKNOWN),
    })
}

/// `said`: how long it takes, if the history was not asked.
fn text(told: &Admission, said: Option<Deadline>) -> String {
    let mut lines = vec![format!("{}: {}", told.fits.as_str(), verdict(told)), String::new()];
    lines.extend(facts(told, said).into_iter().map(|(what, value)| format!("  {what:<10}  {value}")));
    for gpu in &told.gpus {
        lines.extend([String::new(), format!("GPU {}: {}", gpu.gpu, gpu.fits.as_str())]);
        lines.extend(
            gpu_facts(gpu, told.takes.is_some()).into_iter().map(|(what, value)| format!("  {what:<10}  {value}")),
        );
    }
    lines.into_iter().map(|line| printable(&line) + "\n").collect()
}

fn verdict(told: &Admission) -> String {
    let what = format!("a deadline of {}", told.deadline);
    match (told.fits, told.gpu) {
        (Fits::Yes, Some(gpu)) => format!("{what} would be met on GPU {gpu}"),
        (Fits::No, _) => format!("{what} would not be met, or another's would not"),
        (_, None) => "there is no GPU".to_owned(),
        (_, Some(_)) if told.takes.is_none() => "how long it takes is not known (--takes tells it)".to_owned(),
        (_, Some(gpu)) => match told.gpus.iter().find(|one| one.gpu == gpu) {
            Some(gpu) if !gpu.unknown.is_empty() => {
                format!("of some on GPU {} it is not known how long they take", gpu.gpu)
            }
            Some(gpu) if gpu.is_unreckoned => {
                format!("on GPU {} too many units come too close together to reckon them through", gpu.gpu)
            }
            _ => format!("{what} would usually be met, but not if all take as long as nine in ten do"),
        },
    }
}

fn facts(told: &Admission, said: Option<Deadline>) -> Vec<(&'static str, String)> {
    let asked = told.asked.map(|asked| ("deadline", format!("{} counts: {asked} is not allowed", told.deadline)));
    let takes = match (said, &told.takes) {
        (Some(said), _) => format!("{said}, as --takes says"),
        (None, Some(takes)) => words::deadline::spread(takes, told.unit),
        (None, None) => "not known".to_owned(),
    };
    let run = told.run.filter(|_| said.is_none()).map(|run| {
        let (usual, most) = (brief(run.median_seconds), brief(run.p90_seconds));
        ("runs", format!("{usual} by itself, nine in ten up to {most}"))
    });
    let spare = told.spare_seconds.map(|spare| match spare {
        spare if spare < 0.0 => ("spare", format!("none: alone it would be {} late", brief(-spare))),
        spare => ("spare", format!("{} of its deadline, if nobody is beside it", brief(spare))),
    });
    let policy = match told.policy {
        Some(PolicyName::Edf) => None,
        Some(policy) => {
            Some(("policy", format!("{}, which does not keep to that order: `edf` would", policy.as_str())))
        }
        None => Some(("policy", "nobody is held here, so nobody keeps to that order".to_owned())),
    };
    [asked, Some(("takes", takes)), run, spare, policy].into_iter().flatten().collect()
}

/// `is_known`: how long the candidate takes.
fn gpu_facts(gpu: &GpuAdmission, is_known: bool) -> Vec<(&'static str, String)> {
    let rest = match gpu.share {
        share if share < 1.0 => format!(" ({:.0} % of it; the rest is for those without a deadline)", share * 100.0),
        _ => String::new(),
    };
    let list = |names: &[String]| (!names.is_empty()).then(|| names.join(", "));
    let before: Vec<String> = gpu.before.iter().map(due).collect();
    let facts = [
        ("room", Some(format!("{} until it is due{rest}", brief(gpu.room_seconds)))),
        ("due", (is_known || gpu.most_seconds > 0.0).then(|| demand(gpu, is_known))),
        ("before it", list(&before)),
        ("endangered", list(&gpu.endangered)),
        ("not known", list(&gpu.unknown)),
    ];
    facts.into_iter().filter_map(|(what, value)| Some((what, value?))).collect()
}

/// `3.1s until then with it, up to 4.5s`. What is not known is in none of the numbers.
fn demand(gpu: &GpuAdmission, is_known: bool) -> String {
    let with = if is_known { "with it" } else { "without it" };
    let more = if gpu.unknown.is_empty() { "" } else { ", and what is not known" };
    format!("{} until then {with}, up to {}{more}", brief(gpu.usual_seconds), brief(gpu.most_seconds))
}

/// `trainer (in 4.2s, up to 2.0s left)`.
fn due(work: &DueWork) -> String {
    let when = match work.due_in_seconds {
        due if due < 0.0 => format!("{} ago", brief(-due)),
        due if work.unit == Unit::Burst => format!("a burst in {}", brief(due)),
        due => format!("in {}", brief(due)),
    };
    let left = work
        .left_seconds
        .map_or_else(|| "not known how much is left".to_owned(), |left| format!("up to {} left", brief(left)));
    format!("{} ({when}, {left})", work.name)
}

#[cfg(test)]
mod tests {
    use berth_model::deadline::Spread;

    use super::*;

    fn told(fits: Fits) -> Admission {
        let takes = Spread { units: 14, median_seconds: 4.1, p90_seconds: 5.6, most_seconds: 8.3 };
        let before = [
            DueWork { name: "early".into(), unit: Unit::Task, due_in_seconds: 4.2, left_seconds: Some(2.0) },
            DueWork { name: "late".into(), unit: Unit::Task, due_in_seconds: -1.0, left_seconds: None },
            DueWork { name: "server".into(), unit: Unit::Burst, due_in_seconds: 2.0, left_seconds: Some(0.5) },
        ];
        let gpu = GpuAdmission {
            gpu: GpuIndex(0),
            fits,
            share: 0.9,
            room_seconds: 8.1,
            usual_seconds: 7.4,
            most_seconds: 9.6,
            before: before.to_vec(),
            endangered: vec!["server".into(), "later".into()],
            unknown: vec!["late".into()],
            is_unreckoned: false,
        };
        Admission {
            fits,
            policy: Some(PolicyName::Fifo),
            gpu: Some(gpu.gpu),
            deadline: "9s".parse().unwrap(),
            asked: Some("1s".parse().unwrap()),
            unit: Unit::Task,
            takes: Some(takes),
            run: Some(Spread { median_seconds: 5.0, p90_seconds: 6.5, ..takes }),
            spare_seconds: Some(2.5),
            gpus: vec![gpu],
        }
    }

    #[test]
    fn the_answer_comes_with_its_numbers() {
        insta::assert_snapshot!(text(&told(Fits::Unknown), None));
        let said = text(&told(Fits::Unknown), Some("3s".parse().unwrap()));
        assert!(said.contains("  takes       3s, as --takes says\n") && !said.contains("  runs "), "{said}");
    }

    #[test]
    fn what_is_not_known_is_in_no_number() {
        let mut unknown = Admission { takes: None, run: None, spare_seconds: None, ..told(Fits::Unknown) };
        unknown.gpus[0].unknown.clear();
        let said = text(&unknown, None);
        assert!(said.contains("  due         7.4s until then without it, up to 9.6s\n"), "{said}");
        (unknown.gpus[0].usual_seconds, unknown.gpus[0].most_seconds) = (0.0, 0.0);
        assert!(!text(&unknown, None).contains("  due "), "{}", text(&unknown, None));
    }

    #[test]
    fn the_first_line_says_why() {
        let first = |told: &Admission| text(told, None).lines().next().unwrap_or_default().to_owned();
        assert_eq!(first(&told(Fits::Yes)), "yes: a deadline of 9s would be met on GPU 0");
        assert_eq!(first(&told(Fits::No)), "no: a deadline of 9s would not be met, or another's would not");
        let unknown = Admission { takes: None, ..told(Fits::Unknown) };
        assert_eq!(first(&unknown), "unknown: how long it takes is not known (--takes tells it)");
        let mut close = told(Fits::Unknown);
        close.gpus[0].unknown.clear();
        assert!(first(&close).contains("usually be met"), "{}", first(&close));
        close.gpus[0].is_unreckoned = true;
        assert!(first(&close).contains("to reckon them through"), "{}", first(&close));
        let nowhere = Admission { gpu: None, gpus: vec![], ..told(Fits::Unknown) };
        assert_eq!(first(&nowhere), "unknown: there is no GPU");
    }
}
