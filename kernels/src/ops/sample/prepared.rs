//! Sampling laid out for a host variant.

use memra_contract::{DType, TensorSet};

use super::{ID, RowParams, SampleScratch, SampleVariant, Sizes, inputs, run};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::{input, shared};

pub(super) struct PreparedSample {
    variant: &'static SampleVariant,
    sizes: Sizes,
    copies: Vec<Vec<f32>>,
    params: Vec<RowParams>,
    scratch: SampleScratch,
    out: Guarded<u32>,
}

impl PreparedSample {
    pub(super) fn new(
        variant: &'static SampleVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let logits = input(ID, inputs, "logits", DType::F32, sizes.m * sizes.n)?.to_f32();
        Ok(Self {
            variant,
            sizes,
            copies: vec![logits; copies.max(1)],
            params: inputs::params_of(sizes, inputs)?,
            scratch: SampleScratch::new(),
            out: Guarded::new(sizes.m),
        })
    }
}

impl Prepared for PreparedSample {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let logits = &self.copies[copy % self.copies.len()];
        let Sizes { m, n, .. } = self.sizes;
        run(pool, self.variant, m, n, logits, &self.params, &mut self.scratch, self.out.as_mut_slice());
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
