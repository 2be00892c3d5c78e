//! A row's bits do not depend on what it is appended with, and pages are written by one group alone.

use half::f16;
use proptest::prelude::*;

use super::*;
use crate::backend::host::{Pool, this_tier};
use crate::ops::attention::pages::{HeadShape, PAGE, PagesMut, RowGroup};

const SHAPE: HeadShape = HeadShape { heads: 4, kv_heads: 2, head_dim: 32 };

struct Appended {
    q: Vec<u32>,
    keys: Vec<u16>,
    values: Vec<u16>,
}

/// Appends `rows` rows of one sequence from `first`, `chunk` at a time.
fn append(threads: usize, variant: &RopeAppendVariant, first: usize, rows: usize, chunk: usize) -> Appended {
    let pool = Pool::new(threads).unwrap();
    let pages: Vec<u32> = (0..(first + rows).div_ceil(PAGE) as u32).rev().collect();
    let elements = pages.len() * SHAPE.page_elements();
    let (mut keys, mut values) = (vec![f16::ONE; elements], vec![f16::ONE; elements]);
    let stream = Stream::new(3, "qkv");
    let width = SHAPE.qkv_elements();
    let qkv: Vec<f32> = (first * width..(first + rows) * width).map(|i| stream.normal(i as u64)).collect();
    let mut q = vec![f32::NAN; rows * SHAPE.q_elements()];
    let mut rotation = Rotation::new(RotationKind::Halves, 24);
    for start in (0..rows).step_by(chunk) {
        let count = chunk.min(rows - start);
        let position = first + start;
        rotation.fill(position..position + count, &inverse_frequencies(500.0, 24, None));
        let groups = [RowGroup { pages: &pages, first_position: position, rows: count }];
        let q = &mut q[start * SHAPE.q_elements()..][..count * SHAPE.q_elements()];
        let pages = PagesMut { keys: &mut keys, values: &mut values };
        run(&pool, variant, SHAPE, &rotation, &groups, &qkv[start * width..][..count * width], q, pages);
    }
    Appended {
        q: q.into_iter().map(f32::to_bits).collect(),
        keys: keys.into_iter().map(f16::to_bits).collect(),
        values: values.into_iter().map(f16::to_bits).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_writes_the_same_cache(first in 0_usize..100, rows in 1_usize..300, chunk in 1_usize..130) {
        let wanted = append(1, &VARIANTS[0], first, rows, 1);
        for variant in variants().iter().filter(|variant| variant.listed.target.is_within(this_tier())) {
            for threads in [1, 3] {
                for chunk in [chunk, rows] {
                    let got = append(threads, variant, first, rows, chunk);
                    prop_assert_eq!(&got.q, &wanted.q);
                    prop_assert_eq!(&got.keys, &wanted.keys);
                    prop_assert_eq!(&got.values, &wanted.values);
                }
            }
        }
    }
}

#[test]
fn wrong_launches_are_refused() {
    let refusal = |tables: [&[u32]; 2], first_position: usize, rows: usize| {
        let launch = || {
            let elements = SHAPE.page_elements() * 3;
            let (mut keys, mut values) = (vec![f16::ZERO; elements], vec![f16::ZERO; elements]);
            let groups = tables.map(|pages| RowGroup { pages, first_position, rows });
            let rotation = Rotation { kind: RotationKind::Interleaved, n_rot: 32, table: vec![0.0; 2 * rows * 32] };
            let qkv = vec![0.0; 2 * rows * SHAPE.qkv_elements()];
            let mut q = vec![0.0; 2 * rows * SHAPE.q_elements()];
            let pages = PagesMut { keys: &mut keys, values: &mut values };
            run(&Pool::new(2).unwrap(), &VARIANTS[0], SHAPE, &rotation, &groups, &qkv, &mut q, pages);
        };
        let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(launch)).err();
        payload.and_then(|payload| payload.downcast::<String>().ok()).map(|text| *text).unwrap_or_default()
    };
    assert_eq!(refusal([&[0], &[2]], 5, 1), "");
    assert!(refusal([&[1], &[1]], 5, 1).contains("page 1 of the cache is written twice"));
    assert!(refusal([&[0], &[0]], 0, 64).contains("page 0 of the cache is written twice"));
    assert!(refusal([&[0], &[3]], 5, 1).contains("page 3 of 3"));
    // A shared page that is only in front of the rows is no conflict.
    assert_eq!(refusal([&[0, 1], &[0, 2]], 64, 1), "");
}

#[test]
fn wrong_axes_are_named() {
    let refused = |text: &str| RopeAppend.normalise(&text.parse().unwrap()).unwrap_err().to_string();
    assert!(refused("m=1,heads=4,kv_heads=2,head_dim=64,n_rot=65").contains("`n_rot`"));
    assert!(refused("m=1,heads=4,kv_heads=2,head_dim=64,n_rot=63").contains("even"));
    assert!(refused("m=1,heads=4,kv_heads=2,head_dim=64,kind=neox").contains("`kind`"));
}
