//! Tests of entry.

use std::fs;
use std::path::Path;

use super::*;
use crate::canonical::sha256;
use crate::chain::PrivacyLint;
use crate::record::Verdict;

fn gap(what: &str) -> EntryBody {
    let record = "receipts/one/2026-01-02-s-00000000.jsonl#0123456789ab".parse().unwrap();
    EntryBody::Gap(GapBody { what: what.to_owned(), evidence: vec![record], next: "measure it".to_owned() })
}

fn promotion() -> EntryBody {
    let digest = sha256(b"x");
    let record = Citation::new("receipts/one/2026-01-02-s-00000000.jsonl", &digest).unwrap();
    let effect = Effect {
        theta_ppm: Some(-100_000),
        lo_ppm: Some(-101_000),
        hi_ppm: Some(-99_000),
        band_ppm: None,
        band_m: 0,
        tau_ppm: Some(5000),
        mde_ppm: None,
        replicates: 5,
        is_provisional: true,
    };
    let cell = CellEvidence {
        cell: "c".to_owned(),
        problem: "m=1".to_owned(),
        against: "scalar".to_owned(),
        record,
        verdict: Verdict::Faster,
        effect,
    };
    EntryBody::Promotion(Box::new(PromotionBody {
        device_key: "host-x86_64-avx2".to_owned(),
        rig: "one".to_owned(),
        is_registered: true,
        contract: "matmul".to_owned(),
        revision: 1,
        format: "q8_0".to_owned(),
        class: "any".to_owned(),
        layout: "plain".to_owned(),
        order_class: "dot8".to_owned(),
        m_min: 1,
        m_max: 1,
        variant: "one_row".to_owned(),
        source: SourceDigest { path: "kernels/src/ops/matmul/one_row.rs".to_owned(), sha256: digest },
        replaces: Vec::new(),
        regime: Regime {
            clock: "free".to_owned(),
            cache: "rotate".to_owned(),
            host_mode: "pool".to_owned(),
            threads: 2,
        },
        guards: vec![GuardEvidence { evidence: cell.clone(), holm_p_ppm: 3 }],
        cells: vec![cell],
    }))
}

fn refutation() -> EntryBody {
    EntryBody::Refutation(Box::new(RefutationBody {
        mechanism: "prefetch_next_row".to_owned(),
        hypothesis: "fetching the next row early hides memory latency".to_owned(),
        failure: FailureClass::BrokeBits,
        device_key: "host-x86_64-avx2".to_owned(),
        rig: "one".to_owned(),
        regime: None,
        cells: Vec::new(),
        gates: vec!["receipts/one/2026-01-02-s-00000000.jsonl#0123456789ab".parse().unwrap()],
        variants: Vec::new(),
        mde_ppm: None,
        revisit_when: "the order class changes".to_owned(),
    }))
}

fn demotion() -> EntryBody {
    let EntryBody::Promotion(body) = promotion() else { panic!() };
    EntryBody::Demotion(Box::new(DemotionBody {
        promotion: "p-0123456789ab".to_owned(),
        device_key: body.device_key,
        contract: body.contract,
        revision: body.revision,
        format: body.format,
        class: body.class,
        m_min: 1,
        m_max: 1,
        variant: body.variant,
        source: body.source,
        reason: DemotionReason::Stale,
        detail: "the compiler changed".to_owned(),
        regime: None,
        cells: Vec::new(),
    }))
}

fn all() -> Vec<LedgerEntry> {
    let bodies = [gap("a case"), promotion(), refutation(), demotion()];
    bodies.into_iter().map(|body| LedgerEntry::new("2026-01-03", "a title", body).unwrap()).collect()
}

fn write(root: &Path, entry: &LedgerEntry) -> Result<String, EntryError> {
    write_entry(root, entry, &PrivacyLint::new(Some("bench-host-7"), None))
}

#[test]
fn entries_of_every_kind_round_trip() {
    let root = tempfile::tempdir().unwrap();
    for (entry, letter) in all().iter().zip(["g", "p", "r", "d"]) {
        assert!(entry.id.starts_with(letter) && entry.id.len() == 14, "{}", entry.id);
        let file = write(root.path(), entry).unwrap();
        assert_eq!(file, format!("ledger/2026/{}.json", entry.id));
        assert_eq!(read_entry(root.path(), &file).unwrap().entry, *entry);
    }
    assert_eq!(read_all(root.path()).unwrap().len(), 4);
}

