//! Guards: cells a promoted variant must not lose, judged on replicate estimates with Holm's correction.

use super::examine::{Examined, check_arm, check_replicates};
use super::{Refusal, RegistryFacts, Rule};
use crate::entry::GuardEvidence;
use crate::record::Verdict;

/// Family-wise error of the guards of one promotion.
pub const GUARD_ALPHA: f64 = 0.05;

/// Holm's step-down correction (Holm, 1979): the adjusted p of each test, in the order they came. Each lies in 0..=1.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|left, right| p[*left].total_cmp(&p[*right]).then(left.cmp(right)));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        largest = largest.max(p[index] * (p.len() - rank) as f64).min(1.0);
        adjusted[index] = largest;
    }
    adjusted
}

/// The two-sided p of Student's t with a whole number of degrees of freedom, by the finite series of Abramowitz and
/// Stegun, 26.7.3 and 26.7.4. Good to about 1e-14 absolute. Zero degrees, and a t that is no number, give 1.
pub fn student_two_sided(t: f64, degrees: u32) -> f64 {
    if degrees == 0 || t.is_nan() {
        return 1.0;
    }
    let angle = libm::atan(t.abs() / libm::sqrt(f64::from(degrees)));
    let (sine, cosine) = (libm::sin(angle), libm::cos(angle));
    let square = cosine * cosine;
    let is_odd = degrees % 2 == 1;
    // The terms are cos^j times ratios of products of every second whole number; they start at 1 or at the cosine.
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = 0.0;
    let mut power = u32::from(is_odd);
    while power + 2 <= degrees {
        sum += term;
        term *= square * f64::from(power + 1) / f64::from(power + 2);
        power += 2;
    }
    let inside = if is_odd { 2.0 / std::f64::consts::PI * (angle + sine * sum) } else { sine * sum };
    (1.0 - inside).clamp(0.0, 1.0)
}

/// The two-sided p of the hypothesis that the mean of `values` is `centre`, and whether the mean lies above it.
fn test_against(values: &[f64], centre: f64) -> (f64, bool) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / (n - 1.0);
    let is_above = mean > centre;
    if variance > 0.0 {
        let t = (mean - centre) / libm::sqrt(variance / n);
        let degrees = u32::try_from(values.len() - 1).unwrap_or(u32::MAX);
        (student_two_sided(t, degrees), is_above)
    } else {
        // Equal estimates leave no doubt about their mean.
        (if mean == centre { 1.0 } else { 0.0 }, is_above)
    }
}

