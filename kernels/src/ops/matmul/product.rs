//! One launch of a matrix product: what the harness measures and the engine runs.

use std::sync::Arc;

use super::layout::PackedSegment;
use super::variants::{MatmulVariant, Operands};
use crate::backend::host::{Partition, Pool};
use crate::select::ByRows;

/// A segment with the variants that serve it.
#[derive(Debug, Clone)]
pub struct BoundSegment {
    /// The weight, in the layout that all variants share.
    pub weight: Arc<PackedSegment>,
    /// The variants of one family, by number of rows.
    pub variants: ByRows<&'static MatmulVariant>,
}

/// Segments that share an activation, and their split into tasks.
#[derive(Debug)]
pub struct Product {
    segments: Vec<BoundSegment>,
    width: usize,
    schedule: Option<Schedule>,
}

/// The tasks of a launch for a number of threads.
#[derive(Debug)]
struct Schedule {
    threads: usize,
    partition: Partition,
    /// Segment and first weight row of each task.
    tasks: Vec<(usize, usize)>,
}

impl Schedule {
    /// Several tasks a thread, so that a thread that is held up does not hold up the launch.
    fn new(segments: &[BoundSegment], threads: usize) -> Self {
        let width: usize = segments.iter().map(|segment| segment.weight.segment.n).sum();
        let wanted = if threads == 1 { 1 } else { threads * 8 };
        let (mut bounds, mut tasks, mut first) = (vec![0], Vec::new(), 0);
        for (index, segment) in segments.iter().enumerate() {
            let step = width.div_ceil(wanted).next_multiple_of(unit(segment).max(16));
            let n = segment.weight.segment.n;
            for row in (0..n).step_by(step) {
                tasks.push((index, row));
                bounds.push(first + (row + step).min(n));
            }
            first += n;
        }
        Self { threads, partition: Partition::new(bounds), tasks }
    }
}

/// Weight rows that tasks of any of the variants can start at multiples of.
fn unit(segment: &BoundSegment) -> usize {
    segment.variants.iter().map(|(_, variant)| variant.unit).max().unwrap_or(1)
}

impl Product {
    /// Segments side by side in the output. All have rows of the same length.
    pub fn new(segments: Vec<BoundSegment>) -> Self {
        let width = segments.iter().map(|segment| segment.weight.segment.n).sum();
        Self { segments, width, schedule: None }
    }

    /// Columns of the output.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// The segments.
    pub fn segments(&self) -> &[BoundSegment] {
        &self.segments
    }

    /// Bytes of the weights as they lie in memory.
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(|s| s.weight.bytes.as_slice().len() + 4 * s.weight.outer.len()).sum()
    }

    /// `out[m, width]` = activation times weights, plus `residual[m, width]` where it is not empty.
    ///
    /// # Panics
    /// When a slice does not have the size that `operands` and the segments call for.
    pub fn run(&mut self, pool: &Pool, operands: &Operands<'_>, residual: &[f32], out: &mut [f32]) {
        let (threads, width) = (pool.threads(), self.width);
        assert!(residual.is_empty() || residual.len() == operands.m * width, "a residual has the size of the output");
        let fresh = self.schedule.take().filter(|schedule| schedule.threads == threads);
        let schedule = self.schedule.insert(fresh.unwrap_or_else(|| Schedule::new(&self.segments, threads)));
        let (segments, tasks) = (&self.segments, &schedule.tasks);
        let out = schedule.partition.lend(out, operands.m);
        pool.run(tasks.len(), &|task| {
            let (segment, first) = tasks[task];
            let BoundSegment { weight, variants } = &segments[segment];
            let mut part = out.take(task);
            let (column, columns) = (part.first(), part.columns());
            (variants.get(operands.m).kernel)(operands, weight, first..first + columns, &mut part);
            if !residual.is_empty() {
                for row in 0..operands.m {
                    let residual = &residual[row * width + column..][..columns];
                    part.row(row).iter_mut().zip(residual).for_each(|(out, residual)| *out += residual);
                }
            }
        });
    }
}
