//! `berth series`: figures over time, those this user may see, with what they will be and how wrong that was so far.

use std::process::ExitCode;

use anyhow::{Context, Result};
use berth_api::ClientError;
use berth_model::control::Caller;
use berth_model::watch::series::{Bucket, Key, Line, Metric, Of, SeriesQuery, SeriesTold};
use berth_model::watch::{Forecast, Forecaster, Skill};
use berth_model::{Settings, Span, settings as model};
use jiff::{Timestamp, ToSpan as _};

use super::history::since;
use crate::asking::{AskError, ask};
use crate::cli::Global;
use crate::columns::Columns;
use crate::out::{self, Stdout};
use crate::{logging, settings, table};

/// Under the history's directory.
const DIR: &str = "series";
const STEP: Span = Span::from_millis(60_000);
/// More steps without a value begin a figure anew: nothing is known of what was in between.
const LONGEST_GAP: i64 = 30;

const EXAMPLES: &str = "\
Examples:
  berth series                          the last two hours of everything you may see, by the minute
  berth series trainer                  of one tenant, also when it has left
  berth series trainer --metric memory_bytes --since 7d --step 1h
  berth series --json | jq '.lines[] | select(.metric == \"feedback\")'

Figures: core_pct, memory_bytes, unit_seconds, float_seconds, held_share, in_time, slack,
active_seconds, attainment, predictor_error, feedback. NEXT is what the next step will be, ERROR
how far that was off lately, four steps ahead, and PLAIN the same of saying that all stays as it is;
where that was less wrong, NEXT says so. SEASON is after how many steps a figure comes back. Of a
tenant its owner and root are told, of GPUs everybody; \"others\" are tenants that are not told apart
any more. After a day single values become minutes, after two weeks hours. Without a daemon its
files are read, which only its user may.";

/// Show figures over time, and what they will be
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Whom, named as in `berth ps`
    #[arg(value_name = "NAME")]
    tenant: Option<String>,
    /// This figure alone
    #[arg(long, value_name = "FIGURE", value_parser = metric)]
    metric: Option<Metric>,
    /// Nothing older than this long ago (2h, 7d), or than a day or an instant [default: 2h]
    #[arg(long, value_name = "WHEN", value_parser = since)]
    since: Option<Timestamp>,
    /// Values put together to this long each
    #[arg(long, value_name = "SPAN", default_value_t = STEP)]
    step: Span,
    /// JSON instead of a table: every value
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let query = args.query(Timestamp::now())?;
    let told = tell(&settings, &query)?;
    match (args.json, told.lines.is_empty()) {
        (true, _) => Stdout::json(&told)?,
        (false, true) => out::say("nothing is written down that you may see"),
        (false, false) => Stdout::text(&text(&told))?,
    }
    if told.is_cut {
        out::say("there is more: ask for a shorter time (--since) or longer steps (--step)");
    }
    if told.damaged > 0 {
        out::say(&format!("{} records cannot be read and are left out", told.damaged));
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn query(&self, now: Timestamp) -> Result<SeriesQuery> {
        let since = match self.since {
            Some(since) => since,
            None => now.checked_sub(2.hours()).context("two hours ago")?,
        };
        let step_ms = u32::try_from(self.step.get().as_millis()).context("--step is longer than 49 days")?;
        Ok(SeriesQuery {
            whom: self.tenant.clone(),
            metric: self.metric,
            from_ms: Some(since.as_millisecond()),
            until_ms: None,
            step_ms: Some(step_ms),
        })
    }
}

fn tell(settings: &Settings, query: &SeriesQuery) -> Result<SeriesTold> {
    match ask(settings, |client| async move { client.series(query).await })? {
        Err(AskError::NoDaemon(absent)) => from_files_instead(settings, query, &absent),
        told => Ok(told?),
    }
}

fn from_files_instead(settings: &Settings, query: &SeriesQuery, absent: &ClientError) -> Result<SeriesTold> {
    let dir = settings.history.dir.join(DIR);
    out::say(&format!("{absent}; reading {}", dir.display()));
    berth_store::series::read(&dir, query, &|_| true).context("without a daemon only its user may read")
}

/// For a daemon that is asked; `Err` is why it cannot tell.
pub fn from_files(settings: &model::History, caller: &Caller, query: &SeriesQuery) -> Result<SeriesTold, String> {
    if !settings.enabled {
        return Err("it is switched off by the settings (history.enabled)".to_owned());
    }
    let told = berth_store::series::read(&settings.dir.join(DIR), query, &|key| key.is_visible_to(caller));
    told.map_err(|error| berth_engine::describe(&error))
}

fn metric(text: &str) -> Result<Metric, String> {
    let known = Metric::ALL.into_iter().find(|metric| metric.as_str() == text);
    known.ok_or_else(|| format!("write one of {}", Metric::ALL.map(Metric::as_str).join(", ")))
}

