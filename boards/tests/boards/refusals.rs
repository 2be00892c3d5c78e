//! Inputs that are no receipts.

use crate::builder::{Measured, Receipt, digest, without_session};
use memra_boards::{BoardInput, FoldOptions, fold};
use memra_ledger::record::{Body, Record};

fn session(seed: u64) -> BoardInput {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", seed);
    receipt.measure(&Measured::new("c", "a", "b", -20_000));
    receipt.close()
}

fn refusal(inputs: &[BoardInput]) -> String {
    let message = fold(inputs, FoldOptions::default()).unwrap_err().to_string();
    let mut reversed = inputs.to_vec();
    reversed.reverse();
    assert_eq!(fold(&reversed, FoldOptions::default()).unwrap_err().to_string(), message);
    message
}

/// The session with its records changed.
fn changed(change: impl Fn(&mut Record)) -> BoardInput {
    let mut input = session(1);
    input.records.iter_mut().for_each(change);
    input
}

#[track_caller]
fn refused(inputs: &[BoardInput], words: &[&str]) {
    let message = refusal(inputs);
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

#[test]
fn paths_and_copies() {
    let mut outside = session(1);
    outside.file = "../receipts/x.jsonl".to_owned();
    refused(&[outside], &["`../receipts/x.jsonl` is not a relative path"]);
    refused(&[session(1), session(1)], &["is given twice"]);
    let mut copied = session(1);
    copied.file = "receipts/r/copy.jsonl".to_owned();
    refused(&[session(1), copied], &["stands in", "copy.jsonl", "would count twice"]);
}

#[test]
fn sessions() {
    let headless = BoardInput { records: session(1).records.split_off(1), ..session(1) };
    refused(&[headless], &["record 1 is a gate but no session record stands before it"]);
    let mut double = session(1);
    double.records.push(session(2).records[0].clone());
    refused(&[double], &["opens a second session"]);
    let lone_verdict = without_session("receipts/x.jsonl", 9, |receipt| {
        receipt.measure(&Measured::new("c", "a", "b", 0));
    });
    refused(&[lone_verdict], &["receipts/x.jsonl", "no session record"]);
    let bad_time = changed(|record| {
        if let Body::Session(session) = &mut record.body {
            session.started_utc = "yesterday".to_owned();
        }
    });
    refused(&[bad_time], &["start `yesterday` is not an RFC 3339 time"]);
}

#[test]
fn rigs() {
    for label in ["", "../x", "external", "a b"] {
        let bad = changed(|record| {
            if let Body::Session(session) = &mut record.body {
                session.rig.label = label.to_owned();
            }
        });
        refused(&[bad], &["rig label", "is not usable"]);
    }
    let mut other = session(2);
    if let Body::Session(session) = &mut other.records[0].body {
        session.rig.fingerprint = digest(404);
    }
    refused(&[session(1), other], &["rig label `r` names one rig", "labels are never reused"]);
}

#[test]
fn verdicts() {
    let verdict = |change: fn(&mut memra_ledger::record::VerdictBody)| {
        changed(move |record| {
            if let Body::Verdict(verdict) = &mut record.body {
                change(verdict);
            }
        })
    };
    let id = session(1).records.iter().find(|r| matches!(r.body, Body::Verdict(_))).unwrap().id.short().to_owned();
    refused(&[verdict(|v| v.replicates[0] = digest(404))], &[&id, "cites replicate", "no cell record of the file"]);
    refused(&[verdict(|v| v.replicates[1] = v.replicates[0].clone())], &[&id, "twice"]);
    refused(&[verdict(|v| v.key.threads = 1)], &[&id, "is on another cell than its replicate"]);
    refused(&[verdict(|v| v.key.cache = "hot".to_owned())], &[&id, "another cell"]);
    refused(&[verdict(|v| v.result.tau_ppm = None)], &[&id, "decided but its `tau_ppm` is null"]);
}
