//! SwiGLU and quantisation laid out for a host variant.

use memra_contract::order::QUANT_BLOCK;
use memra_contract::{DType, TensorSet};

use super::{ID, Sizes, SwigluQuantiseVariant, run};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::{input, quantise};

pub(super) struct PreparedSwigluQuantise {
    variant: &'static SwigluQuantiseVariant,
    sizes: Sizes,
    copies: Vec<Vec<f32>>,
    quants: Guarded<i8>,
    scales: Guarded<f32>,
    sums: Guarded<i16>,
}

impl PreparedSwigluQuantise {
    pub(super) fn new(
        variant: &'static SwigluQuantiseVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let elements = sizes.m * sizes.ffn;
        let gate_up = input(ID, inputs, "gate_up", DType::F32, 2 * elements)?.to_f32();
        Ok(Self {
            variant,
            sizes,
            copies: vec![gate_up; copies.max(1)],
            quants: Guarded::new(elements),
            scales: Guarded::new(elements / QUANT_BLOCK),
            sums: Guarded::new(elements / QUANT_BLOCK),
        })
    }
}

impl Prepared for PreparedSwigluQuantise {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let gate_up = &self.copies[copy % self.copies.len()];
        let (quants, scales, sums) = (&mut self.quants, &mut self.scales, &mut self.sums);
        run(
            pool,
            self.variant,
            self.sizes.m,
            self.sizes.ffn,
            gate_up,
            quants.as_mut_slice(),
            scales.as_mut_slice(),
            sums.as_mut_slice(),
        );
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        let (quants, scales, sums) = (self.quants.as_slice(), self.scales.as_slice(), self.sums.as_slice());
        quantise::planes(self.sizes.m, self.sizes.ffn, quants, scales, sums)
    }

    fn poison(&mut self, pattern: u32) {
        self.quants.poison(pattern);
        self.scales.poison(pattern);
        self.sums.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.quants.guards_hold() && self.scales.guards_hold() && self.sums.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        size_of_val(self.copies[0].as_slice())
    }
}
