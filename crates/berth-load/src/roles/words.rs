//! The lines between a program and whoever measures it.
//!
//! In: one word per line. `go` begins (the server may be told at which rate and for how long, and which arrivals to draw: `go 200 6`, `go 200 6 3`), and while a trainer trains any
//! line stops it; `service` asks a server what one request takes, `kernels` anybody how many it has submitted. An empty line is `go`. Out: one JSON object per line ([`Said`]); anything
//! else that a program prints is no line of these. Times are of `CLOCK_MONOTONIC`, which is the same for all processes of a host.

use std::io::{self, BufRead as _, Write as _};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use serde::{Deserialize, Serialize};

use super::{Calibration, RoleError};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Said {
    /// Everything is prepared; nothing happens until a line comes.
    Ready(Ready),
    /// One request after another, without a pause: what one takes.
    Service {
        ms: f64,
    },
    Served(Served),
    Trained(Trained),
    Launched(Launched),
    Checked(Checked),
    /// Given to the driver since the beginning, by themselves or in graphs.
    Kernels {
        submitted: u64,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// How long kernels were made; another program of the same kind can be told, so that it does the same work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Whether requests are CUDA graphs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<bool>,
}

/// Requests of one window. A latency is from the instant at which a request was to arrive until it was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Served {
    /// Requests a second that were to arrive.
    pub rate: f64,
    pub from_ns: u64,
    pub to_ns: u64,
    pub requests: u64,
    /// Of these, so many were given up when the queue had not come to an end long after the window; they count with what they had waited.
    #[serde(default)]
    pub given_up: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p90_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
    /// What a request took from when it was begun: the median of those that found nobody before them, and of those that had queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<f64>,
}

/// Steps since the word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trained {
    pub from_ns: u64,
    /// When each step was done.
    pub ended_ns: Vec<u64>,
}

/// Steps that were checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    pub from_ns: u64,
    /// When each step was done.
    pub ended_ns: Vec<u64>,
    /// How often something was found that could not be.
    pub wrong: u64,
}

/// One batch of launches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Launched {
    pub launches: u32,
    /// What the launching thread spent on each.
    pub ns_per_launch: f64,
    /// The same of as many that were launched past whatever stands before the driver; `None` where that was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past_ns_per_launch: Option<f64>,
}

/// What a program is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Word {
    Go(Option<Window>),
    Service,
    Kernels,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub rate: f64,
    pub seconds: f64,
    /// Of the arrivals; `None`: as the program was started.
    pub seed: Option<u64>,
}

/// Standard input, read by a thread of its own so that a program at work can look.
#[derive(Debug)]
pub(super) struct Input {
    line_rx: Receiver<String>,
}

impl Input {
    pub fn listen() -> Self {
        let (line_tx, line_rx) = channel();
        std::thread::spawn(move || {
            let lines = io::stdin().lock().lines();
            let _ = lines.map_while(Result::ok).try_for_each(|line| line_tx.send(line));
        });
        Self { line_rx }
    }

    /// Waits for the next word; `None` at the end.
    pub fn next(&self) -> Result<Option<Word>, RoleError> {
        self.line_rx.recv().ok().map(|line| line.parse()).transpose()
    }

    /// Whether a line has come, or the end; that line is taken.
    pub fn has_come(&self) -> bool {
        !matches!(self.line_rx.try_recv(), Err(TryRecvError::Empty))
    }
}

impl std::str::FromStr for Word {
    type Err = RoleError;

    fn from_str(line: &str) -> Result<Self, RoleError> {
        let unknown = || RoleError::Word(line.to_owned());
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [] | ["go"] => Ok(Self::Go(None)),
            ["go", rate, seconds] => {
                let window = number(rate).zip(number(seconds));
                window.map(|(rate, seconds)| Self::Go(Some(Window { rate, seconds, seed: None }))).ok_or_else(unknown)
            }
            ["go", rate, seconds, seed] => {
                let (window, seed) = (number(rate).zip(number(seconds)), seed.parse().ok());
                let window = window.filter(|_| seed.is_some());
                window.map(|(rate, seconds)| Self::Go(Some(Window { rate, seconds, seed }))).ok_or_else(unknown)
            }
            ["service"] => Ok(Self::Service),
            ["kernels"] => Ok(Self::Kernels),
            _ => Err(unknown()),
        }
    }
}

