//! A launch: rows are cut into tiles; a tile is one task, or one task a head of keys and split where tiles are too few to keep
//! the threads busy.

use std::sync::{Mutex, MutexGuard, TryLockError};

use half::f16;
use memra_contract::order::ATTENTION_SPLIT;

use super::AttentionVariant;
use super::kernel::{MAX_PAIRS, PARTIAL_TAIL, QUERY_STRIDE, SCORE_STRIDE, SPLIT_PAGES, SplitOperands};
use super::pages::{HeadShape, PAGE, Pages, RowGroup, check_launch};
use crate::backend::host::{Partition, Pool, this_tier};
use crate::memory::Guarded;

/// Below this many multiply-adds a launch runs on the caller alone.
const ALONE_PRODUCTS: usize = 200_000;

/// Memory that launches reuse: partial results and a workspace a thread. It grows to what the largest launch needs.
#[derive(Default)]
pub struct Scratch {
    workspaces: Vec<Mutex<Workspace>>,
    partials: Vec<f32>,
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("workspaces", &self.workspaces.len()).finish_non_exhaustive()
    }
}

impl Scratch {
    /// Scratch that holds nothing yet.
    pub fn new() -> Self {
        Self::default()
    }
}

/// What one task works in.
struct Workspace {
    /// Queries of the pairs of a tile with one head of keys, f32 `[pairs, QUERY_STRIDE]`.
    queries: Vec<f32>,
    scores: Guarded<f32>,
    partials: Vec<f32>,
}

impl Workspace {
    fn new() -> Self {
        Self { queries: Vec::new(), scores: Guarded::new(MAX_PAIRS * SCORE_STRIDE), partials: Vec::new() }
    }
}

/// Rows of one group that are worked on together; they see the same splits.
#[derive(Debug, Clone, Copy)]
struct Tile {
    group: usize,
    /// First row of the activation.
    row: usize,
    rows: usize,
    /// Position of the first row.
    position: usize,
    /// Where the partial results of a tile in parts begin; `None` for a whole tile.
    partials: Option<usize>,
}

impl Tile {
    fn splits(&self) -> usize {
        (self.position + self.rows).div_ceil(ATTENTION_SPLIT)
    }

    /// Multiply-adds of one head and dimension.
    fn products(&self) -> usize {
        (self.position + self.rows) * self.rows * 2
    }
}

/// One task: a tile, and which part of it where it is in parts.
#[derive(Debug, Clone, Copy)]
struct Task {
    tile: usize,
    part: Option<(usize, usize)>,
}

struct Launch<'a> {
    variant: &'a AttentionVariant,
    shape: HeadShape,
    scale: f32,
    groups: &'a [RowGroup<'a>],
    q: &'a [f32],
    pages: Pages<'a>,
    tiles: Vec<Tile>,
}

