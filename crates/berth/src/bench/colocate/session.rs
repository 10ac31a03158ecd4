//! One server and one trainer, side by side: started, and measured alone or together, as often as one likes.

use std::time::Duration;

use anyhow::{Context as _, bail};
use berth_load::roles::words::{Ready, Said, Served, Trained};

use super::pair::Load;
use super::program::Program;
use crate::interrupt::Interrupt;

/// A framework loads its libraries and models first.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// What a program may take beyond the time it was given; a server that cannot keep up gives up by itself.
const PATIENCE: Duration = Duration::from_secs(60);
/// The trainer runs for so long before the first request.
const HEAD_START: Duration = Duration::from_millis(700);
/// Served before anything counts, so that what is learned of kernels' times has been.
const WARM_UP_SECONDS: u32 = 1;
/// The arrivals of the warm-up are of no round.
const WARM_UP_SEED: u32 = 0;

/// Both, with nothing on the GPU until they are told.
pub struct Session<'a> {
    pub server: Program,
    pub trainer: Program,
    pub interrupt: &'a Interrupt,
    pub seconds: u32,
    /// Windows of each load, each with arrivals of its own.
    pub rounds: u32,
}

/// One window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    pub load: Load,
    /// From 1 on: the same arrivals in every mode.
    pub round: u32,
    pub served: Served,
    /// Steps of the trainer per second meanwhile; `None` if it was not there, or did too few to say.
    pub trainer_per_s: Option<f64>,
}

/// Both by themselves, in turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Alone {
    pub windows: Vec<Window>,
    /// What a request takes without a queue.
    pub service_ms: f64,
    pub trainer_per_s: Option<f64>,
}

impl Session<'_> {
    /// What both last said to people.
    pub fn last_words(&self) -> String {
        format!("the server{}, the trainer{}", self.server.last_words(), self.trainer.last_words())
    }

    pub fn alone(&mut self, loads: &[Load]) -> anyhow::Result<Alone> {
        self.server.tell("service")?;
        let Said::Service { ms: service_ms } = self.server.hear(PATIENCE, self.interrupt)? else {
            bail!("the server did not say what a request takes");
        };
        let served = self.serve_all(loads)?.into_iter();
        let windows = served.map(|(load, round, served)| Window { load, round, served, trainer_per_s: None }).collect();
        Ok(Alone { windows, service_ms, trainer_per_s: self.train_alone()? })
    }

    /// Every load in every round.
    fn serve_all(&mut self, loads: &[Load]) -> anyhow::Result<Vec<(Load, u32, Served)>> {
        let each = loads.iter().flat_map(|load| (1..=self.rounds).map(|round| (*load, round)));
        let each: Vec<(Load, u32)> = each.collect();
        each.into_iter().map(|(load, round)| Ok((load, round, self.serve(load, self.seconds, round)?))).collect()
    }

    /// Longer than a window if its steps are.
    fn train_alone(&mut self) -> anyhow::Result<Option<f64>> {
        for windows in [1, 2, 4, 8] {
            self.trainer.tell("go")?;
            self.interrupt.sleep(Duration::from_secs(u64::from(self.seconds) * windows))?;
            if let Some(rate) = rate(&self.stop_trainer()?.ended_ns) {
                return Ok(Some(rate));
            }
        }
        Ok(None)
    }

    pub fn together(&mut self, loads: &[Load]) -> anyhow::Result<Vec<Window>> {
        self.trainer.tell("go")?;
        self.interrupt.sleep(HEAD_START)?;
        let warm_up = loads.first().map_or(Ok(()), |load| self.serve(*load, WARM_UP_SECONDS, WARM_UP_SEED).map(drop));
        let served = warm_up.and_then(|()| self.serve_all(loads));
        // A step of it ends after the last window.
        self.interrupt.sleep(HEAD_START)?;
        let trained = self.stop_trainer()?;
        let window = |(load, round, served): (Load, u32, Served)| Window {
            load,
            round,
            trainer_per_s: rate_within(&trained.ended_ns, &served),
            served,
        };
        Ok(served?.into_iter().map(window).collect())
    }

    fn serve(&mut self, load: Load, seconds: u32, seed: u32) -> anyhow::Result<Served> {
        self.server.tell(&format!("go {} {seconds} {seed}", load.rate()))?;
        let patience = Duration::from_secs(u64::from(seconds) * 2) + PATIENCE;
        match self.server.hear(patience, self.interrupt)? {
            Said::Served(served) => Ok(served),
            other => bail!("the server said {other:?} instead of its latencies"),
        }
    }

    fn stop_trainer(&mut self) -> anyhow::Result<Trained> {
        self.trainer.tell("stop")?;
        match self.trainer.hear(PATIENCE, self.interrupt)? {
            Said::Trained(trained) => Ok(trained),
            other => bail!("the trainer said {other:?} instead of its steps"),
        }
    }
}

