//! Chance, drawn from a seed: the same seed draws the same.

use crate::bench::contention::workload::draw;

#[derive(Debug)]
pub struct Noise {
    seed: u64,
    drawn: usize,
}

impl Noise {
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// At least `from`, less than `to`.
    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        const PARTS: u32 = 1 << 24;
        self.drawn += 1;
        let part = u32::try_from(draw(self.seed, self.drawn, u64::from(PARTS))).unwrap_or(0);
        from + (to - from) * f64::from(part) / f64::from(PARTS)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two counts")]
    pub fn count(&mut self, from: u32, to: u32) -> u32 {
        self.between(f64::from(from), f64::from(to)) as u32
    }

    pub fn is(&mut self, chance: f64) -> bool {
        self.between(0.0, 1.0) < chance
    }

    /// Of mean 0 and standard deviation 1, as Box and Muller draw it.
    pub fn normal(&mut self) -> f64 {
        let (far, turn) = (self.between(1e-9, 1.0), self.between(0.0, std::f64::consts::TAU));
        (-2.0 * far.ln()).sqrt() * turn.cos()
    }

    /// A factor around 1 whose logarithm scatters by `spread`.
    pub fn factor(&mut self, spread: f64) -> f64 {
        (spread * self.normal()).exp()
    }
}
