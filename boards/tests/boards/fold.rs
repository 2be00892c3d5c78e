//! What is current, what is history, what travels along.

use crate::builder::{Measured, Random, Receipt};
use crate::evidence;
use memra_boards::{Board, BoardInput, BoardRow, FoldOptions, RowStatus, fold};
use memra_ledger::record::{Body, Verdict};

fn board(inputs: &[BoardInput]) -> Board {
    let boards = fold(inputs, FoldOptions::default()).unwrap();
    assert_eq!(boards.rigs.len(), 1);
    boards.rigs.into_iter().next().unwrap()
}

fn find<'a>(board: &'a Board, b: &str, status: RowStatus) -> &'a BoardRow {
    board.with_status(status).find(|row| row.b.name == b).unwrap()
}

#[test]
fn the_board_json_stands() {
    let boards = fold(&evidence::inputs(), FoldOptions::default()).unwrap();
    let labels: Vec<&str> = boards.rigs.iter().map(|board| board.rig.label.as_str()).collect();
    assert_eq!(labels, ["host-a", "host-b"]);
    insta::assert_snapshot!("host_a_json", String::from_utf8(boards.rigs[0].to_json().unwrap()).unwrap());
    insta::assert_snapshot!("external_json", String::from_utf8(boards.external.to_json().unwrap()).unwrap());
}

#[test]
fn board_json_reads_back() {
    let boards = fold(&evidence::inputs(), FoldOptions::default()).unwrap();
    for board in &boards.rigs {
        let read: Board = serde_json::from_slice(&board.to_json().unwrap()).unwrap();
        assert_eq!(&read, board);
    }
}

#[test]
fn board_json_holds_no_fraction() {
    fn visit(value: &serde_json::Value) {
        match value {
            serde_json::Value::Number(number) => assert!(number.is_i64() || number.is_u64(), "{number}"),
            serde_json::Value::Array(values) => values.iter().for_each(visit),
            serde_json::Value::Object(fields) => fields.values().for_each(visit),
            _ => {}
        }
    }
    for board in fold(&evidence::inputs(), FoldOptions::default()).unwrap().rigs {
        visit(&serde_json::from_slice(&board.to_json().unwrap()).unwrap());
    }
}

#[test]
fn the_order_of_files_does_not_show() {
    let mut inputs = evidence::inputs();
    let first = fold(&inputs, FoldOptions::default()).unwrap();
    let mut random = Random(99);
    for _ in 0..20 {
        for at in (1..inputs.len()).rev() {
            inputs.swap(at, (random.next() % (at as u64 + 1)) as usize);
        }
        let again = fold(&inputs, FoldOptions::default()).unwrap();
        assert_eq!(again, first);
        assert_eq!(again.rigs[0].to_json().unwrap(), first.rigs[0].to_json().unwrap());
    }
}

#[test]
fn the_latest_verdict_is_current_whatever_the_order_in_the_key() {
    let session = |started, seed, theta| {
        let mut receipt = Receipt::open("r", started, seed);
        receipt.measure(&Measured::new("c", "a", "b", theta));
        receipt.close()
    };
    // The later start is spelled so that it sorts before the earlier one as text.
    let inputs = [
        session("2026-01-02T00:00:00Z", 1, -20_000),
        session("2026-01-02T00:00:00.5Z", 2, 30_000),
        session("2026-01-01T00:00:00Z", 3, -40_000),
    ];
    let board = board(&inputs);
    let thetas: Vec<_> = board.rows.iter().map(|row| (row.status, row.theta_ppm.unwrap())).collect();
    assert_eq!(
        thetas,
        [(RowStatus::Binding, 30_000), (RowStatus::Superseded, -20_000), (RowStatus::Superseded, -40_000)]
    );
    assert!(board.rows[1..].iter().all(|row| row.superseded_by.as_ref() == Some(&board.rows[0].receipt)));
    assert!(board.rows[1..].iter().all(|row| row.plot.is_none()));
    assert!(board.rows[0].plot.is_some());
}

