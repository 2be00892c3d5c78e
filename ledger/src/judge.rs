//! What follows from raw slots: the result of a cell, and the verdict over replicates.
//!
//! The harness writes what these functions give, and a reader of a receipt calls them again and compares. They are
//! pure, and every number after an estimate is computed from the integers that are recorded.

mod block;
mod pool;
#[cfg(test)]
mod tests;

pub use block::{BlockFault, Quad, block_orders, block_quads, block_seed, order_text};
pub use pool::{judge_pool, key_difference, verdict_body};

use crate::record::{Block, CellPlan, CellResult, Verdict, WarmUp};
use crate::stats::{self, ArmLabel, Class, Estimator, StatsError};

/// Fewest counted quads of a block that anything is said from.
pub const MIN_QUADS: usize = 6;

/// A/A blocks from which on a band is no longer provisional: the largest of 22 covers 90 % of future ones with 90 %
/// confidence.
pub const SETTLED_BAND_M: u32 = 22;

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// A block is void if one in this many of its quads is void, and then some.
pub const VOID_SHARE: usize = 5;

/// A cell is void if voids fall on one arm in a way that has less than this probability among fair coins.
pub const BLAME_P: f64 = 0.01;

/// A slot must last at least this many timer resolutions.
pub const SLOT_PER_TIMER: u64 = 100;

/// The reason of an undecided cell without A/A block.
pub const BAND_MISSING: &str = "band missing: there is no A/A block";

/// The result of one cell in one replicate.
///
/// A/A blocks give the band, the A/B block gives the estimate. The cell is VOID, with every reason given, if
/// - the warm-up did not become steady,
/// - there is no A/B block, or a block does not have its form,
/// - more than a fifth of the quads of a block are void, or fewer than [`MIN_QUADS`] count,
/// - voids of the A/B block fall on one arm with a binomial p below [`BLAME_P`],
/// - a counted slot has no elapsed time, or the timer's resolution is more than 1 % of the median slot of either arm.
///
/// A void cell keeps its medians, A/A estimates and band where they exist, and has no estimate. Without A/A block the
/// cell is UNDECIDED with [`BAND_MISSING`] and has medians only.
pub fn judge_cell(
    aa: &[Block],
    ab: Option<&Block>,
    plan: &CellPlan,
    warm_up: &WarmUp,
    smallest_ppm: i64,
) -> CellResult {
    let mut reasons = Vec::new();
    let has_drift = warm_up.drift_ppm.unsigned_abs() > warm_up.allowed_drift_ppm.max(0).unsigned_abs();
    if !warm_up.is_steady || has_drift {
        let (drift, allowed) = (warm_up.drift_ppm, warm_up.allowed_drift_ppm);
        reasons.push(format!("warm-up did not become steady: drift {drift} ppm, allowed {allowed} ppm"));
    }
    let mut aa_theta_ppm = Vec::new();
    for (index, block) in aa.iter().enumerate() {
        let examined = examine(&format!("A/A block {index}"), block, &mut reasons);
        aa_theta_ppm.extend(examined.theta_ppm);
    }
    let main = ab.map_or_else(Examined::default, |block| examine("A/B block", block, &mut reasons));
    if ab.is_none() {
        reasons.push("there is no A/B block".to_owned());
    }
    check_blame(&main.quads, &mut reasons);
    if plan.launches == 0 {
        reasons.push("a slot has no launches".to_owned());
    }
    check_timer(&main.quads, plan, &mut reasons);

    let band_ppm = largest(&aa_theta_ppm);
    let band_m = u32::try_from(aa_theta_ppm.len()).unwrap_or(u32::MAX);
    let mut result = CellResult {
        n: u32::try_from(main.counted()).unwrap_or(u32::MAX),
        median_a_ps: median_ps(&main.quads, ArmLabel::A, plan.launches),
        median_b_ps: median_ps(&main.quads, ArmLabel::B, plan.launches),
        theta_ppm: None,
        lo_ppm: None,
        hi_ppm: None,
        delta_ppm: None,
        aa_theta_ppm,
        band_ppm,
        band_m,
        tau_ppm: None,
        mde_ppm: None,
        sign_p_ppm: None,
        verdict: Verdict::Void,
        is_provisional: band_m < SETTLED_BAND_M,
        reasons,
    };
    if result.reasons.is_empty() {
        let effect = quad_effect(&main.differences);
        decide(&mut result, effect, smallest_ppm);
    }
    result
}

