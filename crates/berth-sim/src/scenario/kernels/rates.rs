//! How fast kernels get on that run at the same time.
//!
//! With slices each has its part of the time. Otherwise each has the SMs it can use, or may; where that is more than there are, all have less
//! in proportion. So many bytes as its speed asks for; where all ask for more than there is, each loses as far as memory is what it waits for.
//! Caches cost a little for each neighbour that uses memory too.

use super::{Kernel, Machine};

/// A kernel that runs, and the part of the SMs it is confined to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    pub kernel: Kernel,
    pub confined: Option<f64>,
}

/// Speeds over the speed alone, in order.
pub fn speeds(machine: &Machine, running: &[Running]) -> Vec<f64> {
    if !machine.concurrent {
        return vec![1.0 / running.len().max(1) as f64; running.len()];
    }
    let may = |one: &Running| one.kernel.demand.min(one.confined.filter(|_| machine.divides).unwrap_or(1.0));
    let crowd = running.iter().map(may).sum::<f64>().max(1.0);
    let by_sms: Vec<f64> = running.iter().map(|one| may(one) / crowd / one.kernel.demand).collect();
    let asked: f64 = running.iter().zip(&by_sms).map(|(one, speed)| one.kernel.bandwidth * speed).sum();
    let short = 1.0 - 1.0 / asked.max(1.0);
    let each = running.iter().zip(by_sms).enumerate();
    each.map(|(place, (one, speed))| {
        let own = one.kernel.bandwidth;
        let others = running.iter().enumerate().filter(|(other, _)| *other != place);
        let cache: f64 = others.map(|(_, other)| 1.0 - machine.cache * own.min(other.kernel.bandwidth)).product();
        speed * (1.0 - own * short) * cache
    })
    .collect()
}
