//! Whether a report can be true at all. Who signed it is who says it, not that it is so: one that cannot be is not gone by.

use super::{GpuReport, LoadReport, MOST_GPUS, MOST_LOADS, MOST_MISSES, MOST_PLACED, Report};
use crate::deadline::{LONGEST, Spread};
use crate::id::GpuUuid;
use crate::quantity::Bytes;

/// What cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Impossible {
    #[error("{count} {what} where at most {most} are told of")]
    TooMany { what: &'static str, count: usize, most: usize },
    #[error("a GPU without a name, or with one that has more than letters, digits, `-`, `_`, `.` and `/`")]
    GpuName,
    #[error("two GPUs are called {uuid}")]
    SameGpu { uuid: GpuUuid },
    #[error("{used} of {total} is used on {uuid}")]
    MoreThanAll { uuid: GpuUuid, used: Bytes, total: Bytes },
    #[error("{what} of {value} on {uuid}")]
    Figure { uuid: GpuUuid, what: &'static str, value: f64 },
}

impl Report {
    /// `Err` with the first thing in it that cannot be.
    pub fn check(&self) -> Result<(), Impossible> {
        at_most("GPUs", self.gpus.len(), MOST_GPUS)?;
        for (number, gpu) in self.gpus.iter().enumerate() {
            if self.gpus[..number].iter().any(|other| other.uuid == gpu.uuid) {
                return Err(Impossible::SameGpu { uuid: gpu.uuid.clone() });
            }
            gpu.check()?;
        }
        Ok(())
    }
}

impl GpuReport {
    fn check(&self) -> Result<(), Impossible> {
        // It goes into an environment variable that lists several.
        let is_named = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        if self.uuid.0.is_empty() || !self.uuid.0.bytes().all(is_named) {
            return Err(Impossible::GpuName);
        }
        at_most("tenants with a deadline", self.loads.len(), MOST_LOADS)?;
        at_most("misses", self.misses_ago_seconds.len(), MOST_MISSES)?;
        at_most("placements", self.placed.len(), MOST_PLACED)?;
        if let (Some(total), Some(used)) = (self.memory_total_bytes, self.memory_used_bytes)
            && used > total
        {
            return Err(Impossible::MoreThanAll { uuid: self.uuid.clone(), used, total });
        }
        let is_share = self.share > 0.0 && self.share <= 1.0;
        let core = self.core_pct.map_or(0, |core| core.get());
        let figure = match () {
            () if !is_share => Some(("a share", self.share)),
            () if core > 100 => Some(("a core use in percent", f64::from(core))),
            () if !self.past_float_seconds.is_finite() => Some(("a float", self.past_float_seconds)),
            () => {
                let ago = self.misses_ago_seconds.iter().copied().find(|ago| !is_length(*ago));
                ago.map(|ago| ("a miss in seconds ago", ago)).or_else(|| self.loads.iter().find_map(LoadReport::wrong))
            }
        };
        let wrong = |(what, value)| Impossible::Figure { uuid: self.uuid.clone(), what, value };
        figure.map_or(Ok(()), |figure| Err(wrong(figure)))
    }
}

impl LoadReport {
    /// The first figure that cannot be, and what it is.
    fn wrong(&self) -> Option<(&'static str, f64)> {
        let deadline = self.deadline_seconds;
        if !(deadline > 0.0 && deadline <= LONGEST.as_secs_f64()) {
            return Some(("a deadline in seconds", deadline));
        }
        let under_way = self.under_way.and_then(|work| match work.due_in_seconds {
            due if !(due.is_finite() && due <= LONGEST.as_secs_f64()) => Some(("work due in seconds", due)),
            _ => (!is_length(work.done_seconds)).then_some(("work done in seconds", work.done_seconds)),
        });
        under_way.or_else(|| self.takes.and_then(|takes| takes.wrong()))
    }
}

impl Spread {
    /// Its figures can be, and are in order.
    pub fn is_possible(&self) -> bool {
        self.wrong().is_none()
    }

    fn wrong(&self) -> Option<(&'static str, f64)> {
        let Self { units, median_seconds, p90_seconds, most_seconds } = *self;
        let wrong = [median_seconds, p90_seconds, most_seconds].into_iter().find(|takes| !is_length(*takes));
        wrong
            .or((median_seconds > p90_seconds).then_some(median_seconds))
            .or((p90_seconds > most_seconds).then_some(p90_seconds))
            .or((units == 0).then_some(0.0))
            .map(|takes| ("an expected time in seconds", takes))
    }
}

fn is_length(seconds: f64) -> bool {
    seconds >= 0.0 && seconds.is_finite()
}

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), Impossible> {
    if count > most { Err(Impossible::TooMany { what, count, most }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::report::UnderWay;
    use crate::cluster::{PlacementId, Stamp};
    use crate::deadline::Unit;

    fn report() -> Report {
        let load = LoadReport {
            unit: Unit::Task,
            deadline_seconds: 9.0,
            under_way: Some(UnderWay { due_in_seconds: -3.0, done_seconds: 2.0 }),
            takes: Spread::of([2.0, 3.0]),
        };
        let gpu = GpuReport {
            uuid: GpuUuid("GPU-a".into()),
            is_lost: false,
            memory_total_bytes: Some(Bytes(10)),
            memory_used_bytes: Some(Bytes(10)),
            memory_promised_bytes: Bytes(20),
            core_pct: None,
            queue: 0,
            others: 1,
            share: 0.9,
            loads: vec![load],
            has_more: false,
            missed_by_present: 0,
            misses_ago_seconds: vec![0.0, 3.0],
            past_float_seconds: -4.0,
            placed: vec![PlacementId(1)],
        };
        Report {
            node: "a".parse().unwrap(),
            stamp: Stamp { started_ms: 0, number: 1, at_ms: 0 },
            berth: "0".into(),
            policy: None,
            means: vec![],
            gpus: vec![gpu],
            pasts: 0,
        }
    }

    fn told(change: impl FnOnce(&mut GpuReport)) -> String {
        let mut report = report();
        change(&mut report.gpus[0]);
        report.check().map_or_else(|why| why.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn what_is_late_full_or_overpromised_can_be() {
        assert_eq!(report().check(), Ok(()));
        assert_eq!(Report { gpus: vec![], ..report() }.check(), Ok(()), "a node without GPUs");
    }

    #[test]
    fn figures_that_cannot_be_are_named() {
        assert_eq!(told(|gpu| gpu.memory_used_bytes = Some(Bytes(11))), "11 B of 10 B is used on GPU-a");
        for share in [0.0, -0.1, 1.1, f64::NAN] {
            assert_eq!(told(|gpu| gpu.share = share), format!("a share of {share} on GPU-a"));
        }
        for deadline in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            let told = told(|gpu| gpu.loads[0].deadline_seconds = deadline);
            assert_eq!(told, format!("a deadline in seconds of {deadline} on GPU-a"));
        }
        let due = |due_in_seconds| Some(UnderWay { due_in_seconds, done_seconds: 0.0 });
        assert_ne!(told(|gpu| gpu.loads[0].under_way = due(f64::NAN)), "fine");
        assert_ne!(
            told(|gpu| gpu.loads[0].under_way = Some(UnderWay { due_in_seconds: 1.0, done_seconds: -1.0 })),
            "fine"
        );
        assert_ne!(told(|gpu| gpu.misses_ago_seconds[0] = -1.0), "fine");
        assert_ne!(told(|gpu| gpu.past_float_seconds = f64::INFINITY), "fine");
        let upside_down = Spread { units: 1, median_seconds: 2.0, p90_seconds: 1.0, most_seconds: 3.0 };
        for takes in [upside_down, Spread { units: 0, p90_seconds: 2.0, ..upside_down }] {
            assert_ne!(told(|gpu| gpu.loads[0].takes = Some(takes)), "fine");
        }
    }

    #[test]
    fn a_gpu_is_told_of_once_and_nothing_without_end() {
        let twice = Report { gpus: vec![report().gpus[0].clone(); 2], ..report() };
        assert_eq!(twice.check().unwrap_err().to_string(), "two GPUs are called GPU-a");
        for uuid in ["", "GPU-a,GPU-b", "GPU a", "GPU-\n"] {
            assert!(told(|gpu| gpu.uuid.0 = uuid.into()).starts_with("a GPU without a name"), "{uuid}");
        }
        assert_ne!(told(|gpu| gpu.loads = vec![gpu.loads[0]; MOST_LOADS + 1]), "fine");
        assert_ne!(told(|gpu| gpu.misses_ago_seconds = vec![1.0; MOST_MISSES + 1]), "fine");
        assert_ne!(told(|gpu| gpu.placed = vec![PlacementId(1); MOST_PLACED + 1]), "fine");
    }
}
