//! Every variant takes the token of the definition, wherever it stands in a row.

use proptest::prelude::*;

use super::*;
use crate::backend::host::this_tier;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn every_variant_gives_the_order_class(
        values in prop::collection::vec(
            prop::sample::select(vec![f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -1.0, -0.0, 0.0, 1.0, 1.0, 2.0, 3.0]),
            1..2500,
        ),
        floor in 0_usize..4,
    ) {
        // The lower the floor, the rarer the largest value.
        let values: Vec<f32> =
            values.iter().map(|v| if floor == 0 { v.min(0.5) } else if floor == 1 { v.min(-2.0) } else { *v }).collect();
        let wanted = order::argmax(&values);
        let pool = Pool::new(2).unwrap();
        for variant in of_this_machine() {
            let mut out = [u32::MAX];
            run(&pool, variant, 1, values.len(), &values, &mut out);
            prop_assert_eq!(out[0], wanted, "{}", variant.listed.name);
            prop_assert!(by_name(variant.listed.name).is_some());
        }
    }
}

fn of_this_machine() -> impl Iterator<Item = &'static ArgmaxVariant> {
    VARIANTS.iter().filter(|variant| variant.listed.target.is_within(this_tier()))
}

#[test]
fn one_value_is_found_at_every_place_among_lower_ones_and_nan() {
    let pool = Pool::new(1).unwrap();
    for variant in of_this_machine() {
        for n in [1, 15, 16, 17, 63, 64, 200, 1024, 1100] {
            for filler in [f32::NEG_INFINITY, f32::NAN, -6.0] {
                let mut values = vec![filler; n];
                for place in 0..n {
                    values[place] = -5.0;
                    let mut out = [0];
                    run(&pool, variant, 1, n, &values, &mut out);
                    assert_eq!(out[0] as usize, place, "{} {n} {filler}", variant.listed.name);
                    values[place] = filler;
                }
            }
        }
    }
}

#[test]
fn pieces_of_a_row_are_merged_in_order() {
    let n = 3 * PIECE + 5;
    let mut values = vec![f32::NAN; n];
    let pools = [1, 2, 3].map(|threads| Pool::new(threads).unwrap());
    for (places, wanted) in
        [(&[] as &[usize], 0), (&[n - 1], n - 1), (&[PIECE, 2 * PIECE], PIECE), (&[7, PIECE, n - 1], 7)]
    {
        for place in places {
            values[*place] = 1.0;
        }
        for (pool, variant) in pools.iter().flat_map(|pool| of_this_machine().map(move |variant| (pool, variant))) {
            let mut out = [9];
            run(pool, variant, 1, n, &values, &mut out);
            assert_eq!(out[0] as usize, wanted, "{}", variant.listed.name);
        }
        values.fill(f32::NAN);
    }
}
