//! Bounds that make the sums exact, forms, and refusals.

use super::*;

fn problem(text: &str) -> Problem {
    MatrixPeak.normalise(&text.parse().unwrap()).unwrap()
}

#[test]
fn bad_problems_name_the_axis() {
    for (text, named) in [
        ("type=fp4,depth=1,warps=4,blocks=1", "`type`"),
        ("type=bf16,depth=0,warps=4,blocks=1", "`depth`"),
        ("type=bf16,depth=8193,warps=4,blocks=1", "`depth`"),
        ("type=bf16,depth=1,warps=6,blocks=1", "4 or 8"),
        ("type=bf16,depth=1,warps=4,blocks=0", "`blocks`"),
    ] {
        let error = MatrixPeak.normalise(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn operations_are_counted() {
    let cost = |text: &str| MatrixPeak.cost(&problem(text)).unwrap().flops;
    assert_eq!(cost("type=bf16,depth=1,warps=4,blocks=1"), 2 * 64 * 256 * 16);
    assert_eq!(cost("type=int8,depth=10,warps=8,blocks=3"), 2 * 64 * 256 * 32 * 10 * 6);
}

/// Every partial sum of every element stays below 2^13, for the deepest problem.
#[test]
fn sums_stay_exact_in_every_accumulator() {
    for family in ["mixed", "dense"] {
        for element in ["bf16", "fp8"] {
            let problem = problem(&format!("type={element},depth=8192,warps=4,blocks=1"));
            let inputs = MatrixPeak.inputs(&problem, family, 9).unwrap();
            let (a, b) = (inputs.get("a").unwrap().to_i8(), inputs.get("b").unwrap().to_i8());
            assert!(a.iter().chain(&b).all(|v| (-3..=3).contains(v)));
            let k = a.len() / 64;
            let mut worst = 0;
            for row in 0..64 {
                for column in 0..256 {
                    let product = |tile: usize| -> i32 {
                        (0..k)
                            .map(|i| i32::from(a[(tile * 16 + row % 16) * k + i]) * i32::from(b[i * 256 + column]))
                            .sum()
                    };
                    let products = [0, 1, 2, 3].map(product);
                    let cycle: i32 = products.iter().sum();
                    assert!(cycle.abs() <= 3);
                    // The largest partial sum lies in the last cycle, where all cycles before it have added up.
                    let mut sum = cycle * (8192 / 4 - 1);
                    for turn in 0..4 {
                        sum += products[(turn + row / 16) % 4];
                        worst = worst.max(sum.abs());
                    }
                    let least = i32::try_from(k).unwrap() * 9;
                    assert!(products.iter().all(|product| product.abs() <= least));
                }
            }
            assert!(worst < 1 << 13, "{element} {family}: {worst}");
            assert!(worst > 1 << 12, "the sums are not trivial: {worst}");
        }
    }
}

#[test]
fn forms_pack_the_operands_of_their_instruction() {
    for (text, mma, wgmma) in [
        ("type=bf16,depth=9,warps=4,blocks=3", "cuda_mma_bf16", "cuda_wgmma_bf16"),
        ("type=f16,depth=9,warps=8,blocks=3", "cuda_mma_f16", "cuda_wgmma_f16"),
        ("type=fp8,depth=9,warps=8,blocks=3", "cuda_mma_fp8", "cuda_wgmma_fp8"),
        ("type=int8,depth=9,warps=8,blocks=3", "cuda_mma_int8", "cuda_wgmma_int8"),
    ] {
        let problem = problem(text);
        let inputs = MatrixPeak.inputs(&problem, "mixed", 1).unwrap();
        for (name, bytes) in [(mma, 10_240), (wgmma, 16_384)] {
            let entry = by_name(name).unwrap();
            let form = MatrixPeak.device_form(&entry.listed, &problem, &inputs).unwrap();
            assert_eq!((form.fault(), form.copy_bytes()), (None, bytes), "{name}");
            assert!(entry.listed.source.text.contains(&form.launches[0].entry));
            let wanted = MatrixPeak.ordered_outputs(&problem, &inputs).unwrap();
            assert_eq!(form.outputs[0].shape, wanted.get("out").unwrap().shape);
        }
    }
    let other = &by_name("cuda_mma_f16").unwrap().listed;
    let error = MatrixPeak.supports(other, &problem("type=int8,depth=1,warps=4,blocks=1")).unwrap_err().to_string();
    assert!(error.contains("multiplies f16"), "{error}");
}

/// A tile in another's place, or a step too few, shows.
#[test]
fn turns_and_depth_change_the_outputs() {
    let out = |text: &str| {
        let problem = problem(text);
        let inputs = MatrixPeak.inputs(&problem, "mixed", 2).unwrap();
        MatrixPeak.output_values(&MatrixPeak.ordered_outputs(&problem, &inputs).unwrap())
    };
    let deep = out("type=bf16,depth=9,warps=8,blocks=2");
    assert_ne!(deep, out("type=bf16,depth=8,warps=8,blocks=2"));
    let groups: Vec<_> = deep.chunks_exact(512).collect();
    assert!(groups[0] != groups[1] && groups[1] != groups[2]);
}
