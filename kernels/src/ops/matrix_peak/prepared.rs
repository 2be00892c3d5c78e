//! The matrix rate on a host: the scalar product, a group a task.

use memra_contract::{DType, Tensor, TensorSet};

use super::problem::{COLUMNS, OUT_COLUMNS, ROWS, Sizes};
use super::{ID, scalar};
use crate::backend::host::{Partition, Pool};
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::{input, shared};

pub(super) struct PreparedMatrixPeak {
    sizes: Sizes,
    copies: Vec<(Vec<i8>, Vec<i8>)>,
    out: Guarded<u32>,
}

/// Rows and columns of the input.
pub(super) fn operands(sizes: Sizes, inputs: &TensorSet) -> Result<(Vec<i8>, Vec<i8>), PrepareError> {
    let k = sizes.element.k();
    let a = input(ID, inputs, "a", DType::I8, ROWS * k).map(Tensor::to_i8)?;
    let b = input(ID, inputs, "b", DType::I8, COLUMNS * k).map(Tensor::to_i8)?;
    Ok((a, b))
}

impl PreparedMatrixPeak {
    pub(super) fn new(sizes: Sizes, inputs: &TensorSet, copies: usize) -> Result<Self, PrepareError> {
        let operands = operands(sizes, inputs)?;
        let out = Guarded::new(sizes.groups() * ROWS * OUT_COLUMNS);
        Ok(Self { sizes, copies: vec![operands; copies.max(1)], out })
    }
}

impl Prepared for PreparedMatrixPeak {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let (a, b) = &self.copies[copy % self.copies.len()];
        let Sizes { element, depth, .. } = self.sizes;
        let group_len = ROWS * OUT_COLUMNS;
        let tasks = shared::tasks(pool, self.sizes.groups(), 1);
        let mut partition = Partition::even(self.out.as_slice().len(), tasks, group_len);
        let tasks = partition.parts();
        let lent = partition.lend(self.out.as_mut_slice(), 1);
        pool.run(tasks, &|task| {
            let mut part = lent.take(task);
            let first = part.first() / group_len;
            for (out, group) in part.row(0).chunks_exact_mut(group_len).zip(first..) {
                scalar::kernel(element, depth, group, a, b, out);
            }
        });
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        TensorSet::new(vec![shared::integers("out", &self.sizes.shape(), self.out.as_slice())])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.out.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        self.copies[0].0.len() + self.copies[0].1.len()
    }
}