/// What a set of differences says, in parts per million.
struct Effect {
    theta: i64,
    lo: i64,
    hi: i64,
    mde: i64,
    sign_p: i64,
}

/// The effect by the quads of one replicate: Hodges-Lehmann estimate and signed-rank interval.
fn quad_effect(differences: &[f64]) -> Result<Effect, StatsError> {
    let Some(interval) = stats::interval(differences, CONFIDENCE)? else {
        let (what, need, got) = ("a signed-rank interval", MIN_QUADS, differences.len());
        return Err(StatsError::TooFew { what, need, got });
    };
    let spread = stats::scale(differences)?;
    Ok(Effect {
        theta: stats::to_ppm(stats::hodges_lehmann(differences)?)?,
        lo: stats::to_ppm(interval.lo)?,
        hi: stats::to_ppm(interval.hi)?,
        mde: stats::to_ppm(stats::mde(spread, differences.len(), Estimator::HodgesLehmann)?)?,
        sign_p: stats::to_ppm(stats::sign_test(differences)?.p)?,
    })
}

/// Fills in estimate, threshold and verdict of a result that is not void. All of it follows from recorded integers.
fn decide(result: &mut CellResult, effect: Result<Effect, StatsError>, smallest_ppm: i64) {
    let Some(band_ppm) = result.band_ppm else {
        result.verdict = Verdict::Undecided;
        result.reasons.push(BAND_MISSING.to_owned());
        return;
    };
    let computed = effect.and_then(|effect| {
        let delta_ppm = stats::to_ppm(stats::relative_effect(stats::from_ppm(effect.theta)))?;
        Ok((effect, delta_ppm))
    });
    let (effect, delta_ppm) = match computed {
        Ok(computed) => computed,
        Err(error) => {
            result.reasons.push(error.to_string());
            return;
        }
    };
    let tau_ppm = band_ppm.max(smallest_ppm);
    result.theta_ppm = Some(effect.theta);
    result.lo_ppm = Some(effect.lo);
    result.hi_ppm = Some(effect.hi);
    result.delta_ppm = Some(delta_ppm);
    result.tau_ppm = Some(tau_ppm);
    result.mde_ppm = Some(effect.mde.max(band_ppm));
    result.sign_p_ppm = Some(effect.sign_p.max(0).unsigned_abs());
    // The thresholds scale with the unit, so parts per million do as well as fractions.
    result.verdict = match stats::classify(effect.lo as f64, effect.hi as f64, tau_ppm as f64) {
        Class::Faster => Verdict::Faster,
        Class::Slower => Verdict::Slower,
        Class::Equivalent => Verdict::Equivalent,
        Class::Undecided => Verdict::Undecided,
    };
}

/// A block as far as it can be used.
#[derive(Default)]
struct Examined {
    /// All quads; empty if the block does not have its form.
    quads: Vec<Quad>,
    /// Differences of the counted quads; empty if one cannot be computed.
    differences: Vec<f64>,
    /// Hodges-Lehmann estimate; nothing where fewer than [`MIN_QUADS`] quads count.
    theta_ppm: Option<i64>,
}

impl Examined {
    fn counted(&self) -> usize {
        counted(&self.quads).count()
    }
}

fn counted(quads: &[Quad]) -> impl Iterator<Item = &Quad> {
    quads.iter().filter(|quad| !quad.is_void)
}

