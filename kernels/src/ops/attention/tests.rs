//! A row's bits do not depend on what it is launched with.

use half::f16;
use proptest::prelude::*;

use super::*;
use crate::backend::host::{Pool, this_tier};
use crate::input::Stream;

/// Sequences with a cache that is filled up to their ends.
struct World {
    shape: HeadShape,
    keys: Vec<f16>,
    values: Vec<f16>,
    /// Page table, first position and rows of each sequence.
    sequences: Vec<(Vec<u32>, usize, usize)>,
}

impl World {
    fn new(shape: HeadShape, seed: u64, sequences: &[(usize, usize)]) -> Self {
        let pages: Vec<usize> = sequences.iter().map(|(depth, rows)| (depth + rows).div_ceil(PAGE)).collect();
        let total = pages.iter().sum::<usize>() + 2;
        let order = Stream::new(seed, "pages");
        let mut free: Vec<u32> = (0..total as u32).collect();
        free.sort_by_key(|page| order.bits(u64::from(*page)));
        let sequences = sequences
            .iter()
            .zip(pages)
            .map(|((depth, rows), pages)| (free.split_off(free.len() - pages), *depth, *rows))
            .collect();
        let elements = total * shape.page_elements();
        let fill = |name: &str| {
            let stream = Stream::new(seed, name);
            (0..elements as u64).map(|i| f16::from_f32(stream.normal(i))).collect()
        };
        Self { shape, keys: fill("keys"), values: fill("values"), sequences }
    }

    /// Query of a row: it depends on sequence and position alone.
    fn query(&self, sequence: usize, position: usize) -> Vec<f32> {
        let stream = Stream::new(sequence as u64, "q");
        let width = self.shape.q_elements();
        (0..width).map(|i| stream.normal((position * width + i) as u64)).collect()
    }

    /// Launches runs of rows, (sequence, first position, rows) each, and returns the rows' outputs one after another.
    fn launch(
        &self,
        pool: &Pool,
        variant: &AttentionVariant,
        scratch: &mut Scratch,
        runs: &[(usize, usize, usize)],
    ) -> Vec<u32> {
        let groups: Vec<RowGroup<'_>> = runs
            .iter()
            .map(|(sequence, first, rows)| RowGroup {
                pages: &self.sequences[*sequence].0,
                first_position: *first,
                rows: *rows,
            })
            .collect();
        let q: Vec<f32> = runs
            .iter()
            .flat_map(|(sequence, first, rows)| (*first..first + rows).map(|p| (*sequence, p)))
            .flat_map(|(sequence, position)| self.query(sequence, position))
            .collect();
        let mut out = vec![f32::NAN; q.len()];
        let pages = Pages { keys: &self.keys, values: &self.values };
        run(pool, variant, self.shape, scale_of(self.shape.head_dim), &groups, &q, pages, scratch, &mut out);
        out.into_iter().map(f32::to_bits).collect()
    }

    /// Every way of launching the rows gives the bits of one row at a time.
    fn check(&self, chunk: usize) {
        let whole: Vec<(usize, usize, usize)> =
            self.sequences.iter().enumerate().map(|(i, (_, first, rows))| (i, *first, *rows)).collect();
        let single = Pool::new(1).unwrap();
        let baseline = self.launch(&single, &VARIANTS[0], &mut Scratch::new(), &whole);
        for variant in variants().iter().filter(|variant| variant.listed.target.is_within(this_tier())) {
            let mut scratch = Scratch::new();
            for threads in [1, 3] {
                let pool = Pool::new(threads).unwrap();
                let name = format!("{} on {threads} threads", variant.listed.name);
                let mut launch = |runs: &[_]| self.launch(&pool, variant, &mut scratch, runs);
                assert_eq!(launch(&whole), baseline, "{name}: batched");
                let alone: Vec<u32> = whole.iter().flat_map(|run| launch(&[*run])).collect();
                assert_eq!(alone, baseline, "{name}: one sequence at a time");
                let chunks: Vec<_> = whole
                    .iter()
                    .flat_map(|(i, first, rows)| {
                        let end = first + rows;
                        (*first..end).step_by(chunk).map(move |first| (*i, first, chunk.min(end - first)))
                    })
                    .collect();
                let chunked: Vec<u32> = chunks.iter().flat_map(|run| launch(&[*run])).collect();
                assert_eq!(chunked, baseline, "{name}: chunks of {chunk}");
                assert_eq!(launch(&chunks), baseline, "{name}: chunks of {chunk} in one launch");
                let rows: Vec<_> =
                    whole.iter().flat_map(|(i, first, rows)| (*first..first + rows).map(|p| (*i, p, 1))).collect();
                let decoded: Vec<u32> = rows.iter().flat_map(|run| launch(&[*run])).collect();
                assert_eq!(decoded, baseline, "{name}: one row at a time");
            }
        }
    }
}