/// Attention of every row to the positions of its sequence up to its own.
///
/// `q` is f32 `[m, heads * head_dim]`, not yet multiplied by `scale`; `out` has the same shape. The cache already holds the
/// positions of the rows. What a page holds past a row's position is not looked at. A row's bits depend on its position, its
/// query and the cache alone, whatever other rows the launch has.
///
/// # Panics
/// When a size does not fit, a page table leads out of the cache, or the CPU lacks the variant's tier.
#[expect(clippy::too_many_arguments, reason = "a launch names each of its operands")]
pub fn run(
    pool: &Pool,
    variant: &AttentionVariant,
    shape: HeadShape,
    scale: f32,
    groups: &[RowGroup<'_>],
    q: &[f32],
    pages: Pages<'_>,
    scratch: &mut Scratch,
    out: &mut [f32],
) {
    let m = check_launch(shape, groups, pages.keys.len(), pages.values.len());
    assert!(variant.listed.target.is_within(this_tier()), "{} needs {}", variant.listed.name, variant.listed.target);
    assert_eq!(q.len(), m * shape.q_elements(), "a query of {m} rows is needed");
    assert_eq!(out.len(), q.len(), "an output of {m} rows is needed");
    if m == 0 {
        return;
    }
    let mut tiles = tiles(groups, (variant.pairs / shape.group()).max(1));
    let products = tiles.iter().map(Tile::products).sum::<usize>();
    let alone = pool.threads() == 1 || products * shape.q_elements() <= ALONE_PRODUCTS;
    let stride = shape.head_dim + PARTIAL_TAIL;
    let mut partials = vec![0];
    let mut tasks = Vec::with_capacity(tiles.len());
    // The last tiles of a long group see the most positions, so they are begun first.
    for (index, tile) in tiles.iter_mut().enumerate().rev() {
        if alone || tile.products() * pool.threads() * 4 <= products || tile.splits() * shape.kv_heads == 1 {
            tasks.push(Task { tile: index, part: None });
            continue;
        }
        tile.partials = Some(partials.len() - 1);
        for kv_head in 0..shape.kv_heads {
            for split in 0..tile.splits() {
                tasks.push(Task { tile: index, part: Some((kv_head, split)) });
                partials.push(partials[partials.len() - 1] + tile.rows * shape.group() * stride);
            }
        }
    }
    let launch = Launch { variant, shape, scale, groups, q, pages, tiles };
    launch.run(pool, &tasks, &partials, scratch, out);
}

/// Cuts groups into tiles of at most `rows` rows, and at the ends of splits.
fn tiles(groups: &[RowGroup<'_>], rows: usize) -> Vec<Tile> {
    let mut tiles = Vec::with_capacity(groups.len());
    let mut row = 0;
    for (group, facts) in groups.iter().enumerate() {
        let end = facts.first_position + facts.rows;
        let mut position = facts.first_position;
        while position < end {
            let rows = rows.min(end - position).min(ATTENTION_SPLIT - position % ATTENTION_SPLIT);
            tiles.push(Tile { group, row, rows, position, partials: None });
            row += rows;
            position += rows;
        }
    }
    tiles
}

impl Launch<'_> {
    fn run(&self, pool: &Pool, tasks: &[Task], bounds: &[usize], scratch: &mut Scratch, out: &mut [f32]) {
        while scratch.workspaces.len() < pool.threads() {
            scratch.workspaces.push(Mutex::new(Workspace::new()));
        }
        let Scratch { workspaces, partials } = scratch;
        let needed = bounds[bounds.len() - 1];
        if partials.len() < needed {
            partials.resize(needed, 0.0);
        }
        let width = self.shape.q_elements();
        let rows = self.tiles.iter().map(|tile| tile.row * width).chain([out.len()]).collect();
        let mut out_parts = Partition::new(rows);
        let mut partial_parts = (bounds.len() > 1).then(|| Partition::new(bounds.to_vec()));
        let outs = out_parts.lend(out, 1);
        {
            let lent = partial_parts.as_mut().map(|parts| parts.lend(&mut partials[..needed], 1));
            pool.run(tasks.len(), &|index| {
                let Task { tile, part } = tasks[index];
                let mut workspace = workspace(workspaces);
                match (part, &lent, self.tiles[tile].partials) {
                    (Some((kv_head, split)), Some(lent), Some(first)) => {
                        let tile = &self.tiles[tile];
                        let mut part = lent.take(first + kv_head * tile.splits() + split);
                        self.scale_queries(tile, kv_head, &mut workspace.queries);
                        self.part(tile, kv_head, split, &mut workspace, part.row(0));
                    }
                    _ => self.whole(&self.tiles[tile], &mut workspace, outs.take(tile).row(0)),
                }
            });
        }
        for (index, tile) in self.tiles.iter().enumerate() {
            if let Some(first) = tile.partials {
                let heads = &partials[bounds[first]..];
                self.combine(tile, heads, 0..self.shape.kv_heads, outs.take(index).row(0));
            }
        }
    }

    /// All heads and splits of a tile.
    fn whole(&self, tile: &Tile, workspace: &mut Workspace, out: &mut [f32]) {
        let elements = tile.rows * self.shape.group() * (self.shape.head_dim + PARTIAL_TAIL);
        let mut partials = std::mem::take(&mut workspace.partials);
        if partials.len() < elements * tile.splits() {
            partials.resize(elements * tile.splits(), 0.0);
        }
        for kv_head in 0..self.shape.kv_heads {
            self.scale_queries(tile, kv_head, &mut workspace.queries);
            for (split, partial) in partials.chunks_exact_mut(elements).take(tile.splits()).enumerate() {
                self.part(tile, kv_head, split, workspace, partial);
            }
            self.combine(tile, &partials, kv_head..kv_head + 1, out);
        }
        workspace.partials = partials;
    }

    /// The queries of the pairs of a tile with one head of keys, times the scale.
    fn scale_queries(&self, tile: &Tile, kv_head: usize, queries: &mut Vec<f32>) {
        let (group, head_dim) = (self.shape.group(), self.shape.head_dim);
        let elements = tile.rows * group * QUERY_STRIDE;
        if queries.len() < elements {
            queries.resize(elements, 0.0);
        }
        let rows = self.q[tile.row * self.shape.q_elements()..].chunks_exact(self.shape.q_elements());
        for (row, queries) in rows.zip(queries[..elements].chunks_exact_mut(group * QUERY_STRIDE)) {
            let heads = row[kv_head * group * head_dim..][..group * head_dim].chunks_exact(head_dim);
            for (head, scaled) in heads.zip(queries.chunks_exact_mut(QUERY_STRIDE)) {
                for (scaled, q) in scaled.iter_mut().zip(head) {
                    *scaled = q * self.scale;
                }
            }
        }
    }

    /// One split of the pairs whose queries lie in the workspace; `out` is f32 `[pairs, head_dim + PARTIAL_TAIL]`.
    fn part(&self, tile: &Tile, kv_head: usize, split: usize, workspace: &mut Workspace, out: &mut [f32]) {
        let (shape, group) = (self.shape, self.shape.group());
        let head_dim = shape.head_dim;
        let first = split * ATTENTION_SPLIT;
        let end = (tile.position + tile.rows).min(first + ATTENTION_SPLIT);
        let mut keys: [&[f16]; SPLIT_PAGES] = [&[]; SPLIT_PAGES];
        let mut values = keys;
        let table = &self.groups[tile.group].pages[first / PAGE..end.div_ceil(PAGE)];
        for (i, page) in table.iter().enumerate() {
            (keys[i], values[i]) = self.pages.head(shape, *page, kv_head);
        }
        let pairs = tile.rows * group;
        // Blocks of pairs are as even as may be.
        let step = pairs.div_ceil(pairs.div_ceil(self.variant.pairs));
        for block in (0..pairs).step_by(step) {
            let count = step.min(pairs - block);
            let mut positions = [0; MAX_PAIRS];
            for (i, positions) in positions[..count].iter_mut().enumerate() {
                *positions = (tile.position + (block + i) / group + 1 - first).min(ATTENTION_SPLIT);
            }
            let operands = SplitOperands {
                head_dim,
                queries: &workspace.queries[block * QUERY_STRIDE..],
                positions: &positions[..count],
                keys: &keys[..table.len()],
                values: &values[..table.len()],
            };
            let stride = head_dim + PARTIAL_TAIL;
            let out = &mut out[block * stride..][..count * stride];
            (self.variant.split)(&operands, workspace.scores.as_mut_slice(), out);
        }
    }

    /// Puts splits together. `partials` begins with the first of the heads and is f32 `[kv heads, splits, pairs, head_dim +
    /// PARTIAL_TAIL]`; `out` is the tile's rows.
    fn combine(&self, tile: &Tile, partials: &[f32], kv_heads: std::ops::Range<usize>, out: &mut [f32]) {
        let (group, head_dim) = (self.shape.group(), self.shape.head_dim);
        let stride = tile.rows * group * (head_dim + PARTIAL_TAIL);
        for (kv_head, partials) in kv_heads.zip(partials.chunks(stride * tile.splits())) {
            for (row, out) in out.chunks_exact_mut(self.shape.q_elements()).enumerate() {
                let heads = out[kv_head * group * head_dim..][..group * head_dim].chunks_exact_mut(head_dim);
                for (head, out) in heads.enumerate() {
                    let partials = &partials[(row * group + head) * (head_dim + PARTIAL_TAIL)..];
                    (self.variant.combine)(partials, tile.splits(), stride, out);
                }
            }
        }
    }
}

/// A workspace that nobody uses: there are as many as threads.
fn workspace(workspaces: &[Mutex<Workspace>]) -> MutexGuard<'_, Workspace> {
    loop {
        for workspace in workspaces {
            match workspace.try_lock() {
                Ok(guard) => return guard,
                // A task that panicked left numbers behind that nobody reads.
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }
}