fn text(told: &SeriesTold) -> String {
    let headings =
        ["WHOSE", "GPU", "FIGURE", "VALUES", "LAST", "MEAN", "LEAST", "MOST", "NEXT", "ERROR", "PLAIN", "SEASON"];
    let numeric: Vec<bool> = (0..headings.len()).map(|column| column > 2).collect();
    table::render(Columns::new(&headings, &numeric, told.lines.iter().map(row).collect()))
}

fn row(line: &Line) -> Vec<String> {
    let whole = line.values.iter().copied().reduce(|mut sum, value| {
        sum.add(&value);
        sum
    });
    let Key { of, gpu, metric } = &line.key;
    let whose = match of {
        Of::Tenant { name, .. } => name.as_str(),
        Of::Gpu => "GPU",
        Of::Others => "others",
    };
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| figure(*metric, value));
    let (next, skill) = next(&line.values);
    let judged = |error: f64| (skill.judged > 0).then_some(error);
    vec![
        whose.to_owned(),
        gpu.as_ref().map_or_else(|| "-".to_owned(), |uuid| uuid.0.chars().take(12).collect()),
        metric.as_str().to_owned(),
        whole.map_or(0, |whole| whole.count).to_string(),
        shown(line.values.last().and_then(Bucket::mean)),
        shown(whole.and_then(|whole| whole.mean())),
        shown(whole.map(|whole| whole.min)),
        shown(whole.map(|whole| whole.max)),
        shown(next.map(|next| next.value)),
        shown(judged(skill.error)),
        shown(judged(skill.plain_error)),
        next.and_then(|next| next.season).map_or_else(|| "-".to_owned(), |steps| steps.to_string()),
    ]
}

/// What the next step will be; steps without a value are as the one before.
fn next(values: &[Bucket]) -> (Option<Forecast>, Skill) {
    let mut forecaster = Forecaster::default();
    let mut before: Option<(i64, f64)> = None;
    for value in values {
        let (Some(mean), step) = (value.mean(), i64::from(value.width_ms).max(1)) else { continue };
        if let Some((at_ms, last)) = before {
            let gap = (value.at_ms - at_ms) / step - 1;
            if gap > LONGEST_GAP {
                forecaster = Forecaster::default();
            } else {
                (0..gap).for_each(|_| forecaster.observe(last));
            }
        }
        forecaster.observe(mean);
        before = Some((value.at_ms, mean));
    }
    (forecaster.forecast(1), forecaster.skill())
}

fn figure(metric: Metric, value: f64) -> String {
    const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
    match metric {
        Metric::MemoryBytes => format!("{:.2} GiB", value / GIB),
        Metric::CorePct => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use berth_model::watch::series::Owner;
    use berth_model::{GpuUuid, TenantKey};

    use super::*;

    fn minute(minute: i64, value: f64) -> Bucket {
        Bucket { width_ms: 60_000, ..Bucket::point(minute * 60_000, value) }
    }

    #[test]
    fn figures_with_what_they_will_be_as_a_table() {
        let of = Of::tenant(TenantKey::User { uid: 7 }, "trainer", Owner::new(None, vec![Some(7)]));
        let gpu = Some(GpuUuid("GPU-8f2c0f6e-9c1d-4f6b".into()));
        let wave = |at: i64| [10.0, 40.0, 80.0, 90.0, 60.0, 20.0][usize::try_from(at % 6).unwrap()];
        let core = Line {
            key: Key { of: of.clone(), gpu: gpu.clone(), metric: Metric::CorePct },
            values: (0..96).map(|at| minute(at, wave(at))).collect(),
        };
        let memory = Line {
            key: Key { of, gpu: gpu.clone(), metric: Metric::MemoryBytes },
            values: vec![minute(0, 8.0 * 1024.0 * 1024.0 * 1024.0)],
        };
        let of_gpu = Line { key: Key { of: Of::Gpu, gpu, metric: Metric::CorePct }, values: vec![minute(0, 90.0)] };
        insta::assert_snapshot!(text(&SeriesTold { lines: vec![core, memory, of_gpu], is_cut: false, damaged: 0 }));
    }

    #[test]
    fn a_step_without_a_value_is_as_the_one_before_and_a_long_gap_begins_anew() {
        let short: Vec<Bucket> = [0, 1, 2, 6, 7].map(|at| minute(at, 5.0)).into();
        assert_eq!(next(&short).1.judged, 4);
        let long: Vec<Bucket> = [0, 1, 2, 3, 4, 5, 500].map(|at| minute(at, 5.0)).into();
        assert_eq!(next(&long).1.judged, 0);
    }

    #[test]
    fn a_figure_that_is_none_is_refused_with_those_there_are() {
        assert_eq!(metric("core_pct"), Ok(Metric::CorePct));
        assert!(metric("moods").unwrap_err().contains("held_share"));
    }
}
