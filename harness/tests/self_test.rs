//! The lab proves itself: trials over scripted time must give the verdicts that the script deserves.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use memra_harness::fake::{Burst, FakeRunner, Script};
use memra_harness::outcome::exit_code;
use memra_harness::progress::Silent;
use memra_harness::runner::{Runner as _, Seat};
use memra_harness::trial::{Measured, TrialError, TrialPlan, WarmUpLimits, run_block, run_trial, timer};
use memra_ledger::canonical;
use memra_ledger::judge::{block_orders, judge_cell, judge_pool};
use memra_ledger::record::{Arm, ArmKind, Body, CellBody, CellKey, CellPlan, CellResult, Inputs, Verdict, WarmUp};
use memra_ledger::stats::QuadOrder;

const QUADS: u32 = 20;
const SMALLEST_PPM: i64 = 5_000;

fn plan(seed: u64) -> TrialPlan {
    let warm_up = WarmUpLimits { at_least_ms: 100, give_up_ms: 1_000 };
    TrialPlan { quads: QUADS, aa_blocks: 2, seed, smallest_ppm: SMALLEST_PPM, timer_ns: 30, warm_up }
}

/// Launches of 50 us with a noise of 0.4 % on a slot.
fn noisy(seed: u64) -> Script {
    Script { seed, noise_sd: 0.004, ..Script::default() }
}

fn measured(script: Script, plan: &TrialPlan) -> Measured {
    let measured = run_trial(&mut FakeRunner::new(script), plan, &Silent);
    assert!(measured.fault.is_none(), "{:?}", measured.fault);
    measured
}

fn cell_plan(plan: &TrialPlan, launches: u32) -> CellPlan {
    let (seed, timer_ns) = (plan.seed, plan.timer_ns);
    CellPlan { launches, copies: 1, rotated_bytes: 0, seed, timer_ns, moved_bytes: 0, flops: 0, workload: None }
}

fn judged(measured: &Measured, plan: &TrialPlan) -> CellResult {
    let cell_plan = cell_plan(plan, measured.launches);
    judge_cell(&measured.aa, measured.ab.as_ref(), &cell_plan, &measured.warm_up, plan.smallest_ppm)
}

fn result(script: Script, plan: &TrialPlan) -> CellResult {
    judged(&measured(script, plan), plan)
}

fn body(measured: Measured, plan: &TrialPlan, replicate: u32) -> CellBody {
    let arm = |name: &str| Arm {
        kind: ArmKind::Kernel,
        variant: name.to_owned(),
        chosen: "explicit".to_owned(),
        layout: "rows".to_owned(),
        order_class: None,
        isa: "scalar".to_owned(),
        source: None,
        source_sha256: None,
        about: Vec::new(),
        gate: None,
    };
    let inputs = Inputs { generator: "counter/1".to_owned(), family: "uniform".to_owned(), seed: 1, weights: None };
    CellBody {
        cell: "fake".to_owned(),
        replicate,
        key: CellKey {
            contract: "fake".to_owned(),
            revision: 1,
            problem: String::new(),
            inputs,
            device_key: "host-other-scalar".to_owned(),
            cache: "hot".to_owned(),
            host_mode: "pool".to_owned(),
            clock: "free".to_owned(),
            threads: 1,
        },
        a: arm("a"),
        b: arm("b"),
        plan: cell_plan(plan, measured.launches),
        result: judged(&measured, plan),
        warm_up: measured.warm_up,
        aa: measured.aa,
        ab: measured.ab,
        peaks: None,
    }
}

fn is_claim(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower)
}

/// Verdicts of sessions with one seed each.
fn verdicts(seeds: u64, script: impl Fn(u64) -> Script) -> Vec<Verdict> {
    (0..seeds).map(|seed| result(script(seed), &plan(seed)).verdict).collect()
}

fn claims(verdicts: &[Verdict]) -> usize {
    verdicts.iter().filter(|verdict| is_claim(**verdict)).count()
}

