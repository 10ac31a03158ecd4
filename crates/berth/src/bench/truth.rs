//! What really happened, by the workload's own clock and its parent's.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use berth_load::{Edge, Event, Line};
use berth_model::Moment;

use super::tenant::{Exited, exits_beside};

/// One stay of a tenant on the GPU. Nanoseconds on the host's monotonic clock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stay {
    pub moments: BTreeMap<Moment, u64>,
    pub end: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The context was destroyed; the process lived on.
    Destroyed { at: u64 },
    /// The process ended with its context; by its parent's clock.
    Exited { at: u64 },
}

impl End {
    pub fn at(self) -> u64 {
        match self {
            End::Destroyed { at } | End::Exited { at } => at,
        }
    }
}

/// The stays of one tenant, from its files.
pub fn read(lines: &Path) -> anyhow::Result<Vec<Stay>> {
    let workload = std::fs::read_to_string(lines).with_context(|| format!("reading {}", lines.display()))?;
    let exits = exits_beside(lines);
    let parent = std::fs::read_to_string(&exits).with_context(|| format!("reading {}", exits.display()))?;
    parse(&workload, &parent)
}

fn parse(workload: &str, parent: &str) -> anyhow::Result<Vec<Stay>> {
    let mut stays: BTreeMap<(u32, u32), Stay> = BTreeMap::new();
    for text in workload.lines() {
        let line: Line = serde_json::from_str(text).with_context(|| format!("a line of the workload: {text}"))?;
        note(stays.entry((line.pid, line.task)).or_default(), &line);
    }
    for text in parent.lines() {
        let exited: Exited = serde_json::from_str(text).with_context(|| format!("a line of the parent: {text}"))?;
        let last = stays.range_mut((exited.pid, 0)..=(exited.pid, u32::MAX)).next_back();
        if let Some((_, stay)) = last {
            stay.end.get_or_insert(End::Exited { at: exited.mono_ns });
        }
    }
    let mut stays: Vec<Stay> = stays.into_values().filter(|stay| !stay.moments.is_empty()).collect();
    stays.sort_by_key(|stay| stay.moments.values().min().copied());
    Ok(stays)
}

/// The edge of each moment that an observer of the call's entry or return can see.
fn note(stay: &mut Stay, line: &Line) {
    let Event::Moment { moment, edge, .. } = &line.event else { return };
    let at = line.at.mono_ns;
    let known = match (moment, edge) {
        (berth_load::Moment::DeviceOpen, Edge::Begin) => Moment::DeviceOpen,
        (berth_load::Moment::ContextReady, Edge::End) => Moment::ContextReady,
        (berth_load::Moment::FirstAllocation, Edge::Begin) => Moment::FirstAllocation,
        (berth_load::Moment::FirstLaunch, Edge::Begin) => Moment::FirstLaunch,
        (berth_load::Moment::ContextGone, Edge::End) => {
            stay.end = Some(End::Destroyed { at });
            return;
        }
        _ => return,
    };
    stay.moments.entry(known).or_insert(at);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: u32, task: u32, moment: &str, edge: &str, at: u64) -> String {
        format!(
            r#"{{"mono_ns":{at},"wall_ns":0,"pid":{pid},"task":{task},"event":"moment","moment":"{moment}","edge":"{edge}"}}"#
        )
    }

    #[test]
    fn a_process_that_stays_twice_has_two_ends_of_two_kinds() {
        let workload = [
            line(7, 0, "device_open", "begin", 100),
            line(7, 0, "device_open", "end", 105),
            line(7, 0, "context_ready", "end", 200),
            line(7, 0, "first_allocation", "begin", 210),
            line(7, 0, "context_gone", "end", 300),
            line(7, 1, "context_ready", "end", 400),
        ]
        .join("\n");
        let stays = parse(&workload, r#"{"pid":7,"mono_ns":500,"code":0}"#).unwrap();
        assert_eq!(stays.len(), 2);
        assert_eq!(stays[0].end, Some(End::Destroyed { at: 300 }));
        assert_eq!(stays[0].moments[&Moment::DeviceOpen], 100);
        assert_eq!(stays[0].moments[&Moment::FirstAllocation], 210);
        assert_eq!(stays[1].end, Some(End::Exited { at: 500 }));
        assert!(!stays[1].moments.contains_key(&Moment::DeviceOpen), "the device is opened once per process");
    }

    #[test]
    fn a_line_that_is_none_is_an_error_not_a_gap() {
        assert!(parse("{\"half", "").is_err());
    }
}
