//! Tests of refute.

use super::*;
use crate::entry::Citation;
use crate::promotion::fixture::{
    Cell, World, correction, edit_key, equivalent, faster, file, gate, gates, record, slower, verdict,
};
use crate::record::GateFailure;

fn request(failure: FailureClass, records: &[&Citation]) -> RefutationRequest {
    RefutationRequest {
        mechanism: "four_rows_at_once".to_owned(),
        hypothesis: "four rows share the loads of the activation".to_owned(),
        failure,
        records: records.iter().map(|citation| (*citation).clone()).collect(),
        revisit_when: "a device with more registers".to_owned(),
        date: "2026-01-03".to_owned(),
    }
}

fn refute(world: &World, failure: FailureClass, records: &[&Citation]) -> Result<RefutationBody, Refusal> {
    let entry = check_refutation(&world.receipts(), &world.rigs, &request(failure, records))?;
    match entry.body {
        EntryBody::Refutation(body) => Ok(*body),
        other => panic!("{other:?}"),
    }
}

fn assert_refused(found: Result<RefutationBody, Refusal>, rule: Rule, why: &str) {
    let refusal = found.unwrap_err();
    assert_eq!(refusal.rule, rule, "{refusal}");
    assert!(refusal.to_string().contains(why), "{refusal}");
}

/// A file with a gate that failed for these reasons.
fn failed_gate(world: &mut World, reasons: &[&str]) -> Citation {
    let mut source = World::new();
    source.add(&Cell { thetas: vec![0], ..faster(1, "scalar", "one_row") });
    let session = source.files.remove(0).records.remove(0);
    let failures = reasons.iter().map(|reason| GateFailure {
        case: "m=1".to_owned(),
        threads: 1,
        reason: (*reason).to_owned(),
        detail: "x".to_owned(),
    });
    let name = format!("receipts/one/2026-01-02-gate-{:08x}.jsonl", world.files.len());
    let id = crate::canonical::sha256(name.as_bytes());
    let body = Body::Gate(Box::new(gate("four_rows", 0, failures.collect())));
    world.files.push(file(&name, vec![session, record(1, id.clone(), body)]));
    Citation::new(&name, &id).unwrap()
}

#[test]
fn slower_and_equivalent_verdicts_refute() {
    let mut world = World::new();
    let slow = world.add(&slower(1, "scalar", "four_rows"));
    let same = world.add(&equivalent(2, "scalar", "four_rows"));
    let body = refute(&world, FailureClass::Slower, &[&slow]).unwrap();
    assert_eq!((body.cells.len(), body.mde_ppm, &*body.rig), (1, Some(2000), "one"));
    assert_eq!(body.variants[0].variant, "four_rows");
    let body = refute(&world, FailureClass::NoEffectAbove, &[&slow, &same]).unwrap();
    assert_eq!((body.cells.len(), body.variants.len()), (2, 1));
    // A single replicate says enough: the entry holds how many there were.
    let one = world.add(&Cell { thetas: vec![0], ..equivalent(4, "scalar", "four_rows") });
    assert_eq!(refute(&world, FailureClass::NoEffectAbove, &[&one]).unwrap().cells[0].effect.replicates, 1);
}

#[test]
fn other_verdicts_do_not_refute() {
    for (kind, name) in [
        (Verdict::Undecided, "UNDECIDED"),
        (Verdict::Faster, "FASTER"),
        (Verdict::Void, "VOID"),
        (Verdict::Incomparable, "INCOMPARABLE"),
    ] {
        let mut world = World::new();
        let citation = world.add(&Cell { verdict: kind, ..equivalent(1, "scalar", "four_rows") });
        for failure in [FailureClass::Slower, FailureClass::NoEffectAbove] {
            assert_refused(refute(&world, failure, &[&citation]), Rule::Verdict, &format!("{name} cannot refute"));
        }
    }
    let mut world = World::new();
    let same = world.add(&equivalent(1, "scalar", "four_rows"));
    assert_refused(refute(&world, FailureClass::Slower, &[&same]), Rule::Verdict, "EQUIVALENT cannot refute");
    let slow = world.add(&slower(1, "scalar", "four_rows"));
    assert_refused(refute(&world, FailureClass::NoEffectAbove, &[&slow]), Rule::Verdict, "is `slower`");
    let wide = world.add_edited(&equivalent(1, "scalar", "four_rows"), |file| verdict(file).result.hi_ppm = Some(5001));
    assert_refused(refute(&world, FailureClass::NoEffectAbove, &[&wide]), Rule::Verdict, "does not say EQUIVALENT");
}

#[test]
fn the_records_of_a_refutation_belong_together() {
    let mut world = World::new();
    assert_refused(refute(&world, FailureClass::Slower, &[]), Rule::Cited, "no record");
    let here = world.add(&slower(1, "scalar", "four_rows"));
    let there = world.add_on(&slower(1, "scalar", "four_rows"), 4, |_| {});
    assert_refused(refute(&world, FailureClass::Slower, &[&here, &there]), Rule::SameRig, "`one`");
    refute(&world, FailureClass::Slower, &[&there]).unwrap();
    let hot = world.add_edited(&slower(1, "scalar", "four_rows"), |file| {
        edit_key(file, |key| key.cache = "hot".to_owned());
    });
    assert_refused(refute(&world, FailureClass::Slower, &[&here, &hot]), Rule::Regime, "cache hot");
    let empty = world.add(&Cell { thetas: Vec::new(), ..slower(1, "scalar", "four_rows") });
    assert_refused(refute(&world, FailureClass::Slower, &[&empty]), Rule::Replicates, "no replicates");
    let failed = world.add_edited(&slower(1, "scalar", "four_rows"), |file| {
        gates(file).next().unwrap().is_passed = false;
    });
    assert_refused(refute(&world, FailureClass::Slower, &[&failed]), Rule::Gate, "failed the gate");
}

#[test]
fn failed_gates_refute_by_their_reason() {
    let mut world = World::new();
    let bits = failed_gate(&mut world, &["bits"]);
    let launch = failed_gate(&mut world, &["launch"]);
    let body = refute(&world, FailureClass::BrokeBits, &[&bits]).unwrap();
    assert_eq!((body.gates.as_slice(), body.regime), ([bits.clone()].as_slice(), None));
    assert_eq!(body.variants[0].variant, "four_rows");
    refute(&world, FailureClass::ResourceLimit, &[&launch]).unwrap();
    assert_refused(refute(&world, FailureClass::ResourceLimit, &[&bits]), Rule::Gate, "resource limit");
    assert_refused(refute(&world, FailureClass::BrokeBits, &[&launch]), Rule::Gate, "broke bits");
    assert_refused(refute(&world, FailureClass::BrokeBits, &[&bits, &bits]), Rule::Cited, "twice");
    assert_refused(refute(&world, FailureClass::BrokeBits, &[]), Rule::Cited, "no record");
    let passed = failed_gate(&mut world, &[]);
    assert_refused(refute(&world, FailureClass::BrokeBits, &[&passed]), Rule::Gate, "refutes nothing");
    let other = world.add(&slower(1, "scalar", "four_rows"));
    assert_refused(refute(&world, FailureClass::BrokeBits, &[&other]), Rule::Exists, "not a gate");
    assert_refused(refute(&world, FailureClass::Slower, &[&bits]), Rule::Exists, "not a verdict");
    let last = world.files.iter_mut().find(|file| file.name == bits.file()).unwrap();
    let id = last.records[1].id.clone();
    last.records.push(correction(2, &id));
    assert_refused(refute(&world, FailureClass::BrokeBits, &[&bits]), Rule::Withdrawn, "wrong weights");
}