#[test]
fn cells_that_differ_in_anything_stay_apart() {
    let base = Measured::new("c", "a", "b", -20_000);
    let mut hot = base.clone();
    hot.cache = "hot";
    let mut weights = base.clone();
    weights.has_weights = true;
    let mut problem = base.clone();
    problem.problem = "m=2,n=4096,k=4096";
    let mut swapped = base.clone();
    (swapped.a, swapped.b) = ("b", "a");
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    for what in [&base, &hot, &weights, &problem, &swapped] {
        receipt.measure(what);
    }
    assert_eq!(board(&[receipt.close()]).current().count(), 5);
}

#[test]
fn a_second_verdict_of_one_session_replaces_the_first() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    receipt.measure(&Measured::new("c", "a", "b", -20_000));
    receipt.measure(&Measured::new("renamed", "a", "b", 40_000));
    let board = board(&[receipt.close()]);
    assert_eq!(board.current().map(|row| row.cell.as_str()).collect::<Vec<_>>(), ["renamed"]);
    assert_eq!(board.with_status(RowStatus::Superseded).count(), 1);
}

#[test]
fn binding_needs_replicates_and_blocks() {
    for (replicates, band_m, status) in
        [(5, 22, RowStatus::Binding), (4, 22, RowStatus::Provisional), (5, 21, RowStatus::Provisional)]
    {
        let mut what = Measured::new("c", "a", "b", -20_000);
        (what.replicates, what.band_m) = (replicates, band_m);
        let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
        receipt.measure(&what);
        let row = &board(&[receipt.close()]).rows[0];
        assert_eq!((row.status, row.p), (status, replicates));
        assert_eq!(row.caveats.iter().any(|text| text.contains("binding row needs")), status != RowStatus::Binding);
    }
}

#[test]
fn a_weaker_result_says_what_it_replaces() {
    let boards = fold(&evidence::inputs(), FoldOptions::default()).unwrap();
    let row = find(&boards.rigs[0], "rms_norm_avx2", RowStatus::Provisional);
    let old = find(&boards.rigs[0], "rms_norm_avx2", RowStatus::Superseded);
    assert!(row.caveats.contains(&format!("replaces a binding result ({})", old.receipt)), "{:?}", row.caveats);
    assert!(old.caveats.iter().any(|text| text.contains("source of B was another one")), "{:?}", old.caveats);
}

#[test]
fn undecided_and_void_are_never_headlines() {
    let boards = fold(&evidence::inputs(), FoldOptions::default()).unwrap();
    for row in boards.rigs.iter().flat_map(|board| &board.rows).filter(|row| row.is_headline()) {
        assert!(matches!(row.verdict, Verdict::Faster | Verdict::Slower | Verdict::Equivalent));
        assert!(row.is_current());
    }
    let void = find(&boards.rigs[0], "tiles_avx2", RowStatus::Void);
    assert_eq!((void.delta_ppm, void.a_bytes_per_s, void.void_quads), (None, None, 25));
    assert_eq!(void.reasons, ["5 of 12 quads are void: steal"]);
}

#[test]
fn rates_are_cost_over_median() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    let mut what = Measured::new("c", "a", "b", 0);
    what.a_ps = 1_000_000_000;
    receipt.measure(&what);
    let row = &board(&[receipt.close()]).rows[0];
    assert_eq!((row.a_bytes_per_s, row.a_flops_per_s), (Some(17_858_560_000), Some(33_554_432_000)));
    assert_eq!(row.b_bytes_per_s, row.a_bytes_per_s);
}

#[test]
fn intervals_of_theta_become_intervals_of_the_difference() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    receipt.measure(&Measured::new("c", "a", "b", 693_147));
    let row = &board(&[receipt.close()]).rows[0];
    assert_eq!(row.delta_ppm, Some(1_000_000));
    assert_eq!((row.delta_lo_ppm, row.delta_hi_ppm), (Some(997_002), Some(1_003_002)));
}

/// Withdraws one record of a session and says whether its verdict is still current.
fn survives(pick: fn(&[memra_ledger::record::Record]) -> usize) -> bool {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    receipt.measure(&Measured::new("c", "a", "b", -20_000));
    let target = receipt.records[pick(&receipt.records)].id.clone();
    let mut later = Receipt::open("r", "2026-01-05T00:00:00Z", 2);
    later.correct(&target, "wrong", true);
    board(&[receipt.close(), later.close()]).current().next().is_some()
}

