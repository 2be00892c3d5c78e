//! A loaded model that runs steps: what the executor, the checks and the benchmarks are built on.

use std::path::Path;

use memra_artifact::GgufModel;
use memra_contract::DeviceKey;
use memra_kernels::backend::host::Pool;
use memra_kernels::ops::argmax::ArgmaxVariant;
use memra_kernels::ops::attention::HeadShape;
use memra_kernels::ops::sample::SampleVariant;
use memra_kernels::select::Tables;

use crate::arch::ModelConfig;
use crate::cache::{KvCache, PageAllocator, PageTable, pages_for};
use crate::error::LoadError;
use crate::plan::{Batch, Buffers, Plan, Planner};

/// How a model is loaded.
#[derive(Debug, Clone, Copy)]
pub struct RunnerOptions {
    /// The device, which decides which variants are selected.
    pub key: DeviceKey,
    /// Threads of the pool; `None` takes all that the process may use.
    pub threads: Option<usize>,
    /// Most rows of a step.
    pub max_rows: usize,
    /// Most rows of a step that logits are made for.
    pub max_wanted: usize,
    /// Positions of all sequences together that the cache has room for.
    pub cache_positions: usize,
}

/// A model with its buffers, its cache and its threads.
pub struct Runner {
    pool: Pool,
    plan: Plan,
    buffers: Buffers,
    cache: KvCache,
    pages: PageAllocator,
}

impl Runner {
    /// Loads a model.
    ///
    /// # Errors
    /// [`LoadError`] naming what stands in the way.
    pub fn load(model: &GgufModel, tables: &Tables, options: RunnerOptions) -> Result<Self, LoadError> {
        let pool = match options.threads {
            Some(threads) => Pool::new(threads),
            None => Pool::of_this_process(),
        }
        .map_err(LoadError::Threads)?;
        let planner = Planner { key: options.key, tables, max_rows: options.max_rows, max_wanted: options.max_wanted };
        let plan = planner.plan(model, &pool)?;
        let config = &plan.config;
        let shape = HeadShape { heads: config.heads, kv_heads: config.kv_heads, head_dim: config.head_dim };
        let pages = pages_for(options.cache_positions);
        let cache = KvCache::new(shape, config.layers, pages);
        Ok(Self { pool, buffers: Buffers::new(&plan), plan, cache, pages: PageAllocator::new(pages) })
    }

    /// Opens and loads a model file.
    ///
    /// # Errors
    /// As [`Runner::load`].
    pub fn open(path: &Path, tables: &Tables, options: RunnerOptions) -> Result<Self, LoadError> {
        Self::load(&GgufModel::open(path)?, tables, options)
    }

    /// The model.
    pub fn config(&self) -> &ModelConfig {
        &self.plan.config
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Threads that steps run on.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Lets the worker threads sleep at once: nothing is going to run for a while.
    pub fn park(&self) {
        self.pool.park();
    }

    /// The pages of the cache.
    pub fn pages(&self) -> &PageAllocator {
        &self.pages
    }

    /// Bytes of one page over all layers.
    pub fn page_bytes(&self) -> usize {
        self.cache.page_bytes()
    }

    /// Bytes of the activations.
    pub fn buffer_bytes(&self) -> usize {
        self.buffers.bytes()
    }

    /// Pages for a sequence of so many positions; `None` where the cache has not that many left.
    pub fn admit(&mut self, positions: usize) -> Option<PageTable> {
        self.pages.take(pages_for(positions))
    }

    /// Takes the pages of a sequence back.
    pub fn release(&mut self, table: PageTable) {
        self.pages.give_back(table);
    }

    /// Runs one step.
    ///
    /// # Panics
    /// As [`Plan::run`].
    pub fn step(&mut self, batch: &Batch<'_>) {
        self.plan.run(&self.pool, &mut self.cache, &mut self.buffers, batch, None);
    }

    /// Runs one step; `times` gets the nanoseconds of every step of the plan.
    ///
    /// # Panics
    /// As [`Plan::run`].
    pub fn step_timed(&mut self, batch: &Batch<'_>, times: &mut Vec<u64>) {
        self.plan.run(&self.pool, &mut self.cache, &mut self.buffers, batch, Some(times));
    }

    /// Logits of a wanted row of the last step, f32 `[vocab]`.
    pub fn logits(&self, wanted: usize) -> &[f32] {
        self.buffers.logits(wanted, self.plan.config.vocab)
    }

    /// Logits of a wanted row of the last step, to be changed before a token is drawn.
    pub fn logits_mut(&mut self, wanted: usize) -> &mut [f32] {
        self.buffers.logits_mut(wanted, self.plan.config.vocab)
    }

    /// The most likely token of a wanted row of the last step.
    pub fn best(&self, wanted: usize) -> u32 {
        self.buffers.best(wanted)
    }

    /// The kernel that draws tokens.
    pub const fn sampler(&self) -> &'static SampleVariant {
        self.plan.sampler
    }

    /// The kernel that takes the most likely token of one row.
    pub fn argmax(&self) -> &'static ArgmaxVariant {
        self.plan.argmax()
    }

    /// The pool, for work between steps.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
