//! Engines in a few lines of shell: equal ones, slower ones, and ones that break their word.

use std::path::Path;
use std::time::Duration;

use memra_ledger::judge::judge_cell;
use memra_ledger::record::{CellPlan, CellResult, Verdict};

use super::*;
use crate::arm::CommandLine;
use crate::process::tests::patient;
use crate::progress::Silent;
use crate::runner::{ArmError, Runner as _, Seat};
use crate::trial::{LongPlan, Measured, run_long_trial};

const WORKLOAD: Workload = Workload { prompt: 0, generated: 8, depth: 4 };

const PLAN: LongPlan = LongPlan { quads: 6, aa_blocks: 1, seed: 11, warm_up_slots: 2 };

/// Shell snippets by request; what is not replaced keeps to the protocol.
struct Fake {
    snippets: [(&'static str, String); 7],
}

impl Fake {
    /// An engine whose samples last `base_ns` and a little, whatever the wall clock says.
    fn new(base_ns: u64) -> Self {
        let say = |line: &str| format!("echo '{line}'");
        let sample = format!(
            r#"n=$((n+1)); echo '{{"elapsed_ns":'$(({base_ns} + (n * 7) % 5))',"prompt_tokens":0,"generated_tokens":8,"output_sha256":"'$digest'"}}'"#
        );
        Self {
            snippets: [
                ("hello", say(r#"{"hello":{"name":"fake 1","about":["a shell"]}}"#)),
                ("prepare", say(r#"{"ok":true,"prompt_tokens":0,"generated_tokens":8,"depth_tokens":4}"#)),
                ("wake", say(r#"{"ok":true}"#)),
                ("sample", sample),
                ("peak", say(r#"{"peak_rss_bytes":4096}"#)),
                ("idle", say(r#"{"ok":true}"#)),
                ("stop", "exit 0".to_owned()),
            ],
        }
    }

    /// Replaces what is done on a request.
    fn on(mut self, request: &str, snippet: &str) -> Self {
        let entry = self.snippets.iter_mut().find(|(name, _)| *name == request).unwrap();
        snippet.clone_into(&mut entry.1);
        self
    }

    /// Does something more from the given sample on.
    fn since_sample(self, number: u32, snippet: &str) -> Self {
        let usual = self.snippets[3].1.clone();
        self.on("sample", &format!("m=$((m+1)); if [ $m -ge {number} ]; then {snippet}; else {usual}; fi"))
    }

    fn arm(&self, name: &str) -> ProcessArm {
        let digest = "ab".repeat(32);
        let mut script =
            format!("n=0; m=0; digest={digest}; {}\nwhile IFS= read -r line; do case $line in\n", self.snippets[0].1);
        for (request, snippet) in &self.snippets[1..] {
            script.push_str(&["*'\"op\":\"", request, "\"'*) ", snippet, " ;;\n"].concat());
        }
        script.push_str("esac; done");
        let words = ["sh", "-c", &script].map(str::to_owned);
        ProcessArm { name: name.to_owned(), command: CommandLine::try_from(words.to_vec()).unwrap() }
    }
}

fn task(options: &ProcessOptions) -> EngineTask<'_> {
    EngineTask { workload: WORKLOAD, model: Path::new("tiny.gguf"), threads: 2, seed: 1, options }
}

fn passed(arm: &ProcessArm, options: &ProcessOptions) -> (ProcessArm, PassedEngine) {
    let checked = check_engine(arm, &task(options), 0);
    (arm.clone(), checked.passed.unwrap_or_else(|| panic!("{:?}", checked.gate.failures)))
}

/// A trial whose quads no other process can make void.
fn raced(a: &Fake, b: &Fake) -> (Measured, [Option<u64>; 2]) {
    let options = patient();
    let (a, b) = (passed(&a.arm("a"), &options), passed(&b.arm("b"), &options));
    let mut runner = EngineRunner::new(task(&options), a, b).unwrap().unobserved();
    let measured = run_long_trial(&mut runner, &PLAN, &Silent);
    let peaks = if measured.fault.is_none() { runner.peaks().unwrap() } else { [None; 2] };
    (measured, peaks)
}

fn judged(measured: &Measured) -> CellResult {
    let plan = CellPlan {
        launches: measured.launches,
        copies: 1,
        rotated_bytes: 0,
        seed: PLAN.seed,
        timer_ns: 1,
        moved_bytes: 0,
        flops: 0,
        workload: Some(WORKLOAD.plan(PLAN.warm_up_slots)),
    };
    judge_cell(&measured.aa, measured.ab.as_ref(), &plan, &measured.warm_up, 5_000)
}

#[test]
fn an_engine_against_itself_is_equivalent_and_a_slower_one_is_found() {
    for (b_ns, verdict) in [(9_000, Verdict::Equivalent), (9_900, Verdict::Slower), (8_100, Verdict::Faster)] {
        let (measured, peaks) = raced(&Fake::new(9_000), &Fake::new(b_ns));
        assert!(measured.fault.is_none(), "{:?}", measured.fault);
        let result = judged(&measured);
        assert_eq!((result.verdict, result.n, result.is_provisional), (verdict, 6, true), "{result:?}");
        assert_eq!((measured.warm_up.slots, peaks), (8, [Some(4096); 2]));
        let slots = &measured.ab.as_ref().unwrap().slots;
        assert!(slots.elapsed_ns.iter().all(|slot| (8_100..9_905).contains(slot)), "{slots:?}");
    }
}

fn refused(fake: &Fake, options: &ProcessOptions) -> (String, String) {
    let checked = check_engine(&fake.arm("peer"), &task(options), 4);
    assert!(checked.passed.is_none() && !checked.gate.is_passed);
    assert_eq!((checked.gate.replicate, checked.gate.threads.as_slice()), (4, [2].as_slice()));
    let failure = checked.gate.failures[0].clone();
    assert_eq!(failure.case, "depth=4,generated=8,prompt=0");
    (failure.reason, failure.detail)
}

fn sample(tokens: u32, output: &str) -> String {
    format!(r#"echo '{{"elapsed_ns":500,"prompt_tokens":0,"generated_tokens":{tokens},"output_sha256":{output}}}'"#)
}

#[test]
fn a_gate_says_what_it_held_an_engine_to() {
    let options = patient();
    let checked = check_engine(&Fake::new(700).arm("peer"), &task(&options), 0);
    let gate = &checked.gate;
    assert!(gate.is_passed && checked.passed.is_some());
    assert_eq!((gate.rule.as_str(), gate.contract.as_str(), gate.variant.as_str()), ("workload", "workload", "fake 1"));
    assert_eq!(
        (gate.problems.as_slice(), gate.repeats, gate.cases),
        (["depth=4,generated=8,prompt=0".to_owned()].as_slice(), 2, 1)
    );
    assert_eq!((checked.arm.kind, checked.arm.about.len(), checked.elapsed_ns.len()), (ArmKind::Engine, 1, 2));
    let quiet = check_engine(&Fake::new(700).on("sample", &sample(8, "null")).arm("peer"), &task(&options), 0);
    assert_eq!((quiet.gate.rule.as_str(), quiet.gate.is_passed), ("workload-counts", true));
    assert_ne!(quiet.gate.output_sha256, gate.output_sha256);
}

#[test]
fn token_counts_that_are_not_the_cells_fail_the_gate() {
    let options = patient();
    let (reason, detail) = refused(&Fake::new(700).on("sample", &sample(7, "null")), &options);
    assert_eq!(reason, "tokens");
    assert_eq!(detail, "arm `peer`, run 1 of the check: 7 generated tokens, and the cell has 8");
    let shallow =
        Fake::new(700).on("prepare", r#"echo '{"ok":true,"prompt_tokens":0,"generated_tokens":8,"depth_tokens":3}'"#);
    let (reason, detail) = refused(&shallow, &options);
    assert_eq!(
        (reason.as_str(), detail.as_str()),
        ("tokens", "arm `peer`, preparation: 3 depth tokens, and the cell has 4")
    );
}

#[test]
fn an_output_that_changes_fails_the_gate() {
    let options = patient();
    let other = ["\"", &"cd".repeat(32), "\""].concat();
    let (reason, detail) = refused(&Fake::new(700).since_sample(2, &sample(8, &other)), &options);
    assert_eq!(reason, "output");
    assert!(
        detail.starts_with("arm `peer`, run 2 of the check: output cdcd") && detail.contains("gave abab"),
        "{detail}"
    );
    let (reason, _) = refused(&Fake::new(700).since_sample(2, &sample(8, "null")), &options);
    assert_eq!(reason, "output");
}

#[test]
fn engines_that_break_the_protocol_are_named_with_the_reason() {
    let options = patient();
    for (request, snippet, needle) in [
        ("hello", "exit 3", "process arm `peer`, starting: it ended with exit status: 3"),
        ("prepare", r#"echo '{"ok":true}'"#, "process arm `peer`, preparing: `{\"ok\":true}` is no answer"),
        ("prepare", r#"echo '{"error":"no such architecture"}'"#, "preparing: it reports: no such architecture"),
        ("sample", "echo loading", "sampling: a line that does not belong to the protocol: `loading`"),
        ("sample", "echo no memory >&2; exit 9", "sampling: it ended with exit status: 9; its last words: no memory"),
        ("sample", "kill -9 $$", "sampling: it ended with signal: 9"),
        (
            "sample",
            r#"echo '{"elapsed_ns":9000000000000000000,"prompt_tokens":0,"generated_tokens":8}'"#,
            "sampling: its clock is not believable",
        ),
    ] {
        let (reason, detail) = refused(&Fake::new(700).on(request, snippet), &options);
        assert!(reason == "launch" && detail.contains(needle), "{snippet}: {detail}");
    }
    let short = ProcessOptions { sample: Duration::from_millis(20), ..patient() };
    let (_, detail) = refused(&Fake::new(700).on("sample", "exec sleep 600"), &short);
    assert!(detail.ends_with("sampling: no answer within 20 ms"), "{detail}");
}

#[test]
fn a_run_of_the_trial_is_held_to_the_check() {
    // Each child counts its own samples: in the trial B's seventh is in its A/B block.
    let other = ["\"", &"cd".repeat(32), "\""].concat();
    let (measured, _) = raced(&Fake::new(700), &Fake::new(700).since_sample(7, &sample(8, &other)));
    assert_eq!((measured.aa.len(), measured.ab.is_none()), (1, true));
    let fault = measured.fault.unwrap().to_string();
    assert!(fault.starts_with("arm `b`, slot ") && fault.contains(" of the trial, B: output cdcd"), "{fault}");
    let (measured, _) = raced(&Fake::new(700).since_sample(6, &sample(9, "null")), &Fake::new(700));
    let fault = measured.fault.unwrap().to_string();
    assert!(fault.contains("9 generated tokens, and the cell has 8"), "{fault}");
    let (measured, _) = raced(&Fake::new(700), &Fake::new(700).since_sample(4, "exit 7"));
    let fault = measured.fault.unwrap().to_string();
    assert!(fault.contains("`b`") && fault.contains("exit status: 7"), "{fault}");
}

#[test]
fn a_proof_of_something_else_seats_nobody() {
    let options = patient();
    let good = passed(&Fake::new(700).arm("a"), &options);
    let other = EngineTask { workload: Workload { depth: 5, ..WORKLOAD }, ..task(&options) };
    let error = EngineRunner::new(other, good.clone(), good.clone()).unwrap_err().to_string();
    assert!(error.contains("the check was on depth=4,generated=8,prompt=0, not on depth=5"), "{error}");
    let renamed = (Fake::new(700).arm("b"), good.1.clone());
    let error = EngineRunner::new(task(&options), good.clone(), renamed).unwrap_err().to_string();
    assert!(error.contains("arm `b`") && error.contains("the check was of `a`"), "{error}");
    let mut runner = EngineRunner::new(task(&options), good.clone(), good).unwrap();
    assert!(matches!(runner.slot(Seat::B, 1), Err(ArmError::Empty { .. })));
    runner.seat_challenger().unwrap();
    assert!(matches!(runner.slot(Seat::Twin, 1), Err(ArmError::Empty { .. })));
    assert!(runner.slot(Seat::B, 1).unwrap().elapsed_ns >= 700);
}

#[cfg(target_os = "linux")]
#[test]
fn an_engine_whose_child_works_in_the_slot_of_another_is_blamed() {
    let options = patient();
    let good = passed(&Fake::new(700).arm("a"), &options);
    // It answers at once, and a process that it started works on for a while.
    let busy = Fake::new(700)
        .on("idle", r#"(i=0; while [ $i -lt 20000000 ]; do i=$((i+1)); done) >&- & p=$!; echo '{"ok":true}'"#)
        .on("stop", "kill $p; exit 0");
    let (arm, proof) = (busy.arm("b"), passed(&Fake::new(700).arm("b"), &options).1);
    let mut runner = EngineRunner::new(task(&options), good, (arm, proof)).unwrap();
    runner.seat_challenger().unwrap();
    let is_blamed = (0..100).any(|_| {
        runner.slot(Seat::A, 500).unwrap();
        runner.not_idle() == [Seat::B]
    });
    assert!(is_blamed, "its work was not seen");
}

#[test]
fn only_engines_with_a_command_are_found() {
    let mut commands = crate::arm::Commands::default();
    commands.add("peer=peer-program --fast").unwrap();
    assert_eq!(resolve_engine("engine:peer", &commands).unwrap().command.arguments(), ["--fast"]);
    for (text, needle) in [
        ("engine:per", "arm `engine:per` has no command, did you mean `peer`"),
        ("baseline", "a workload is run by engines"),
        ("process:peer", "a workload is run by engines"),
        ("engine:", "names no arm"),
    ] {
        let error = resolve_engine(text, &commands).unwrap_err().to_string();
        assert!(error.contains(needle), "{error}");
    }
}
