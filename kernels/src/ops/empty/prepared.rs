//! An empty launch on a host: a call of the thread pool.

use std::sync::Mutex;

use memra_contract::{DType, TensorSet};

use super::{ID, Sizes, scalar};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::{input, shared};

pub(super) struct PreparedEmpty {
    blocks: usize,
    copies: Vec<u32>,
    out: Guarded<u32>,
}

impl PreparedEmpty {
    pub(super) fn new(sizes: Sizes, inputs: &TensorSet, copies: usize) -> Result<Self, PrepareError> {
        let words = shared::to_integers(input(ID, inputs, "word", DType::I32, 1)?);
        let word = words.first().copied().unwrap_or_default();
        Ok(Self { blocks: sizes.blocks, copies: vec![word; copies.max(1)], out: Guarded::new(1) })
    }
}

impl Prepared for PreparedEmpty {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let word = self.copies[copy % self.copies.len()];
        let out = Mutex::new(self.out.as_mut_slice());
        pool.run(self.blocks, &|block| {
            if block == 0
                && let Ok(mut out) = out.lock()
            {
                scalar::kernel(block, word, &mut out);
            }
        });
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        TensorSet::new(vec![shared::integers("out", &[1], self.out.as_slice())])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.out.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        size_of::<u32>()
    }
}