/// Waits until a program is.
pub fn ready(program: &mut Program, interrupt: &Interrupt) -> anyhow::Result<Ready> {
    match program.hear(READY_WITHIN, interrupt).context("waiting until it is ready")? {
        Said::Ready(ready) => Ok(ready),
        other => bail!("a program said {other:?} before it was ready"),
    }
}

/// Steps per second over the whole window, the parts of steps at its ends counted in. `None` unless steps ended before and after it.
fn rate_within(ended_ns: &[u64], served: &Served) -> Option<f64> {
    let done = |at_ns: u64| {
        let after = ended_ns.partition_point(|ended| *ended <= at_ns);
        let (before, next) = (*ended_ns.get(after.checked_sub(1)?)?, *ended_ns.get(after)?);
        Some(after as f64 + (at_ns - before) as f64 / (next - before) as f64)
    };
    let seconds = Duration::from_nanos(served.to_ns.checked_sub(served.from_ns)?).as_secs_f64();
    (seconds > 0.0).then_some((done(served.to_ns)? - done(served.from_ns)?) / seconds)
}

/// Steps per second, from the end of one to the end of another.
pub fn rate(ended_ns: &[u64]) -> Option<f64> {
    let (first, last) = (ended_ns.first()?, ended_ns.last()?);
    let seconds = Duration::from_nanos(last.checked_sub(*first)?).as_secs_f64();
    (seconds > 0.0).then(|| (ended_ns.len() - 1) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(from_ns: u64, to_ns: u64) -> Served {
        Served {
            rate: 200.0,
            from_ns,
            to_ns,
            requests: 1,
            given_up: 0,
            mean_ms: 1.0,
            p50_ms: 1.0,
            p90_ms: 1.0,
            p99_ms: 1.0,
            max_ms: 1.0,
            first_ms: None,
            queued_ms: None,
        }
    }

    #[test]
    fn steps_count_between_their_ends() {
        assert!((rate(&[0, 100_000_000, 200_000_000]).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(rate(&[5]), None);
        assert_eq!(rate(&[]), None);
    }

    #[test]
    fn a_stall_at_an_end_of_the_window_counts_as_the_part_that_is_in_it() {
        let even: Vec<u64> = (0..100).map(|step| step * 100_000_000).collect();
        assert!((rate_within(&even, &served(1_950_000_000, 4_050_000_000)).unwrap() - 10.0).abs() < 1e-9);
        // Ten steps in the first second, and one that takes the whole second after it.
        let stalled: Vec<u64> = (0..=10).map(|step| step * 100_000_000).chain([2_000_000_000]).collect();
        assert!((rate_within(&stalled, &served(0, 1_500_000_000)).unwrap() - 7.0).abs() < 1e-9);
        assert_eq!(
            rate_within(&stalled, &served(0, 2_500_000_000)),
            None,
            "nobody knows of the time behind the last step"
        );
        assert_eq!(rate_within(&[], &served(0, 1)), None);
    }
}
