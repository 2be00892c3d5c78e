//! Norm and quantisation in one have the bits of the two in turn.

use proptest::prelude::*;

use super::*;
use crate::backend::host::this_tier;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_variant_gives_the_bits_of_the_two_contracts_in_turn(
        blocks in 1_usize..20,
        m in 1_usize..4,
        seed: u64,
        size in prop::sample::select(vec![1e-30_f32, 1e-3, 1.0, 1e15]),
    ) {
        let hidden = blocks * QUANT_BLOCK;
        let (stream, weights) = (crate::input::Stream::new(seed, "x"), crate::input::Stream::new(seed, "weight"));
        let x: Vec<f32> = (0..(m * hidden) as u64).map(|i| stream.normal(i) * size).collect();
        let weight: Vec<f32> = (0..hidden as u64).map(|i| weights.normal(i)).collect();
        let mut normed = vec![0.0; m * hidden];
        let operands = Operands { hidden, x: &x, weight: &weight, epsilon: 1e-5 };
        (rms_norm::VARIANTS[0].kernel)(&operands, &mut normed);
        let (mut quants, mut scales, mut sums) = (vec![0; m * hidden], vec![0.0; m * blocks], vec![0; m * blocks]);
        (quantise::VARIANTS[0].kernel)(&normed, &mut quants, &mut scales, &mut sums);
        let pool = Pool::new(2).unwrap();
        for variant in VARIANTS.iter().filter(|variant| variant.listed.target.is_within(this_tier())) {
            let (mut q, mut s, mut t) = (vec![1; m * hidden], vec![f32::NAN; m * blocks], vec![1; m * blocks]);
            run(&pool, variant, m, hidden, 1e-5, &x, &weight, &mut q, &mut s, &mut t);
            prop_assert_eq!(&q, &quants, "{}", variant.listed.name);
            prop_assert_eq!(bytemuck::cast_slice::<f32, u32>(&s), bytemuck::cast_slice::<f32, u32>(&scales));
            prop_assert_eq!(&t, &sums);
            prop_assert!(by_name(variant.listed.name).is_some());
        }
    }
}

#[test]
fn messages_name_this_contract() {
    for (text, axis) in [("m=1,hidden=33", "`hidden`"), ("m=1,hidden=32,eps=0", "`eps`"), ("m=1,hidden=32,n=1", "`n`")]
    {
        let error = RmsNormQuantise.normalise(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains(axis) && error.contains("`rms_norm_quantise`"), "{text}: {error}");
    }
    let problem: Problem = "m=1,hidden=32".parse().unwrap();
    let inputs = RmsNormQuantise.inputs(&problem, "normal", 1).unwrap();
    let error = RmsNormQuantise.with_weights(&problem, inputs, &[0; 4]).unwrap_err().to_string();
    assert!(error.contains("`rms_norm_quantise`") && error.contains("4 bytes, and 128"), "{error}");
    let error = RmsNormQuantise.inputs(&problem, "odd", 1).unwrap_err().to_string();
    assert!(error.contains("`rms_norm_quantise` has no input family `odd`"), "{error}");
}
