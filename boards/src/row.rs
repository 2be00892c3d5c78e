//! One verdict entry as a board row, with its rates and caveats.

use crate::board::{BINDING_BLOCKS, BINDING_REPLICATES, BoardRow, RowArm, RowStatus, RowWorkload};
use crate::collect::{Entry, citation};
use crate::corrections::{Correction, Corrections};
use crate::number::{delta_ppm, per_second};
use memra_contract::digest::Digest;
use memra_ledger::record::{Arm, ArmKind, Block, CellBody, QuadObservation, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Build profiles that measure; anything else is said aloud.
const MEASURING_PROFILES: [&str; 3] = ["release", "ci", "profiling"];

/// One of the two arms of a cell record.
type PickArm = fn(&CellBody) -> &Arm;
/// Both, by name.
const ARMS: [(&str, PickArm); 2] = [("A", |cell| &cell.a), ("B", |cell| &cell.b)];

/// The corrections that hold of anything the entry rests on: verdict, replicates, checks, session.
pub(crate) fn corrections_of<'a>(entry: &Entry<'a>, all: &'a Corrections) -> Vec<&'a Correction> {
    let gates = entry.replicates.iter().flat_map(|cell| [&cell.a.gate, &cell.b.gate]).flatten();
    let ids: BTreeSet<&Digest> = gates.collect();
    let first = [&entry.record.id, &entry.file.record.id];
    all.of(first.into_iter().chain(&entry.verdict.replicates).chain(ids))
}

/// The row of an entry. Its status is `binding`, `provisional` or `void`: as if it were current.
pub(crate) fn row(entry: &Entry<'_>, corrections: &[&Correction]) -> BoardRow {
    let verdict = entry.verdict;
    let result = &verdict.result;
    let session = entry.file.session;
    let blocks: Vec<&Block> = entry.replicates.iter().filter_map(|cell| cell.ab.as_ref()).collect();
    let workload = workload(entry);
    // A workload has no cost model.
    let cost = |pick: fn(&CellBody) -> u64| agreed(entry.replicates.iter().map(|cell| pick(cell)));
    let moved_bytes = cost(|cell| cell.plan.moved_bytes).filter(|_| workload.is_none());
    let flops = cost(|cell| cell.plan.flops).filter(|_| workload.is_none());
    let rate = |amount: Option<u64>, median: Option<u64>| per_second(amount?, median?);
    let (ungated, caveats) = caveats(entry, &blocks, corrections);
    BoardRow {
        status: status(entry, ungated),
        cell: verdict.cell.clone(),
        key: verdict.key.clone(),
        a: arm(&verdict.a, entry.replicates.first().map(|cell| &cell.a)),
        b: arm(&verdict.b, entry.replicates.first().map(|cell| &cell.b)),
        verdict: result.verdict,
        delta_ppm: result.delta_ppm,
        delta_lo_ppm: result.lo_ppm.map(delta_ppm),
        delta_hi_ppm: result.hi_ppm.map(delta_ppm),
        theta_ppm: result.theta_ppm,
        lo_ppm: result.lo_ppm,
        hi_ppm: result.hi_ppm,
        interval: verdict.interval.clone(),
        median_a_ps: result.median_a_ps,
        median_b_ps: result.median_b_ps,
        band_ppm: result.band_ppm,
        band_m: result.band_m,
        tau_ppm: result.tau_ppm,
        mde_ppm: result.mde_ppm,
        sign_p_ppm: result.sign_p_ppm,
        n: result.n,
        p: replicates(entry),
        quads: quads(&blocks),
        void_quads: void_quads(&blocks),
        moved_bytes,
        flops,
        a_bytes_per_s: rate(moved_bytes, result.median_a_ps),
        b_bytes_per_s: rate(moved_bytes, result.median_b_ps),
        a_flops_per_s: rate(flops, result.median_a_ps),
        b_flops_per_s: rate(flops, result.median_b_ps),
        share: None,
        workload,
        reasons: result.reasons.clone(),
        caveats,
        date: session.started_utc.get(..10).unwrap_or_default().to_owned(),
        started_utc: session.started_utc.clone(),
        session: entry.record.session.clone(),
        tool_version: session.tool.version.clone(),
        commit: session.tool.commit.clone(),
        receipt: citation(entry.file.path, &entry.record.id),
        replicates: verdict.replicates.clone(),
        superseded_by: None,
        plot: None,
    }
}

/// Tokens of a workload, with rates from the pooled medians and the largest memory of the replicates.
fn workload(entry: &Entry<'_>) -> Option<RowWorkload> {
    let plan = entry.replicates.first()?.plan.workload.as_ref()?;
    let result = &entry.verdict.result;
    let rate = |median: Option<u64>| per_second(plan.timed_tokens().saturating_mul(1_000), median?);
    let peaks = || entry.replicates.iter().filter_map(|cell| cell.peaks.as_ref());
    Some(RowWorkload {
        prompt_tokens: plan.prompt_tokens,
        generated_tokens: plan.generated_tokens,
        depth_tokens: plan.depth_tokens,
        a_milli_tokens_per_s: rate(result.median_a_ps),
        b_milli_tokens_per_s: rate(result.median_b_ps),
        a_peak_bytes: peaks().filter_map(|peaks| peaks.a_bytes).max(),
        b_peak_bytes: peaks().filter_map(|peaks| peaks.b_bytes).max(),
    })
}

fn replicates(entry: &Entry<'_>) -> u32 {
    entry.replicates.len() as u32
}

fn quads(blocks: &[&Block]) -> u32 {
    blocks.iter().map(|block| block.order.len() as u32).fold(0, u32::saturating_add)
}

fn void_quads(blocks: &[&Block]) -> u32 {
    blocks.iter().map(|block| block.void.len() as u32).fold(0, u32::saturating_add)
}

/// Whether the entry says something: it is neither void nor incomparable, and its arms passed their checks.
pub(crate) fn counts(entry: &Entry<'_>) -> bool {
    !matches!(entry.verdict.result.verdict, Verdict::Void | Verdict::Incomparable) && ungated_arms(entry).is_empty()
}

fn status(entry: &Entry<'_>, ungated: bool) -> RowStatus {
    let result = &entry.verdict.result;
    if ungated || matches!(result.verdict, Verdict::Void | Verdict::Incomparable) {
        RowStatus::Void
    } else if replicates(entry) >= BINDING_REPLICATES && result.band_m >= BINDING_BLOCKS {
        RowStatus::Binding
    } else {
        RowStatus::Provisional
    }
}

/// The one value all replicates give.
fn agreed(mut values: impl Iterator<Item = u64>) -> Option<u64> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

fn arm(name: &str, arm: Option<&Arm>) -> RowArm {
    RowArm {
        name: name.to_owned(),
        kind: arm.map(|arm| arm.kind),
        chosen: arm.map(|arm| arm.chosen.clone()).unwrap_or_default(),
        layout: arm.map(|arm| arm.layout.clone()).unwrap_or_default(),
        order_class: arm.and_then(|arm| arm.order_class.clone()),
        isa: arm.map(|arm| arm.isa.clone()).unwrap_or_default(),
        source: arm.and_then(|arm| arm.source.clone()),
        source_sha256: arm.and_then(|arm| arm.source_sha256.clone()),
        about: arm.map(|arm| arm.about.clone()).unwrap_or_default(),
    }
}

/// Whether a measured arm lacks a passed check, and the caveats.
fn caveats(entry: &Entry<'_>, blocks: &[&Block], corrections: &[&Correction]) -> (bool, Vec<String>) {
    let result = &entry.verdict.result;
    let mut caveats = Vec::new();
    let counts = !matches!(result.verdict, Verdict::Void | Verdict::Incomparable);
    let p = replicates(entry);
    if counts && p < BINDING_REPLICATES {
        caveats.push(format!("{p} of the {BINDING_REPLICATES} replicates that a binding row needs"));
    }
    if counts && result.band_m < BINDING_BLOCKS {
        caveats.push(format!(
            "the band rests on {} of the {BINDING_BLOCKS} A/A blocks that a binding row needs",
            result.band_m
        ));
    }
    let ungated = ungated_arms(entry);
    if !ungated.is_empty() {
        caveats.push(format!(
            "no passed check in the session for arm {}: the timing does not count",
            ungated.join(" and ")
        ));
    }
    caveats.extend(void_caveat(blocks));
    caveats.extend(arm_caveats(&entry.replicates));
    caveats.extend(engine_caveats(entry));
    caveats.extend(unobserved_caveat(blocks));
    if agreed(entry.replicates.iter().map(|cell| cell.plan.moved_bytes)).is_none() && p > 0 {
        caveats.push("replicates disagree about the bytes moved: no rate".to_owned());
    }
    if entry.verdict.key.device_key != entry.file.session.rig.class.device_key {
        caveats.push(format!(
            "the cell's device key {} is not the rig's, {}",
            entry.verdict.key.device_key, entry.file.session.rig.class.device_key
        ));
    }
    let tool = &entry.file.session.tool;
    if tool.is_dirty == Some(true) {
        caveats.push("tracked files differed from the commit".to_owned());
    }
    if tool.commit.is_none() {
        caveats.push("the session did not run in a checkout".to_owned());
    }
    if !MEASURING_PROFILES.contains(&tool.profile.as_str()) {
        caveats.push(format!("measured with build profile {}", tool.profile));
    }
    if !entry.file.is_finished {
        caveats.push("the session was cut short: its file has no end record".to_owned());
    }
    for one in corrections {
        let word = if one.withdraws { "withdrawn" } else { "corrected" };
        caveats.push(format!("{word}: {} ({})", one.text, one.citation));
    }
    (counts && !ungated.is_empty(), caveats)
}

/// Arms that were timed without a passed check in the same session.
fn ungated_arms(entry: &Entry<'_>) -> Vec<&'static str> {
    let is_passed = |arm: &Arm| {
        arm.gate
            .as_ref()
            .and_then(|id| entry.file.gates.get(id))
            .is_some_and(|gate| gate.is_passed && gate.source_sha256 == arm.source_sha256)
    };
    let lacks = |pick: PickArm| entry.replicates.iter().any(|cell| cell.ab.is_some() && !is_passed(pick(cell)));
    ARMS.into_iter().filter(|(_, pick)| lacks(*pick)).map(|(name, _)| name).collect()
}

fn void_caveat(blocks: &[&Block]) -> Option<String> {
    let mut reasons: BTreeMap<&str, u32> = BTreeMap::new();
    for void in blocks.iter().flat_map(|block| &block.void) {
        *reasons.entry(void.reason.as_str()).or_default() += 1;
    }
    let listed: Vec<String> = reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    let (void, all) = (void_quads(blocks), quads(blocks));
    (void > 0).then(|| format!("{void} of {all} quads are void ({})", listed.join(", ")))
}

fn arm_caveats(replicates: &[&CellBody]) -> Vec<String> {
    let Some(first) = replicates.first() else { return Vec::new() };
    let mut caveats = Vec::new();
    let (a, b) = (&first.a, &first.b);
    for (name, arm) in [("A", a), ("B", b)] {
        if arm.kind == ArmKind::Process {
            let about = if arm.about.is_empty() { String::new() } else { format!(" ({})", arm.about.join("; ")) };
            caveats.push(format!(
                "{name} is a child process{about}, checked by error against the f64 reference, not by bits"
            ));
        }
    }
    if let (Some(class_a), Some(class_b)) = (&a.order_class, &b.order_class)
        && class_a != class_b
    {
        caveats.push(format!("another numeric program: order class {class_a} in A, {class_b} in B"));
    }
    if a.kind == b.kind && a.layout != b.layout {
        caveats.push(format!("weight layout {} in A, {} in B", a.layout, b.layout));
    }
    let differs = |pick: PickArm| replicates.iter().any(|cell| pick(cell).source_sha256 != pick(first).source_sha256);
    for (name, pick) in ARMS {
        if differs(pick) {
            caveats.push(format!("replicates ran different sources of {name}"));
        }
    }
    caveats
}

/// What engines were held to, and how they were warmed up.
fn engine_caveats(entry: &Entry<'_>) -> Vec<String> {
    let Some(first) = entry.replicates.first() else { return Vec::new() };
    let mut caveats = Vec::new();
    for (name, pick) in ARMS {
        let arm = pick(first);
        if arm.kind != ArmKind::Engine {
            continue;
        }
        let about = if arm.about.is_empty() { String::new() } else { format!(" ({})", arm.about.join("; ")) };
        let gate = arm.gate.as_ref().and_then(|id| entry.file.gates.get(id));
        let held = match gate.map(|gate| gate.rule.as_str()) {
            Some("workload") => "held to its own output and to the token counts",
            _ => "held to the token counts only, since it shows no output",
        };
        caveats.push(format!("{name} is an engine{about}, {held}"));
    }
    if let Some(plan) = &first.plan.workload {
        caveats.push(format!(
            "slots are single runs, warmed up by {} unrecorded ones of each arm and not by a slope gate",
            plan.warm_up_slots
        ));
    }
    caveats
}

/// What the system did not say during any quad.
fn unobserved_caveat(blocks: &[&Block]) -> Option<String> {
    let observed = |has: fn(&QuadObservation) -> bool| blocks.iter().flat_map(|block| &block.observed).any(has);
    let missing: Vec<&str> = [
        ("steal", observed(|quad| quad.steal_ppm.is_some())),
        ("foreign load", observed(|quad| quad.foreign_ppm.is_some())),
        ("clock", observed(|quad| quad.clock_khz.is_some())),
    ]
    .into_iter()
    .filter_map(|(name, is_observed)| (!is_observed).then_some(name))
    .collect();
    (!blocks.is_empty() && !missing.is_empty())
        .then(|| format!("not observed during the quads: {}", missing.join(", ")))
}
