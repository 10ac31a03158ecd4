//! `berth policy`: who decides about holds, and letting another decide.

use std::process::ExitCode;

use anyhow::{Result, bail};
use berth_api::{KernelPolicyRequest, PolicyRequest, paths};
use berth_model::control::PolicyView;
use berth_model::kernels::{AutoChoice, GpuPolicy, GpuWindow, KernelLevel};
use berth_model::settings::{KernelPolicyName, PolicyName};
use berth_model::{Settings, Snapshot};
use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use toml::Table;

use crate::asking::ask;
use crate::cli::Global;
use crate::out::Stdout;
use crate::{logging, settings, words};

const EXAMPLES: &str = "\
Examples:
  berth policy show
  berth policy set fifo
  berth policy set fifo --dry-run
  berth policy auto

Exit codes: 0 done; 1 failed, or there is no daemon; 2 wrong command line or settings;
4 not allowed: neither root nor the user of the daemon, or the socket may not be opened.
";

const SHOW_EXAMPLES: &str = "\
Examples:
  berth policy show
  berth policy show --json | jq -r .policy

Also tells the numbers it decides by; the configuration file sets them (`berth config default`).
Where kernels are ordered, that policy too, for all GPUs and for those that have their own; of auto
what it has in place on each, why, and what it measured of each policy.
";

const AUTO_EXAMPLES: &str = "\
Examples:
  berth policy auto
  berth policy auto --gpu 1
  berth policy show                     what it has in place, why, and by which figures
  berth policy set hybrid               no more of it; what it measured is kept until the daemon ends

The same as `berth policy set auto`. Over windows of two seconds of work by several tenants, or longer
until enough requests have ended, it measures what the policy in place brings on that GPU: work that
counts, goals kept, fairness, and how much longer work takes than alone. Goals go first. Another policy
is put in place when it was better by a twentieth for two windows in a row, at most once in three
windows; one of which nothing is known of late is tried for one window in ten at most. Every change is
an event that says why (`berth events`).
";

const SET_EXAMPLES: &str = "\
Examples:
  berth policy set off                  release everybody whom the policy holds
  berth policy set fifo
  berth policy set fifo --dry-run       what it holds is released; it only says what it would do
  berth policy set fifo --dry-run=false
  berth policy set edf
  berth policy set slo                  at the level of kernels; holds stay as they are
  berth policy set off --kernels
  berth policy set auto                 one of jct, slo and hybrid, by what each brings (`berth policy auto`)
  berth policy set jct --gpu 1          on that GPU alone; the next one for all counts there too

off: nobody but persons hold. fifo: tenants that would contend compute one after the other.
edf: they do so in the order of their deadlines, and those without one get what is left.
paper: newcomers are paused at first sight, as published.
At the level of kernels, for tenants that take part there: jct ends jobs as soon as possible on average,
slo keeps what was promised (`berth slo`), hybrid weighs both and fairness, auto chooses one of these for
each GPU by what it measures. Nothing that runs is stopped: the next plan is the new policy's. kernels.policy and kernels.gpu_policies set it for good.

What the policy before it holds is released, what persons hold stays held. Only root and the user of
the daemon may do this. It counts until the daemon is restarted: hold.policy and hold.dry_run set
it for good, and hold.dry_run counts again with the next `set` that does not say --dry-run. A policy
that holds is refused while the daemon's guard is not in place, which would undo its holds if it
died.
";

/// Show who decides about holds, or let another policy decide
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Show(ShowArgs),
    Set(SetArgs),
    Auto(AutoArgs),
}

/// Show which policy decides
#[derive(Debug, clap::Args)]
#[command(after_help = SHOW_EXAMPLES)]
struct ShowArgs {
    /// JSON instead of a word
    #[arg(long)]
    json: bool,
}

