//! A replicate on this machine, from cells in words to lines for a parent process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use memra_harness::arm::Commands;
use memra_harness::cell::{CacheMode, CellSpec};
use memra_harness::progress::{Event, Progress};
use memra_harness::suite::{ReplicateLine, ReplicateSpec, derive_seed, run_replicate};
use memra_harness::trial::WarmUpLimits;
use memra_ledger::judge::{block_orders, block_quads, judge_cell, order_text};
use memra_ledger::record::{CellBody, Verdict};

fn cell(name: &str, problem: &str, a: &str, b: &str) -> CellSpec {
    CellSpec {
        name: name.to_owned(),
        title: "a small cell".to_owned(),
        contract: "quantise".to_owned(),
        problem: problem.to_owned(),
        a: a.to_owned(),
        b: b.to_owned(),
        family: "normal".to_owned(),
        input_seed: 1,
        cache: CacheMode::Hot,
        threads: 1,
        priority: 1,
        weights: None,
    }
}

fn spec(cells: Vec<CellSpec>, scratch: &Path) -> ReplicateSpec {
    ReplicateSpec {
        cells,
        replicate: 2,
        seed: 5,
        quads: 6,
        aa_blocks: 2,
        smallest_ppm: 5_000,
        warm_up: WarmUpLimits { at_least_ms: 20, give_up_ms: 200 },
        local_defaults: None,
        commands: Commands::default(),
        scratch: scratch.to_owned(),
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<Event>>);

impl Progress for Heard {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

fn lines(spec: &ReplicateSpec, progress: &dyn Progress) -> Vec<ReplicateLine> {
    let mut lines = Vec::new();
    run_replicate(spec, &mut |line| lines.push(line), progress).unwrap();
    // What the parent reads is what the child said.
    for line in &lines {
        let text = serde_json::to_string(line).unwrap();
        assert_eq!(serde_json::from_str::<ReplicateLine>(&text).unwrap(), *line);
        assert!(!text.contains("/opt/"), "{text}");
    }
    assert_eq!(lines.last(), Some(&ReplicateLine::Done));
    lines
}

fn cells(lines: &[ReplicateLine]) -> Vec<(Option<u32>, Option<u32>, &CellBody)> {
    let cells = lines.iter().filter_map(|line| match line {
        ReplicateLine::Cell { gate_a, gate_b, cell } => Some((*gate_a, *gate_b, &**cell)),
        _ => None,
    });
    cells.collect()
}

fn gates(lines: &[ReplicateLine]) -> Vec<(u32, String, bool)> {
    let gates = lines.iter().filter_map(|line| match line {
        ReplicateLine::Gate { local, gate } => Some((*local, gate.variant.clone(), gate.is_passed)),
        _ => None,
    });
    gates.collect()
}

fn failures(lines: &[ReplicateLine]) -> Vec<(&str, &str)> {
    let failed = lines.iter().filter_map(|line| match line {
        ReplicateLine::Failed { cell, reason } => Some((cell.as_str(), reason.as_str())),
        _ => None,
    });
    failed.collect()
}

#[test]
fn a_cell_is_checked_measured_and_recomputable() {
    let scratch = tempfile::tempdir().unwrap();
    let spec = spec(vec![cell("small", "m=1,k=64", "scalar", "scalar")], scratch.path());
    let heard = Heard::default();
    let lines = lines(&spec, &heard);
    let passed = |local| (local, "scalar".to_owned(), true);
    assert_eq!(gates(&lines), [passed(0), passed(1)]);
    let (gate_a, gate_b, body) = cells(&lines)[0];
    assert_eq!((gate_a, gate_b), (Some(0), Some(1)));
    assert_eq!((body.cell.as_str(), body.replicate), ("small", 2));
    assert_eq!((body.key.contract.as_str(), body.key.cache.as_str()), ("quantise", "hot"));
    assert_eq!((body.key.threads, body.key.clock.as_str()), (1, "free"));
    assert_eq!((body.a.variant.as_str(), body.a.chosen.as_str(), &body.a.gate), ("scalar", "explicit", &None));
    assert_eq!((body.plan.copies, body.plan.seed), (1, derive_seed(5, 2, "small")));
    assert!(body.plan.timer_ns >= 1 && body.plan.moved_bytes > 0);
    // A busy machine may make a warm-up or a quad void, but never a number that does not follow from the slots.
    let result = judge_cell(&body.aa, body.ab.as_ref(), &body.plan, &body.warm_up, 5_000);
    assert_eq!(result, body.result);
    assert!(body.plan.launches > 1 && body.warm_up.slots >= 40);
    assert_eq!(failures(&lines), []);
    if body.warm_up.is_steady {
        let ab = body.ab.as_ref().unwrap();
        assert_eq!(body.aa.len(), 2);
        for (block, number) in [(ab, 0), (&body.aa[0], 1), (&body.aa[1], 2)] {
            assert_eq!(block.order, order_text(&block_orders(body.plan.seed, number, 6).unwrap()));
            assert_eq!(block_quads(block).unwrap().len(), 6);
            assert!(block.slots.elapsed_ns.iter().all(|slot| *slot > 0), "{:?}", block.slots);
        }
    }
    let heard = heard.0.into_inner().unwrap();
    assert_eq!(heard[0], Event::Cell { cell: "small".to_owned(), number: 1, of: 1 });
    assert!(heard.iter().any(|event| matches!(event, Event::Calibrated { launches, .. } if *launches > 1)));
}

#[test]
fn a_cell_that_cannot_run_is_reported_and_the_others_go_on() {
    let scratch = tempfile::tempdir().unwrap();
    let cells_in = vec![
        cell("no-problem", "m=1,k=63", "scalar", "scalar"),
        cell("no-variant", "m=1,k=64", "scalar", "scalr"),
        cell("no-command", "m=1,k=64", "scalar", "process:peer"),
        cell("small", "m=1,k=64", "baseline", "default"),
    ];
    let lines = lines(&spec(cells_in, scratch.path()), &Heard::default());
    let mut failed: Vec<_> = failures(&lines);
    failed.sort_unstable();
    let names: Vec<_> = failed.iter().map(|(cell, _)| *cell).collect();
    assert_eq!(names, ["no-command", "no-problem", "no-variant"]);
    for ((_, reason), needle) in failed.iter().zip(["--process peer=COMMAND", "`k`", "did you mean `scalar`"]) {
        assert!(reason.contains(needle), "{reason}");
    }
    assert_eq!(cells(&lines).len(), 1);
    assert_eq!(gates(&lines).len(), 2);
}

#[test]
#[cfg(unix)]
fn a_failed_check_is_recorded_and_nothing_is_timed() {
    let scratch = tempfile::tempdir().unwrap();
    // A product whose check can hold a peer to something; this peer only says something else.
    let mut with_peer = cell("peer", "m=1,k=64,seg=f32:8", "baseline", "process:peer");
    with_peer.contract = "matmul".to_owned();
    let mut spec = spec(vec![with_peer], scratch.path());
    spec.commands.add("peer=echo hello").unwrap();
    let lines = lines(&spec, &Heard::default());
    let gates = gates(&lines);
    assert_eq!(gates.len(), 2);
    assert!(gates[0].2 && !gates[1].2, "{gates:?}");
    let (gate_a, gate_b, body) = cells(&lines)[0];
    assert_eq!((gate_a, gate_b), (Some(0), None));
    assert_eq!((body.aa.len(), &body.ab, body.result.verdict), (0, &None, Verdict::Void));
    let result = judge_cell(&body.aa, None, &body.plan, &body.warm_up, 5_000);
    assert_eq!(result, body.result);
    let failed = failures(&lines);
    assert!(failed[0].1.starts_with("arm b `peer` did not pass its check: "), "{failed:?}");
    assert_eq!(std::fs::read_dir(PathBuf::from(scratch.path())).unwrap().count(), 0, "tensors were left behind");
}