/// A warm-up record for blocks that are run without one.
fn steady() -> WarmUp {
    WarmUp { slots: 20, elapsed_ns: 1, drift_ppm: 0, allowed_drift_ppm: 2_500, is_steady: true }
}

/// The result of two A/A blocks and an A/B block run without warm-up.
fn blocks(runner: &mut FakeRunner, seats: (Seat, Seat), orders_of: &dyn Fn(u32) -> Vec<QuadOrder>) -> CellResult {
    let (a, b) = seats;
    let mut run = |number, y| run_block(runner, &orders_of(number), a, y, 25, &mut |_| {}).unwrap();
    let aa = vec![run(1, Seat::Twin), run(2, Seat::Twin)];
    let ab = run(0, b);
    judge_cell(&aa, Some(&ab), &cell_plan(&plan(1), 25), &steady(), SMALLEST_PPM)
}

fn balanced(seed: u64) -> impl Fn(u32) -> Vec<QuadOrder> {
    move |number| block_orders(seed, number, QUADS as usize).unwrap()
}

/// Slots of A, then as many of B, as logarithms: the schedule that the lab does not use.
fn one_after_the_other(script: Script, slots: usize) -> [Vec<f64>; 2] {
    let mut runner = FakeRunner::new(script);
    [Seat::A, Seat::B].map(|seat| {
        let times = (0..slots).map(|_| {
            runner.prepare(seat).unwrap();
            (runner.slot(seat, 25).unwrap().elapsed_ns as f64).ln()
        });
        times.collect()
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The test of two means that takes every slot for independent.
fn z([a, b]: &[Vec<f64>; 2]) -> f64 {
    let error = |values: &[f64]| {
        let centre = mean(values);
        let squares = values.iter().map(|value| (value - centre).powi(2)).sum::<f64>();
        squares / (values.len() - 1) as f64 / values.len() as f64
    };
    (mean(b) - mean(a)) / (error(a) + error(b)).sqrt()
}

#[test]
fn equal_arms_are_not_told_apart() {
    let verdicts = verdicts(100, noisy);
    assert!(claims(&verdicts) <= 1, "{verdicts:?}");
    let equivalent = verdicts.iter().filter(|verdict| **verdict == Verdict::Equivalent).count();
    assert!(equivalent >= 90, "{equivalent} of 100");
    // The second slot of a pair is slower by 0.3 %, and time drifts: still nothing.
    let disturbed = |seed| Script {
        position: 0.003,
        linear_per_s: 0.02,
        quadratic_per_s2: 0.01,
        steps: vec![(500_000_000, 0.02)],
        ..noisy(seed)
    };
    for seed in 0..100 {
        let result = blocks(&mut FakeRunner::new(disturbed(seed)), (Seat::A, Seat::B), &balanced(seed));
        assert!(!is_claim(result.verdict), "seed {seed}: {result:?}");
    }
}

#[test]
fn a_planted_slowdown_of_two_percent_is_found() {
    for seed in 0..20 {
        let slower = result(Script { b: 0.02, ..noisy(seed) }, &plan(seed));
        assert_eq!(slower.verdict, Verdict::Slower, "seed {seed}: {slower:?}");
        let faster = result(Script { b: -0.02, ..noisy(seed) }, &plan(seed));
        assert_eq!(faster.verdict, Verdict::Faster, "seed {seed}: {faster:?}");
    }
}

#[test]
fn exchanging_the_labels_mirrors_the_result_exactly() {
    for seed in 0..20 {
        let mut script = Script { b: 0.012, position: 0.003, linear_per_s: 0.05, ..noisy(seed) };
        let orders = balanced(seed);
        // The slots run in the same order on the same noise; only the names of the arms are exchanged in the A/B block.
        let run = |runner: &mut FakeRunner, exchanged: bool| {
            let mut block = |x, y, orders: &[QuadOrder]| run_block(runner, orders, x, y, 25, &mut |_| {}).unwrap();
            let aa = vec![block(Seat::A, Seat::Twin, &orders(1)), block(Seat::A, Seat::Twin, &orders(2))];
            let ab = if exchanged {
                let swapped: Vec<QuadOrder> = orders(0).into_iter().map(QuadOrder::swapped).collect();
                block(Seat::B, Seat::A, &swapped)
            } else {
                block(Seat::A, Seat::B, &orders(0))
            };
            judge_cell(&aa, Some(&ab), &cell_plan(&plan(seed), 25), &steady(), SMALLEST_PPM)
        };
        let plain = run(&mut FakeRunner::new(script.clone()), false);
        let mirrored = run(&mut FakeRunner::new(script.clone()), true);
        assert_eq!(plain.theta_ppm.map(|theta| -theta), mirrored.theta_ppm);
        assert_eq!(plain.lo_ppm.map(|lo| -lo), mirrored.hi_ppm);
        assert_eq!(plain.hi_ppm.map(|hi| -hi), mirrored.lo_ppm);
        assert_eq!((plain.median_a_ps, plain.median_b_ps), (mirrored.median_b_ps, mirrored.median_a_ps));
        assert_eq!((plain.band_ppm, plain.mde_ppm), (mirrored.band_ppm, mirrored.mde_ppm));
        let mirror = |verdict| match verdict {
            Verdict::Faster => Verdict::Slower,
            Verdict::Slower => Verdict::Faster,
            other => other,
        };
        assert_eq!(mirror(plain.verdict), mirrored.verdict);
        // Through whole trials on noise of their own, the mirror image is the same up to that noise.
        (script.b, script.linear_per_s) = (-script.b, 0.0);
        let back = result(script, &plan(seed)).theta_ppm.unwrap_or_default();
        assert!((back + 12_000).abs() < 3_000, "{back}");
    }
}

#[test]
fn doses_are_recovered_in_order_and_within_their_intervals() {
    let mut covered = 0;
    for seed in 0..10 {
        let mut last = i64::MIN;
        for dose_ppm in [0_i64, 2_000, 5_000, 10_000, 20_000, 50_000] {
            let script = Script { b: dose_ppm as f64 / 1e6, noise_sd: 0.002, ..noisy(seed) };
            let result = result(script, &plan(seed));
            let theta_ppm = result.theta_ppm.unwrap();
            assert!(theta_ppm > last, "seed {seed}, dose {dose_ppm}: {theta_ppm} after {last}");
            last = theta_ppm;
            covered += u32::from(result.lo_ppm <= Some(dose_ppm) && Some(dose_ppm) <= result.hi_ppm);
        }
    }
    assert!(covered >= 54, "{covered} of 60");
}

/// A short warm-up favours the candidate that runs later (T3).
#[test]
fn a_warm_up_curve_does_not_punish_the_first_candidate() {
    for seed in 0..10 {
        let curve = |b| Script { warm_up: 0.3, warm_up_ns: 60_000_000, b, ..noisy(seed) };
        // The truly faster candidate stands first, then second.
        for (b, winner) in [(0.05, Verdict::Slower), (-0.05, Verdict::Faster)] {
            let verdict = result(curve(b), &plan(seed)).verdict;
            assert!(verdict == winner || verdict == Verdict::Void, "seed {seed}: {verdict:?}");
            let patient = TrialPlan { warm_up: WarmUpLimits::default(), ..plan(seed) };
            assert_eq!(result(curve(b), &patient).verdict, winner, "seed {seed}");
            let warm_up = WarmUpLimits { at_least_ms: 0, give_up_ms: 25 };
            let hasty = measured(curve(b), &TrialPlan { warm_up, ..plan(seed) });
            assert!(!hasty.warm_up.is_steady && hasty.aa.is_empty() && hasty.ab.is_none());
            let result = judged(&hasty, &plan(seed));
            assert_eq!(result.verdict, Verdict::Void);
            assert!(result.reasons[0].starts_with("warm-up did not become steady"), "{:?}", result.reasons);
        }
    }
}

/// Unchanged code must not be told apart, however its noise is correlated and wherever its process settles (T4).
#[test]
fn correlated_noise_and_process_shifts_give_no_claims() {
    const SESSIONS: u64 = 200;
    const REPLICATES: u64 = 5;
    type ScriptOf<'a> = &'a dyn Fn(u64, u64) -> Script;
    let correlated = |seed, _| Script { noise_sd: 0.01, noise_correlation: 0.7, ..noisy(seed) };
    // Every process of a session is shifted by 0.3 %, this way or that.
    let shifted = |seed: u64, replicate: u64| {
        let sign = if (seed / REPLICATES + replicate).is_multiple_of(2) { 1.0 } else { -1.0 };
        Script { b: 0.003 * sign, ..noisy(seed) }
    };
    let cases: [(&str, ScriptOf<'_>); 2] = [("correlated", &correlated), ("shifted", &shifted)];
    for (name, script) in cases {
        let (mut single, mut pooled, mut naive) = (0, 0, 0);
        for session in 0..SESSIONS {
            let bodies: Vec<CellBody> = (0..REPLICATES)
                .map(|replicate| {
                    let seed = session * REPLICATES + replicate;
                    body(measured(script(seed, replicate), &plan(seed)), &plan(seed), replicate as u32)
                })
                .collect();
            single += u32::from(is_claim(bodies[0].result.verdict));
            let pool = judge_pool(&bodies.iter().collect::<Vec<_>>(), SMALLEST_PPM);
            assert_ne!(pool.verdict, Verdict::Incomparable, "{pool:?}");
            pooled += u32::from(is_claim(pool.verdict));
            naive += u32::from(z(&one_after_the_other(script(session * REPLICATES, 0), 1_000)).abs() > 1.96);
        }
        assert!(single <= 10 && pooled <= 10, "{name}: {single} single and {pooled} pooled claims");
        assert!(naive > 50, "{name}: the control makes {naive} claims");
    }
}

/// A device that fades by 15 % while it is measured (T5).
#[test]
fn a_linear_fade_cancels_within_quads() {
    let truth_ppm = -10_000;
    let mut covered = 0;
    for seed in 0..40 {
        // Three blocks of 80 slots of 1.25 ms.
        let script = Script { b: truth_ppm as f64 / 1e6, linear_per_s: 0.15 / 0.3, ..noisy(seed) };
        let result = blocks(&mut FakeRunner::new(script.clone()), (Seat::A, Seat::B), &balanced(seed));
        covered += u32::from(result.lo_ppm <= Some(truth_ppm) && Some(truth_ppm) <= result.hi_ppm);
        let [a, b] = one_after_the_other(script.clone(), 120);
        let blocked = mean(&b) - mean(&a);
        assert!(blocked > 0.04, "the control finds {blocked}");
        // A trial sees that the device fades and measures nothing.
        let trial = self::result(script, &plan(seed));
        assert_eq!(trial.verdict, Verdict::Void, "{trial:?}");
    }
    assert!(covered >= 36, "{covered} of 40");
}

/// A machine that belongs to somebody else half of the time (T5).
#[test]
fn stolen_time_gives_a_void_record_and_its_exit_code() {
    let bursts: Vec<Burst> = (0..100)
        .map(|index| Burst { from_ns: index * 100_000_000, to_ns: index * 100_000_000 + 50_000_000, share: 0.8 })
        .collect();
    for (steal, foreign) in [(bursts.clone(), Vec::new()), (Vec::new(), bursts)] {
        let reason = if foreign.is_empty() { "steal" } else { "foreign" };
        let script = Script { steal, foreign, ..noisy(3) };
        let mut plan = plan(3);
        // Judge the gate of the quads, not that of the warm-up.
        plan.warm_up = WarmUpLimits { at_least_ms: 1_000, give_up_ms: 10_000 };
        let measured = measured(script, &plan);
        let ab = measured.ab.clone().expect("the warm-up is steady on average");
        assert!(ab.void.len() > 4 && ab.void.iter().all(|void| void.reason == reason), "{:?}", ab.void);
        let cell = body(measured, &plan, 0);
        assert_eq!(cell.result.verdict, Verdict::Void);
        assert!(cell.result.reasons.iter().any(|why| why.contains("quads are void")), "{:?}", cell.result.reasons);
        assert_eq!((cell.result.theta_ppm, cell.result.delta_ppm), (None, None));
        assert_eq!(exit_code(&[cell.result.verdict], false, false), 12);
        let value = canonical::to_value(&Body::Cell(Box::new(cell.clone()))).unwrap();
        let text = canonical::text(&value).unwrap();
        let read: Body = serde_json::from_value(canonical::parse(&text).unwrap()).unwrap();
        assert_eq!(read, Body::Cell(Box::new(cell)));
    }
}

/// A timer of 65 us under launches of 20 and 30 us (T20).
#[test]
fn a_coarse_timer_gets_long_slots_or_no_trial() {
    let script = Script { launch_ns: 20_000.0, b: 1.5_f64.ln(), quantum_ns: 65_000, ..noisy(1) };
    let mut clock = FakeRunner::new(script.clone());
    let timer_ns = timer::resolution_ns(&mut || clock.clock()).unwrap();
    assert_eq!(timer_ns, 65_000);
    let plan = TrialPlan { timer_ns, ..plan(1) };
    let measured = measured(script.clone(), &plan);
    let ab = measured.ab.as_ref().unwrap();
    assert!(ab.slots.elapsed_ns.iter().all(|slot| timer_ns * 100 < *slot), "{:?}", ab.slots.elapsed_ns);
    let result = judged(&measured, &plan);
    assert_eq!(result.verdict, Verdict::Slower, "{result:?}");
    // Slots that were too short for the timer would have been refused by the judge.
    let short = cell_plan(&TrialPlan { timer_ns: 650_000, ..plan }, measured.launches);
    let refused = judge_cell(&measured.aa, measured.ab.as_ref(), &short, &measured.warm_up, SMALLEST_PPM);
    assert_eq!(refused.verdict, Verdict::Void);
    // A timer that no slot is long enough for.
    let hopeless = TrialPlan { timer_ns: 60_000_000, ..plan };
    let refused = run_trial(&mut FakeRunner::new(script), &hopeless, &Silent);
    assert!(matches!(refused.fault, Some(TrialError::SlotTooLong { .. })), "{refused:?}");
    assert_eq!(judged(&refused, &hopeless).verdict, Verdict::Void);
}

/// An arm that fails ends its cell, and what was measured before stays.
#[test]
fn finished_blocks_survive_a_failing_arm() {
    let whole = measured(noisy(1), &plan(1));
    let slots = whole.warm_up.slots;
    for (fails_after, blocks) in [(3, 0), (u64::from(slots) + 20, 0), (u64::from(slots) + 110, 1)] {
        let script = Script { fails_after: Some(fails_after), ..noisy(1) };
        let measured = run_trial(&mut FakeRunner::new(script), &plan(1), &Silent);
        assert!(matches!(measured.fault, Some(TrialError::Arm(_))), "{measured:?}");
        assert_eq!((measured.aa.len(), measured.ab.is_some()), (blocks, false));
        assert_eq!(measured.aa[..], whole.aa[..blocks]);
        let result = judged(&measured, &plan(1));
        assert_eq!((result.verdict, result.aa_theta_ppm.len()), (Verdict::Void, blocks));
    }
}

#[test]
fn the_orders_of_a_trial_are_those_a_reader_recomputes() {
    let plan = plan(77);
    let measured = measured(noisy(1), &plan);
    for (number, block) in measured.aa.iter().enumerate().map(|(index, block)| (index as u32 + 1, block)) {
        assert_eq!(block.order, memra_ledger::judge::order_text(&balanced(77)(number)));
    }
    assert_eq!(measured.ab.unwrap().order, memra_ledger::judge::order_text(&balanced(77)(0)));
    assert_eq!(measured.aa.len(), 2);
}