#[test]
fn files_are_sorted_indented_and_end_in_one_newline() {
    let root = tempfile::tempdir().unwrap();
    let entry = LedgerEntry::new("2026-01-03", "a title", gap("a case")).unwrap();
    let file = write(root.path(), &entry).unwrap();
    let text = fs::read_to_string(root.path().join(file)).unwrap();
    let expected = format!(
        "{{\n  \"body\": {{\n    \"evidence\": [\n      \"receipts/one/2026-01-02-s-00000000.jsonl#0123456789ab\"\n    ],\n    \
         \"next\": \"measure it\",\n    \"what\": \"a case\"\n  }},\n  \"date\": \"2026-01-03\",\n  \"id\": \"{}\",\n  \
         \"kind\": \"gap\",\n  \"schema\": \"memra-lab.ledger/1\",\n  \"title\": \"a title\"\n}}\n",
        entry.id
    );
    assert_eq!(text, expected);
    let canonical = "{\"body\":{\"evidence\":[\"receipts/one/2026-01-02-s-00000000.jsonl#0123456789ab\"],\"next\":\
                     \"measure it\",\"what\":\"a case\"},\"date\":\"2026-01-03\",\"kind\":\"gap\",\"schema\":\
                     \"memra-lab.ledger/1\",\"title\":\"a title\"}";
    assert_eq!(entry.id, format!("g-{}", sha256(canonical.as_bytes()).short()));
}