#[test]
fn chunks_batches_and_single_rows_give_the_same_bits() {
    let shape = HeadShape { heads: 6, kv_heads: 2, head_dim: 32 };
    // A prefill over the end of a split, a decode row, a row at position zero, and a chunk that ends a page.
    World::new(shape, 1, &[(250, 13), (530, 1), (0, 1), (60, 4)]).check(5);
    // More query heads than a kernel takes at once.
    World::new(HeadShape { heads: 13, kv_heads: 1, head_dim: 16 }, 2, &[(254, 5), (70, 2)]).check(2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same_bits(
        seed in any::<u64>(),
        kv_heads in 1_usize..3,
        group in 1_usize..6,
        sixteenths in 1_usize..6,
        sequences in prop::collection::vec((0_usize..300, 1_usize..9), 1..4),
        chunk in 1_usize..7,
    ) {
        let shape = HeadShape { heads: kv_heads * group, kv_heads, head_dim: sixteenths * 16 };
        World::new(shape, seed, &sequences).check(chunk);
    }
}

#[test]
fn wrong_launches_are_refused() {
    let shape = HeadShape { heads: 2, kv_heads: 1, head_dim: 16 };
    let cache = vec![f16::ZERO; shape.page_elements() * 2];
    let refusal = |pages: &[u32], first_position: usize, q_rows: usize| {
        let launch = || {
            let groups = [RowGroup { pages, first_position, rows: 1 }];
            let q = vec![0.0; q_rows * shape.q_elements()];
            let mut out = q.clone();
            let pages = Pages { keys: &cache, values: &cache };
            let pool = Pool::new(1).unwrap();
            run(&pool, &VARIANTS[0], shape, 1.0, &groups, &q, pages, &mut Scratch::new(), &mut out);
        };
        let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(launch)).err();
        payload.and_then(|payload| payload.downcast::<String>().ok()).map(|text| *text).unwrap_or_default()
    };
    assert_eq!(refusal(&[1], 63, 1), "");
    assert!(refusal(&[1], 64, 1).contains("1 pages for 65 positions"));
    assert!(refusal(&[0, 2], 64, 1).contains("page 2 of 2"));
    assert!(refusal(&[1], 0, 2).contains("a query of 1 rows"));
}

#[test]
fn no_rows_are_no_work() {
    let shape = HeadShape { heads: 1, kv_heads: 1, head_dim: 16 };
    let pages = Pages { keys: &[], values: &[] };
    let pool = Pool::new(2).unwrap();
    run(&pool, &VARIANTS[0], shape, 1.0, &[], &[], pages, &mut Scratch::new(), &mut []);
}

#[test]
fn wrong_axes_are_named() {
    let refused = |text: &str| Attention.normalise(&text.parse().unwrap()).unwrap_err().to_string();
    assert!(refused("m=1,heads=4,kv_heads=3,head_dim=64").contains("`heads`"));
    assert!(refused("m=1,heads=4,kv_heads=2,head_dim=40").contains("multiple of 16"));
    assert!(refused("m=3,heads=4,kv_heads=2,head_dim=64,seqs=2").contains("`seqs`"));
    assert!(refused("m=1,heads=4,kv_heads=2,head_dim=64,window=9").contains("no axis `window`"));
}
