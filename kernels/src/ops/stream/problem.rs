//! Problems of a stream, their inputs and their right answers.

use std::num::NonZero;

use memra_contract::order::{STREAM_CHUNK, stream_pattern, stream_read};
use memra_contract::{Cost, DType, Problem, ProblemError, Tensor, TensorSet};

use super::{FAMILIES, ID};
use crate::contract::{InputError, Reference};
use crate::input::Stream as Counter;
use crate::ops::shared;

/// Bytes of one chunk.
pub(super) const CHUNK_BYTES: u64 = STREAM_CHUNK as u64 * 4;

/// Most bytes of a stream: 8 GiB.
pub(super) const MOST_BYTES: u64 = 8 << 30;

/// Bytes that a part has by default, where that makes at least [`FEWEST_PARTS`] of them.
const PART_BYTES: u64 = 128 << 10;

/// Parts that a stream has at least by default, where it has so many chunks.
const FEWEST_PARTS: u64 = 512;

/// Parts whose sums the values of a written or copied stream are.
const JUDGED_PARTS: usize = 64;

/// Words after which generated inputs repeat, but for what each block adds.
const BLOCK_WORDS: usize = 16_384;

/// What is done with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write,
    Copy,
}

impl Op {
    pub(super) const ALL: [(Self, &'static str); 3] =
        [(Self::Read, "read"), (Self::Write, "write"), (Self::Copy, "copy")];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) op: Op,
    pub(super) bytes: usize,
    pub(super) parts: usize,
}

impl Sizes {
    pub(super) fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, &["op", "bytes", "parts"])?;
        let word = problem.word(ID, "op")?;
        let value = |axis: &str, value: String, why: &str| ProblemError::Value {
            contract: ID.to_owned(),
            axis: axis.to_owned(),
            value,
            why: why.to_owned(),
        };
        let found = Op::ALL.into_iter().find(|(_, name)| *name == word);
        let (op, _) = found.ok_or_else(|| value("op", word, "it must be read, write or copy"))?;
        let bytes = problem.size(ID, "bytes", CHUNK_BYTES..=MOST_BYTES)?;
        if !bytes.is_multiple_of(CHUNK_BYTES) {
            return Err(value("bytes", bytes.to_string(), "it must be a multiple of 16384"));
        }
        let chunks = bytes / CHUNK_BYTES;
        let parts = match problem.get("parts") {
            Some(_) => problem.size(ID, "parts", 1..=chunks)?,
            None => (bytes / PART_BYTES).max(FEWEST_PARTS).min(chunks),
        };
        Ok(Self { op, bytes: bytes as usize, parts: parts as usize })
    }

    pub(super) const fn words(self) -> usize {
        self.bytes / 4
    }

    pub(super) const fn chunks(self) -> usize {
        self.words() / STREAM_CHUNK
    }

    /// Chunks of the smallest part.
    pub(super) const fn least_chunks(self) -> usize {
        self.chunks() / self.parts
    }

    pub(super) fn problem(self) -> Problem {
        let problem = Problem::new().with_word("op", self.op.name());
        problem.with("bytes", self.bytes as u64).with("parts", self.parts as u64)
    }

    pub(super) const fn cost(self) -> Cost {
        let bytes = self.bytes as u64;
        match self.op {
            Op::Read => Cost { flops: bytes / 2, read_bytes: bytes, written_bytes: self.parts as u64 * 8 },
            Op::Write => Cost { flops: bytes / 4, read_bytes: 4, written_bytes: bytes },
            Op::Copy => Cost { flops: 0, read_bytes: bytes, written_bytes: bytes },
        }
    }

    pub(super) fn inputs(self, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        let is_random = match family {
            "random" => true,
            "index" => false,
            _ => return Err(shared::no_family(ID, family, FAMILIES)),
        };
        let tensor = if self.op == Op::Write {
            let word = if is_random { Counter::new(seed, "seed").bits(0) as u32 } else { 0 };
            shared::integers("seed", &[1], &[word])
        } else {
            let counter = is_random.then(|| Counter::new(seed, "in"));
            let bytes = generate(self.words(), counter);
            Tensor { name: "in".to_owned(), dtype: DType::I32, shape: vec![self.words()], bytes }
        };
        Ok(TensorSet::new(vec![tensor]))
    }

    pub(super) fn ordered_outputs(self, inputs: &TensorSet) -> TensorSet {
        let tensor = match self.op {
            Op::Read => {
                let sums = stream_read(words_of(inputs.get("in")), self.parts);
                shared::integers("sums", &[self.parts, 2], sums.as_flattened())
            }
            Op::Write => {
                let seed = inputs.get("seed").map(shared::to_integers).unwrap_or_default();
                let seed = seed.first().copied().unwrap_or_default();
                let mut bytes = vec![0; self.bytes];
                for (vector, index) in bytes.as_chunks_mut::<16>().0.iter_mut().zip(0..) {
                    for (to, word) in vector.as_chunks_mut::<4>().0.iter_mut().zip(stream_pattern(index, seed)) {
                        *to = word.to_le_bytes();
                    }
                }
                Tensor { name: "out".to_owned(), dtype: DType::I32, shape: vec![self.words()], bytes }
            }
            Op::Copy => {
                let bytes = inputs.get("in").map(|tensor| tensor.bytes.clone()).unwrap_or_default();
                Tensor { name: "out".to_owned(), dtype: DType::I32, shape: vec![self.words()], bytes }
            }
        };
        TensorSet::new(vec![tensor])
    }

    pub(super) fn reference(self, inputs: &TensorSet) -> Reference {
        let values = match self.op {
            Op::Read => values_of(&stream_read(words_of(inputs.get("in")), self.parts)),
            Op::Copy => values_of(&stream_read(words_of(inputs.get("in")), JUDGED_PARTS)),
            Op::Write => output_values(&self.ordered_outputs(inputs)),
        };
        Reference { scales: vec![1.0; values.len()], values }
    }
}

