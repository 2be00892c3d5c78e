//! A matrix product laid out for a host variant.

use memra_contract::{DType, Tensor, TensorSet};

use super::ID;
use super::layout::PackedSegment;
use super::problem::{Activation, Epilogue, MatmulProblem};
use super::variants::{MatmulVariant, Operands, Q8Rows};
use crate::backend::host::{Partition, Pool};
use crate::contract::{PrepareError, Prepared};
use crate::memory::Guarded;
use crate::ops::input;
use crate::ops::quantise::{self, Quantiser};

pub(super) struct PreparedMatmul {
    variant: &'static MatmulVariant,
    problem: MatmulProblem,
    floats: Vec<f32>,
    quants: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i16>,
    residual: Vec<f32>,
    copies: Vec<Vec<PackedSegment>>,
    out: Guarded<f32>,
    schedule: Option<Schedule>,
    /// Where the activation is quantised in the launch.
    quantiser: Option<Quantiser>,
}

/// The tasks of a launch for a number of threads.
struct Schedule {
    threads: usize,
    partition: Partition,
    /// Segment and first weight row of each task.
    tasks: Vec<(usize, usize)>,
}

impl Schedule {
    /// Several tasks a thread, so that a thread that is held up does not hold up the launch.
    fn new(variant: &MatmulVariant, problem: &MatmulProblem, threads: usize) -> Self {
        let wanted = if threads == 1 { 1 } else { threads * 8 };
        let step = problem.width().div_ceil(wanted).next_multiple_of(variant.unit.max(16));
        let (mut bounds, mut tasks, mut first) = (vec![0], Vec::new(), 0);
        for (index, segment) in problem.segments.iter().enumerate() {
            for row in (0..segment.n).step_by(step) {
                tasks.push((index, row));
                bounds.push(first + (row + step).min(segment.n));
            }
            first += segment.n;
        }
        Self { threads, partition: Partition::new(bounds), tasks }
    }
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
            variant,
            floats: Vec::new(),
            quants: Vec::new(),
            scales: Vec::new(),
            sums: Vec::new(),
            residual: Vec::new(),
            copies: Vec::new(),
            out: Guarded::new(m * problem.width()),
            schedule: None,
            quantiser: None,
            problem,
        };
        match prepared.problem.activation {
            Activation::F32 => prepared.floats = input(ID, inputs, "activation", DType::F32, m * k)?.to_f32(),
            Activation::Q8 => {
                prepared.quants = input(ID, inputs, "quants", DType::I8, m * k)?.to_i8();
                prepared.scales = input(ID, inputs, "scales", DType::F32, blocks)?.to_f32();
                prepared.sums = input(ID, inputs, "sums", DType::I16, blocks)?.to_i16();
            }
        }
        if prepared.problem.quantises() {
            prepared.quants = vec![0; m * k];
            prepared.scales = vec![0.0; blocks];
            prepared.sums = vec![0; blocks];
            prepared.quantiser = Some(Quantiser::new(quantise::kernel_for(variant.listed.isa)));
        }
        if prepared.problem.epilogue == Epilogue::Residual {
            prepared.residual = input(ID, inputs, "residual", DType::F32, m * prepared.problem.width())?.to_f32();
        }
        for _ in 0..copies.max(1) {
            let mut segments = Vec::new();
            for (index, segment) in prepared.problem.segments.iter().enumerate() {
                let stored = input(ID, inputs, &format!("weight{index}"), DType::U8, segment.bytes(k))?;
                segments.push(PackedSegment::pack(*segment, k, variant.layout, &stored.bytes)?);
            }
            prepared.copies.push(segments);
        }
        Ok(prepared)
    }
}

impl Prepared for PreparedMatmul {
    fn launch(&mut self, pool: &Pool, copy: usize) {
        if let Some(quantiser) = &mut self.quantiser {
            quantiser.run(pool, &self.floats, &mut self.quants, &mut self.scales, &mut self.sums);
        }
        let threads = pool.threads();
        let stale = self.schedule.take().filter(|schedule| schedule.threads == threads);
        let schedule =
            self.schedule.insert(stale.unwrap_or_else(|| Schedule::new(self.variant, &self.problem, threads)));
        let segments = &self.copies[copy % self.copies.len()];
        let planes = Q8Rows { quants: &self.quants, scales: &self.scales, sums: &self.sums };
        let operands = Operands { m: self.problem.m, k: self.problem.k, floats: &self.floats, planes };
        let (width, residual, kernel) = (self.problem.width(), &self.residual, self.variant.kernel);
        let out = schedule.partition.lend(self.out.as_mut_slice(), self.problem.m);
        let tasks = &schedule.tasks;
        pool.run(tasks.len(), &|task| {
            let (segment, first) = tasks[task];
            let mut part = out.take(task);
            let (column, columns) = (part.first(), part.columns());
            kernel(&operands, &segments[segment], first..first + columns, &mut part);
            if !residual.is_empty() {
                for row in 0..operands.m {
                    let residual = &residual[row * width + column..][..columns];
                    part.row(row).iter_mut().zip(residual).for_each(|(out, residual)| *out += residual);
                }
            }
        });
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
        self.copies[0].iter().map(|segment| segment.bytes.as_slice().len()).sum()
    }
}
