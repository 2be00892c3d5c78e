//! RMS norm laid out for a host variant. A launch is split by rows.

use memra_contract::{DType, Tensor, TensorSet};

use super::{ID, Operands, RmsNormVariant, Sizes};
use crate::backend::host::{Partition, Pool};
use crate::contract::{LaunchError, PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::input;

/// Fewest elements a task is worth handing out for.
const TASK_ELEMENTS: usize = 8192;

pub(super) struct PreparedRmsNorm {
    variant: &'static RmsNormVariant,
    sizes: Sizes,
    copies: Vec<Vec<f32>>,
    weight: Vec<f32>,
    out: Guarded<f32>,
    schedule: Option<(usize, Partition)>,
}

impl PreparedRmsNorm {
    pub(super) fn new(
        variant: &'static RmsNormVariant,
        sizes: Sizes,
        inputs: &TensorSet,
        copies: usize,
    ) -> Result<Self, PrepareError> {
        let x = input(ID, inputs, "x", DType::F32, sizes.m * sizes.hidden)?.to_f32();
        let weight = input(ID, inputs, "weight", DType::F32, sizes.hidden)?.to_f32();
        let out = Guarded::new(x.len());
        Ok(Self { variant, sizes, copies: vec![x; copies.max(1)], weight, out, schedule: None })
    }

    fn partition(&self, threads: usize) -> Partition {
        let elements = self.sizes.m * self.sizes.hidden;
        let parts = if threads == 1 { 1 } else { (threads * 4).min(elements.div_ceil(TASK_ELEMENTS)) };
        Partition::even(elements, parts, self.variant.unit * self.sizes.hidden)
    }
}

impl Prepared for PreparedRmsNorm {
    fn launch(&mut self, pool: &Pool, copy: usize) -> Result<(), LaunchError> {
        let threads = pool.threads();
        let stale = self.schedule.take().filter(|schedule| schedule.0 == threads);
        let schedule = stale.unwrap_or_else(|| (threads, self.partition(threads)));
        let (_, partition) = self.schedule.insert(schedule);
        let x = &self.copies[copy % self.copies.len()];
        let tasks = partition.parts();
        let out = partition.lend(self.out.as_mut_slice(), 1);
        pool.run(tasks, &|task| {
            let mut part = out.take(task);
            let x = &x[part.first()..][..part.columns()];
            let operands = Operands { hidden: self.sizes.hidden, x, weight: &self.weight, epsilon: self.sizes.epsilon };
            (self.variant.kernel)(&operands, part.row(0));
        });
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
        size_of_val(self.copies[0].as_slice())
    }
}
