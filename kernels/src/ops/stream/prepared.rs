//! A stream laid out for a host variant.

use memra_contract::order::STREAM_CHUNK;
use memra_contract::{DType, Tensor, TensorSet};

use super::problem::{Op, Sizes};
use super::{ID, scalar};
use crate::backend::host::{Partition, Pool};
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::{Bytes, Guarded};
use crate::ops::{input, shared};

pub(super) struct PreparedStream {
    sizes: Sizes,
    copies: Vec<Bytes>,
    out: Guarded<u32>,
}

impl PreparedStream {
    pub(super) fn new(sizes: Sizes, inputs: &TensorSet, copies: usize) -> Result<Self, PrepareError> {
        let input = source(sizes, inputs)?;
        let copies = (0..copies.max(1)).map(|_| Bytes::copy_of(&input.bytes)).collect::<Result<Vec<_>, _>>()?;
        let out = if sizes.op == Op::Read { sizes.parts * 2 } else { sizes.words() };
        Ok(Self { sizes, copies, out: Guarded::new(out) })
    }
}

/// The input of a problem.
pub(super) fn source(sizes: Sizes, inputs: &TensorSet) -> Result<&Tensor, PrepareError> {
    match sizes.op {
        Op::Write => input(ID, inputs, "seed", DType::I32, 1),
        Op::Read | Op::Copy => input(ID, inputs, "in", DType::I32, sizes.words()),
    }
}

impl Prepared for PreparedStream {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let words = self.copies[copy % self.copies.len()].as_slice().as_chunks::<4>().0;
        let Sizes { op, parts, .. } = self.sizes;
        let unit = if op == Op::Read { 2 } else { STREAM_CHUNK };
        let tasks = shared::tasks(pool, self.sizes.words(), STREAM_CHUNK);
        let mut partition = Partition::even(self.out.as_slice().len(), tasks, unit);
        let tasks = partition.parts();
        let lent = partition.lend(self.out.as_mut_slice(), 1);
        pool.run(tasks, &|task| {
            let mut part = lent.take(task);
            let first = part.first();
            let out = part.row(0);
            match op {
                Op::Read => {
                    for (sums, part) in out.as_chunks_mut::<2>().0.iter_mut().zip(first / 2..) {
                        *sums = scalar::read(words, parts, part);
                    }
                }
                Op::Write => scalar::write(first / 4, u32::from_le_bytes(words[0]), out),
                Op::Copy => scalar::copy(&words[first..], out),
            }
        });
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        let (name, shape) = match self.sizes.op {
            Op::Read => ("sums", vec![self.sizes.parts, 2]),
            Op::Write | Op::Copy => ("out", vec![self.sizes.words()]),
        };
        TensorSet::new(vec![shared::integers(name, &shape, self.out.as_slice())])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.out.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        self.copies[0].as_slice().len()
    }
}
