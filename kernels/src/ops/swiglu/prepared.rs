//! SwiGLU laid out for a host variant.

use memra_contract::{DType, Tensor, TensorSet};

use super::{ID, Sizes, SwigluVariant, run};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::input;

pub(super) struct PreparedSwiglu {
    variant: &'static SwigluVariant,
    sizes: Sizes,
    copies: Vec<Vec<f32>>,
    out: Guarded<f32>,
}

impl PreparedSwiglu {
    pub(super) fn new(
        variant: &'static SwigluVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let gate_up = input(ID, inputs, "gate_up", DType::F32, sizes.m * 2 * sizes.ffn)?.to_f32();
        Ok(Self { variant, sizes, copies: vec![gate_up; copies.max(1)], out: Guarded::new(sizes.m * sizes.ffn) })
    }
}

impl Prepared for PreparedSwiglu {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let gate_up = &self.copies[copy % self.copies.len()];
        run(pool, self.variant, self.sizes.m, self.sizes.ffn, gate_up, self.out.as_mut_slice());
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        TensorSet::new(vec![Tensor::f32("out", &[self.sizes.m, self.sizes.ffn], self.out.as_slice())])
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
