//! Checked pairs of a variant and a case.

use crate::builder::{Measured, Receipt};
use memra_boards::{
    BoardInput, CheckedPairs, FoldOptions, fewer_pairs, fold, performance_md, regenerate, write_outputs,
};
use memra_ledger::record::{Body, GATES_ONLY};

/// A session that checked so many variants on twelve cases each; the last one fails where it is said.
fn checks(receipt: &mut Receipt, variants: u64, has_failure: bool) {
    if let Body::Session(session) = &mut receipt.records[0].body {
        GATES_ONLY.clone_into(&mut session.plan.stop);
    }
    for at in 0..variants {
        receipt.gate(&format!("variant{at}"), Some(at), !(has_failure && at + 1 == variants));
    }
}

fn session(started: &str, seed: u64, variants: u64) -> Receipt {
    let mut receipt = Receipt::open("card", started, seed);
    checks(&mut receipt, variants, false);
    receipt
}

fn checked(inputs: &[BoardInput]) -> Option<CheckedPairs> {
    fold(inputs, FoldOptions::default()).unwrap().rigs[0].checked.clone()
}

#[test]
fn the_last_finished_session_of_checks_counts() {
    let first = || session("2026-01-01T00:00:00Z", 1, 9).close();
    let mut last = Receipt::open("card", "2026-01-03T00:00:00Z", 2);
    checks(&mut last, 3, true);
    let last = last.close();
    let found = checked(&[first(), last.clone()]).unwrap();
    assert_eq!((found.pairs, found.variants, found.failed_variants), (36, 3, 1));
    assert_eq!((found.date.as_str(), found.receipt.split('#').next().unwrap()), ("2026-01-03", last.file.as_str()));
    let cut = session("2026-01-04T00:00:00Z", 3, 5).cut_short();
    assert_eq!(checked(&[first(), last, cut.clone()]), Some(found));
    assert_eq!(checked(&[cut]), None);
    // Checks of a session that measures are not those of all variants.
    let mut race = Receipt::open("card", "2026-01-05T00:00:00Z", 4);
    race.measure(&Measured::new("c", "a", "b", -20_000));
    assert_eq!(checked(&[race.close()]), None);
    let mut withdrawn = session("2026-01-06T00:00:00Z", 5, 20);
    let id = withdrawn.records[0].id.clone();
    withdrawn.correct(&id, "the cases were wrong", true);
    assert_eq!(checked(&[first(), withdrawn.close()]).unwrap().pairs, 108);
}

#[test]
fn the_page_says_the_pairs_and_no_session_without_verdict() {
    let boards = fold(&[session("2026-01-01T00:00:00Z", 1, 9).close()], FoldOptions::default()).unwrap();
    assert_eq!(boards.rigs[0].notes, [""; 0]);
    let page = performance_md(&boards, &[]);
    assert!(
        page.contains("| checked pairs | 108 pairs of variant and case; 9 variants, all passed; 2026-01-01, [`"),
        "{page}"
    );
}

#[test]
fn a_board_that_would_say_fewer_pairs_is_named() {
    let root = tempfile::tempdir().unwrap();
    let make = |inputs: &[BoardInput]| regenerate(inputs, &[], None, FoldOptions::default()).unwrap();
    let first = session("2026-01-01T00:00:00Z", 1, 9).close();
    let outputs = make(std::slice::from_ref(&first));
    assert_eq!(fewer_pairs(root.path(), &outputs).unwrap(), []);
    write_outputs(root.path(), &outputs).unwrap();
    let fewer = make(&[first.clone(), session("2026-01-02T00:00:00Z", 2, 8).close()]);
    let named = fewer_pairs(root.path(), &fewer).unwrap();
    assert_eq!(named.len(), 1);
    assert_eq!(named[0].to_string(), "boards/card.json says 108 checked pairs of variant and case and would say 96");
    let none = make(&[session("2026-01-02T00:00:00Z", 2, 8).cut_short()]);
    assert_eq!(fewer_pairs(root.path(), &none).unwrap()[0].now, 0);
    let more = make(&[first, session("2026-01-02T00:00:00Z", 2, 10).close()]);
    assert_eq!(fewer_pairs(root.path(), &more).unwrap(), []);
}
