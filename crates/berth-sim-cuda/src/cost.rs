//! From a kernel's formula and a launch's arguments to what the launch costs.

use berth_proto::sim::KernelCost;

use crate::edge::Arguments;
use crate::ptx::{Factor, Kernel, Kind, Parameter};

/// Arithmetic of one thread of a kernel that says nothing about itself.
pub(crate) const DEFAULT_FLOPS_PER_THREAD: f64 = 1000.0;

/// Blocks and threads of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
}

impl Shape {
    pub(crate) fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |product: u64, n| product.saturating_mul((*n).into()))
    }

    pub(crate) fn threads_per_block(&self) -> u64 {
        self.block.iter().fold(1, |product: u64, n| product.saturating_mul((*n).into()))
    }
}

/// `None` if an argument that the formula needs was not passed.
pub(crate) fn cost(kernel: &Kernel, shape: Shape, arguments: &Arguments) -> Option<KernelCost> {
    let blocks = shape.blocks();
    let Some(formula) = &kernel.cost else {
        let threads = blocks as f64 * shape.threads_per_block() as f64;
        return Some(KernelCost { flops: threads * DEFAULT_FLOPS_PER_THREAD, bytes: 0.0, blocks });
    };
    let product = |factors: &[Factor]| {
        let values = factors.iter().map(|factor| value(*factor, &kernel.parameters, arguments));
        // Nothing said is nothing done; an empty product would be 1.
        if factors.is_empty() { Some(0.0) } else { values.product::<Option<f64>>() }
    };
    Some(KernelCost { flops: product(&formula.flops)?, bytes: product(&formula.bytes)?, blocks })
}

fn value(factor: Factor, parameters: &[Parameter], arguments: &Arguments) -> Option<f64> {
    let index = match factor {
        Factor::Number(number) => return Some(number),
        Factor::Parameter(index) => index,
    };
    let parameter = parameters.get(index)?;
    let raw = arguments.read(index, parameter.offset, parameter.bytes)?;
    let number = number(raw, parameter);
    (number.is_finite() && number >= 0.0).then_some(number)
}

/// The bytes of an argument as a number, by its declared type.
fn number(raw: [u8; 8], parameter: &Parameter) -> f64 {
    let bits = u64::from_le_bytes(raw);
    match (parameter.kind, parameter.bytes) {
        (Kind::Float, 4) => f64::from(f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]])),
        (Kind::Float, 8) => f64::from_bits(bits),
        (Kind::Signed, bytes @ 1..=8) => {
            let unused = 64 - 8 * bytes;
            ((bits << unused).cast_signed() >> unused) as f64
        }
        _ => bits as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::Pointers;

    const NONE: Arguments = Arguments { pointers: Pointers::NONE, extra: Pointers::NONE };

    fn kernel(line: &str) -> Kernel {
        let text = format!("// berth-cost: k {line}\n.entry k(.param .u32 a) {{}}");
        crate::ptx::scan(&text).unwrap().remove(0)
    }

    #[test]
    fn a_kernel_that_says_nothing_costs_by_its_threads() {
        let mut plain = kernel("flops 1");
        plain.cost = None;
        let cost = cost(&plain, Shape { grid: [4, 2, 1], block: [32, 1, 1] }, &NONE).unwrap();
        assert_eq!(cost, KernelCost { flops: 256_000.0, bytes: 0.0, blocks: 8 });
    }

    #[test]
    fn the_product_of_the_factors_is_the_cost() {
        let shape = Shape { grid: [1, 1, 1], block: [1, 1, 1] };
        let cost = cost(&kernel("flops 2 3 4 bytes 0.5"), shape, &NONE).unwrap();
        assert_eq!((cost.flops, cost.bytes), (24.0, 0.5));
    }

    #[test]
    fn a_needed_argument_that_is_missing_is_no_cost() {
        let shape = Shape { grid: [1, 1, 1], block: [1, 1, 1] };
        assert_eq!(cost(&kernel("flops p0"), shape, &NONE), None);
    }

    #[test]
    fn an_argument_is_read_by_its_type() {
        let parameter = |kind, bytes| Parameter { kind, bytes, offset: 0 };
        let raw = (-3_i32).to_le_bytes();
        let raw = [raw[0], raw[1], raw[2], raw[3], 0, 0, 0, 0];
        assert_eq!(number(raw, &parameter(Kind::Signed, 4)), -3.0);
        assert_eq!(number(raw, &parameter(Kind::Unsigned, 4)), 4_294_967_293.0);
        let half = 0.5_f32.to_le_bytes();
        assert_eq!(number([half[0], half[1], half[2], half[3], 0, 0, 0, 0], &parameter(Kind::Float, 4)), 0.5);
    }
}
