//! What comes to the cluster: containers of some images, at random times.
//!
//! An image does about the same each time: its run times lie around a median, and its history is drawn from where its runs will be. Of ten
//! images seven run to an end by a deadline, two without one, and one serves requests, each of which has a deadline. One in twenty has no
//! history. What the same seed draws is the same at every load, only closer together.

use std::time::Duration;

use berth_model::cluster::Wanted;
use berth_model::deadline::{Spread, Unit};
use berth_model::{Bytes, Deadline, Mono};

use super::dice::{LogNormal, gap, log_uniform};
use crate::bench::edf::load::Dice;

pub const IMAGES: usize = 40;
/// Runs that a history is made of.
const PAST_RUNS: usize = 30;
/// Deadline over the usual run time of a task.
pub const FACTORS: [f64; 4] = [1.5, 2.5, 4.0, 8.0];
/// The same of a burst.
const BURST_FACTORS: [f64; 4] = [4.0, 8.0, 12.0, 16.0];
/// GPU seconds of a task and of a burst, usually.
const TASK: (f64, f64) = (1.0, 60.0);
const BURST: (f64, f64) = (0.1, 1.0);
/// How far times of one image lie apart, as the standard deviation of their logarithm.
const SIGMA: (f64, f64) = (0.05, 0.3);
const MEMORY_MIB: (f64, f64) = (2_048.0, 40_960.0);
/// How long one that serves stays, in seconds.
const SERVES: (f64, f64) = (60.0, 180.0);
/// From being placed until it computes: its engine starts it, and it loads. Nobody's doing, so no deadline runs meanwhile.
const STARTS: (f64, f64) = (0.5, 2.0);

/// What containers of one image have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    takes: LogNormal,
    /// What is known of it; `None` of an image nobody has run before.
    pub past: Option<Spread>,
    pub memory: Bytes,
    pub deadline: Option<Deadline>,
    /// Between two requests on average, where it serves.
    every: Option<f64>,
}

/// One container.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    pub image: usize,
    pub comes: Mono,
    /// From being placed until it computes.
    pub starts_in: Duration,
    pub work: Work,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// GPU time.
    Task(Duration),
    /// Requests: when each comes after the container could have been there, and the GPU time it takes.
    Serves(Vec<(Duration, Duration)>),
}

/// Containers without end, in the order in which they come.
#[derive(Debug)]
pub struct Demand {
    pub images: Vec<Image>,
    dice: Dice,
    /// Between two that come, in seconds.
    mean_gap: f64,
    now_seconds: f64,
}

impl Demand {
    /// `gpu_seconds`: of work that come in a second, on average.
    pub fn new(seed: u64, gpu_seconds: f64) -> Self {
        let mut dice = Dice::new(seed);
        let images: Vec<Image> = (0..IMAGES).map(|number| Image::draw(number, &mut dice)).collect();
        let mean_work = images.iter().map(Image::mean_work).sum::<f64>() / IMAGES as f64;
        Self { images, dice, mean_gap: mean_work / gpu_seconds, now_seconds: 0.0 }
    }
}

impl Iterator for Demand {
    type Item = Container;

    fn next(&mut self) -> Option<Container> {
        let dice = &mut self.dice;
        self.now_seconds += gap(dice, self.mean_gap);
        let number = dice.whole(0, IMAGES - 1);
        let image = &self.images[number];
        Some(Container {
            image: number,
            comes: Mono(0) + Duration::from_secs_f64(self.now_seconds),
            starts_in: Duration::from_secs_f64(dice.between(STARTS.0, STARTS.1)),
            work: image.work(dice),
        })
    }
}

impl Image {
    fn draw(number: usize, dice: &mut Dice) -> Self {
        let serves = number % 10 == 9;
        let (from, to) = if serves { BURST } else { TASK };
        let takes = LogNormal { median: log_uniform(dice, from, to), sigma: log_uniform(dice, SIGMA.0, SIGMA.1) };
        let factor = if serves { BURST_FACTORS[number / 10 % 4] } else { FACTORS[number % 4] };
        let has_deadline = !matches!(number % 10, 7 | 8);
        let deadline = Duration::from_secs_f64(takes.median * factor);
        // Its memory, how often it is asked and its past are drawn of every image, so that one more of a kind changes no other.
        #[expect(clippy::cast_possible_truncation, reason = "some gibibytes")]
        let memory = Bytes::from_mib(log_uniform(dice, MEMORY_MIB.0, MEMORY_MIB.1) as u64);
        let every = dice.between(2.0, 6.0) * deadline.as_secs_f64();
        let past = spread((0..PAST_RUNS).map(|_| takes.draw(dice)).collect());
        Self {
            takes,
            past: past.filter(|_| number % 20 != 13),
            memory,
            deadline: Deadline::new(deadline).filter(|_| has_deadline),
            every: serves.then_some(every),
        }
    }

