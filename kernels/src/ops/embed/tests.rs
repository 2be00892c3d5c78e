//! Rows come out of every layout as they were stored.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_layout_gives_the_stored_values(
        n in 1_usize..50,
        blocks in 1_usize..20,
        seed: u64,
        tokens in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
    ) {
        let segment = Segment { format: BlockFormat::Q8_0, n };
        let k = blocks * QUANT_BLOCK;
        let stream = Stream::new(seed, "bytes");
        let block = |b: u64| {
            let scale = f16::from_f32(stream.normal(b)).to_le_bytes();
            scale.into_iter().chain((0..32).map(move |i| stream.bits(1000 + b * 32 + i) as u8))
        };
        let stored: Vec<u8> = (0..(n * blocks) as u64).flat_map(block).collect();
        let tokens: Vec<u32> = tokens.iter().map(|token| token.index(n) as u32).collect();
        let sizes = Sizes { m: tokens.len(), hidden: k, segment };
        let wanted: Vec<f32> = tokens.iter().flat_map(|token| values_of(sizes, &stored, *token)).collect();
        let pool = Pool::new(2).unwrap();
        for variant in VARIANTS {
            let weight = PackedSegment::pack(segment, k, variant.layout, &stored).unwrap();
            let mut out = vec![f32::NAN; wanted.len()];
            run(&pool, variant, &weight, &tokens, &mut out);
            prop_assert_eq!(bytemuck::cast_slice::<f32, u32>(&out), bytemuck::cast_slice::<f32, u32>(&wanted));
            prop_assert!(by_layout(variant.layout).is_some_and(|found| found.listed.name == variant.listed.name));
        }
    }
}

#[test]
#[should_panic(expected = "token 4 is not one of 4")]
fn a_token_past_the_end_is_named() {
    let segment = Segment { format: BlockFormat::F32, n: 4 };
    let weight = PackedSegment::pack(segment, 1, Layout::Stored, &[0; 16]).unwrap();
    run(&Pool::new(1).unwrap(), &VARIANTS[0], &weight, &[1, 4], &mut [0.0; 2]);
}

#[test]
fn wrong_axes_and_weights_are_named() {
    for (text, axis) in [
        ("m=0,hidden=32,vocab=4,fmt=q8_0", "`m`"),
        ("m=1,hidden=33,vocab=4,fmt=q8_0", "`hidden`"),
        ("m=1,hidden=32,vocab=0,fmt=q8_0", "`vocab`"),
        ("m=1,hidden=131072,vocab=1048576,fmt=f32", "`vocab`"),
        ("m=1,hidden=32,vocab=4,fmt=q4_k", "`fmt`"),
        ("m=1,hidden=32,vocab=4", "`fmt`"),
    ] {
        let error = Embed.normalise(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains(axis), "{text}: {error}");
    }
    let problem: Problem = "m=1,hidden=2,vocab=2,fmt=f32".parse().unwrap();
    let inputs = Embed.inputs(&problem, "normal", 1).unwrap();
    let mut weights = [0_u8; 16];
    let error = Embed.with_weights(&problem, inputs.clone(), &weights[1..]).unwrap_err().to_string();
    assert!(error.contains("15 bytes, and 16 are needed"), "{error}");
    weights[12..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let error = Embed.with_weights(&problem, inputs.clone(), &weights).unwrap_err().to_string();
    assert!(error.contains("element 1 of row 1"), "{error}");
    let error = Embed.supports(&VARIANTS[1].listed, &problem).unwrap_err().to_string();
    assert!(error.contains("panels hold q8_0"), "{error}");
    let mut inputs = inputs;
    inputs.insert(shared::integers("tokens", &[1], &[2]));
    let error = Embed.prepare_host(&VARIANTS[0].listed, &problem, &inputs, 1).err().unwrap().to_string();
    assert!(error.contains("names row 2 of 2"), "{error}");
}