#[test]
fn withdrawing_what_a_verdict_rests_on_withdraws_it() {
    assert!(!survives(|_| 0));
    assert!(!survives(|records| records.iter().position(|r| matches!(r.body, Body::Gate(_))).unwrap()));
    assert!(!survives(|records| records.iter().rposition(|r| matches!(r.body, Body::Cell(_))).unwrap()));
    assert!(!survives(|records| records.iter().position(|r| matches!(r.body, Body::Verdict(_))).unwrap()));
}

#[test]
fn an_earlier_verdict_returns_when_the_latest_is_withdrawn() {
    let mut first = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    first.measure(&Measured::new("c", "a", "b", -20_000));
    let mut second = Receipt::open("r", "2026-01-02T00:00:00Z", 2);
    let wrong = second.measure(&Measured::new("c", "a", "b", -90_000));
    let withdrawal = second.correct(&wrong, "wrong weights", true);
    let inputs = [first.close(), second.close()];
    let board_before = board(&inputs);
    assert_eq!(board_before.current().next().unwrap().theta_ppm, Some(-20_000));
    let row = board_before.with_status(RowStatus::Withdrawn).next().unwrap();
    assert!(row.caveats.iter().any(|text| text.starts_with("withdrawn: wrong weights (receipts/r/2026-01-02")));

    // A correction can itself be taken back.
    let mut third = Receipt::open("r", "2026-01-03T00:00:00Z", 3);
    third.correct(&withdrawal, "the weights were right", true);
    let inputs = [inputs[0].clone(), inputs[1].clone(), third.close()];
    assert_eq!(board(&inputs).current().next().unwrap().theta_ppm, Some(-90_000));
}

#[test]
fn a_remark_travels_as_a_caveat() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    let verdict = receipt.measure(&Measured::new("c", "a", "b", -20_000));
    receipt.correct(&verdict, "the box was warm", false);
    let board = board(&[receipt.close()]);
    let row = board.current().next().unwrap();
    assert!(row.caveats.iter().any(|text| text.starts_with("corrected: the box was warm")));
}

#[test]
fn timing_without_a_passed_check_does_not_count() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    receipt.measure(&Measured::new("c", "a", "b", -20_000));
    let mut input = receipt.close();
    for record in &mut input.records {
        if let Body::Gate(gate) = &mut record.body
            && gate.variant == "b"
        {
            gate.is_passed = false;
        }
    }
    let board = board(&[input]);
    assert_eq!(board.rows[0].status, RowStatus::Void);
    assert!(!board.rows[0].is_headline());
    assert!(board.rows[0].caveats.iter().any(|text| text.contains("no passed check in the session for arm B")));
    assert!(board.notes[0].starts_with("b failed the check of matvec"), "{:?}", board.notes);
}

#[test]
fn a_check_of_another_source_is_no_check() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    receipt.measure(&Measured::new("c", "a", "b", -20_000));
    let mut input = receipt.close();
    for record in &mut input.records {
        if let Body::Gate(gate) = &mut record.body {
            gate.source_sha256 = Some(crate::builder::digest(1234));
        }
    }
    assert_eq!(board(&[input]).rows[0].status, RowStatus::Void);
}

#[test]
fn unregistered_rigs_need_leave() {
    let mut receipt = Receipt::open_as("provisional-00000000", false, "2026-01-01T00:00:00Z", 1);
    receipt.measure(&Measured::new("c", "a", "b", -20_000));
    let inputs = [receipt.close()];
    assert!(fold(&inputs, FoldOptions::default()).unwrap().rigs.is_empty());
    let boards = fold(&inputs, FoldOptions { allow_provisional: true }).unwrap();
    assert_eq!(boards.rigs.len(), 1);
    assert!(!boards.rigs[0].rig.is_registered);
}

#[test]
fn nothing_folds_to_nothing() {
    let boards = fold(&[], FoldOptions::default()).unwrap();
    assert!(boards.rigs.is_empty() && boards.external.figures.is_empty());
}
