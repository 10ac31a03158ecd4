//! Where the time of one run went, from what the tenants wrote themselves.
//!
//! Seen from the GPU, each instant once: before the first kernel, with a kernel under way, between kernels with none, after the
//! last. A kernel is under way from the return of its launch until the wait for it returns. What the kernels themselves
//! would have taken one after another is not known from one run; whoever knows takes it away from the busy time.

use std::path::Path;

use anyhow::Context as _;
use berth_load::{Edge, Event, Line, Moment, Phase};
use serde::Serialize;

use super::sprinter::Ran;

const NS: f64 = 1e9;

/// Adds up to the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Timeline {
    /// From the word to the first kernel.
    pub start_s: f64,
    /// At least one kernel was under way.
    pub busy_s: f64,
    /// Between two kernels there was none.
    pub gaps_s: f64,
    pub longest_gap_s: f64,
    /// From the end of the last kernel to the end of the last tenant.
    pub end_s: f64,
    /// Mean over the tenants.
    pub kernel_s: f64,
    pub shortest_kernel_s: f64,
}

/// A kernel, from the return of its launch to the end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Timeline {
    /// `None` without kernels.
    pub fn of(began_ns: u64, ended_ns: u64, mut kernels: Vec<Kernel>) -> Option<Timeline> {
        kernels.sort_unstable();
        let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / NS;
        let first = kernels.first()?;
        let (mut busy_s, mut longest_gap_s, mut until) = (0.0, 0.0_f64, first.from_ns);
        for kernel in &kernels {
            longest_gap_s = longest_gap_s.max(seconds(until, kernel.from_ns));
            busy_s += seconds(kernel.from_ns.max(until), kernel.to_ns);
            until = until.max(kernel.to_ns);
        }
        let lengths = kernels.iter().map(|kernel| seconds(kernel.from_ns, kernel.to_ns));
        Some(Timeline {
            start_s: seconds(began_ns, first.from_ns),
            busy_s,
            gaps_s: (seconds(first.from_ns, until) - busy_s).max(0.0),
            longest_gap_s,
            end_s: seconds(until, ended_ns),
            kernel_s: lengths.clone().sum::<f64>() / kernels.len() as f64,
            shortest_kernel_s: lengths.fold(f64::INFINITY, f64::min),
        })
    }
}

/// The kernel of one run, from the file with the lines of all runs of a tenant.
pub fn kernel_of(lines: &Path, ran: &Ran) -> anyhow::Result<Option<Kernel>> {
    let text = std::fs::read_to_string(lines).with_context(|| format!("reading {}", lines.display()))?;
    parse(&text, ran)
}

fn parse(text: &str, ran: &Ran) -> anyhow::Result<Option<Kernel>> {
    let (mut from_ns, mut to_ns) = (None, None);
    for text in text.lines() {
        let line: Line = serde_json::from_str(text).with_context(|| format!("a line of the workload: {text}"))?;
        if !(ran.started_ns..=ran.ended_ns).contains(&line.at.mono_ns) {
            continue;
        }
        match line.event {
            Event::Moment { moment: Moment::FirstLaunch, edge: Edge::End, .. } => from_ns = Some(line.at.mono_ns),
            Event::Phase { phase: Phase::Kernel, edge: Edge::End, .. } => to_ns = Some(line.at.mono_ns),
            _ => {}
        }
    }
    Ok(from_ns.zip(to_ns).map(|(from_ns, to_ns)| Kernel { from_ns, to_ns }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernels(spans: &[(u64, u64)]) -> Vec<Kernel> {
        let ns = |seconds: u64| seconds * 1_000_000_000;
        spans.iter().map(|(from, to)| Kernel { from_ns: ns(*from), to_ns: ns(*to) }).collect()
    }

    #[test]
    fn every_instant_is_counted_once() {
        // In the order tenants are asked, which is not that of time; two overlap.
        let timeline =
            Timeline::of(0, 20_000_000_000, kernels(&[(14, 16), (2, 6), (4, 8), (9, 10), (15, 16)])).unwrap();
        assert_eq!((timeline.start_s, timeline.busy_s, timeline.gaps_s, timeline.end_s), (2.0, 9.0, 5.0, 4.0));
        assert_eq!((timeline.longest_gap_s, timeline.kernel_s, timeline.shortest_kernel_s), (4.0, 2.4, 1.0));
        assert_eq!(Timeline::of(0, 1, Vec::new()), None);
    }

    #[test]
    fn a_kernel_is_that_of_its_run_only() {
        let line = |at: u64, event: &str| format!(r#"{{"mono_ns":{at},"wall_ns":0,"pid":1,"task":0,{event}}}"#);
        let launch = r#""event":"moment","moment":"first_launch","edge":"end""#;
        let done = r#""event":"phase","phase":"kernel","edge":"end","repeat":0"#;
        let text = [line(5, launch), line(9, done), line(15, launch), line(19, done)].join("\n");
        let ran = |started_ns, ended_ns| Ran { run: 0, started_ns, ended_ns, code: Some(0) };
        assert_eq!(parse(&text, &ran(10, 20)).unwrap(), Some(Kernel { from_ns: 15, to_ns: 19 }));
        assert_eq!(parse(&text, &ran(10, 18)).unwrap(), None);
        assert!(parse("{\"half", &ran(0, 1)).is_err());
    }
}
