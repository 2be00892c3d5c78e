//! The noise, the filters and the frequencies of the definition.

use super::*;

const PLAIN: RowParams = RowParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 7, position: 0 };

#[test]
fn the_highest_gumbel_is_the_constant_and_the_function_rises() {
    assert_eq!(gumbel((1 << 24) - 1), GUMBEL_HIGHEST);
    assert!(gumbel(0) > -2.9 && gumbel(0) < -2.8);
    let mut last = f32::NEG_INFINITY;
    for bits in (0..1 << 24).step_by(997) {
        let value = gumbel(bits);
        assert!(value >= last && value <= GUMBEL_HIGHEST);
        last = value;
    }
}

#[test]
fn filters_keep_what_the_text_says() {
    let logits = [0.0, 3.0, 2.0, 3.0, -1.0, f32::NAN, f32::NEG_INFINITY];
    let drawn = |params: RowParams| {
        let mut seen = [0_u32; 7];
        for position in 0..2000 {
            seen[sample(&logits, &RowParams { position, ..params }) as usize] += 1;
        }
        seen
    };
    let seen = drawn(PLAIN);
    assert!(seen[..5].iter().all(|count| *count > 0) && seen[5..] == [0, 0], "{seen:?}");
    let seen = drawn(RowParams { top_k: 1, ..PLAIN });
    assert_eq!(seen[1], 2000, "equal logits are kept in order of their index");
    let seen = drawn(RowParams { top_k: 3, ..PLAIN });
    assert!(seen[1] > 0 && seen[2] > 0 && seen[3] > 0 && seen[0] + seen[4] == 0, "{seen:?}");
    // Probabilities are 0.42, 0.42, 0.16 and less: two reach 0.8 of the sum.
    let seen = drawn(RowParams { top_p: 0.8, ..PLAIN });
    assert!(seen[1] + seen[3] == 2000 && seen[1] > 0 && seen[3] > 0, "{seen:?}");
    let seen = drawn(RowParams { top_p: 0.0, ..PLAIN });
    assert_eq!(seen[1], 2000, "at least one token stays");
    let seen = drawn(RowParams { min_p: 0.3, ..PLAIN });
    assert!(seen[2] > 0 && seen[0] + seen[4] == 0, "{seen:?}");
    let seen = drawn(RowParams { min_p: 2.0, ..PLAIN });
    assert_eq!(seen[1] + seen[3], 2000, "min_p counts as one at most");
}

#[test]
fn rows_without_a_distribution_are_argmax() {
    let greedy = RowParams { temperature: 0.0, ..PLAIN };
    assert_eq!(sample(&[1.0, 5.0, 5.0], &greedy), 1);
    assert_eq!(sample(&[1.0, 5.0], &RowParams { temperature: f32::NAN, ..PLAIN }), 1);
    assert_eq!(sample(&[1.0, f32::INFINITY, f32::INFINITY], &PLAIN), 1);
    assert_eq!(sample(&[f32::NAN, f32::NEG_INFINITY], &PLAIN), 1);
    assert_eq!(sample(&[f32::NAN, f32::NAN], &PLAIN), 0);
    // A temperature so small that every quotient but the largest's overflows.
    assert_eq!(sample(&[1.0, 2.0, 1.5], &RowParams { temperature: 1e-44, ..PLAIN }), 1);
}

/// Chi-square of draws against wanted shares.
fn chi_square(counts: &[u32], shares: &[f64]) -> f64 {
    let draws = f64::from(counts.iter().sum::<u32>());
    counts.iter().zip(shares).map(|(count, share)| (f64::from(*count) - draws * share).powi(2) / (draws * share)).sum()
}

#[test]
fn frequencies_are_those_of_softmax() {
    let logits = [0.3_f32, -1.0, 2.0, 0.0, 1.0, -0.5, 0.7, 1.5];
    // Seeds that count up, and positions that count up under one seed.
    for (by_seed, temperature) in [(true, 1.0), (false, 1.0), (false, 0.5), (true, 2.0)] {
        let weights: Vec<f64> = logits.iter().map(|x| (f64::from(*x) / f64::from(temperature)).exp()).collect();
        let total: f64 = weights.iter().sum();
        let shares: Vec<f64> = weights.iter().map(|w| w / total).collect();
        let mut counts = [0_u32; 8];
        for i in 0..20_000_u64 {
            let (seed, position) = if by_seed { (i, 3) } else { (99, i) };
            counts[sample(&logits, &RowParams { temperature, seed, position, ..PLAIN }) as usize] += 1;
        }
        // The 99.9th percentile of chi-square with seven degrees of freedom is 24.3.
        let distance = chi_square(&counts, &shares);
        assert!(distance < 24.3, "{counts:?} {shares:?} {distance}");
    }
}

#[test]
fn neighbouring_positions_are_independent() {
    let logits = [0.0_f32; 4];
    let mut pairs = [0_u32; 16];
    for position in 0..20_000 {
        let [a, b] = [position, position + 1].map(|position| sample(&logits, &RowParams { position, ..PLAIN }));
        pairs[(a * 4 + b) as usize] += 1;
    }
    // The 99.9th percentile of chi-square with fifteen degrees of freedom is 37.7.
    let distance = chi_square(&pairs, &[1.0 / 16.0; 16]);
    assert!(distance < 37.7, "{pairs:?} {distance}");
}