fn examine(name: &str, block: &Block, reasons: &mut Vec<String>) -> Examined {
    let quads = match block_quads(block) {
        Ok(quads) => quads,
        Err(fault) => {
            reasons.push(format!("{name}: {fault}"));
            return Examined::default();
        }
    };
    let total = quads.len();
    let n = counted(&quads).count();
    let void = total - n;
    if void.saturating_mul(VOID_SHARE) > total {
        reasons.push(format!("{name}: {void} of {total} quads are void, more than a fifth"));
    }
    if n < MIN_QUADS {
        reasons.push(format!("{name}: {n} quads count, at least {MIN_QUADS} are needed"));
    }
    let mut examined = Examined { quads, differences: Vec::new(), theta_ppm: None };
    let differences: Result<Vec<f64>, (usize, StatsError)> = (examined.quads.iter().enumerate())
        .filter(|(_, quad)| !quad.is_void)
        .map(|(index, quad)| stats::quad_difference(quad.order, quad.elapsed_ns).map_err(|error| (index, error)))
        .collect();
    match differences {
        Ok(differences) => examined.differences = differences,
        Err((index, error)) => reasons.push(format!("{name}: quad {index}: {error}")),
    }
    if examined.differences.len() >= MIN_QUADS {
        match stats::hodges_lehmann(&examined.differences).and_then(stats::to_ppm) {
            Ok(theta_ppm) => examined.theta_ppm = Some(theta_ppm),
            Err(error) => reasons.push(format!("{name}: {error}")),
        }
    }
    examined
}

fn check_blame(quads: &[Quad], reasons: &mut Vec<String>) {
    let blamed = |arm| quads.iter().filter(|quad| quad.is_void && quad.blamed == Some(arm)).count() as u64;
    let (a, b) = (blamed(ArmLabel::A), blamed(ArmLabel::B));
    match stats::binomial_two_sided(a, a + b) {
        Ok(p) if p < BLAME_P => reasons.push(format!("void quads fall on one arm: {a} on A, {b} on B")),
        Ok(_) => {}
        Err(error) => reasons.push(format!("void quads: {error}")),
    }
}

fn check_timer(quads: &[Quad], plan: &CellPlan, reasons: &mut Vec<String>) {
    let medians = [ArmLabel::A, ArmLabel::B].map(|arm| stats::median_u64(&arm_slots(quads, arm)));
    let Some(slot_ns) = medians.into_iter().flatten().min() else { return };
    if plan.timer_ns.saturating_mul(SLOT_PER_TIMER) > slot_ns {
        let timer_ns = plan.timer_ns;
        reasons.push(format!("timer resolution of {timer_ns} ns is more than 1 % of a slot of {slot_ns} ns"));
    }
}

/// Elapsed times of an arm's slots in counted quads, in nanoseconds.
fn arm_slots(quads: &[Quad], arm: ArmLabel) -> Vec<u64> {
    let slots = counted(quads).flat_map(|quad| quad.order.arms().into_iter().zip(quad.elapsed_ns));
    slots.filter(|(slot_arm, _)| *slot_arm == arm).map(|(_, elapsed_ns)| elapsed_ns).collect()
}

/// Median time of a launch in picoseconds: the two middle slots of the arm's counted ones (their number is even), times
/// 1000, over twice the launches, rounded once, halves up. Nothing without slots or launches or beyond 64 bits.
fn median_ps(quads: &[Quad], arm: ArmLabel, launches: u32) -> Option<u64> {
    let mut slots = arm_slots(quads, arm);
    slots.sort_unstable();
    let upper = *slots.get(slots.len() / 2)?;
    let lower = *slots.get((slots.len() - 1) / 2)?;
    let thousands = (u128::from(lower) + u128::from(upper)) * 1000;
    let divisor = 2 * u128::from(launches);
    let rounded = (thousands + divisor / 2).checked_div(divisor)?;
    u64::try_from(rounded).ok()
}

/// The largest size among estimates.
fn largest(thetas_ppm: &[i64]) -> Option<i64> {
    thetas_ppm.iter().map(|theta| theta.saturating_abs()).max()
}
