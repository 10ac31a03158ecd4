//! How many rounds of the kernel make a microsecond, on this GPU and with so many blocks.
//!
//! Whoever compares runs must not calibrate in each: on a part of a GPU, or beside others, the same kernels would come out as less work.
//! So a program says what it found, and others are told it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::gpu::{Gpu, Spin};
use crate::driver::CallError;

/// A GPU that was idle runs slower at first.
const WARM_UP: Duration = Duration::from_millis(200);
/// Long enough that what a launch takes is nothing beside it.
const LONG_US: f64 = 2_000.0;
const TRIES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Of each kernel.
    pub blocks: u32,
    pub rounds_per_us: f64,
}

/// What kernels are made of, if it is known already.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub struct Given {
    /// Blocks of each kernel [default: enough to fill the GPU half (serve) or whole (train)]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: Option<u32>,
    /// Rounds of the kernel that take a microsecond, as the line `ready` of an earlier run says [default: measured]
    #[arg(long, value_name = "NUMBER", requires = "blocks")]
    rounds_per_us: Option<f64>,
}

impl Given {
    /// Measures what was not given.
    pub fn complete(self, gpu: &Gpu, blocks_per_multiprocessor: u32) -> Result<Calibration, CallError> {
        let blocks = self.blocks.unwrap_or(gpu.multiprocessors * blocks_per_multiprocessor).max(1);
        let rounds_per_us = match self.rounds_per_us {
            Some(rounds) => rounds,
            None => measure(gpu, blocks)?,
        };
        Ok(Calibration { blocks, rounds_per_us })
    }
}

impl Calibration {
    /// A kernel that runs about this long when it is alone.
    pub fn kernel(self, us: f64) -> Spin {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is at least 1")]
        let rounds = (us * self.rounds_per_us).round().max(1.0) as u32;
        Spin { blocks: self.blocks, rounds }
    }
}

fn measure(gpu: &Gpu, blocks: u32) -> Result<f64, CallError> {
    let events = (gpu.event(true)?, gpu.event(true)?);
    let time = |rounds| gpu.time_us(Spin { blocks, rounds }, (&events.0, &events.1));
    let shortest = |rounds| {
        let mut tries = (0..TRIES).map(|_| time(rounds));
        tries.try_fold(f64::INFINITY, |least, tried| Ok::<_, CallError>(least.min(tried?)))
    };
    let begun = Instant::now();
    let mut rounds = 1_000;
    loop {
        // Where the program was kept waiting between two calls, a short one looks long: not every time.
        match shortest(rounds)? < LONG_US && rounds < u32::MAX / 4 {
            true => rounds *= 2,
            false if begun.elapsed() >= WARM_UP => break,
            false => {}
        }
    }
    Ok(rounds_per_us(rounds, shortest(rounds / 2)?, shortest(rounds)?))
}

/// By the difference of two lengths, so that what every kernel takes cancels out. Beside others the longer one may not take longer: then
/// by itself.
fn rounds_per_us(rounds: u32, half_us: f64, whole_us: f64) -> f64 {
    let more_us = whole_us - half_us;
    if more_us > whole_us / 4.0 {
        f64::from(rounds - rounds / 2) / more_us
    } else {
        f64::from(rounds) / whole_us.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_kernel_takes_cancels_out() {
        assert_eq!(rounds_per_us(4_000, 1_005.0, 2_005.0), 2.0);
    }

    #[test]
    fn a_measurement_that_was_disturbed_makes_no_kernel_of_hours() {
        for half_us in [2_000.0, 3_000.0, 1e9] {
            assert_eq!(rounds_per_us(4_000, half_us, 2_000.0), 2.0);
        }
        assert!(rounds_per_us(4_000, 0.0, 0.0).is_finite());
    }
}