    pub fn unit(&self) -> Unit {
        if self.every.is_some() { Unit::Burst } else { Unit::Task }
    }

    /// As somebody asks for it who has `deadline` left.
    pub fn wanted(&self, deadline: Option<Deadline>) -> Wanted {
        Wanted {
            deadline,
            unit: self.unit(),
            memory_bytes: Some(self.memory),
            gpus: 1,
            takes: self.past,
            run: self.past,
        }
    }

    fn work(&self, dice: &mut Dice) -> Work {
        let draw = |dice: &mut Dice| Duration::from_secs_f64(self.takes.draw(dice));
        let Some(every) = self.every else { return Work::Task(draw(dice)) };
        let stays = dice.between(SERVES.0, SERVES.1);
        let mut requests = Vec::new();
        let mut at = 0.0;
        // It is asked at least once.
        while requests.is_empty() || at < stays {
            at += gap(dice, every);
            requests.push((Duration::from_secs_f64(at), draw(dice)));
        }
        Work::Serves(requests)
    }

    /// GPU seconds of one container, on average.
    fn mean_work(&self) -> f64 {
        let times = self.every.map_or(1.0, |every| SERVES.0.midpoint(SERVES.1) / every);
        times * self.takes.mean()
    }
}

impl Work {
    /// All of it, as if alone.
    pub fn gpu_time(&self) -> Duration {
        match self {
            Work::Task(takes) => *takes,
            Work::Serves(requests) => requests.iter().map(|(_, takes)| *takes).sum(),
        }
    }
}

/// `None` of none.
fn spread(mut seconds: Vec<f64>) -> Option<Spread> {
    seconds.sort_by(f64::total_cmp);
    let at = |tenths: usize| seconds.get(seconds.len() * tenths / 10).copied();
    Some(Spread {
        units: u32::try_from(seconds.len()).unwrap_or(u32::MAX),
        median_seconds: at(5)?,
        p90_seconds: at(9)?,
        most_seconds: *seconds.last()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_what_it_is_said_to_be() {
        for share in [0.6, 0.95] {
            let come: Vec<Container> = Demand::new(3, 100.0 * share).take(20_000).collect();
            let work: Duration = come.iter().map(|container| container.work.gpu_time()).sum();
            let over = come.last().unwrap().comes.since(Mono(0));
            let reached = work.as_secs_f64() / over.as_secs_f64() / 100.0;
            assert!((reached / share - 1.0).abs() < 0.04, "{reached} of {share}");
        }
    }

    #[test]
    fn the_same_containers_come_at_every_load_only_closer_together() {
        let come = |load| Demand::new(1, load).take(50).map(|one| (one.image, one.starts_in, one.work));
        assert!(come(10.0).eq(come(90.0)));
        assert!(!come(10.0).eq(Demand::new(2, 10.0).take(50).map(|one| (one.image, one.starts_in, one.work))));
    }

    #[test]
    fn most_have_a_deadline_some_serve_and_some_have_no_past() {
        let images = Demand::new(1, 1.0).images;
        let count = |is: fn(&Image) -> bool| images.iter().filter(|image| is(image)).count();
        assert_eq!(count(|image| image.deadline.is_none()), 8);
        assert_eq!(count(|image| image.unit() == Unit::Burst && image.deadline.is_some()), 4);
        assert_eq!(count(|image| image.past.is_none()), 2);
    }

    #[test]
    fn a_past_tells_of_the_runs_to_come() {
        let image = Demand::new(5, 1.0).images.into_iter().next().unwrap();
        let mut dice = Dice::new(9);
        let past = image.past.unwrap();
        let above = (0..1_000).filter(|_| image.takes.draw(&mut dice) > past.p90_seconds).count();
        assert!((20..250).contains(&above), "{above} of 1000 take longer than nine in ten did");
    }
}
