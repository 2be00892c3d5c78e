//! Tests of the judgement over slots that are made for them.

use proptest::prelude::*;

use super::*;
use crate::record::{Body, CellBody, VoidQuad};
use crate::synthetic::{Synthetic, SyntheticCell};

/// The cells of a session, in the order of its replicates.
fn cells(session: &Synthetic) -> Vec<CellBody> {
    let text = session.text().unwrap();
    let file = crate::chain::read_bytes("f", text.as_bytes()).unwrap();
    let bodies = file.records.into_iter().filter_map(|record| match record.body {
        Body::Cell(cell) => Some(*cell),
        _ => None,
    });
    bodies.collect()
}

fn cell(theta_ppm: i64) -> CellBody {
    let mut session = Synthetic::new(11);
    session.cells = vec![SyntheticCell::named("c").with_theta(theta_ppm)];
    cells(&session).remove(0)
}

fn judged(cell: &CellBody) -> CellResult {
    judge_cell(&cell.aa, cell.ab.as_ref(), &cell.plan, &cell.warm_up, 5_000)
}

fn void(quad: u32, blamed: Option<&str>) -> VoidQuad {
    VoidQuad { quad, reason: "clock".to_owned(), blamed: blamed.map(str::to_owned) }
}

/// Exchanges the labels of all slots.
fn swapped(block: &Block) -> Block {
    let mut block = block.clone();
    block.order = block.order.chars().map(|order| if order == 'A' { 'B' } else { 'A' }).collect();
    for void in &mut block.void {
        void.blamed = void.blamed.as_deref().map(|arm| if arm == "A" { "B" } else { "A" }.to_owned());
    }
    block
}

#[test]
fn known_effects_get_their_verdicts() {
    for (theta_ppm, verdict) in
        [(0, Verdict::Equivalent), (-20_000, Verdict::Faster), (20_000, Verdict::Slower), (-5_000, Verdict::Undecided)]
    {
        let result = judged(&cell(theta_ppm));
        assert_eq!(result.verdict, verdict, "{result:?}");
        assert!((result.theta_ppm.unwrap() - theta_ppm).abs() < 2_000, "{result:?}");
        assert!(result.lo_ppm <= result.theta_ppm && result.theta_ppm <= result.hi_ppm);
        assert_eq!((result.n, result.band_m, result.aa_theta_ppm.len()), (12, 2, 2));
        assert!(result.is_provisional && result.reasons.is_empty());
        let band = result.aa_theta_ppm.iter().map(|theta| theta.abs()).max();
        assert_eq!(result.band_ppm, band);
        assert_eq!(result.tau_ppm, band.max(Some(5_000)));
        assert!(result.mde_ppm >= result.band_ppm);
        // 1.2 ms over 24 launches are 50 us.
        let (a, b) = (result.median_a_ps.unwrap() as f64, result.median_b_ps.unwrap() as f64);
        assert!((a / 5e7 - 1.0).abs() < 0.002, "{a}");
        assert!((b / a - 1.0 - theta_ppm as f64 / 1e6).abs() < 0.003, "{b} against {a}");
    }
}

#[test]
fn numbers_worked_out_by_hand() {
    let mut cell = cell(0);
    let ab = cell.ab.as_mut().unwrap();
    // B takes exactly twice as long; medians are of 24 slots each.
    for (slot, arm) in ab.slots.elapsed_ns.chunks_mut(4).zip(ab.order.chars()) {
        let (outer, inner) = if arm == 'A' { (100_001, 200_002) } else { (200_002, 100_001) };
        slot.copy_from_slice(&[outer, inner, inner, outer]);
    }
    cell.plan.launches = 7;
    let result = judged(&cell);
    // 100001 * 1000 / 7 = 14285857.14; 200002 * 1000 / 7 = 28571714.29
    assert_eq!((result.median_a_ps, result.median_b_ps), (Some(14_285_857), Some(28_571_714)));
    assert_eq!((result.theta_ppm, result.lo_ppm, result.hi_ppm), (Some(693_147), Some(693_147), Some(693_147)));
    assert_eq!(result.delta_ppm, Some(1_000_000));
    assert_eq!(result.verdict, Verdict::Slower);
    // Twelve equal signs: 2 / 4096.
    assert_eq!(result.sign_p_ppm, Some(488));
    // No spread: what can be detected is the band.
    assert_eq!(result.mde_ppm, result.band_ppm);
}

