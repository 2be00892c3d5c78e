//! The verdict over replicates: with several, the estimate of each is one observation.

use memra_contract::digest::Digest;

use super::{
    BAND_MISSING, CONFIDENCE, Effect, Estimator, SETTLED_BAND_M, StatsError, VOID_SHARE, decide, largest, stats,
};
use crate::record::{Arm, CellBody, CellKey, CellResult, Verdict, VerdictBody};

/// The result of one cell over all its replicates.
///
/// With one replicate it is that replicate's own. With several, replicates of different keys or arms make it
/// INCOMPARABLE; it is VOID if more than a fifth of the replicates are; else the estimates of the replicates that are
/// not void are the data: theta is their mean, the interval Student's t, n their number, medians the medians of the
/// replicates' medians (of two middle ones the mean, rounded down). The band is the largest A/A estimate of all
/// replicates, void ones included: leaving one out must not narrow it. The minimum detectable effect comes from the
/// spread of the estimates. If a replicate has no estimate for want of a band, the result is UNDECIDED.
pub fn judge_pool(cells: &[&CellBody], smallest_ppm: i64) -> CellResult {
    let (first, rest) = match cells {
        [] => return empty(0, Verdict::Void, vec!["there is no replicate".to_owned()]),
        [only] => return only.result.clone(),
        [first, rest @ ..] => (first, rest),
    };
    let count = u32::try_from(cells.len()).unwrap_or(u32::MAX);
    let differences: Vec<String> = (rest.iter())
        .filter_map(|cell| {
            let field = body_difference(first, cell)?;
            Some(format!("replicates {} and {} differ in {field}", first.replicate, cell.replicate))
        })
        .collect();
    if !differences.is_empty() {
        return empty(count, Verdict::Incomparable, differences);
    }
    let used: Vec<&CellResult> =
        cells.iter().map(|cell| &cell.result).filter(|result| result.verdict != Verdict::Void).collect();
    let void = cells.len() - used.len();
    let mut result = empty(u32::try_from(used.len()).unwrap_or(u32::MAX), Verdict::Void, Vec::new());
    result.median_a_ps = median_of(used.iter().map(|cell| cell.median_a_ps));
    result.median_b_ps = median_of(used.iter().map(|cell| cell.median_b_ps));
    result.aa_theta_ppm = cells.iter().flat_map(|cell| cell.result.aa_theta_ppm.iter().copied()).collect();
    result.band_ppm = largest(&result.aa_theta_ppm);
    result.band_m = u32::try_from(result.aa_theta_ppm.len()).unwrap_or(u32::MAX);
    result.is_provisional = result.band_m < SETTLED_BAND_M;
    if void.saturating_mul(VOID_SHARE) > cells.len() {
        result.reasons.push(format!("{void} of {count} replicates are void, more than a fifth"));
        return result;
    }
    let thetas: Option<Vec<i64>> = used.iter().map(|cell| cell.theta_ppm).collect();
    if let Some(thetas_ppm) = thetas {
        decide(&mut result, replicate_effect(&thetas_ppm), smallest_ppm);
    } else {
        result.verdict = Verdict::Undecided;
        result.reasons.push(BAND_MISSING.to_owned());
    }
    result
}

/// The verdict record over the replicates of one cell, given with the ids of their records; nothing without replicate.
pub fn verdict_body(replicates: &[(&Digest, &CellBody)], smallest_ppm: i64) -> Option<VerdictBody> {
    let (_, first) = replicates.first()?;
    let cells: Vec<&CellBody> = replicates.iter().map(|(_, cell)| *cell).collect();
    Some(VerdictBody {
        cell: first.cell.clone(),
        key: first.key.clone(),
        a: first.a.variant.clone(),
        b: first.b.variant.clone(),
        replicates: replicates.iter().map(|(id, _)| (*id).clone()).collect(),
        interval: if cells.len() == 1 { "signed-rank" } else { "t" }.to_owned(),
        result: judge_pool(&cells, smallest_ppm),
    })
}

/// The first field in which two keys differ; nothing for equal keys, which alone may be compared.
pub fn key_difference(left: &CellKey, right: &CellKey) -> Option<&'static str> {
    let inputs = (&left.inputs, &right.inputs);
    [
        ("key.contract", left.contract != right.contract),
        ("key.revision", left.revision != right.revision),
        ("key.problem", left.problem != right.problem),
        ("key.inputs.generator", inputs.0.generator != inputs.1.generator),
        ("key.inputs.family", inputs.0.family != inputs.1.family),
        ("key.inputs.seed", inputs.0.seed != inputs.1.seed),
        ("key.inputs.weights", inputs.0.weights != inputs.1.weights),
        ("key.device_key", left.device_key != right.device_key),
        ("key.cache", left.cache != right.cache),
        ("key.host_mode", left.host_mode != right.host_mode),
        ("key.clock", left.clock != right.clock),
        ("key.threads", left.threads != right.threads),
        ("key", left != right),
    ]
    .into_iter()
    .find_map(|(field, differs)| differs.then_some(field))
}

fn body_difference(left: &CellBody, right: &CellBody) -> Option<String> {
    if left.cell != right.cell {
        return Some("cell".to_owned());
    }
    if let Some(field) = key_difference(&left.key, &right.key) {
        return Some(field.to_owned());
    }
    let arm = |name: &str, left: &Arm, right: &Arm| arm_difference(left, right).map(|field| format!("{name}.{field}"));
    arm("a", &left.a, &right.a).or_else(|| arm("b", &left.b, &right.b))
}

/// The first field that makes two arms different competitors; gates and the way they were named do not.
fn arm_difference(left: &Arm, right: &Arm) -> Option<&'static str> {
    [
        ("kind", left.kind != right.kind),
        ("variant", left.variant != right.variant),
        ("layout", left.layout != right.layout),
        ("order_class", left.order_class != right.order_class),
        ("isa", left.isa != right.isa),
        ("source", left.source != right.source),
        ("source_sha256", left.source_sha256 != right.source_sha256),
        ("about", left.about != right.about),
    ]
    .into_iter()
    .find_map(|(field, differs)| differs.then_some(field))
}

/// The effect by the estimates of several replicates.
fn replicate_effect(thetas_ppm: &[i64]) -> Result<Effect, StatsError> {
    let thetas: Vec<f64> = thetas_ppm.iter().map(|&theta| stats::from_ppm(theta)).collect();
    let interval = stats::t_interval(&thetas, CONFIDENCE)?;
    let spread = stats::sample_sd(&thetas)?;
    Ok(Effect {
        theta: stats::to_ppm(interval.mean)?,
        lo: stats::to_ppm(interval.lo)?,
        hi: stats::to_ppm(interval.hi)?,
        mde: stats::to_ppm(stats::mde(spread, thetas.len(), Estimator::Mean)?)?,
        sign_p: stats::to_ppm(stats::sign_test(&thetas)?.p)?,
    })
}

fn median_of(medians: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    stats::median_u64(&medians.flatten().collect::<Vec<u64>>())
}

fn empty(n: u32, verdict: Verdict, reasons: Vec<String>) -> CellResult {
    CellResult {
        n,
        median_a_ps: None,
        median_b_ps: None,
        theta_ppm: None,
        lo_ppm: None,
        hi_ppm: None,
        delta_ppm: None,
        aa_theta_ppm: Vec::new(),
        band_ppm: None,
        band_m: 0,
        tau_ppm: None,
        mde_ppm: None,
        sign_p_ppm: None,
        verdict,
        is_provisional: true,
        reasons,
    }
}
