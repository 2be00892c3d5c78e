//! An embedding laid out for a host variant.

use memra_contract::{DType, Tensor, TensorSet};

use super::{EmbedVariant, ID, Sizes, run, tokens_of};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::input;
use crate::ops::matmul::PackedSegment;

pub(super) struct PreparedEmbed {
    variant: &'static EmbedVariant,
    sizes: Sizes,
    tokens: Vec<u32>,
    copies: Vec<PackedSegment>,
    out: Guarded<f32>,
}

impl PreparedEmbed {
    pub(super) fn new(
        variant: &'static EmbedVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let Sizes { m, hidden, segment } = sizes;
        let tokens = tokens_of(sizes, inputs)?;
        let stored = input(ID, inputs, "weight", DType::U8, segment.bytes(hidden))?;
        let copies = (0..copies.max(1))
            .map(|_| PackedSegment::pack(segment, hidden, variant.layout, &stored.bytes))
            .collect::<Result<_, _>>()?;
        Ok(Self { variant, sizes, tokens, copies, out: Guarded::new(m * hidden) })
    }
}

impl Prepared for PreparedEmbed {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let weight = &self.copies[copy % self.copies.len()];
        run(pool, self.variant, weight, &self.tokens, self.out.as_mut_slice());
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        TensorSet::new(vec![Tensor::f32("out", &[self.sizes.m, self.sizes.hidden], self.out.as_slice())])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.out.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        self.copies[0].bytes.as_slice().len()
    }
}