#[test]
fn medians_are_rounded_once_halves_up() {
    let order = stats::QuadOrder::Abba;
    let quad = |elapsed_ns| Quad { order, elapsed_ns, is_void: false, blamed: None };
    assert_eq!(median_ps(&[quad([1, 9, 9, 2])], ArmLabel::A, 1_000), Some(2));
    assert_eq!(median_ps(&[quad([1, 9, 9, 2])], ArmLabel::A, 1), Some(1_500));
    assert_eq!(median_ps(&[quad([1, 9, 9, 1])], ArmLabel::A, 0), None);
    assert_eq!(median_ps(&[quad([u64::MAX; 4])], ArmLabel::A, 1), None);
    assert_eq!(median_ps(&[quad([u64::MAX; 4])], ArmLabel::A, 1_000), Some(u64::MAX));
    assert_eq!(median_ps(&[], ArmLabel::B, 1), None);
}

type Change = fn(&mut CellBody);

#[test]
fn every_ground_for_void_is_named() {
    let cases: [(Change, &str); 12] = [
        (|cell| cell.warm_up.is_steady = false, "warm-up did not become steady: drift -120 ppm, allowed 1000 ppm"),
        (|cell| cell.warm_up.drift_ppm = i64::MIN, "warm-up did not become steady: drift -9223372036854775808 ppm"),
        (|cell| cell.ab = None, "there is no A/B block"),
        (|cell| cell.plan.launches = 0, "a slot has no launches"),
        (|cell| cell.plan.timer_ns = 12_100, "timer resolution of 12100 ns is more than 1 % of a slot of "),
        (|cell| cell.aa[1].order.clear(), "A/A block 1: slots.elapsed_ns has 48 entries, 0 quads need 0"),
        (|cell| cell.aa[0].slots.elapsed_ns[5] = 0, "A/A block 0: quad 1: slot 1 has an elapsed time of 0 ns"),
        (|cell| cell.ab.as_mut().unwrap().slots.elapsed_ns[47] = 0, "A/B block: quad 11: slot 3 has an elapsed time"),
        (
            |cell| cell.ab.as_mut().unwrap().void = vec![void(0, None), void(4, None), void(9, None)],
            "A/B block: 3 of 12 quads are void, more than a fifth",
        ),
        (
            |cell| cell.aa[0].void = (0..3).map(|quad| void(quad, None)).collect(),
            "A/A block 0: 3 of 12 quads are void, more than a fifth",
        ),
        (
            |cell| cell.ab.as_mut().unwrap().void = (0..7).map(|quad| void(quad, None)).collect(),
            "A/B block: 5 quads count, at least 6 are needed",
        ),
        (
            |cell| cell.ab.as_mut().unwrap().void = (0..8).map(|quad| void(quad, Some("B"))).collect(),
            "void quads fall on one arm: 0 on A, 8 on B",
        ),
    ];
    for (change, reason) in cases {
        let mut cell = cell(-20_000);
        change(&mut cell);
        let result = judged(&cell);
        assert_eq!(result.verdict, Verdict::Void, "{reason}");
        assert!(result.reasons.iter().any(|found| found.starts_with(reason)), "{:?} has no {reason}", result.reasons);
        assert_eq!((result.theta_ppm, result.lo_ppm, result.hi_ppm, result.delta_ppm), (None, None, None, None));
        assert_eq!((result.tau_ppm, result.mde_ppm, result.sign_p_ppm), (None, None, None));
    }
}

#[test]
fn limits_themselves_are_allowed() {
    let mut cell = cell(0);
    cell.warm_up.drift_ppm = 1_000;
    // 2 of 12 are less than a fifth; the timer fits 100 times into the shorter median slot.
    cell.ab.as_mut().unwrap().void = vec![void(3, Some("A")), void(7, Some("A"))];
    let result = judged(&cell);
    assert_ne!(result.verdict, Verdict::Void, "{:?}", result.reasons);
    assert_eq!(result.n, 10);
    let shorter = result.median_a_ps.min(result.median_b_ps).unwrap() * 24 / 1000;
    cell.plan.timer_ns = (shorter - 1) / 100;
    assert_ne!(judged(&cell).verdict, Verdict::Void);
    cell.plan.timer_ns += 1;
    assert_eq!(judged(&cell).verdict, Verdict::Void);
}

#[test]
fn one_blamed_side_needs_eight_voids() {
    // 2 / 2^7 is above a hundredth, 2 / 2^8 is below.
    let quads = |a: u64, b: u64| -> Vec<Quad> {
        let quad = |arm| Quad { order: stats::QuadOrder::Abba, elapsed_ns: [1; 4], is_void: true, blamed: Some(arm) };
        (0..a).map(|_| quad(ArmLabel::A)).chain((0..b).map(|_| quad(ArmLabel::B))).collect()
    };
    for (a, b, is_void) in [(7, 0, false), (8, 0, true), (0, 8, true), (8, 8, false), (1, 10, false), (1, 11, true)] {
        let mut reasons = Vec::new();
        check_blame(&quads(a, b), &mut reasons);
        assert_eq!(!reasons.is_empty(), is_void, "{a} {b}");
    }
}

