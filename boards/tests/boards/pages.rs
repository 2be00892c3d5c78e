//! The pages.

use crate::builder::{Measured, Receipt};
use crate::evidence;
use memra_boards::{Boards, FoldOptions, RowStatus, fold, performance_md, readme_table};
use memra_ledger::record::Body;

fn boards() -> Boards {
    fold(&evidence::inputs(), FoldOptions::default()).unwrap()
}

#[test]
fn the_performance_page_stands() {
    insta::assert_snapshot!("performance_md", performance_md(&boards(), &evidence::ledger()));
}

#[test]
fn the_readme_table_stands() {
    insta::assert_snapshot!("readme_table", readme_table(&boards()));
}

#[test]
fn every_row_is_on_the_page_with_its_receipt() {
    let boards = boards();
    let page = performance_md(&boards, &[]);
    for row in boards.rigs.iter().flat_map(|board| &board.rows) {
        assert!(page.contains(&format!("({})", row.receipt)), "{}", row.receipt);
    }
    for figure in &boards.external.figures {
        assert!(page.contains(&figure.receipt));
    }
}

#[test]
fn every_table_line_with_a_number_cites() {
    let page = performance_md(&boards(), &evidence::ledger());
    for line in page.lines().filter(|line| line.starts_with('|') && line.contains(" % ")) {
        assert!(line.contains(".jsonl#"), "{line}");
    }
}

#[test]
fn the_headline_table_holds_decided_rows_only() {
    let page = performance_md(&boards(), &[]);
    let decided = page.split("### Decided").nth(1).unwrap().split("###").next().unwrap();
    assert!(decided.contains("SLOWER") && decided.contains("FASTER"));
    assert!(!decided.contains("UNDECIDED") && !decided.contains("VOID"), "{decided}");
    let open = page.split("### Not decided").nth(1).unwrap().split("###").next().unwrap();
    assert!(open.contains("**UNDECIDED**") && open.contains("**VOID**"), "{open}");
}

#[test]
fn figures_from_elsewhere_are_shown_and_a_withdrawn_one_has_no_value() {
    let page = performance_md(&boards(), &[]);
    let part = page.split("## Figures from elsewhere").nth(1).unwrap();
    assert!(part.contains("170.55 tok/s") && part.contains("never divided"));
    assert!(!part.contains("168 tok/s") && part.contains("withdrawn"));
}

#[test]
fn what_was_not_measured_is_said() {
    assert!(performance_md(&Boards::default(), &[]).contains("\nnot measured\n"));
    assert_eq!(readme_table(&Boards::default()), "not measured\n");
    let receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    let boards = fold(&[receipt.close()], FoldOptions::default()).unwrap();
    assert_eq!(readme_table(&boards), "not measured\n");
    let page = performance_md(&boards, &[]);
    assert!(page.contains("not measured") && page.contains("ended without a verdict"), "{page}");
}

#[test]
fn a_large_loss_is_in_the_sample() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    for (at, b) in ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8"].into_iter().enumerate() {
        receipt.measure(&Measured::new("win", "a", b, -10_000 - at as i64));
    }
    receipt.measure(&Measured::new("loss", "a", "z", 400_000));
    let boards = fold(&[receipt.close()], FoldOptions::default()).unwrap();
    let table = readme_table(&boards);
    assert!(table.lines().nth(2).unwrap().contains("`loss`"), "{table}");
    assert!(table.contains("8 of 10 decided rows"), "{table}");
}

#[test]
fn names_from_records_cannot_break_the_page() {
    let mut receipt = Receipt::open("r", "2026-01-01T00:00:00Z", 1);
    receipt.measure(&Measured::new("c", "a", "b", -20_000));
    let mut input = receipt.close();
    for record in &mut input.records {
        if let Body::Verdict(verdict) = &mut record.body {
            verdict.cell = "x | y\n## z <script>".to_owned();
            verdict.b = "`b` <!-- board:end -->".to_owned();
        }
    }
    let boards = fold(&[input], FoldOptions::default()).unwrap();
    let page = performance_md(&boards, &[]);
    assert!(!page.contains("\n## z"), "{page}");
    assert!(!page.contains("<!-- board:end -->"), "{page}");
    let rows: Vec<&str> = page.lines().filter(|line| line.contains("x \\| y")).collect();
    assert!(!rows.is_empty());
    let headline = rows.iter().find(|line| line.starts_with("| 1 | `x")).unwrap();
    assert_eq!(headline.replace("\\|", "").matches('|').count(), 16, "{headline}");
    assert!(boards.rigs[0].with_status(RowStatus::Binding).count() == 1);
}
