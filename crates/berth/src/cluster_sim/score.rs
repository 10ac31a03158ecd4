//! What is counted while a cluster runs. Of containers only those that come in the middle of the run: before, it fills; after, it empties.

use std::time::Duration;

use berth_model::Mono;

use super::Setup;
use super::demand::FACTORS;
use super::life::Life;
use super::outcome::{Mean, Outcome};

#[derive(Debug)]
pub struct Score {
    pub outcome: Outcome,
    from: Mono,
    until: Mono,
    /// At the first instant from each on: how long GPUs had computed.
    busy: [Option<(Mono, Duration)>; 2],
    stay: Mean,
    waited: Mean,
}

impl Score {
    pub fn new(setup: &Setup) -> Self {
        let start = Mono(0);
        Self {
            outcome: Outcome::new(setup.way, setup.nodes, setup.gpus()),
            from: start + setup.lasts / 6,
            until: start + setup.lasts * 5 / 6,
            busy: [None; 2],
            stay: Mean::default(),
            waited: Mean::default(),
        }
    }

    /// Time passes. `busy`: how long all GPUs have computed.
    pub fn pass(&mut self, now: Mono, busy: impl Fn() -> Duration) {
        for (at, noted) in [self.from, self.until].into_iter().zip(&mut self.busy) {
            if noted.is_none() && now >= at {
                *noted = Some((now, busy()));
            }
        }
    }

    /// Whether one that comes then counts.
    pub fn comes(&mut self, at: Mono) -> bool {
        let counts = (self.from..self.until).contains(&at);
        self.outcome.containers += u64::from(counts);
        counts
    }

    pub fn placed(&mut self, life: &Life, now: Mono) {
        if life.counts && life.has_waited {
            self.waited.add(now.since(life.container.comes).as_secs_f64());
        }
    }

    /// Its task is done.
    pub fn task(&mut self, life: &Life, now: Mono) {
        match life.is_late(now) {
            _ if !life.counts => {}
            Some(is_late) => self.judge(life, is_late),
            None => {
                let stayed = now.since(life.container.comes).as_secs_f64();
                self.stay.add(stayed / life.container.work.gpu_time().as_secs_f64());
            }
        }
    }

    /// One of its requests is over.
    pub fn burst(&mut self, life: &Life, is_missed: bool, takes: Duration) {
        if life.counts {
            self.outcome.bursts.add(is_missed, life.is_hopeless(takes));
        }
    }

    /// It is still there, or never had a place, at the end. What is due later is not counted.
    pub fn unfinished(&mut self, life: &Life, now: Mono) {
        if !life.counts {
            return;
        }
        self.outcome.waited += u64::from(life.has_waited);
        self.outcome.never_placed += u64::from(!life.was_placed);
        for takes in life.overdue(now) {
            self.burst(life, true, takes);
        }
        if life.is_task_open() && life.is_late(now) == Some(true) {
            self.judge(life, true);
        }
    }

    pub fn finish(mut self, now: Mono, is_complete: bool) -> Outcome {
        let [first, last] = self.busy;
        if let (Some((from, before)), Some((until, after))) = (first, last) {
            let had = self.outcome.gpus as f64 * until.since(from).as_secs_f64();
            self.outcome.utilisation = Some(after.saturating_sub(before).as_secs_f64() / had);
        }
        self.outcome.seconds = now.since(Mono(0)).as_secs_f64();
        self.outcome.is_complete = is_complete;
        self.outcome.stay_over_alone = self.stay.get();
        self.outcome.waited_seconds = self.waited.get();
        self.outcome
    }

    fn judge(&mut self, life: &Life, is_late: bool) {
        let is_lost = life.is_hopeless(life.container.work.gpu_time());
        self.outcome.tasks.add(is_late, is_lost);
        self.outcome.tasks_by_tightness[life.container.image % FACTORS.len()].add(is_late, is_lost);
    }
}
