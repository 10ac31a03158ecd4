//! The matrices on the host, and the check of a product.
//!
//! Untouched matrices are zero pages that cost nothing until the driver reads or writes them, so that many tenants of a
//! simulated GPU fit a small machine. Filled ones hold numbers from 0 up to 1, made from the seed and the place alone.

use crate::plan::mix;
use crate::record::Verdict;

/// A value no kernel stores: not a number, with our own bits.
const MARK: u32 = 0x7FC0_BE27;

/// Elements compared by [`Matrices::verify`].
const CHECKED: u32 = 16;

#[derive(Debug)]
pub struct Matrices {
    n: usize,
    seed: u64,
    pub a: Vec<f32>,
    pub b: Vec<f32>,
    pub c: Vec<f32>,
}

impl Matrices {
    /// Three n×n matrices of zeros, not yet in memory.
    pub fn zeroed(n: u32, seed: u64) -> Self {
        let n = n as usize;
        Self { n, seed, a: vec![0.0; n * n], b: vec![0.0; n * n], c: vec![0.0; n * n] }
    }

    pub fn fill(&mut self) {
        for (matrix, salt) in [(&mut self.a, 0xA), (&mut self.b, 0xB)] {
            for (index, element) in (0u64..).zip(matrix.iter_mut()) {
                *element = unit(mix(self.seed ^ salt ^ (index << 8)));
            }
        }
    }

    /// Overwrites C with a mark that only a copy from the device takes away.
    pub fn mark_result(&mut self) {
        self.c.fill(f32::from_bits(MARK));
    }

    /// Compares some elements of C, the corners among them, with sums in double precision. All terms are positive, so a
    /// product in single precision is off by at most n roundings, relatively: that bound is the tolerance.
    ///
    /// A simulated device says that it copied and brings nothing: the mark is still everywhere, and there is nothing to
    /// judge.
    pub fn verify(&self) -> Verdict {
        if self.places().all(|(row, col)| self.c[row * self.n + col].to_bits() == MARK) {
            return Verdict::NotVerified { reason: "simulated device, no data came back".to_owned() };
        }
        let tolerance = self.n as f64 * f64::from(f32::EPSILON);
        let mut worst = 0.0f64;
        for (row, col) in self.places() {
            let (expected, found) = (self.expected(row, col), f64::from(self.c[row * self.n + col]));
            let error = (found - expected).abs() / expected.abs().max(f64::MIN_POSITIVE);
            if error.is_nan() || error > tolerance {
                let found = found.is_finite().then_some(found);
                return Verdict::Wrong { row: small(row), col: small(col), expected, found };
            }
            worst = worst.max(error);
        }
        Verdict::Correct { checked: CHECKED, worst_relative_error: worst }
    }

    fn expected(&self, row: usize, col: usize) -> f64 {
        let term = |k| f64::from(self.a[row * self.n + k]) * f64::from(self.b[k * self.n + col]);
        (0..self.n).map(term).sum()
    }

    fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let (last, n, seed) = (self.n - 1, self.n as u64, self.seed);
        let corners = [(0, 0), (0, last), (last, 0), (last, last)];
        let random = (u64::from(CHECKED) - 4..).map(move |index| {
            let place = mix(seed ^ (index << 16));
            (reduce(place >> 32, n), reduce(place & 0xFFFF_FFFF, n))
        });
        corners.into_iter().chain(random).take(CHECKED as usize)
    }
}

/// 32 random bits as a place below n.
fn reduce(bits: u64, n: u64) -> usize {
    usize::try_from((bits * n) >> 32).unwrap_or(0)
}

fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// The top 24 bits as a number from 0 up to 1; 24 bits are exact in an f32.
fn unit(bits: u64) -> f32 {
    (bits >> 40) as f32 / 16_777_216.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(n: u32) -> Matrices {
        let mut matrices = Matrices::zeroed(n, 7);
        matrices.fill();
        matrices
    }

    /// What the kernel does, in its order and precision.
    fn multiply(m: &mut Matrices) {
        for row in 0..m.n {
            for col in 0..m.n {
                m.c[row * m.n + col] =
                    (0..m.n).fold(0.0f32, |sum, k| m.a[row * m.n + k].mul_add(m.b[k * m.n + col], sum));
            }
        }
    }

    #[test]
    fn right_products_are_accepted() {
        for n in [1, 2, 3, 17, 64] {
            let mut matrices = filled(n);
            multiply(&mut matrices);
            assert!(matches!(matrices.verify(), Verdict::Correct { checked: CHECKED, .. }), "n = {n}");
        }
    }

    #[test]
    fn product_never_computed_is_refused() {
        assert!(matches!(filled(17).verify(), Verdict::Wrong { .. }));
    }

    #[test]
    fn transposed_product_is_refused() {
        let mut matrices = filled(17);
        multiply(&mut matrices);
        let n = matrices.n;
        matrices.c = (0..n * n).map(|at| matrices.c[at % n * n + at / n]).collect();
        assert!(matches!(matrices.verify(), Verdict::Wrong { .. }));
    }

    #[test]
    fn product_with_one_term_missing_is_refused() {
        let mut matrices = filled(17);
        multiply(&mut matrices);
        for row in 0..matrices.n {
            for col in 0..matrices.n {
                let last = matrices.n - 1;
                let term = matrices.a[row * matrices.n + last] * matrices.b[last * matrices.n + col];
                matrices.c[row * matrices.n + col] -= term;
            }
        }
        assert!(matches!(matrices.verify(), Verdict::Wrong { .. }));
    }

    #[test]
    fn result_that_never_came_back_is_not_judged() {
        let mut matrices = filled(17);
        matrices.mark_result();
        assert!(matches!(matrices.verify(), Verdict::NotVerified { .. }));
    }

    #[test]
    fn half_a_result_is_refused() {
        let mut matrices = filled(17);
        multiply(&mut matrices);
        let right = matrices.c[0];
        matrices.mark_result();
        matrices.c[0] = right;
        assert!(matches!(matrices.verify(), Verdict::Wrong { .. }));
    }

    #[test]
    fn not_a_number_is_refused() {
        let mut matrices = filled(4);
        matrices.c.fill(f32::NAN);
        assert!(matches!(matrices.verify(), Verdict::Wrong { found: None, .. }));
    }

    #[test]
    fn inputs_depend_on_the_seed_and_differ_from_each_other() {
        let (one, mut other) = (filled(16), Matrices::zeroed(16, 8));
        other.fill();
        assert_ne!(one.a, one.b);
        assert_ne!(one.a, other.a);
        assert!(one.a.iter().all(|x| (0.0..1.0).contains(x)));
    }
}