/// Sums of the parts that were read, or of 64 parts of what was written: a stream of gigabytes has few values.
pub(super) fn output_values(outputs: &TensorSet) -> Vec<f64> {
    match outputs.get("sums") {
        Some(sums) => shared::to_integers(sums).into_iter().map(f64::from).collect(),
        None => values_of(&stream_read(words_of(outputs.get("out")), JUDGED_PARTS)),
    }
}

fn values_of(sums: &[[u32; 2]]) -> Vec<f64> {
    sums.as_flattened().iter().copied().map(f64::from).collect()
}

fn words_of(tensor: Option<&Tensor>) -> &[[u8; 4]] {
    tensor.map(|tensor| tensor.bytes.as_chunks::<4>().0).unwrap_or_default()
}

/// Words of a stream by all CPUs: a block of random words, to which every block adds another number; or the number of each
/// word.
fn generate(words: usize, counter: Option<Counter>) -> Vec<u8> {
    let pattern: Vec<u32> = match counter {
        Some(counter) => (0..BLOCK_WORDS as u64).map(|i| counter.bits(i) as u32).collect(),
        None => (0..BLOCK_WORDS as u32).collect(),
    };
    let step = if counter.is_some() { 0x9E37_79B1 } else { BLOCK_WORDS as u32 };
    let mut bytes = vec![0_u8; words * 4];
    let blocks = words.div_ceil(BLOCK_WORDS);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(blocks.div_ceil(64)).max(1);
    let blocks_of_thread = blocks.div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for (thread, part) in bytes.chunks_mut(blocks_of_thread * BLOCK_WORDS * 4).enumerate() {
            let pattern = &pattern;
            let mut work = move || {
                for (block, number) in part.chunks_mut(BLOCK_WORDS * 4).zip(thread * blocks_of_thread..) {
                    let added = (number as u32).wrapping_mul(step);
                    for (to, word) in block.as_chunks_mut::<4>().0.iter_mut().zip(pattern) {
                        *to = word.wrapping_add(added).to_le_bytes();
                    }
                }
            };
            if threads == 1 {
                work();
            } else {
                scope.spawn(work);
            }
        }
    });
    bytes
}
