//! A replicate on this machine, from cells in words to lines for a parent process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use memra_harness::arm::Commands;
use memra_harness::cell::{BackendKind, CacheMode, CellSpec};
use memra_harness::engine_arm::Workload;
use memra_harness::progress::{Event, Progress};
use memra_harness::suite::{ReplicateLine, ReplicateSpec, derive_seed, run_replicate};
use memra_harness::trial::WarmUpLimits;
use memra_ledger::judge::{block_orders, block_quads, judge_cell, order_text};
use memra_ledger::record::{ArmKind, CellBody, Verdict, WorkloadPlan};

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
        workload: None,
        backend: BackendKind::Host,
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

/// An engine in a shell, whose `changed`th sample and all after it have another output.
#[cfg(unix)]
fn engine(folder: &Path, changed: u32) -> String {
    let script = r#"n=0; same=DIGEST; echo '{"hello":{"name":"toy 1","about":["in a shell"]}}'
while IFS= read -r line; do case $line in
*'"op":"prepare"'*) echo '{"ok":true,"prompt_tokens":16,"generated_tokens":0,"depth_tokens":0}' ;;
*'"op":"sample"'*) n=$((n+1)); out=\"$same\"; [ $n -ge CHANGED ] && out=null
  echo '{"elapsed_ns":'$((9000 + n % 3))',"prompt_tokens":16,"generated_tokens":0,"output_sha256":'$out'}' ;;
*'"op":"peak"'*) echo '{"peak_rss_bytes":8192}' ;;
*'"op":"stop"'*) exit 0 ;;
*) echo '{"ok":true}' ;;
esac; done
"#;
    let script = script.replace("DIGEST", &"0a".repeat(32)).replace("CHANGED", &changed.to_string());
    let file = folder.join(format!("engine-{changed}.sh"));
    std::fs::write(&file, script).unwrap();
    format!("toy=sh '{}'", file.display())
}

#[cfg(unix)]
fn workload(folder: &Path) -> CellSpec {
    let model = folder.join("tiny.gguf");
    std::fs::write(&model, "a model").unwrap();
    let workload = Workload { prompt: 16, generated: 0, depth: 0 };
    let arm = || "engine:toy".to_owned();
    CellSpec { threads: 1, ..CellSpec::given_workload(model, workload, arm(), arm()) }
}

#[test]
#[cfg(unix)]
fn a_workload_is_checked_measured_and_recomputable() {
    let folder = tempfile::tempdir().unwrap();
    let mut spec = spec(vec![workload(folder.path())], folder.path());
    spec.commands.add(&engine(folder.path(), 10_000)).unwrap();
    spec.aa_blocks = 1;
    let heard = Heard::default();
    let lines = lines(&spec, &heard);
    assert_eq!(gates(&lines), [(0, "toy 1".to_owned(), true), (1, "toy 1".to_owned(), true)]);
    assert_eq!(failures(&lines), []);
    let (gate_a, gate_b, body) = cells(&lines)[0];
    assert_eq!((gate_a, gate_b), (Some(0), Some(1)));
    let key = &body.key;
    assert_eq!((key.contract.as_str(), key.problem.as_str()), ("workload", "depth=0,generated=0,prompt=16"));
    assert_eq!((key.host_mode.as_str(), key.cache.as_str(), key.threads), ("engine", "workload", 1));
    let model = key.inputs.weights.as_ref().unwrap();
    assert_eq!((model.file.as_str(), model.tensor.as_str()), ("tiny.gguf", ""));
    assert_eq!((body.a.kind, body.b.variant.as_str()), (ArmKind::Engine, "toy 1"));
    let plan = WorkloadPlan { prompt_tokens: 16, generated_tokens: 0, depth_tokens: 0, warm_up_slots: 2 };
    assert_eq!((body.plan.launches, body.plan.workload.as_ref()), (1, Some(&plan)));
    assert_eq!((body.warm_up.slots, body.warm_up.drift_ppm, body.warm_up.is_steady), (8, 0, true));
    let peaks = body.peaks.as_ref().unwrap();
    assert_eq!((peaks.a_bytes, peaks.b_bytes), (Some(8192), Some(8192)));
    // A busy machine may make quads void, but never a number that does not follow from the slots.
    assert_eq!(judge_cell(&body.aa, body.ab.as_ref(), &body.plan, &body.warm_up, 5_000), body.result);
    let ab = body.ab.as_ref().unwrap();
    assert_eq!(ab.order, order_text(&block_orders(body.plan.seed, 0, 6).unwrap()));
    assert!(ab.slots.elapsed_ns.iter().all(|slot| (9_000..9_003).contains(slot)), "{:?}", ab.slots);
    let text = serde_json::to_string(&lines).unwrap();
    assert!(!text.contains(folder.path().to_str().unwrap()), "{text}");
    let heard = heard.0.into_inner().unwrap();
    assert!(heard.iter().any(|event| matches!(event, Event::Calibrated { launches: 1, .. })));
}

#[test]
#[cfg(unix)]
fn an_engine_that_changes_its_output_fails_its_gate_whenever_it_does() {
    let folder = tempfile::tempdir().unwrap();
    // In the check.
    let mut early = spec(vec![workload(folder.path())], folder.path());
    early.commands.add(&engine(folder.path(), 2)).unwrap();
    let lines_of_early = lines(&early, &Heard::default());
    assert!(gates(&lines_of_early).iter().all(|gate| !gate.2));
    let (gate_a, gate_b, body) = cells(&lines_of_early)[0];
    assert_eq!((gate_a, gate_b, body.aa.len(), body.result.verdict), (None, None, 0, Verdict::Void));
    let why = failures(&lines_of_early)[0].1;
    assert!(why.contains("arm `toy`, run 2 of the check: output none"), "{why}");
    // In the trial: the third sample of a child is its first in a slot of a block.
    let mut late = spec(vec![workload(folder.path())], folder.path());
    late.commands.add(&engine(folder.path(), 3)).unwrap();
    let lines_of_late = lines(&late, &Heard::default());
    let passed: Vec<bool> = gates(&lines_of_late).iter().map(|gate| gate.2).collect();
    assert_eq!(passed, [true, true, false]);
    let (gate_a, _, body) = cells(&lines_of_late)[0];
    assert_eq!((gate_a, body.ab.is_none(), body.result.verdict), (Some(0), true, Verdict::Void));
    let why = failures(&lines_of_late)[0].1;
    assert!(why.contains("arm `toy`, slot ") && why.contains(" of the trial"), "{why}");
}

#[test]
#[cfg(unix)]
fn a_workload_without_command_or_model_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let one = workload(folder.path());
    let mut gone = CellSpec { name: "gone".to_owned(), ..one.clone() };
    gone.workload.as_mut().unwrap().model = folder.path().join("none.gguf");
    let unknown = CellSpec { name: "unknown".to_owned(), b: "engine:toys".to_owned(), ..one };
    let mut spec = spec(vec![gone, unknown], folder.path());
    spec.commands.add(&engine(folder.path(), 10_000)).unwrap();
    let lines = lines(&spec, &Heard::default());
    let mut failed = failures(&lines);
    failed.sort_unstable();
    assert!(failed[0].0 == "gone" && failed[0].1.contains("none.gguf"), "{failed:?}");
    assert!(failed[1].0 == "unknown" && failed[1].1.contains("did you mean `toy`"), "{failed:?}");
    assert_eq!((cells(&lines).len(), gates(&lines).len()), (0, 0));
}
