//! The pages.

use crate::builder::{Measured, Receipt};
use crate::evidence;
use memra_boards::{Boards, FoldOptions, RowStatus, fold, performance_md, readme_table};
use memra_ledger::record::{Arm, ArmKind, Body, CellKey, PeakMemory, WorkloadPlan};

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

/// A session in which engines run a model, made of a synthetic one of kernels.
fn engines() -> Receipt {
    let mut receipt = Receipt::open("host-a", "2026-02-05T08:00:00Z", 21);
    let mut race = Measured::new("tiny-tg128", "peer 3 fa=0", "own 0.1", -51_293);
    (race.has_weights, race.contract, race.cache) = (true, "workload", "workload");
    (race.problem, race.a_ps) = ("depth=64,generated=128,prompt=0", 2_000_000_000_000);
    receipt.measure(&race);
    let engine = |arm: &mut Arm| {
        (arm.kind, arm.source, arm.source_sha256, arm.order_class) = (ArmKind::Engine, None, None, None);
        arm.layout.clear();
        arm.about = vec!["build 3".to_owned()];
    };
    let whole = |key: &mut CellKey| {
        "engine".clone_into(&mut key.host_mode);
        key.inputs.weights.as_mut().unwrap().tensor.clear();
    };
    let mut replicate = 0;
    for record in &mut receipt.records {
        match &mut record.body {
            Body::Gate(gate) => {
                let is_own = gate.variant.starts_with("own");
                gate.source_sha256 = None;
                let rule = if is_own { "workload" } else { "workload-counts" };
                rule.clone_into(&mut gate.rule);
            }
            Body::Cell(cell) => {
                engine(&mut cell.a);
                engine(&mut cell.b);
                whole(&mut cell.key);
                let plan = WorkloadPlan { prompt_tokens: 0, generated_tokens: 128, depth_tokens: 64, warm_up_slots: 2 };
                (cell.plan.workload, cell.plan.moved_bytes, cell.plan.flops) = (Some(plan), 0, 0);
                cell.peaks = Some(PeakMemory { a_bytes: Some((200 << 20) + replicate), b_bytes: None });
                replicate += 1;
            }
            Body::Verdict(verdict) => whole(&mut verdict.key),
            _ => {}
        }
    }
    receipt
}

#[test]
fn engines_have_tokens_per_second_and_memory() {
    let mut inputs = evidence::inputs();
    inputs.push(engines().close());
    let boards = fold(&inputs, FoldOptions::default()).unwrap();
    let row = boards.rigs.iter().flat_map(|board| &board.rows).find(|row| row.cell == "tiny-tg128").unwrap();
    let workload = row.workload.as_ref().unwrap();
    assert_eq!((workload.generated_tokens, workload.depth_tokens), (128, 64));
    // 128 tokens in 2 s, and in 5 % less.
    assert_eq!((workload.a_milli_tokens_per_s, workload.b_milli_tokens_per_s), (Some(64_000), Some(67_368)));
    assert_eq!((workload.a_peak_bytes, workload.b_peak_bytes), (Some((200 << 20) + 4), None));
    assert_eq!((row.moved_bytes, row.a_bytes_per_s, row.flops, row.status), (None, None, None, RowStatus::Binding));
    let page = performance_md(&boards, &[]);
    let part = page.split("### Engines").nth(1).unwrap().split("###").next().unwrap();
    assert!(part.contains("| `tiny-tg128` | `model-q8_0.gguf` | 0 | 128 | 64 |"), "{part}");
    assert!(part.contains("| 64.00 | 67.37 |") && part.contains("| 201 MiB | \u{2013} |"), "{part}");
    for needle in [
        "A is an engine (build 3), held to the token counts only",
        "B is an engine (build 3), held to its own output and to the token counts",
        "warmed up by 2 unrecorded ones of each arm",
        "counter/1 normal seed 11; `model-q8_0.gguf` |",
    ] {
        assert!(page.contains(needle) || page.contains(&needle.replace('_', "\\_")), "{needle}");
    }
    // Nothing of it shows without such rows.
    let boards = fold(&evidence::inputs(), FoldOptions::default()).unwrap();
    assert!(!performance_md(&boards, &[]).contains("### Engines"));
    assert!(!String::from_utf8(boards.rigs[0].to_json().unwrap()).unwrap().contains("\"workload\""));
}
