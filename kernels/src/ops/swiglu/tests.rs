//! Every variant has the bits of the definition, and runs of a row cover it once.

use proptest::prelude::*;

use super::*;
use crate::backend::host::this_tier;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_variant_gives_the_order_class(
        row in prop::collection::vec((-150.0_f32..150.0, -1e6_f32..1e6), 1..300),
        m in 1_usize..4,
    ) {
        let ffn = row.len();
        let (gates, ups): (Vec<f32>, Vec<f32>) = row.into_iter().unzip();
        let gate_up = [gates, ups].concat().repeat(m);
        let wanted: Vec<u32> =
            gate_up.chunks_exact(2 * ffn).flat_map(|row| pairs(row).map(|(g, u)| order::swiglu(g, u).to_bits())).collect();
        let pool = Pool::new(2).unwrap();
        for variant in VARIANTS.iter().filter(|variant| variant.listed.target.is_within(this_tier())) {
            let mut out = vec![f32::NAN; m * ffn];
            run(&pool, variant, m, ffn, &gate_up, &mut out);
            prop_assert_eq!(bytemuck::cast_slice::<f32, u32>(&out), wanted.as_slice(), "{}", variant.listed.name);
            prop_assert!(by_name(variant.listed.name).is_some());
        }
    }

    #[test]
    fn runs_cover_elements_once_and_stay_in_their_row(width in 1_usize..50, first in 0_usize..200, count in 0_usize..200) {
        let mut next = first;
        for_each_run(width, first, count, |row, column, at, length| {
            assert!(length > 0 && column + length <= width);
            assert_eq!((row * width + column, at), (next, next - first));
            next += length;
        });
        prop_assert_eq!(next, first + count);
    }
}

#[test]
#[should_panic(expected = "gate_up is f32 [2, 2 * 4]")]
fn wrong_sizes_are_named() {
    run(&Pool::new(1).unwrap(), &VARIANTS[0], 2, 4, &[0.0; 15], &mut [0.0; 8]);
}