#[test]
fn without_band_there_are_medians_and_no_effect() {
    let mut cell = cell(-20_000);
    cell.aa.clear();
    let result = judged(&cell);
    assert_eq!((result.verdict, result.reasons.as_slice()), (Verdict::Undecided, &[BAND_MISSING.to_owned()][..]));
    assert!(result.median_a_ps.is_some() && result.median_b_ps.is_some());
    assert_eq!((result.theta_ppm, result.delta_ppm, result.band_ppm, result.band_m), (None, None, None, 0));
}

#[test]
fn a_band_of_22_blocks_is_settled() {
    let mut session = Synthetic::new(2);
    session.aa_blocks = 22;
    let mut cell = cells(&session).remove(0);
    assert!(!judged(&cell).is_provisional);
    cell.aa.pop();
    assert!(judged(&cell).is_provisional);
}

fn pool(replicates: u32, theta_ppm: i64) -> Vec<CellBody> {
    let mut session = Synthetic::new(5);
    session.replicates = replicates;
    session.cells = vec![SyntheticCell::named("c").with_theta(theta_ppm)];
    cells(&session)
}

fn pooled(cells: &[CellBody]) -> CellResult {
    judge_pool(&cells.iter().collect::<Vec<_>>(), 5_000)
}

#[test]
fn one_replicate_speaks_for_itself() {
    let cells = pool(1, -20_000);
    assert_eq!(pooled(&cells), cells[0].result);
    assert_eq!(pooled(&[]).verdict, Verdict::Void);
}

#[test]
fn estimates_of_replicates_are_pooled() {
    let mut cells = pool(5, 0);
    for (cell, theta) in cells.iter_mut().zip([-21_000, -20_000, -19_000, -20_500, -19_500]) {
        cell.result.theta_ppm = Some(theta);
        cell.result.aa_theta_ppm = vec![theta / 10, 3];
        (cell.result.median_a_ps, cell.result.median_b_ps) = (Some(100), Some(theta.unsigned_abs()));
    }
    let result = pooled(&cells);
    // Mean -20000, sd 790.57, t(0.975, 4) = 2.7764, half width 981.6.
    assert_eq!((result.n, result.theta_ppm), (5, Some(-20_000)));
    assert_eq!((result.lo_ppm, result.hi_ppm), (Some(-20_982), Some(-19_018)));
    assert_eq!(result.delta_ppm, Some(-19_801));
    assert_eq!((result.band_ppm, result.band_m, result.tau_ppm), (Some(2_100), 10, Some(5_000)));
    assert_eq!(result.aa_theta_ppm.len(), 10);
    // (2.7764 + 0.9410) * 790.57 / sqrt(5) is 1314, below the band.
    assert_eq!(result.mde_ppm, Some(2_100));
    assert_eq!(result.sign_p_ppm, Some(62_500));
    assert_eq!((result.median_a_ps, result.median_b_ps), (Some(100), Some(20_000)));
    assert_eq!(result.verdict, Verdict::Faster);
}

#[test]
fn replicates_that_are_not_the_same_cell_are_incomparable() {
    let cases: [(Change, &str); 5] = [
        (|cell| cell.key.threads += 1, "replicates 0 and 3 differ in key.threads"),
        (|cell| cell.key.inputs.seed += 1, "replicates 0 and 3 differ in key.inputs.seed"),
        (|cell| cell.b.source_sha256 = cell.a.source_sha256.clone(), "replicates 0 and 3 differ in b.source_sha256"),
        (|cell| cell.a.variant.push('x'), "replicates 0 and 3 differ in a.variant"),
        (|cell| cell.cell.push('x'), "replicates 0 and 3 differ in cell"),
    ];
    for (change, reason) in cases {
        let mut cells = pool(5, -20_000);
        assert_eq!(pooled(&cells).verdict, Verdict::Faster);
        change(&mut cells[3]);
        let result = pooled(&cells);
        assert_eq!((result.verdict, result.theta_ppm), (Verdict::Incomparable, None));
        assert_eq!(result.reasons, [reason]);
    }
    let mut cells = pool(5, 0);
    cells[2].a.gate = None;
    cells[2].a.chosen = "explicit".to_owned();
    cells[2].plan.launches += 1;
    assert_ne!(pooled(&cells).verdict, Verdict::Incomparable);
}

#[test]
fn a_fifth_of_the_replicates_may_be_void() {
    let mut cells = pool(6, -20_000);
    let widest = 30_000;
    cells[4].result.verdict = Verdict::Void;
    cells[4].result.theta_ppm = None;
    cells[4].result.aa_theta_ppm = vec![-widest];
    let result = pooled(&cells);
    assert_eq!((result.n, result.band_ppm), (5, Some(widest)), "a void replicate keeps its part of the band");
    assert_eq!(result.verdict, Verdict::Equivalent, "{result:?}");
    cells[1].result.verdict = Verdict::Void;
    let result = pooled(&cells);
    assert_eq!((result.verdict, result.n, result.theta_ppm), (Verdict::Void, 4, None));
    assert_eq!(result.reasons, ["2 of 6 replicates are void, more than a fifth"]);
}

