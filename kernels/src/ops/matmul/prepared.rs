//! A matrix product laid out for a host variant.

use std::sync::Arc;

use half::{bf16, f16};
use memra_contract::{DType, Tensor, TensorSet};

use super::ID;
use super::layout::PackedSegment;
use super::problem::{Epilogue, MatmulProblem};
use super::product::{BoundSegment, Product};
use super::variants::{MatmulVariant, Operands, Q8Rows};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::input;
use crate::ops::quantise::{self, Quantiser};
use crate::select::ByRows;

pub(super) struct PreparedMatmul {
    problem: MatmulProblem,
    /// A 16-bit activation, which a launch widens.
    narrow: Option<Tensor>,
    floats: Vec<f32>,
    quants: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i16>,
    residual: Vec<f32>,
    copies: Vec<Product>,
    out: Guarded<f32>,
    /// Where the activation is quantised in the launch.
    quantiser: Option<Quantiser>,
}

impl PreparedMatmul {
    pub(super) fn new(
        variant: &'static MatmulVariant,
        problem: MatmulProblem,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let (m, k, blocks) = (problem.m, problem.k, problem.m * problem.blocks());
        let mut prepared = Self {
            narrow: None,
            floats: Vec::new(),
            quants: Vec::new(),
            scales: Vec::new(),
            sums: Vec::new(),
            residual: Vec::new(),
            copies: Vec::new(),
            out: Guarded::new(m * problem.width()),
            quantiser: None,
            problem,
        };
        if let Some(dtype) = prepared.problem.activation.dtype() {
            let activation = input(ID, inputs, "activation", dtype, m * k)?;
            prepared.floats = activation.to_floats();
            prepared.narrow = (dtype != DType::F32).then(|| activation.clone());
        } else {
            prepared.quants = input(ID, inputs, "quants", DType::I8, m * k)?.to_i8();
            prepared.scales = input(ID, inputs, "scales", DType::F32, blocks)?.to_f32();
            prepared.sums = input(ID, inputs, "sums", DType::I16, blocks)?.to_i16();
        }
        if prepared.problem.quantises() {
            prepared.quants = vec![0; m * k];
            prepared.scales = vec![0.0; blocks];
            prepared.sums = vec![0; blocks];
            prepared.quantiser = Some(Quantiser::new(quantise::kernel_for(variant.listed.target.tier())));
        }
        if prepared.problem.epilogue == Epilogue::Residual {
            prepared.residual = input(ID, inputs, "residual", DType::F32, m * prepared.problem.width())?.to_f32();
        }
        for _ in 0..copies.max(1) {
            let mut segments = Vec::new();
            for (index, segment) in prepared.problem.segments.iter().enumerate() {
                let stored = input(ID, inputs, &format!("weight{index}"), DType::U8, segment.bytes(k))?;
                let mut weight = PackedSegment::pack(*segment, k, variant.layout, &stored.bytes)?;
                if let Some((name, _)) = segment.outer_tensor(k) {
                    let count = segment.outer_scales(k);
                    weight =
                        weight.with_outer(input(ID, inputs, &format!("{name}{index}"), DType::F32, count)?.to_f32());
                }
                segments.push(BoundSegment { weight: Arc::new(weight), variants: ByRows::always(variant) });
            }
            prepared.copies.push(Product::new(segments));
        }
        Ok(prepared)
    }
}

impl Prepared for PreparedMatmul {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        if let Some(narrow) = &self.narrow {
            widen(narrow, &mut self.floats);
        }
        if let Some(quantiser) = &mut self.quantiser {
            quantiser.run(pool, &self.floats, &mut self.quants, &mut self.scales, &mut self.sums);
        }
        let planes = Q8Rows { quants: &self.quants, scales: &self.scales, sums: &self.sums };
        let operands = Operands { m: self.problem.m, k: self.problem.k, floats: &self.floats, planes };
        let product = copy % self.copies.len();
        self.copies[product].run(pool, &operands, &self.residual, self.out.as_mut_slice());
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        let shape = [self.problem.m, self.problem.width()];
        TensorSet::new(vec![Tensor::f32("out", &shape, self.out.as_slice())])
    }

    fn poison(&mut self, pattern: u32) {
        self.out.poison(pattern);
    }

    fn guards_hold(&self) -> bool {
        self.out.guards_hold()
    }

    fn copy_bytes(&self) -> usize {
        self.copies[0].bytes()
    }
}

/// The values of a 16-bit tensor, exact.
fn widen(narrow: &Tensor, out: &mut [f32]) {
    let pairs = out.iter_mut().zip(narrow.bytes.as_chunks().0);
    if narrow.dtype == DType::Bf16 {
        pairs.for_each(|(out, bytes)| *out = bf16::from_le_bytes(*bytes).to_f32());
    } else {
        pairs.for_each(|(out, bytes)| *out = f16::from_le_bytes(*bytes).to_f32());
    }
}