/// Let another policy decide
#[derive(Debug, clap::Args)]
#[command(after_help = SET_EXAMPLES)]
struct SetArgs {
    /// Which
    #[arg(value_name = "POLICY", value_parser = policies())]
    policy: Policy,
    /// `off` is meant for the level of kernels, and not for holds
    #[arg(long, conflicts_with = "dry_run")]
    kernels: bool,
    /// Only on this GPU, by index or UUID; at the level of kernels alone
    #[arg(long, value_name = "GPU", conflicts_with = "dry_run")]
    gpu: Option<String>,
    /// Decide and tell, but do nothing [default: hold.dry_run]
    #[arg(long, value_name = "YES", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    dry_run: Option<bool>,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

/// Have the policy inside each GPU chosen by what was measured there
#[derive(Debug, clap::Args)]
#[command(after_help = AUTO_EXAMPLES)]
struct AutoArgs {
    /// Only on this GPU, by index or UUID
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// JSON instead of words
    #[arg(long)]
    json: bool,
}

/// Of one level or the other: only `off` is a word of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Holds(PolicyName),
    Kernels(KernelPolicyName),
}

fn policies() -> impl TypedValueParser<Value = Policy> {
    const HOLDS: [PolicyName; 4] = [PolicyName::Off, PolicyName::Fifo, PolicyName::Edf, PolicyName::Paper];
    const KERNELS: [KernelPolicyName; 4] =
        [KernelPolicyName::Jct, KernelPolicyName::Slo, KernelPolicyName::Hybrid, KernelPolicyName::Auto];
    let words = HOLDS.map(PolicyName::as_str).into_iter().chain(KERNELS.map(KernelPolicyName::as_str));
    let chosen = |word: &str| {
        let kernels = KERNELS.into_iter().find(|policy| policy.as_str() == word).map(Policy::Kernels);
        kernels.or_else(|| HOLDS.into_iter().find(|policy| policy.as_str() == word).map(Policy::Holds))
    };
    let parser = PossibleValuesParser::new(words.collect::<Vec<_>>());
    parser.map(move |word| chosen(&word).unwrap_or(Policy::Holds(PolicyName::Off)))
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let (view, json): (PolicyView, bool) = match &args.command {
        Command::Show(args) => return show(&settings, args.json),
        Command::Auto(AutoArgs { gpu, json }) => {
            return set_kernels(&settings, KernelPolicyName::Auto, gpu.clone(), *json);
        }
        Command::Set(args @ SetArgs { dry_run, json, .. }) => {
            let policy = match args.chosen()? {
                Policy::Kernels(policy) => return set_kernels(&settings, policy, args.gpu.clone(), *json),
                Policy::Holds(policy) => policy,
            };
            let request = PolicyRequest { policy, dry_run: *dry_run };
            let set = ask(&settings, |client| async move { client.post(paths::POLICY, &request).await })??;
            (set, *json)
        }
    };
    if json {
        Stdout::json(&view)?;
    } else {
        let (policy, until) = (words::hold::policy(view.policy, view.dry_run), "until the daemon is restarted");
        Stdout::line(&format!("{policy} decides now, {until}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The JSON of `show`.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    holds: PolicyView,
    /// `None` where kernels are not ordered.
    kernels: Option<KernelPolicies>,
}

#[derive(Debug, Serialize)]
struct KernelPolicies {
    policy: KernelPolicyName,
    gpu_policies: Vec<GpuPolicy>,
    auto: Vec<AutoChoice>,
    windows: Vec<GpuWindow>,
}

fn show(settings: &Settings, json: bool) -> Result<ExitCode> {
    let holds: PolicyView = ask(settings, |client| async move { client.get(paths::POLICY).await })??;
    let snapshot: Snapshot = ask(settings, |client| async move { client.get(paths::SNAPSHOT).await })??;
    if json {
        let kernels = snapshot.kernels.map(|KernelLevel { policy, gpu_policies, auto, windows, .. }| KernelPolicies {
            policy,
            gpu_policies,
            auto,
            windows,
        });
        Stdout::json(&Shown { holds, kernels })?;
    } else {
        let kernels = snapshot.kernels.as_ref().map(words::kernels::policies).unwrap_or_default();
        Stdout::text(&(text(&holds)? + &kernels.iter().map(|line| format!("{line}\n")).collect::<String>()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl SetArgs {
    fn chosen(&self) -> Result<Policy> {
        match (self.policy, self.kernels, self.dry_run) {
            (Policy::Holds(PolicyName::Off), true, _) => Ok(Policy::Kernels(KernelPolicyName::Off)),
            (Policy::Holds(policy), true, _) => bail!("{} is a policy of holds", policy.as_str()),
            (Policy::Holds(PolicyName::Off), false, _) if self.gpu.is_some() => {
                bail!("off on one GPU is of the level of kernels: say --kernels too")
            }
            (Policy::Holds(policy), false, _) if self.gpu.is_some() => {
                bail!("{} is a policy of holds, which is for all GPUs", policy.as_str())
            }
            (Policy::Kernels(policy), _, Some(_)) => {
                bail!("{} is of the level of kernels, where there is no dry run", policy.as_str())
            }
            (policy, ..) => Ok(policy),
        }
    }
}

fn set_kernels(settings: &Settings, policy: KernelPolicyName, gpu: Option<String>, json: bool) -> Result<ExitCode> {
    let request = KernelPolicyRequest { policy, gpu };
    let set: KernelPolicyRequest =
        ask(settings, |client| async move { client.post(paths::KERNEL_POLICY, &request).await })??;
    if json {
        Stdout::json(&set)?;
    } else {
        let (policy, place) = (set.policy.as_str(), set.gpu.map(|gpu| format!(" on GPU {gpu}")).unwrap_or_default());
        let plans = if set.policy == KernelPolicyName::Auto { "chooses who plans" } else { "plans" };
        Stdout::line(&format!("{policy} {plans} at the level of kernels{place} now, until the daemon is restarted"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Who decides, and by which numbers, named and written as in the configuration file.
fn text(view: &PolicyView) -> Result<String> {
    let (fifo, edf) = (("fifo", Table::try_from(&view.fifo)?), ("edf", Table::try_from(&view.edf)?));
    let sections = match view.policy {
        PolicyName::Off => Vec::new(),
        PolicyName::Fifo => vec![fifo],
        PolicyName::Edf => vec![edf, fifo],
        PolicyName::Paper => vec![("paper", Table::try_from(&view.paper)?)],
    };
    let lines = |(section, numbers): (&str, Table)| {
        let line = |(key, value): (&String, &toml::Value)| format!("  {section}.{key} = {value}\n");
        numbers.iter().map(line).collect::<String>()
    };
    Ok(words::hold::policy(view.policy, view.dry_run) + "\n" + &sections.into_iter().map(lines).collect::<String>())
}

#[cfg(test)]
mod tests {
    use berth_model::settings::{EdfSettings, FifoSettings, PaperSettings};

    use super::*;

    #[test]
    fn a_policy_is_shown_with_the_numbers_it_decides_by_and_no_others() {
        let view = |policy, dry_run| {
            let (fifo, edf, paper) = (FifoSettings::default(), EdfSettings::default(), PaperSettings::default());
            text(&PolicyView { policy, dry_run, fifo, edf, paper }).unwrap()
        };
        let fifo = view(PolicyName::Fifo, true);
        assert!(fifo.starts_with("fifo (dry run: it only says what it would do)\n"), "{fifo}");
        assert!(fifo.contains("  fifo.quantum = \"10s\"\n") && fifo.contains("  fifo.light_use = 25\n"), "{fifo}");
        assert!(!fifo.contains("paper."), "{fifo}");
        let edf = view(PolicyName::Edf, false);
        assert!(edf.starts_with("edf\n  edf.rest = 10\n"), "{edf}");
        assert!(edf.contains("  fifo.quantum = \"10s\"\n"), "its turns are those of fifo: {edf}");
        assert_eq!(view(PolicyName::Off, false), "off\n");
    }
}
