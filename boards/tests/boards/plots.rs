//! What stands in the plots.

use crate::builder::{Measured, Receipt};
use crate::evidence;
use memra_boards::{FoldOptions, fold, forest_plot, regenerate, slots_plot};
use memra_ledger::record::{Body, CellBody, Verdict};

#[test]
fn a_forest_has_a_line_for_each_current_row() {
    let boards = fold(&evidence::inputs(), FoldOptions::default()).unwrap();
    let board = &boards.rigs[0];
    let svg = forest_plot(board).unwrap().unwrap();
    for row in board.current() {
        assert!(svg.contains(&format!("{} vs {}", row.b.name, row.a.name)), "{}", row.b.name);
    }
    for word in ["FASTER", "SLOWER", "EQUIVALENT", "UNDECIDED", "VOID", "difference of B against A", "B faster"] {
        assert!(svg.contains(word), "{word}");
    }
    assert!(!svg.contains("rows_avx2_late"), "a withdrawn row is drawn");
    assert!(svg.contains("fill=\"#FFFFFF\""));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn a_board_without_rows_has_no_forest() {
    let receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    let boards = fold(&[receipt.close()], FoldOptions::default()).unwrap();
    assert!(forest_plot(&boards.rigs[0]).unwrap().is_none());
}

#[test]
fn every_slot_is_drawn_once() {
    let mut what = Measured::new("c", "a", "b", -20_000);
    (what.replicates, what.quads, what.void) = (7, 10, vec![1, 4]);
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    receipt.measure(&what);
    let input = receipt.close();
    let row = fold(std::slice::from_ref(&input), FoldOptions::default()).unwrap().rigs[0].rows[0].clone();
    let cells: Vec<&CellBody> = input
        .records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Cell(cell) => Some(&**cell),
            _ => None,
        })
        .collect();
    let svg = slots_plot(&row, &cells).unwrap();
    let circles = svg.matches("<circle").count();
    // A ring is a white disk and an outline; the legend has two dots and one ring.
    assert_eq!(circles, 7 * 40 + 7 * 8 + 4);
    assert_eq!(svg.matches("replicate ").count(), 7, "a panel each");
}

#[test]
fn extreme_numbers_draw() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    receipt.measure(&Measured::new("c", "a", "b", -20_000));
    let mut input = receipt.close();
    for record in &mut input.records {
        match &mut record.body {
            Body::Cell(cell) => {
                cell.plan.launches = 0;
                if let Some(ab) = &mut cell.ab {
                    ab.slots.elapsed_ns = vec![0, u64::MAX, 5, u64::MAX];
                    ab.slots.gap_ns = vec![u64::MAX; 4];
                }
            }
            Body::Verdict(verdict) => {
                let result = &mut verdict.result;
                (result.lo_ppm, result.hi_ppm) = (Some(i64::MIN), Some(i64::MAX));
                (result.delta_ppm, result.tau_ppm) = (Some(i64::MAX), Some(i64::MIN));
                (result.median_a_ps, result.median_b_ps) = (Some(0), Some(u64::MAX));
                result.verdict = Verdict::Slower;
            }
            _ => {}
        }
    }
    let outputs = regenerate(&[input], &[], None, FoldOptions::default()).unwrap();
    assert_eq!(outputs.iter().filter(|output| output.path.contains("/plots/")).count(), 2);
}
