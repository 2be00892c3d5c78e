//! Problems of the matrix rate, their inputs and their right answers.
//!
//! A group of four warps computes `C[64, 256]`, the sum over steps `s < depth` of `A_s x B`. Row tile `i` of `A_s` (16 rows) is
//! tile `(i + s + group) mod 4` of the input, so operands change every step. The four tiles add up to a matrix with one 1 a row:
//! four steps add a row of `B` to every row of `C`, and sums stay below 2^13 in magnitude, which every accumulator holds exactly
//! (sums of 8-bit floats are kept with 14 significant bits on some devices).

use memra_contract::{Cost, Problem, ProblemError, Tensor, TensorSet};

use super::{FAMILIES, ID};
use crate::contract::{InputError, Reference};
use crate::input::Stream;
use crate::ops::shared;

/// Rows of a tile.
pub(super) const TILE: usize = 16;
/// Row tiles of the input, and of a group.
pub(super) const TILES: usize = 4;
/// Rows of a group.
pub(super) const ROWS: usize = TILE * TILES;
/// Columns of a group.
pub(super) const COLUMNS: usize = 256;
/// Columns of the output.
pub(super) const OUT_COLUMNS: usize = 8;
/// Most steps: sums of magnitude 3 every four steps, and what two tiles leave between, stay below 2^13.
const MOST_STEPS: u64 = 8192;
/// Warps of a group.
const WARPS_OF_GROUP: usize = 4;

/// Type of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// Upper half of an f32; sums in f32.
    Bf16,
    /// IEEE binary16; sums in f32.
    F16,
    /// Eight-bit float with four exponent bits (e4m3); sums in f32.
    Fp8,
    /// Signed byte; sums in i32.
    Int8,
}

impl Element {
    pub(super) const ALL: [Self; 4] = [Self::Bf16, Self::F16, Self::Fp8, Self::Int8];

    /// Name, as it stands in problems.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
        }
    }

    /// Length of a product of one step: 32 bytes of operands.
    pub(super) const fn k(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 16,
            Self::Fp8 | Self::Int8 => 32,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) element: Element,
    pub(super) depth: usize,
    pub(super) warps: usize,
    pub(super) blocks: usize,
}