#[test]
fn nothing_is_written_twice_or_edited() {
    let root = tempfile::tempdir().unwrap();
    let entry = LedgerEntry::new("2026-01-03", "a title", gap("a case")).unwrap();
    write(root.path(), &entry).unwrap();
    let error = write(root.path(), &entry).unwrap_err().to_string();
    assert!(error.contains(&entry.path()), "{error}");
    let edited = LedgerEntry { title: "another".to_owned(), ..entry.clone() };
    assert!(matches!(write(root.path(), &edited), Err(EntryError::IdMismatch { .. })));
    assert_eq!(fs::read_dir(root.path().join("ledger/2026")).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn a_changed_byte_is_found_and_named() {
    let root = tempfile::tempdir().unwrap();
    for entry in all() {
        let file = write(root.path(), &entry).unwrap();
        let path = root.path().join(&file);
        let text = fs::read_to_string(&path).unwrap();
        let cases: [(&str, &str, &str); 7] = [
            ("a title", "a totle", "states the id"),
            ("2026-01-03", "2026-01-04", "states the id"),
            ("memra-lab.ledger/1", "memra-lab.ledger/2", "schema `memra-lab.ledger/2`"),
            ("\n  \"title\"", "\n  \"note\": 1,\n  \"title\"", "states the id"),
            ("\n  \"title\"", "\n   \"title\"", "not in the form"),
            ("\n  \"title\": \"a title\"", "\n  \"title\": \"a title\",\n  \"title\": \"a title\"", "not in the form"),
            ("{\n  \"body\"", "{{\n  \"body\"", "not JSON"),
        ];
        for (from, to, why) in cases {
            fs::write(&path, text.replacen(from, to, 1)).unwrap();
            let error = read_all(root.path()).unwrap_err();
            assert_eq!(error.file(), Some(file.as_str()));
            assert!(error.to_string().contains(why) && error.to_string().contains(&file), "{to}: {error}");
        }
        fs::write(&path, &text).unwrap();
        read_all(root.path()).unwrap();
    }
}

#[test]
fn a_file_that_does_not_belong_is_named() {
    let root = tempfile::tempdir().unwrap();
    let entry = LedgerEntry::new("2026-01-03", "a title", gap("a case")).unwrap();
    let file = write(root.path(), &entry).unwrap();
    let elsewhere = root.path().join("ledger/2025");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::rename(root.path().join(&file), elsewhere.join("x.json")).unwrap();
    let error = read_all(root.path()).unwrap_err();
    assert!(matches!(&error, EntryError::Place { expected, .. } if *expected == file), "{error}");
    fs::remove_file(elsewhere.join("x.json")).unwrap();

    fs::write(elsewhere.join("notes.txt"), "x").unwrap();
    assert!(matches!(read_all(root.path()), Err(EntryError::Stray { .. })));
    fs::remove_file(elsewhere.join("notes.txt")).unwrap();

    fs::write(elsewhere.join("g-0123456789ab.json"), vec![b' '; MAX_ENTRY_BYTES as usize + 1]).unwrap();
    assert!(matches!(read_all(root.path()), Err(EntryError::TooLarge { .. })));
    fs::write(elsewhere.join("g-0123456789ab.json"), [0xff]).unwrap();
    assert!(matches!(read_all(root.path()), Err(EntryError::Text { .. })));
    fs::remove_file(elsewhere.join("g-0123456789ab.json")).unwrap();

    // The package's own folders, the index and what a stopped writer leaves are no entries.
    fs::create_dir_all(root.path().join("ledger/src")).unwrap();
    fs::write(root.path().join("ledger/src/lib.rs"), "x").unwrap();
    fs::write(root.path().join("ledger/index.json"), "x").unwrap();
    fs::write(elsewhere.join(".memra-1234"), "x").unwrap();
    assert!(read_all(root.path()).unwrap().is_empty());
    assert!(read_all(&root.path().join("nothing")).unwrap().is_empty());
}

#[test]
fn fields_that_break_a_rule_are_named() {
    let refused = |date: &str, title: &str, body: EntryBody| match LedgerEntry::new(date, title, body) {
        Err(EntryError::Field { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    for date in ["", "2026-1-03", "2026-02-30", "2026-01-03T00:00:00Z", "12026-01-03", " 2026-01-03"] {
        assert_eq!(refused(date, "t", gap("w")), "date");
    }
    for title in ["", " ", "a\nb", "a\u{7}b", &"x".repeat(301)] {
        assert_eq!(refused("2026-01-03", title, gap("w")), "title");
    }
    assert_eq!(refused("2026-01-03", "t", gap("")), "what");
    let promoted = |edit: fn(&mut PromotionBody)| {
        let EntryBody::Promotion(mut body) = promotion() else { panic!() };
        edit(&mut body);
        refused("2026-01-03", "t", EntryBody::Promotion(body))
    };
    assert_eq!(promoted(|body| body.m_min = 0), "m_min");
    assert_eq!(promoted(|body| body.m_min = 2), "m_min");
    assert_eq!(promoted(|body| body.cells.clear()), "cells");
    assert_eq!(promoted(|body| body.source.path = "../x.rs".to_owned()), "source.path");
    assert_eq!(promoted(|body| body.source.path = "/x.rs".to_owned()), "source.path");
    let refuted = |edit: fn(&mut RefutationBody)| {
        let EntryBody::Refutation(mut body) = refutation() else { panic!() };
        edit(&mut body);
        refused("2026-01-03", "t", EntryBody::Refutation(body))
    };
    assert_eq!(refuted(|body| body.mechanism = "Two words".to_owned()), "mechanism");
    assert_eq!(refuted(|body| body.hypothesis = "a\nb".to_owned()), "hypothesis");
    assert_eq!(refuted(|body| body.revisit_when = String::new()), "revisit_when");
    assert_eq!(refuted(|body| body.gates.clear()), "cells");
    let EntryBody::Demotion(mut body) = demotion() else { panic!() };
    body.reason = DemotionReason::Slower;
    assert_eq!(refused("2026-01-03", "t", EntryBody::Demotion(body)), "cells");
}

#[test]
fn private_facts_are_not_written() {
    let root = tempfile::tempdir().unwrap();
    for what in ["seen on bench-host-7", "lies at /data/models"] {
        let entry = LedgerEntry::new("2026-01-03", "a title", gap(what)).unwrap();
        assert!(matches!(write(root.path(), &entry), Err(EntryError::Private(_))));
    }
    assert!(read_all(root.path()).unwrap().is_empty());
}

#[test]
fn the_index_follows_from_the_entries_in_any_order() {
    let root = tempfile::tempdir().unwrap();
    for entry in all() {
        write(root.path(), &entry).unwrap();
    }
    write(root.path(), &LedgerEntry::new("2025-12-31", "an older one", gap("x")).unwrap()).unwrap();
    let mut entries = read_all(root.path()).unwrap();
    let text = index_text(&entries);
    entries.reverse();
    assert_eq!(index_text(&entries), text);
    write_index(root.path()).unwrap();
    write_index(root.path()).unwrap();
    assert_eq!(fs::read_to_string(root.path().join(INDEX_PATH)).unwrap(), text);
    assert!(text.starts_with("{\n  \"entries\": [\n    {\n      \"date\": \"2025-12-31\""), "{text}");
}

#[test]
fn every_entry_fits_the_schema_of_its_type() {
    let schema = schemars::schema_for!(LedgerEntry).to_value();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for entry in all() {
        let value = serde_json::to_value(&entry).unwrap();
        assert!(validator.is_valid(&value), "{value:#}");
    }
    assert!(!validator.is_valid(&serde_json::json!({"schema": "memra-lab.ledger/1"})));
}
