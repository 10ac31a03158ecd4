//! The text itself, and what it computes: a small interpreter of just the instructions in it, since no test has a GPU.
//! Whether a real assembler takes the text is not known here.

use std::collections::HashMap;

use super::*;

fn text() -> &'static str {
    MATMUL.to_str().expect("the PTX is ASCII")
}

#[test]
fn text_names_the_entry_and_its_cost() {
    let entry = ENTRY.to_str().expect("the name is ASCII");
    assert!(text().contains(&format!(".visible .entry {entry}(")));
    let cost = format!("// berth-cost: {entry} flops 2 p3 p3 p3 bytes 12 p3 p3");
    assert!(text().lines().any(|line| line == cost));
}

#[test]
fn parameters_are_three_pointers_and_the_size() {
    let parameters: Vec<&str> = text().lines().filter(|line| line.trim_start().starts_with(".param")).collect();
    let kinds: Vec<bool> = parameters.iter().map(|line| line.contains(".u64 ")).collect();
    assert_eq!(kinds, [true, true, true, false]);
    assert!(parameters[3].contains(".u32 param_n"));
}

#[test]
fn product_is_right_for_sizes_around_the_unrolling_and_the_block() {
    for n in [1, 2, 3, 4, 5, 7, 8, 15, 16, 17] {
        for block in [1, 4, 16] {
            assert_product(n, block);
        }
    }
}

#[test]
fn every_element_is_written_by_exactly_one_thread() {
    let mut grid = Grid::new(5, 4);
    grid.run();
    assert_eq!(grid.writes, vec![1; 25]);
}

/// Small integers: exact in single precision, so equality is the right question.
fn assert_product(n: u32, block: u32) {
    let mut grid = Grid::new(n, block);
    grid.run();
    let size = n as usize;
    for (row, col) in (0..size).flat_map(|row| (0..size).map(move |col| (row, col))) {
        let expected: f32 = (0..size).map(|k| grid.memory[0][row * size + k] * grid.memory[1][k * size + col]).sum();
        assert_eq!(grid.memory[2][row * size + col], expected, "n {n}, block {block}, element {row},{col}");
    }
}

/// Where the matrices lie: far apart, so that an address outside of one is inside of none.
const BASE: u64 = 1 << 32;

/// A launch on three matrices.
struct Grid {
    n: u32,
    block: u32,
    memory: [Vec<f32>; 3],
    writes: Vec<u32>,
    code: Vec<&'static str>,
    labels: HashMap<&'static str, usize>,
}

impl Grid {
    fn new(n: u32, block: u32) -> Self {
        let elements = (n * n) as usize;
        let ramp = |step: usize| (0..elements).map(|at| (at * step % 11) as f32 - 5.0).collect();
        let body = text().split_once("\n{\n").expect("the entry has a body").1;
        let (mut code, mut labels) = (Vec::new(), HashMap::new());
        for line in body.lines().map(str::trim) {
            match line.strip_suffix(':') {
                Some(label) => drop(labels.insert(label, code.len())),
                None if line.is_empty() || line.starts_with("//") || line.starts_with(".reg") || line == "}" => {}
                None => code.push(line.strip_suffix(';').expect("an instruction ends in a semicolon")),
            }
        }
        let memory = [ramp(3), ramp(7), vec![f32::NAN; elements]];
        Self { n, block, memory, writes: vec![0; elements], code, labels }
    }

