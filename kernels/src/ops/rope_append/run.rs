//! A launch: queries are turned, keys are turned and appended, values are appended. Split by pages.

use half::f16;

use super::{RopeAppendVariant, Rotation};
use crate::backend::host::{Partition, Pool, this_tier};
use crate::ops::attention::pages::{HeadShape, PAGE, PagesMut, RowGroup, check_launch};

/// Fewest elements of query, key and value a task is worth handing out for.
const TASK_ELEMENTS: usize = 16_384;

/// Rows of a group that lie in one page.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// First row of the activation.
    row: usize,
    rows: usize,
    page: usize,
    /// Position of the first row in the page.
    offset: usize,
}

/// What every segment reads.
struct Launch<'a> {
    variant: &'a RopeAppendVariant,
    shape: HeadShape,
    rotation: &'a Rotation,
    qkv: &'a [f32],
}

/// Turns queries and keys by their positions and appends keys and values to the cache.
///
/// `qkv` is f32 `[m, (heads + 2 kv_heads) * head_dim]`: query, then key, then value; `q_out` is f32 `[m, heads * head_dim]`;
/// `rotation` has a row for each of the `m` rows of the groups. No page may be written by two groups.
///
/// # Panics
/// When a size does not fit, a page table leads out of the cache, two groups write one page, or the CPU lacks the variant's
/// tier.
#[expect(clippy::too_many_arguments, reason = "a launch names each of its operands")]
pub fn run(
    pool: &Pool,
    variant: &RopeAppendVariant,
    shape: HeadShape,
    rotation: &Rotation,
    groups: &[RowGroup<'_>],
    qkv: &[f32],
    q_out: &mut [f32],
    pages: PagesMut<'_>,
) {
    let m = check_launch(shape, groups, pages.keys.len(), pages.values.len());
    let n_rot = rotation.n_rot;
    assert!(variant.listed.target.is_within(this_tier()), "{} needs {}", variant.listed.name, variant.listed.target);
    assert!(n_rot.is_multiple_of(2) && n_rot <= shape.head_dim, "{n_rot} turned dimensions of {}", shape.head_dim);
    assert_eq!(rotation.table.len(), m * n_rot, "a rotation of {m} rows is needed");
    assert_eq!(qkv.len(), m * shape.qkv_elements(), "query, key and value of {m} rows are needed");
    assert_eq!(q_out.len(), m * shape.q_elements(), "a query of {m} rows is needed");
    let segments = segments(groups);
    let launch = Launch { variant, shape, rotation, qkv };
    let parts = if pool.threads() == 1 { 1 } else { (qkv.len() / TASK_ELEMENTS).min(pool.threads() * 4) };
    let written = written(&segments);
    if parts <= 1 {
        let elements = shape.page_elements();
        for segment in &segments {
            let q = &mut q_out[segment.row * shape.q_elements()..][..segment.rows * shape.q_elements()];
            let page = segment.page * elements..(segment.page + 1) * elements;
            launch.append(*segment, q, &mut pages.keys[page.clone()], &mut pages.values[page]);
        }
        return;
    }
    launch.split(pool, &segments, &written, m.div_ceil(parts), q_out, pages);
}

fn segments(groups: &[RowGroup<'_>]) -> Vec<Segment> {
    let mut segments = Vec::with_capacity(groups.len());
    let mut row = 0;
    for group in groups {
        let end = group.first_position + group.rows;
        let mut position = group.first_position;
        while position < end {
            let offset = position % PAGE;
            let rows = (PAGE - offset).min(end - position);
            segments.push(Segment { row, rows, page: group.pages[position / PAGE] as usize, offset });
            row += rows;
            position += rows;
        }
    }
    segments
}

/// The pages that are written, in rising order.
fn written(segments: &[Segment]) -> Vec<usize> {
    let mut pages: Vec<usize> = segments.iter().map(|segment| segment.page).collect();
    pages.sort_unstable();
    if let Some([page, _]) = pages.array_windows().find(|[a, b]| a == b) {
        panic!("page {page} of the cache is written twice in a launch");
    }
    pages
}

impl Launch<'_> {
    /// Gives tasks of about `task_rows` rows to the pool.
    fn split(
        &self,
        pool: &Pool,
        segments: &[Segment],
        written: &[usize],
        task_rows: usize,
        q_out: &mut [f32],
        pages: PagesMut<'_>,
    ) {
        let elements = self.shape.page_elements();
        let PagesMut { keys, values } = pages;
        // Part 2i of the cache is the i-th written page, part 2i + 1 what lies between it and the next.
        let mut bounds: Vec<usize> = written.iter().flat_map(|page| [page * elements, (page + 1) * elements]).collect();
        bounds.push(keys.len());
        let mut key_parts = Partition::new(bounds.clone());
        let mut value_parts = Partition::new(bounds);
        // A task is a run of segments with at least `task_rows` rows.
        let mut tasks = vec![0];
        let mut row_bounds = vec![0];
        for (i, segment) in segments.iter().enumerate() {
            let end = segment.row + segment.rows;
            if end - row_bounds[row_bounds.len() - 1] >= task_rows || i + 1 == segments.len() {
                tasks.push(i + 1);
                row_bounds.push(end);
            }
        }
        let mut q_parts = Partition::new(row_bounds.iter().map(|row| row * self.shape.q_elements()).collect());
        let queries = q_parts.lend(q_out, 1);
        let keys = key_parts.lend(keys, 1);
        let values = value_parts.lend(values, 1);
        pool.run(tasks.len() - 1, &|task| {
            let mut queries = queries.take(task);
            let mut rest = queries.row(0);
            for segment in &segments[tasks[task]..tasks[task + 1]] {
                let (q, others) = rest.split_at_mut(segment.rows * self.shape.q_elements());
                rest = others;
                // Every segment's page is among the written ones.
                let part = 2 * written.partition_point(|page| *page < segment.page);
                self.append(*segment, q, keys.take(part).row(0), values.take(part).row(0));
            }
        });
    }

    fn append(&self, segment: Segment, q_out: &mut [f32], keys: &mut [f16], values: &mut [f16]) {
        let (shape, rotation) = (self.shape, self.rotation);
        let (q_width, kv_width) = (shape.q_elements(), shape.kv_heads * shape.head_dim);
        let mut turned = vec![0.0_f32; kv_width];
        let mut narrow = vec![f16::ZERO; kv_width * segment.rows];
        for i in 0..segment.rows {
            let row = segment.row + i;
            let (q, kv) = self.qkv[row * shape.qkv_elements()..][..shape.qkv_elements()].split_at(q_width);
            let (k, v) = kv.split_at(kv_width);
            let table = &rotation.table[row * rotation.n_rot..][..rotation.n_rot];
            (self.variant.rotate)(rotation.kind, table, shape.head_dim, q, &mut q_out[i * q_width..][..q_width]);
            (self.variant.rotate)(rotation.kind, table, shape.head_dim, k, &mut turned);
            (self.variant.narrow)(&turned, &mut narrow[i * kv_width..][..kv_width]);
            for (v, head) in v.chunks_exact(shape.head_dim).zip(values.chunks_exact_mut(shape.head_elements())) {
                (self.variant.narrow)(v, &mut head[(segment.offset + i) * shape.head_dim..][..shape.head_dim]);
            }
        }
        // Keys lie across: dimension by dimension, the positions of the segment side by side.
        for (column, positions) in keys.chunks_exact_mut(PAGE).enumerate() {
            let positions = &mut positions[segment.offset..][..segment.rows];
            for (position, row) in positions.iter_mut().zip(narrow.chunks_exact(kv_width)) {
                *position = row[column];
            }
        }
    }
}