impl Sizes {
    pub(super) fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, &["type", "depth", "warps", "blocks"])?;
        let value = |axis: &str, value: String, why: &str| ProblemError::Value {
            contract: ID.to_owned(),
            axis: axis.to_owned(),
            value,
            why: why.to_owned(),
        };
        let word = problem.word(ID, "type")?;
        let found = Element::ALL.into_iter().find(|element| element.name() == word);
        let element = found.ok_or_else(|| value("type", word, "it must be bf16, f16, fp8 or int8"))?;
        let depth = problem.size(ID, "depth", 1..=MOST_STEPS)? as usize;
        let warps = problem.size(ID, "warps", 4..=8)? as usize;
        if !warps.is_multiple_of(WARPS_OF_GROUP) {
            return Err(value("warps", warps.to_string(), "it must be 4 or 8"));
        }
        Ok(Self { element, depth, warps, blocks: problem.size(ID, "blocks", 1..=4096)? as usize })
    }

    pub(super) const fn groups(self) -> usize {
        self.blocks * self.warps / WARPS_OF_GROUP
    }

    pub(super) const fn shape(self) -> [usize; 3] {
        [self.groups(), ROWS, OUT_COLUMNS]
    }

    pub(super) const fn cost(self) -> Cost {
        let k = self.element.k();
        let written = self.groups() * ROWS * OUT_COLUMNS * 4;
        Cost {
            flops: (2 * ROWS * COLUMNS * k * self.depth * self.groups()) as u64,
            read_bytes: ((ROWS + COLUMNS) * 32) as u64,
            written_bytes: written as u64,
        }
    }

    pub(super) fn inputs(self, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        let is_dense = match family {
            "mixed" => false,
            "dense" => true,
            _ => return Err(shared::no_family(ID, family, FAMILIES)),
        };
        // Dense values are never zero: -2, -1, 1 or 2, and the columns -3 to 3 without 0.
        let value = |stream: Stream, i: usize, most: u64| {
            let bits = stream.bits(i as u64) >> 8;
            if is_dense {
                let magnitude = (bits >> 1) % most + 1;
                if bits & 1 == 0 { magnitude as i8 } else { -(magnitude as i8) }
            } else {
                (bits % (2 * most + 1)) as i8 - most as i8
            }
        };
        let k = self.element.k();
        let (rows, columns) = (Stream::new(seed, "a"), Stream::new(seed, "b"));
        let tile = TILE * k;
        let mut a: Vec<i8> = (0..2 * tile).map(|i| value(rows, i, 2)).collect();
        for i in 0..2 * tile {
            // One 1 a row of the sum of all four, in the third tile.
            let row = i / k;
            let one = i8::from(row < TILE && i % k == (row * 5 + 3) % k);
            a.push(one - a[i]);
        }
        let b: Vec<i8> = (0..k * COLUMNS).map(|i| value(columns, i, 3)).collect();
        Ok(TensorSet::new(vec![Tensor::i8("a", &[TILES, TILE, k], &a), Tensor::i8("b", &[k, COLUMNS], &b)]))
    }

    pub(super) fn ordered_outputs(self, inputs: &TensorSet) -> Vec<u32> {
        let a = inputs.get("a").map(Tensor::to_i8).unwrap_or_default();
        let b = inputs.get("b").map(Tensor::to_i8).unwrap_or_default();
        // Only four arrangements of the rows differ.
        let arrangement = |turn: usize| {
            let mut out = Vec::with_capacity(ROWS * OUT_COLUMNS);
            for (row, column) in (0..ROWS).flat_map(|row| (0..OUT_COLUMNS).map(move |column| (row, column))) {
                let sum =
                    (0..COLUMNS / OUT_COLUMNS).map(|n| (n as i64 + 1) * self.sum(&a, &b, turn, row, 8 * n + column));
                out.push(sum.sum::<i64>() as u32);
            }
            out
        };
        let all: Vec<_> = (0..TILES.min(self.groups())).map(arrangement).collect();
        (0..self.groups()).flat_map(|group| all[group % TILES].iter().copied()).collect()
    }

    /// One sum of a group in closed form: every tile of the input as often as it had its turn.
    fn sum(self, a: &[i8], b: &[i8], turn: usize, row: usize, column: usize) -> i64 {
        let k = self.element.k();
        let product = |tile: usize| -> i64 {
            let a = &a[(tile * TILE + row % TILE) * k..][..k];
            a.iter().zip(b.iter().skip(column).step_by(COLUMNS)).map(|(a, b)| i64::from(*a) * i64::from(*b)).sum()
        };
        let turns = |tile: usize| {
            let first = (tile + 2 * TILES - row / TILE - turn % TILES) % TILES;
            (self.depth + TILES - 1 - first) / TILES
        };
        (0..TILES).map(|tile| turns(tile) as i64 * product(tile)).sum()
    }

    /// Sums of magnitude and of turns in f64, step by step: another way to the same numbers.
    pub(super) fn reference(self, inputs: &TensorSet) -> Reference {
        let a = inputs.get("a").map(Tensor::to_i8).unwrap_or_default();
        let b = inputs.get("b").map(Tensor::to_i8).unwrap_or_default();
        let k = self.element.k();
        let mut by_turn: Vec<Vec<f64>> = Vec::new();
        for turn in 0..TILES.min(self.groups()) {
            let mut values = Vec::with_capacity(ROWS * OUT_COLUMNS);
            for row in 0..ROWS {
                // Rows of all steps added first, then one product.
                let mut total = vec![0.0_f64; k];
                for step in 0..self.depth {
                    let tile = (row / TILE + step + turn) % TILES;
                    for (total, a) in total.iter_mut().zip(&a[(tile * TILE + row % TILE) * k..]) {
                        *total += f64::from(*a);
                    }
                }
                let mut folded = [0.0_f64; OUT_COLUMNS];
                for (total, b) in total.iter().zip(b.chunks_exact(COLUMNS)) {
                    for (column, b) in b.iter().enumerate() {
                        let weight = (column / OUT_COLUMNS + 1) as f64;
                        folded[column % OUT_COLUMNS] += weight * total * f64::from(*b);
                    }
                }
                values.extend(folded);
            }
            by_turn.push(values);
        }
        let values: Vec<f64> = (0..self.groups()).flat_map(|group| by_turn[group % TILES].iter().copied()).collect();
        Reference { scales: vec![1.0; values.len()], values }
    }
}
