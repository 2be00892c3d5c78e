//! Reading and generating filler tokens: what `bench` and the arm of a workload cell time.

use std::time::{Duration, Instant};

use anyhow::bail;
use memra_engine::cache::PageTable;
use memra_engine::plan::{Batch, Chunk, Wanted};
use memra_engine::runner::Runner;

use super::filler;

/// What is done: `depth` tokens are in the cache, `prompt` tokens are read, `generated` ones are made one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Workload {
    pub(super) prompt: usize,
    pub(super) generated: usize,
    pub(super) depth: usize,
}

/// A workload laid out in the cache.
pub(super) struct Prepared {
    workload: Workload,
    tokens: Vec<u32>,
    table: PageTable,
}

impl Workload {
    /// Positions it takes.
    pub(super) const fn positions(self) -> usize {
        self.depth + self.prompt + self.generated
    }
}

impl Prepared {
    /// Takes pages and reads the depth.
    pub(super) fn new(runner: &mut Runner, workload: Workload, seed: u64) -> anyhow::Result<Self> {
        let Some(table) = runner.admit(workload.positions()) else {
            bail!("the cache has no room for {} positions", workload.positions());
        };
        let tokens = filler(workload.positions(), runner.config().vocab, seed);
        let prepared = Self { workload, tokens, table };
        prepared.read(runner, 0..workload.depth);
        Ok(prepared)
    }

    fn read(&self, runner: &mut Runner, range: std::ops::Range<usize>) {
        let most = runner.plan().max_rows;
        let mut first = range.start;
        while first < range.end {
            let end = (first + most).min(range.end);
            let wanted = if end == range.end { Wanted::Last } else { Wanted::None };
            let chunk =
                Chunk { pages: self.table.pages(), first_position: first, tokens: &self.tokens[first..end], wanted };
            runner.step(&Batch { chunks: &[chunk] });
            first = end;
        }
    }

    /// Runs it once; the last of its most likely tokens are folded into a number that must not change.
    pub(super) fn run(&self, runner: &mut Runner) -> (Duration, u64) {
        let Workload { prompt, generated, depth } = self.workload;
        let began = Instant::now();
        let mut fold = 0_u64;
        if prompt > 0 {
            self.read(runner, depth..depth + prompt);
            fold = u64::from(runner.best(0));
        }
        for position in depth + prompt..depth + prompt + generated {
            self.read(runner, position..position + 1);
            fold = fold.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(u64::from(runner.best(0)));
        }
        (began.elapsed(), fold)
    }

    /// Gives the pages back.
    pub(super) fn release(self, runner: &mut Runner) {
        runner.release(self.table);
    }
}