    fn run(&mut self) {
        // Global row and column of every thread of the grid, those outside the matrix included.
        let side = self.n.div_ceil(self.block) * self.block;
        for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
            self.thread([y / self.block, x / self.block, y % self.block, x % self.block]);
        }
    }

    /// One thread, from the first instruction to its `ret`.
    fn thread(&mut self, [block_y, block_x, thread_y, thread_x]: [u32; 4]) {
        let special = [
            ("%ctaid.y", block_y),
            ("%ctaid.x", block_x),
            ("%tid.y", thread_y),
            ("%tid.x", thread_x),
            ("%ntid.y", self.block),
            ("%ntid.x", self.block),
            ("[param_n]", self.n),
        ];
        let mut registers: HashMap<&str, u64> =
            special.iter().map(|(name, value)| (*name, u64::from(*value))).collect();
        for (index, name) in ["[param_a]", "[param_b]", "[param_c]"].into_iter().enumerate() {
            registers.insert(name, BASE * (index as u64 + 1));
        }
        let mut at = 0;
        while self.code[at] != "ret" {
            at = self.step(self.code[at], &mut registers).unwrap_or(at + 1);
        }
    }

    /// Does one instruction; a branch taken says where to.
    fn step(&mut self, line: &'static str, registers: &mut HashMap<&'static str, u64>) -> Option<usize> {
        let (guard, line) = match line.strip_prefix('@') {
            Some(rest) => rest.split_once(' ').expect("a guard is followed by its instruction"),
            None => ("", line),
        };
        let (opcode, operands) = line.split_once(' ').expect("an instruction has operands");
        let operands: Vec<&'static str> = operands.split(", ").collect();
        if opcode == "bra" {
            let taken = guard.is_empty() || registers[guard] == 1;
            return taken.then(|| self.labels[operands[0]]);
        }
        let value = |index: usize| operand(operands[index], registers);
        let result = match opcode {
            "ld.param.u32" | "ld.param.u64" | "mov.u32" | "mov.f32" | "cvta.to.global.u64" => value(1),
            "mad.lo.u32" => (value(1) * value(2) + value(3)) & 0xFFFF_FFFF,
            "mul.wide.u32" => value(1) * value(2),
            "add.u64" => value(1) + value(2),
            "sub.u32" => value(1) - value(2),
            "shl.b64" => value(1) << value(2),
            "shr.u32" => value(1) >> value(2),
            "and.b32" => value(1) & value(2),
            "or.pred" => value(1) | value(2),
            "setp.ge.u32" => u64::from(value(1) >= value(2)),
            "setp.eq.u32" => u64::from(value(1) == value(2)),
            "setp.ne.u32" => u64::from(value(1) != value(2)),
            "ld.global.nc.f32" => {
                let (matrix, element) = place(address(operands[1], registers));
                assert!(matrix < 2, "{line}: only the inputs may be read as constant");
                u64::from(self.memory[matrix][element].to_bits())
            }
            "fma.rn.f32" => u64::from(float(value(1)).mul_add(float(value(2)), float(value(3))).to_bits()),
            "st.global.f32" => {
                let (matrix, element) = place(address(operands[0], registers));
                assert_eq!(matrix, 2, "{line}: only the result may be written");
                self.memory[matrix][element] = float(value(1));
                self.writes[element] += 1;
                return None;
            }
            _ => panic!("the interpreter does not know {opcode}"),
        };
        registers.insert(operands[0], result);
        None
    }
}

fn operand(text: &str, registers: &HashMap<&str, u64>) -> u64 {
    match text.strip_prefix("0f") {
        Some(bits) => u64::from_str_radix(bits, 16).expect("a float is written in hexadecimal"),
        None => text.parse().unwrap_or_else(|_| registers[text]),
    }
}

/// `[%register]` or `[%register+offset]`.
fn address(text: &str, registers: &HashMap<&str, u64>) -> u64 {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    let (register, offset) = inner.split_once('+').unwrap_or((inner, "0"));
    registers[register] + offset.parse::<u64>().expect("an offset is a number")
}

/// Which matrix, and which element of it.
fn place(address: u64) -> (usize, usize) {
    assert_eq!(address % 4, 0, "an element lies on its boundary");
    let matrix = usize::try_from(address / BASE).expect("an address is small") - 1;
    (matrix, usize::try_from(address % BASE / 4).expect("an offset is small"))
}

fn float(bits: u64) -> f32 {
    f32::from_bits(u32::try_from(bits).expect("a float has 32 bits"))
}
