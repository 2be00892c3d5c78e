//! Argmax laid out for a host variant.

use memra_contract::{DType, TensorSet};

use super::{ArgmaxVariant, ID, Sizes, run};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::{input, shared};

pub(super) struct PreparedArgmax {
    variant: &'static ArgmaxVariant,
    sizes: Sizes,
    copies: Vec<Vec<f32>>,
    out: Guarded<u32>,
}

impl PreparedArgmax {
    pub(super) fn new(
        variant: &'static ArgmaxVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let logits = input(ID, inputs, "logits", DType::F32, sizes.m * sizes.n)?.to_f32();
        Ok(Self { variant, sizes, copies: vec![logits; copies.max(1)], out: Guarded::new(sizes.m) })
    }
}

impl Prepared for PreparedArgmax {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let logits = &self.copies[copy % self.copies.len()];
        run(pool, self.variant, self.sizes.m, self.sizes.n, logits, self.out.as_mut_slice());
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        TensorSet::new(vec![shared::integers("out", &[self.sizes.m], self.out.as_slice())])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.out.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        size_of_val(self.copies[0].as_slice())
    }
}
