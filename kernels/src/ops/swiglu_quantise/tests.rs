//! Gate and quantisation in one have the bits of the two in turn.

use proptest::prelude::*;

use super::*;
use crate::backend::host::this_tier;
use crate::ops::swiglu;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_variant_gives_the_bits_of_the_two_contracts_in_turn(
        blocks in 1_usize..12,
        m in 1_usize..4,
        seed: u64,
        size in prop::sample::select(vec![1e-30_f32, 1.0, 30.0, 90.0]),
    ) {
        let ffn = blocks * QUANT_BLOCK;
        let stream = crate::input::Stream::new(seed, "x");
        let gate_up: Vec<f32> = (0..(m * 2 * ffn) as u64).map(|i| stream.normal(i) * size).collect();
        let pool = Pool::new(2).unwrap();
        let mut gated = vec![0.0; m * ffn];
        swiglu::run(&pool, &swiglu::VARIANTS[0], m, ffn, &gate_up, &mut gated);
        let (mut quants, mut scales, mut sums) = (vec![0; m * ffn], vec![0.0; m * blocks], vec![0; m * blocks]);
        (quantise::VARIANTS[0].kernel)(&gated, &mut quants, &mut scales, &mut sums);
        for variant in VARIANTS.iter().filter(|variant| variant.listed.target.is_within(this_tier())) {
            let (mut q, mut s, mut t) = (vec![1; m * ffn], vec![f32::NAN; m * blocks], vec![1; m * blocks]);
            run(&pool, variant, m, ffn, &gate_up, &mut q, &mut s, &mut t);
            prop_assert_eq!(&q, &quants, "{}", variant.listed.name);
            prop_assert_eq!(bytemuck::cast_slice::<f32, u32>(&s), bytemuck::cast_slice::<f32, u32>(&scales));
            prop_assert_eq!(&t, &sums);
            prop_assert!(by_name(variant.listed.name).is_some());
        }
    }
}

#[test]
#[should_panic(expected = "a multiple of 32, not 33")]
fn part_blocks_are_refused() {
    run(&Pool::new(1).unwrap(), &VARIANTS[0], 1, 33, &[0.0; 66], &mut [0; 33], &mut [0.0], &mut [0]);
}