pub(super) fn say(said: &Said) -> Result<(), RoleError> {
    let mut text = serde_json::to_vec(said).map_err(|error| RoleError::Output(error.into()))?;
    text.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&text).and_then(|()| stdout.flush()).map_err(RoleError::Output)
}

impl Served {
    /// Of latencies in milliseconds; `None` without any.
    pub(super) fn of(
        rate: f64,
        (from_ns, to_ns): (u64, u64),
        mut latencies_ms: Vec<f64>,
        given_up: u64,
        [first_ms, queued_ms]: [Vec<f64>; 2],
    ) -> Option<Self> {
        latencies_ms.sort_by(f64::total_cmp);
        // Nearest rank: the least value that so many percent of all do not exceed.
        let rank = |percent: usize| (latencies_ms.len() * percent).div_ceil(100).max(1) - 1;
        let at = |percent: usize| latencies_ms.get(rank(percent)).copied();
        Some(Self {
            rate,
            from_ns,
            to_ns,
            requests: latencies_ms.len() as u64,
            given_up,
            mean_ms: latencies_ms.iter().sum::<f64>() / latencies_ms.len() as f64,
            p50_ms: at(50)?,
            p90_ms: at(90)?,
            p99_ms: at(99)?,
            max_ms: *latencies_ms.last()?,
            first_ms: median(first_ms),
            queued_ms: median(queued_ms),
        })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_and_others_refused() {
        let word = |line: &str| line.parse::<Word>().ok();
        assert_eq!(word(""), Some(Word::Go(None)));
        assert_eq!(word("go"), Some(Word::Go(None)));
        assert_eq!(word("go 200 1.5"), Some(Word::Go(Some(Window { rate: 200.0, seconds: 1.5, seed: None }))));
        assert_eq!(word("go 200 1 3"), Some(Word::Go(Some(Window { rate: 200.0, seconds: 1.0, seed: Some(3) }))));
        assert_eq!(word("service"), Some(Word::Service));
        assert_eq!(word("kernels"), Some(Word::Kernels));
        for wrong in ["stop it", "go 200", "go 0 1", "go -1 1", "go inf 1", "go x 1", "go 1 2 x", "go 1 2 3 4"] {
            assert_eq!(word(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_line_of_a_program_that_says_only_what_it_must_is_understood() {
        assert_eq!(serde_json::from_str::<Said>(r#"{"event":"ready"}"#).unwrap(), Said::Ready(Ready::default()));
        let trained = Said::Trained(Trained { from_ns: 1, ended_ns: vec![2, 3] });
        let text = serde_json::to_string(&trained).unwrap();
        assert_eq!(text, r#"{"event":"trained","from_ns":1,"ended_ns":[2,3]}"#);
        assert_eq!(serde_json::from_str::<Said>(&text).unwrap(), trained);
    }

    #[test]
    fn percentiles_are_latencies_that_were_measured() {
        let latencies = (1..=200).rev().map(f64::from).collect();
        let served = Served::of(1.0, (0, 1), latencies, 0, [vec![3.0, 1.0, 2.0], Vec::new()]).unwrap();
        assert_eq!((served.p50_ms, served.p90_ms, served.p99_ms, served.max_ms), (100.0, 180.0, 198.0, 200.0));
        assert_eq!((served.first_ms, served.queued_ms), (Some(2.0), None));
        assert_eq!((served.requests, served.mean_ms), (200, 100.5));
        assert_eq!(Served::of(1.0, (0, 1), Vec::new(), 0, Default::default()), None);
    }
}
