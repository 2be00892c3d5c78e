//! An embedding laid out for a host variant.

use memra_contract::{DType, Tensor, TensorSet};

use super::{EmbedVariant, ID, Sizes, run};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::matmul::PackedSegment;
use crate::ops::{input, shared};

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
        let tokens = shared::to_integers(input(ID, inputs, "tokens", DType::I32, m)?);
        if let Some(token) = tokens.iter().find(|token| **token as usize >= segment.n) {
            let why = format!("names row {token} of {}", segment.n);
            return Err(PrepareError::Input { contract: ID, tensor: "tokens".to_owned(), why });
        }
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
