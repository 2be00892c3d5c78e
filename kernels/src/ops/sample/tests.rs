//! Every variant draws the token of the definition.

use proptest::prelude::*;

use super::*;
use crate::backend::host::this_tier;
use crate::input::Stream;

fn judge(logits: &[f32], params: &[RowParams]) -> Result<(), TestCaseError> {
    let n = logits.len() / params.len();
    let rows = logits.chunks_exact(n).zip(params);
    let wanted: Vec<u32> = rows.map(|(row, params)| order::sample(row, params)).collect();
    let mut scratch = SampleScratch::new();
    for threads in [1, 2] {
        let pool = Pool::new(threads).unwrap();
        for variant in VARIANTS.iter().filter(|variant| variant.listed.target.is_within(this_tier())) {
            let mut out = vec![u32::MAX; params.len()];
            run(&pool, variant, params.len(), n, logits, params, &mut scratch, &mut out);
            prop_assert_eq!(&out, &wanted, "{} {:?}", variant.listed.name, params);
            prop_assert!(by_name(variant.listed.name).is_some());
        }
    }
    Ok(())
}

fn any_params() -> impl Strategy<Value = RowParams> {
    let temperature =
        prop_oneof![4 => 0.05_f32..4.0, 1 => prop::sample::select(vec![0.0, 1e-44, 1e30, f32::INFINITY, -1.0])];
    let top_k = prop_oneof![2 => Just(0_u32), 3 => 1_u32..80, 1 => Just(u32::MAX)];
    let top_p = prop_oneof![2 => Just(1.0_f32), 3 => 0.0_f32..1.0, 2 => 0.9_f32..1.0, 1 => prop::sample::select(vec![f32::NAN, -1.0, 0.999_999_94])];
    let min_p = prop_oneof![2 => Just(0.0_f32), 2 => 0.0_f32..0.5, 1 => prop::sample::select(vec![1.0, 3.0, f32::NAN])];
    (temperature, top_k, top_p, min_p, any::<u64>(), any::<u64>()).prop_map(
        |(temperature, top_k, top_p, min_p, seed, position)| RowParams {
            temperature,
            top_k,
            top_p,
            min_p,
            seed,
            position,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_variant_draws_the_token_of_the_definition(
        n in prop_oneof![1_usize..200, 200_usize..3000],
        params in prop::collection::vec(any_params(), 1..4),
        seed: u64,
        spread in prop::sample::select(vec![0.0_f32, 1e-3, 0.3, 3.0, 100.0]),
        step in prop::sample::select(vec![0.0_f32, 0.5, 4.0]),
        broken: bool,
    ) {
        let stream = Stream::new(seed, "logits");
        let logits: Vec<f32> = (0..(n * params.len()) as u64)
            .map(|i| {
                let x = stream.normal(i) * spread;
                let x = if step > 0.0 { (x / step).round() * step } else { x };
                match stream.bits(i) % 11 {
                    0 if broken => f32::NAN,
                    1 if broken => f32::NEG_INFINITY,
                    _ => x,
                }
            })
            .collect();
        judge(&logits, &params)?;
    }
}

#[test]
fn many_positions_of_one_row() {
    let stream = Stream::new(5, "logits");
    let logits: Vec<f32> = (0..2000).map(|i| stream.normal(i) * 2.5).collect();
    let base = RowParams { temperature: 0.9, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 11, position: 0 };
    for (top_k, top_p, min_p) in [(0, 1.0, 0.0), (40, 1.0, 0.0), (0, 0.95, 0.0), (0, 1.0, 0.05), (100, 0.9, 0.02)] {
        let params: Vec<RowParams> =
            (0..50).map(|position| RowParams { top_k, top_p, min_p, position, ..base }).collect();
        judge(&logits.repeat(50), &params).unwrap();
    }
}

#[test]
fn wrong_filters_are_named() {
    let error = Sample.normalise(&"m=1,n=4,filter=best".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("`filter`") && error.contains("top_k"), "{error}");
    assert_eq!(Sample.normalise(&"m=1,n=4".parse().unwrap()).unwrap().to_string(), "filter=none,m=1,n=4");
}
