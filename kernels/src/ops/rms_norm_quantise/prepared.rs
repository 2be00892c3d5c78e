//! RMS norm and quantisation laid out for a host variant.

use memra_contract::order::QUANT_BLOCK;
use memra_contract::{DType, TensorSet};

use super::{ID, RmsNormQuantiseVariant, Sizes, run};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::{input, quantise};

pub(super) struct PreparedRmsNormQuantise {
    variant: &'static RmsNormQuantiseVariant,
    sizes: Sizes,
    copies: Vec<Vec<f32>>,
    weight: Vec<f32>,
    quants: Guarded<i8>,
    scales: Guarded<f32>,
    sums: Guarded<i16>,
}

impl PreparedRmsNormQuantise {
    pub(super) fn new(
        variant: &'static RmsNormQuantiseVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let elements = sizes.m * sizes.hidden;
        let x = input(ID, inputs, "x", DType::F32, elements)?.to_f32();
        let weight = input(ID, inputs, "weight", DType::F32, sizes.hidden)?.to_f32();
        Ok(Self {
            variant,
            sizes,
            copies: vec![x; copies.max(1)],
            weight,
            quants: Guarded::new(elements),
            scales: Guarded::new(elements / QUANT_BLOCK),
            sums: Guarded::new(elements / QUANT_BLOCK),
        })
    }
}

impl Prepared for PreparedRmsNormQuantise {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let Sizes { m, hidden, epsilon } = self.sizes;
        let x = &self.copies[copy % self.copies.len()];
        let (quants, scales, sums) = (&mut self.quants, &mut self.scales, &mut self.sums);
        run(
            pool,
            self.variant,
            m,
            hidden,
            epsilon,
            x,
            &self.weight,
            quants.as_mut_slice(),
            scales.as_mut_slice(),
            sums.as_mut_slice(),
        );
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        let (quants, scales, sums) = (self.quants.as_slice(), self.scales.as_slice(), self.sums.as_slice());
        quantise::planes(self.sizes.m, self.sizes.hidden, quants, scales, sums)
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
