//! Utilisation as NVML shows it: means over fixed windows, visible only once a window has ended.
//!
//! Windows lie on a fixed grid of virtual time. A GPU that has been idle for a whole window has nothing more to show, so
//! an idle engine has no events.

use std::collections::BTreeMap;

use super::api::{SmSample, Traffic, Utilisation};
use super::time::nanos;

/// What runs at one moment, each as a part of the time: or, summed up, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Activity {
    pub(super) gpu: f64,
    pub(super) memory: f64,
    pub(super) processes: BTreeMap<u32, f64>,
}

#[derive(Debug)]
pub(super) struct Meter {
    window_ns: u64,
    window_start: u64,
    counted_to: u64,
    present: Activity,
    sums: Activity,
    shown: Utilisation,
    traffic: Traffic,
    samples: BTreeMap<u32, SmSample>,
}

impl Meter {
    pub(super) fn new(window_ns: u64) -> Meter {
        Meter {
            window_ns,
            window_start: 0,
            counted_to: 0,
            present: Activity::default(),
            sums: Activity::default(),
            shown: Utilisation::default(),
            traffic: Traffic::default(),
            samples: BTreeMap::new(),
        }
    }

    pub(super) fn shown(&self) -> Utilisation {
        self.shown
    }

    pub(super) fn traffic(&self) -> Traffic {
        self.traffic
    }

    pub(super) fn sample(&self, pid: u32) -> Option<SmSample> {
        self.samples.get(&pid).copied()
    }

    /// What runs from `now` on.
    pub(super) fn set(&mut self, now: u64, activity: Activity) {
        if self.window_end().is_none() {
            self.window_start = now - now % self.window_ns;
        }
        self.count_to(now);
        self.present = activity;
    }

    /// When what is shown may change by itself.
    pub(super) fn window_end(&self) -> Option<u64> {
        let idle = Activity::default();
        let quiet = self.shown == Utilisation::default() && self.samples.values().all(|sample| sample.pct == 0);
        let open = self.present != idle || self.sums != idle || !quiet;
        open.then_some(self.window_start + self.window_ns)
    }

    /// Shows the window that ends now and begins the next.
    pub(super) fn close_window(&mut self, end: u64) {
        self.count_to(end);
        let sums = std::mem::take(&mut self.sums);
        self.shown = Utilisation { gpu_pct: self.pct(sums.gpu), memory_pct: self.pct(sums.memory) };
        let full_ns = self.traffic.full_ns.saturating_add(nanos(sums.memory));
        self.traffic = Traffic { full_ns, until_ns: end };
        for sample in self.samples.values_mut().filter(|sample| sample.pct != 0) {
            *sample = SmSample { pct: 0, at_ns: end };
        }
        for (pid, ns) in sums.processes {
            self.samples.insert(pid, SmSample { pct: self.pct(ns), at_ns: end });
        }
        self.window_start = end;
    }

    /// The process is gone; a later one of the same pid starts afresh.
    pub(super) fn forget(&mut self, pid: u32) {
        self.samples.remove(&pid);
        self.sums.processes.remove(&pid);
    }

    fn count_to(&mut self, now: u64) {
        let elapsed = (now - self.counted_to) as f64;
        self.counted_to = now;
        self.sums.gpu += self.present.gpu * elapsed;
        self.sums.memory += self.present.memory * elapsed;
        for (pid, part) in &self.present.processes {
            *self.sums.processes.entry(*pid).or_default() += part * elapsed;
        }
    }

    fn pct(&self, ns: f64) -> u32 {
        u32::try_from(nanos(ns * 100.0 / self.window_ns as f64)).map_or(100, |pct| pct.min(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(pid: u32) -> Activity {
        Activity { gpu: 1.0, memory: 0.25, processes: BTreeMap::from([(pid, 1.0)]) }
    }

    #[test]
    fn use_is_shown_only_at_the_end_of_its_window() {
        let mut meter = Meter::new(200);
        meter.set(1_050, busy(7));
        assert_eq!(meter.window_end(), Some(1_200));
        meter.set(1_150, Activity::default());
        assert_eq!(meter.shown(), Utilisation::default());
        meter.close_window(1_200);
        assert_eq!(meter.shown(), Utilisation { gpu_pct: 50, memory_pct: 13 });
        assert_eq!(meter.sample(7), Some(SmSample { pct: 50, at_ns: 1_200 }));
    }

    #[test]
    fn idle_gpu_shows_zero_after_one_more_window_and_then_has_no_events() {
        let mut meter = Meter::new(200);
        meter.set(0, busy(7));
        meter.set(200, Activity::default());
        meter.close_window(200);
        assert_eq!(meter.window_end(), Some(400));
        meter.close_window(400);
        assert_eq!(meter.shown(), Utilisation::default());
        assert_eq!(meter.sample(7), Some(SmSample { pct: 0, at_ns: 400 }));
        assert_eq!(meter.window_end(), None);
    }
}
