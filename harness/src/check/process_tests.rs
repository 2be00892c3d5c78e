//! Processes that are right, wrong, or cannot be judged.

use memra_kernels::registry;

use super::*;
use crate::process::TensorFolder;
use crate::process::tests::{Fake, patient};

struct Peer {
    scratch: tempfile::TempDir,
    case: JudgedCase,
    tensors: TensorFolder,
    checker: Checker,
}

impl Peer {
    fn new(problem: &str) -> Self {
        let contract = registry::contract("matmul").unwrap();
        let case = JudgedCase::generated(contract, &problem.parse().unwrap(), "normal", 1).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let tensors = TensorFolder::write(scratch.path(), case.inputs()).unwrap();
        let peer = Self { scratch, case, tensors, checker: Checker::new(CheckPlan::default()).unwrap() };
        peer.answers("answer.bin", &peer.right());
        peer
    }

    fn right(&self) -> Vec<f32> {
        self.case.ordered().get("out").unwrap().to_f32()
    }

    fn answers(&self, file: &str, values: &[f32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(self.scratch.path().join(file), bytes).unwrap();
    }

    fn fake(&self) -> Fake {
        Fake::new(&self.scratch.path().join("answer.bin"))
    }

    fn check(&self, fake: &Fake) -> Result<Checked, PeerError> {
        let options = patient();
        let check = ProcessCheck { case: &self.case, tensors: &self.tensors, threads: 2, options: &options };
        self.checker.check_process(&fake.arm("peer"), &check, 4)
    }

    fn failure(&self, fake: &Fake) -> (String, String) {
        let checked = self.check(fake).unwrap();
        assert!(checked.passed.is_none() && !checked.gate.is_passed);
        let failure = checked.gate.failures[0].clone();
        (failure.reason, failure.detail)
    }
}

const PROBLEM: &str = "m=1,k=64,seg=f32:3";

#[test]
fn a_process_within_the_tolerance_of_peers_passes() {
    let peer = Peer::new(PROBLEM);
    let nearly: Vec<f32> = peer.right().iter().map(|value| value * 1.000_000_1).collect();
    peer.answers("answer.bin", &nearly);
    let checked = peer.check(&peer.fake()).unwrap();
    let gate = checked.gate;
    assert!(gate.is_passed, "{:?}", gate.failures);
    assert_eq!((gate.rule.as_str(), gate.variant.as_str(), gate.repeats), ("error", "fake 1", 3));
    assert_eq!((gate.replicate, gate.threads.as_slice(), gate.order_class), (4, [2].as_slice(), None));
    assert!(gate.max_error_ppb > 0 && gate.max_error_ppb <= gate.allowed_error_ppb);
    assert_eq!((checked.arm.variant.as_str(), checked.arm.about.len()), ("fake 1", 1));
    let passed = checked.passed.unwrap();
    assert_eq!((passed.arm(), passed.source_sha256()), ("peer", None));
    assert_eq!(passed.case(peer.case.id()).unwrap().1, peer.case.inputs().total_bytes());
}

#[test]
fn a_process_that_is_wrong_fails_with_the_reason() {
    let peer = Peer::new(PROBLEM);
    let mut wrong = peer.right();
    wrong[1] += 1.0;
    peer.answers("answer.bin", &wrong);
    let (reason, detail) = peer.failure(&peer.fake());
    assert!(reason == "error" && detail.starts_with("value 1 is "), "{reason}: {detail}");
    wrong[1] = f32::NAN;
    peer.answers("answer.bin", &wrong);
    assert_eq!(peer.failure(&peer.fake()).0, "non_finite");
    peer.answers("answer.bin", &wrong[..2]);
    let (reason, detail) = peer.failure(&peer.fake());
    assert!(reason == "launch" && detail.contains("holds 8 bytes, and 12 are needed"), "{detail}");
    let (reason, detail) = peer.failure(&peer.fake().on("load", "echo no memory in /dev/x >&2; exit 9"));
    assert!(reason == "launch" && detail.contains("exit status: 9; its last words: no memory in (path)"), "{detail}");
    let gone = peer.failure(&peer.fake().on("hello", "exit 1"));
    assert!(gone.1.contains("starting"), "{}", gone.1);
}

#[test]
fn a_process_that_does_not_repeat_itself_fails() {
    let peer = Peer::new(PROBLEM);
    let mut other = peer.right();
    other[2] = f32::from_bits(other[2].to_bits() ^ 1);
    peer.answers("other.bin", &other);
    let check = concat!(
        r#"n=$((n+1)); dir=${line#*'"out":"'}; dir=${dir%%'"'*}; from=$answer; "#,
        r#"[ $n = 3 ] && from=${answer%answer.bin}other.bin; cp "$from" "$dir/out.bin"; "#,
        r#"echo '{"ok":true,"outputs":[{"name":"out","dtype":"f32","file":"out.bin"}]}'"#
    );
    let (reason, detail) = peer.failure(&peer.fake().on("check", check));
    assert!(reason == "repeat" && detail.starts_with("run 3 differs from run 1: out[0, 2]"), "{reason}: {detail}");
}

#[test]
fn without_a_reference_for_peers_a_process_is_refused() {
    let peer = Peer::new("m=1,k=64,seg=q8_0:3");
    let error = peer.check(&peer.fake()).unwrap_err().to_string();
    assert!(error.contains("`peer` cannot be checked: contract `matmul` has no reference"), "{error}");
}