/// Holds the guards of `variant` to [`Rule::Guard`]; notices go to `notices`.
///
/// A guard is SLOWER when the mean of its replicate estimates lies above tau and the two-sided t-test of the estimates
/// against tau, Holm-corrected over all guards, rejects at [`GUARD_ALPHA`]. A guard that is VOID or INCOMPARABLE says
/// nothing and is refused; one that is UNDECIDED, or SLOWER before the correction, passes with a notice.
pub(super) fn check_guards(
    registry: &RegistryFacts<'_>,
    guards: &[Examined<'_>],
    promoted: &Examined<'_>,
    notices: &mut Vec<String>,
) -> Result<Vec<GuardEvidence>, Refusal> {
    let mut tests = Vec::new();
    for guard in guards {
        let refuse = |why: String| Err(Refusal::at(Rule::Guard, &guard.citation, why));
        let (key, of) = (&guard.verdict.key, &promoted.verdict.key);
        if (&guard.verdict.b, &key.contract, key.revision) != (&promoted.verdict.b, &of.contract, of.revision) {
            return refuse(format!("judges `{}` of {}, not the promoted variant", guard.verdict.b, key.contract));
        }
        if guard.verdict.key.clock != promoted.verdict.key.clock {
            return refuse(format!("measured in the clock regime `{}`", guard.verdict.key.clock));
        }
        let verdict = guard.verdict.result.verdict;
        if matches!(verdict, Verdict::Void | Verdict::Incomparable) {
            return refuse("the verdict is VOID or INCOMPARABLE, which guards nothing".to_owned());
        }
        check_replicates(guard)?;
        check_arm(registry, guard, guard.arm_a())?;
        check_arm(registry, guard, guard.arm_b())?;
        let thetas: Option<Vec<f64>> =
            guard.counted().map(|cell| cell.result.theta_ppm.map(|theta| theta as f64)).collect();
        let (Some(thetas), Some(tau)) = (thetas, guard.verdict.result.tau_ppm) else {
            return refuse("a replicate has no estimate, or the verdict has no tau".to_owned());
        };
        tests.push(test_against(&thetas, tau as f64));
    }
    let adjusted = holm(&tests.iter().map(|(p, _)| *p).collect::<Vec<_>>());
    let mut kept = Vec::new();
    for ((guard, (_, is_above)), p) in guards.iter().zip(tests).zip(adjusted) {
        let cell = &guard.verdict.cell;
        if is_above && p <= GUARD_ALPHA {
            let why = format!("the variant is slower on the guard `{cell}`, p = {p:.2e} after Holm");
            return Err(Refusal::at(Rule::Guard, &guard.citation, why));
        }
        match guard.verdict.result.verdict {
            Verdict::Undecided => notices.push(format!("guard `{cell}` is UNDECIDED")),
            Verdict::Slower => notices.push(format!("guard `{cell}` is SLOWER alone, not after Holm")),
            _ => {}
        }
        kept.push(GuardEvidence { evidence: guard.cell_evidence(), holm_p_ppm: libm::round(p * 1e6) as u64 });
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::student_t_quantile;
    use proptest::prelude::*;

    #[test]
    fn holm_by_hand() {
        // Holm 1979: the smallest times 4, the next times 3, and never below the one before.
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        for (found, expected) in adjusted.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn p_of_known_t() {
        // One degree: 1 - 2 atan(t) / pi; two degrees: 1 - t / sqrt(2 + t^2).
        assert!((student_two_sided(1.0, 1) - 0.5).abs() < 1e-15);
        assert!((student_two_sided(-2.0, 2) - (1.0 - 2.0 / 6.0_f64.sqrt())).abs() < 1e-15);
        // Published 97.5 % points.
        for (degrees, t) in [(4, 2.776_445_105_2), (5, 2.570_581_835_6), (9, 2.262_157_162_8), (30, 2.042_272_456_3)] {
            assert!((student_two_sided(t, degrees) - 0.05).abs() < 1e-10, "{degrees}");
        }
        assert_eq!(student_two_sided(0.0, 7), 1.0);
        assert_eq!(student_two_sided(f64::INFINITY, 7), 0.0);
        assert_eq!(student_two_sided(f64::NAN, 7), 1.0);
        assert_eq!(student_two_sided(3.0, 0), 1.0);
    }

    #[test]
    fn a_mean_is_tested_against_a_centre() {
        assert_eq!(test_against(&[5.0; 5], 3.0), (0.0, true));
        assert_eq!(test_against(&[3.0; 5], 3.0), (1.0, false));
        // Mean 3, s^2 = 2.5: t against 1 is 2 / sqrt(0.5) = 2.828 with 4 degrees.
        let (p, is_above) = test_against(&[1.0, 2.0, 3.0, 4.0, 5.0], 1.0);
        assert!(is_above && (p - student_two_sided(2.0 / 0.5_f64.sqrt(), 4)).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn p_is_the_inverse_of_the_quantile(p in 0.001_f64..0.999, degrees in 1_u32..120) {
            let t = student_t_quantile(1.0 - p / 2.0, f64::from(degrees)).unwrap();
            prop_assert!((student_two_sided(t, degrees) - p).abs() < 1e-9);
        }

        #[test]
        fn holm_keeps_order_and_never_lowers(p in prop::collection::vec(0.0_f64..=1.0, 1..9)) {
            let adjusted = holm(&p);
            for (i, a) in p.iter().enumerate() {
                prop_assert!(adjusted[i] >= *a && adjusted[i] <= 1.0);
                for (j, b) in p.iter().enumerate() {
                    prop_assert!(a > b || adjusted[i] <= adjusted[j]);
                }
            }
        }
    }
}
