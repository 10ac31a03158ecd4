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

/// Both, with nothing on the GPU until they are told.
pub struct Session<'a> {
    pub server: Program,
    pub trainer: Program,
    pub interrupt: &'a Interrupt,
    pub seconds: u32,
}

/// One window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    pub load: Load,
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
        let windows =
            loads.iter().map(|load| Ok(Window { load: *load, served: self.serve(*load)?, trainer_per_s: None }));
        let windows = windows.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Alone { windows, service_ms, trainer_per_s: self.train_alone()? })
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
        let served = loads.iter().map(|load| Ok((*load, self.serve(*load)?))).collect::<anyhow::Result<Vec<_>>>();
        let trained = self.stop_trainer()?;
        let window = |(load, served): (Load, Served)| Window {
            load,
            trainer_per_s: rate(&within(&trained.ended_ns, &served)),
            served,
        };
        Ok(served?.into_iter().map(window).collect())
    }

    fn serve(&mut self, load: Load) -> anyhow::Result<Served> {
        self.server.tell(&format!("go {} {}", load.rate(), self.seconds))?;
        let patience = Duration::from_secs(u64::from(self.seconds) * 2) + PATIENCE;
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

fn within(ended_ns: &[u64], served: &Served) -> Vec<u64> {
    ended_ns.iter().copied().filter(|ended| (served.from_ns..=served.to_ns).contains(ended)).collect()
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

    #[test]
    fn steps_count_between_their_ends_and_within_the_window() {
        let ended: Vec<u64> = (0..100).map(|step| step * 100_000_000).collect();
        let served = Served {
            rate: 200.0,
            from_ns: 1_950_000_000,
            to_ns: 4_050_000_000,
            requests: 1,
            given_up: 0,
            mean_ms: 1.0,
            p50_ms: 1.0,
            p90_ms: 1.0,
            p99_ms: 1.0,
            max_ms: 1.0,
        };
        let inside = within(&ended, &served);
        assert_eq!((inside.first(), inside.last()), (Some(&2_000_000_000), Some(&4_000_000_000)));
        assert!((rate(&inside).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(rate(&[5]), None);
        assert_eq!(rate(&[]), None);
    }
}