#[test]
fn a_replicate_without_band_leaves_the_pool_undecided() {
    let mut cells = pool(3, -20_000);
    cells[1].aa.clear();
    cells[1].result = judged(&cells[1]);
    let result = pooled(&cells);
    assert_eq!((result.verdict, result.theta_ppm), (Verdict::Undecided, None));
    assert_eq!(result.reasons, [BAND_MISSING]);
}

#[test]
fn a_verdict_cites_its_replicates() {
    let cells = pool(2, -20_000);
    let ids = [crate::canonical::sha256(b"0"), crate::canonical::sha256(b"1")];
    let cited: Vec<_> = ids.iter().zip(&cells).collect();
    let body = verdict_body(&cited, 5_000).unwrap();
    assert_eq!((body.interval.as_str(), body.replicates.as_slice()), ("t", &ids[..]));
    assert_eq!((body.a.as_str(), body.b.as_str()), ("rows", "rows_wide"));
    assert_eq!(verdict_body(&cited[..1], 5_000).unwrap().interval, "signed-rank");
    assert_eq!(verdict_body(&[], 5_000), None);
}

fn mirrored(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Faster => Verdict::Slower,
        Verdict::Slower => Verdict::Faster,
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn swapping_the_labels_mirrors_the_result(
        seed: u64,
        theta in -30_000_i64..30_000,
        noise in 0_i64..20_000,
        quads in 6_u32..30,
        void_quads in prop::collection::btree_set(0_u32..30, 0..6),
        blamed in prop::option::of(prop_oneof![Just("A"), Just("B")]),
    ) {
        let mut session = Synthetic { quads, replicates: 2, ..Synthetic::new(seed) };
        let mut cell = SyntheticCell { noise_ppm: noise, ..SyntheticCell::named("c").with_theta(theta) };
        cell.void = void_quads.into_iter().filter(|quad| *quad < quads).map(|quad| void(quad, blamed)).collect();
        session.cells = vec![cell];
        let cells = cells(&session);
        let swapped: Vec<CellBody> = cells.iter().map(|cell| {
            let mut swapped_cell = cell.clone();
            swapped_cell.aa = cell.aa.iter().map(swapped).collect();
            swapped_cell.ab = cell.ab.as_ref().map(swapped);
            swapped_cell.result = judged(&swapped_cell);
            swapped_cell
        }).collect();
        let pairs = cells.iter().zip(&swapped).map(|(one, other)| (one.result.clone(), other.result.clone()));
        for (one, other) in pairs.chain([(pooled(&cells), pooled(&swapped))]) {
            prop_assert_eq!(other.theta_ppm, one.theta_ppm.map(|theta| -theta));
            prop_assert_eq!(other.lo_ppm, one.hi_ppm.map(|hi| -hi));
            prop_assert_eq!(other.hi_ppm, one.lo_ppm.map(|lo| -lo));
            prop_assert_eq!((other.median_a_ps, other.median_b_ps), (one.median_b_ps, one.median_a_ps));
            prop_assert_eq!((other.n, other.band_ppm, other.tau_ppm), (one.n, one.band_ppm, one.tau_ppm));
            prop_assert_eq!((other.mde_ppm, other.sign_p_ppm), (one.mde_ppm, one.sign_p_ppm));
            prop_assert_eq!(other.verdict, mirrored(one.verdict));
        }
    }

    #[test]
    fn any_block_is_judged_without_panic(
        order in "[ABx]{0,12}",
        elapsed in prop::collection::vec(prop_oneof![Just(0), Just(u64::MAX), 1_u64..1_000_000_000], 0..48),
        quads in prop::collection::vec(0_u32..14, 0..4),
        launches in prop_oneof![Just(0), Just(1), Just(u32::MAX)],
        timer_ns: u64,
        smallest: i64,
    ) {
        let base = cell(0);
        let mut block = base.aa[0].clone();
        block.observed.truncate(order.len());
        block.order = order;
        block.slots.gap_ns.truncate(elapsed.len());
        block.slots.elapsed_ns = elapsed;
        block.void = quads.into_iter().map(|quad| void(quad, None)).collect();
        let plan = CellPlan { launches, timer_ns, ..base.plan.clone() };
        for (aa, ab) in [(&base.aa[..], Some(&block)), (std::slice::from_ref(&block), base.ab.as_ref())] {
            let result = judge_cell(aa, ab, &plan, &base.warm_up, smallest);
            prop_assert_eq!(result.verdict == Verdict::Void, result.theta_ppm.is_none() && !result.reasons.is_empty());
        }
    }
}
