//! Quantisation laid out for a host variant. A launch is split by blocks.

use memra_contract::order::QUANT_BLOCK;
use memra_contract::{DType, TensorSet};

use super::{HostKernel, ID, QuantiseVariant, Sizes, outputs};
use crate::backend::host::{Partition, Pool};
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::input;

/// Fewest blocks a task is worth handing out for.
const TASK_BLOCKS: usize = 128;

pub(super) struct PreparedQuantise {
    quantiser: Quantiser,
    sizes: Sizes,
    copies: Vec<Vec<f32>>,
    quants: Guarded<i8>,
    scales: Guarded<f32>,
    sums: Guarded<i16>,
}

/// A kernel with its split into tasks, for this contract and for products that quantise their activation first.
pub struct Quantiser {
    kernel: HostKernel,
    schedule: Option<Schedule>,
}

struct Schedule {
    blocks: usize,
    threads: usize,
    elements: Partition,
    scales: Partition,
    sums: Partition,
}

impl Schedule {
    fn new(blocks: usize, threads: usize) -> Self {
        let parts = if threads == 1 { 1 } else { (threads * 4).min(blocks.div_ceil(TASK_BLOCKS)) };
        let even = |unit: usize| Partition::even(blocks * unit, parts, 4 * unit);
        Self { blocks, threads, elements: even(QUANT_BLOCK), scales: even(1), sums: even(1) }
    }
}

impl Quantiser {
    /// Runs a kernel.
    pub fn new(kernel: HostKernel) -> Self {
        Self { kernel, schedule: None }
    }

    /// Quantises whole blocks; the slices are those of the contract's tensors.
    pub fn run(&mut self, pool: &Pool, x: &[f32], quants: &mut [i8], scales: &mut [f32], sums: &mut [i16]) {
        let (threads, blocks) = (pool.threads(), scales.len());
        let fresh = self.schedule.take().filter(|schedule| schedule.threads == threads && schedule.blocks == blocks);
        let schedule = self.schedule.insert(fresh.unwrap_or_else(|| Schedule::new(blocks, threads)));
        let tasks = schedule.elements.parts();
        let quants = schedule.elements.lend(quants, 1);
        let scales = schedule.scales.lend(scales, 1);
        let sums = schedule.sums.lend(sums, 1);
        pool.run(tasks, &|task| {
            let (mut quants, mut scales, mut sums) = (quants.take(task), scales.take(task), sums.take(task));
            let x = &x[quants.first()..][..quants.columns()];
            (self.kernel)(x, quants.row(0), scales.row(0), sums.row(0));
        });
    }
}

impl PreparedQuantise {
    pub(super) fn new(
        variant: &'static QuantiseVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let x = input(ID, inputs, "x", DType::F32, sizes.m * sizes.k)?.to_f32();
        Ok(Self {
            quantiser: Quantiser::new(variant.kernel),
            sizes,
            quants: Guarded::new(x.len()),
            scales: Guarded::new(sizes.blocks()),
            sums: Guarded::new(sizes.blocks()),
            copies: vec![x; copies.max(1)],
        })
    }
}

impl Prepared for PreparedQuantise {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let x = &self.copies[copy % self.copies.len()];
        let (quants, scales, sums) = (&mut self.quants, &mut self.scales, &mut self.sums);
        self.quantiser.run(pool, x, quants.as_mut_slice(), scales.as_mut_slice(), sums.as_mut_slice());
        Ok(())
    }

    fn outputs(&self) -> TensorSet {
        outputs(self.sizes, self.quants.as_slice(), self.scales.as_slice(), self.sums.as_slice())
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
