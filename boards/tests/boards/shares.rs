//! Products as shares of the read ceiling of their weights.

use crate::builder::{Measured, Receipt};
use memra_boards::{BoardInput, BoardRow, Boards, FoldOptions, RowStatus, fold, performance_md};
use memra_ledger::record::{Body, CellKey, Verdict};

const CARD: &str = "cuda-sm_90a-132sm-60l2-140gib-700w";
const PRODUCT: &str = "act=q8,epi=none,k=4096,m=1,seg=q4_k:12288";
const READ: &str = "bytes=28311552,op=read,parts=512";

fn measured(cell: &'static str, problem: &'static str, a_ps: u64, theta_ppm: i64) -> Measured {
    let mut what = Measured::new(cell, "cuda_rows", "cuda_tiles", theta_ppm);
    (what.problem, what.contract, what.a_ps) = (problem, "matmul", a_ps);
    what
}

fn read(cell: &'static str, problem: &'static str, a_ps: u64, theta_ppm: i64) -> Measured {
    let mut what = measured(cell, problem, a_ps, theta_ppm);
    (what.contract, what.a, what.b) = ("stream", "cuda_stream_f4", "cuda_stream_f8");
    what
}

/// The session with a card as its rig, and all medians of a replicate multiplied by `1 + replicate * step / 1000`.
fn on_card(receipt: Receipt, step: impl Fn(&str) -> u64) -> BoardInput {
    let mut input = receipt.close();
    let card = |key: &mut CellKey| CARD.clone_into(&mut key.device_key);
    for record in &mut input.records {
        match &mut record.body {
            Body::Session(session) => CARD.clone_into(&mut session.rig.class.device_key),
            Body::Cell(cell) => {
                card(&mut cell.key);
                let factor = 1_000 + u64::from(cell.replicate) * step(&cell.cell);
                for median in [&mut cell.result.median_a_ps, &mut cell.result.median_b_ps] {
                    *median = median.map(|ps| ps * factor / 1_000);
                }
            }
            Body::Verdict(verdict) => card(&mut verdict.key),
            _ => {}
        }
    }
    input
}

fn folded(input: BoardInput) -> Boards {
    fold(&[input], FoldOptions::default()).unwrap()
}

fn row<'a>(boards: &'a Boards, cell: &str) -> &'a BoardRow {
    boards.rigs[0].rows.iter().find(|row| row.cell == cell).unwrap()
}

#[test]
fn a_product_is_a_share_of_the_faster_ceiling_of_its_session() {
    let mut receipt = Receipt::open("card", "2026-03-01T00:00:00Z", 1);
    receipt.measure(&measured("q4k", PRODUCT, 10_000_000, -105_361));
    receipt.measure(&read("ceiling", READ, 9_000_000, -117_783));
    receipt.measure(&read("slow", "bytes=28311552,op=read,parts=9", 8_500_000, 0));
    receipt.measure(&read("other", "bytes=28327936,op=read,parts=512", 1_000_000, 0));
    receipt.measure(&read("copy", "bytes=28311552,op=copy,parts=512", 1_000_000, 0));
    // Replicates of the product are each 1 % slower than the one before.
    let boards = folded(on_card(receipt, |cell| if cell == "q4k" { 10 } else { 0 }));
    let share = row(&boards, "q4k").share.clone().unwrap();
    assert_eq!(
        (share.ceiling.as_str(), share.variant.as_str(), share.bytes),
        ("ceiling", "cuda_stream_f8", 28_311_552)
    );
    assert_eq!(share.receipt, row(&boards, "ceiling").receipt);
    assert_eq!(share.median_ps, row(&boards, "ceiling").median_b_ps.unwrap());
    assert_eq!((share.p, share.rank), (5, 1));
    assert_eq!(share.a_ppm, Some(share.median_ps * 1_000_000 / 10_000_000));
    assert_eq!(share.a_low_ppm, Some(share.median_ps * 1_000_000 / 10_400_000));
    assert!(share.b_ppm > share.a_ppm && share.b_low_ppm < share.b_ppm);
    assert!(["ceiling", "slow", "other", "copy"].iter().all(|cell| row(&boards, cell).share.is_none()));
}

#[test]
fn the_worse_end_of_many_replicates_is_an_order_statistic() {
    let mut receipt = Receipt::open("card", "2026-03-01T00:00:00Z", 1);
    let (mut product, mut ceiling) = (measured("q4k", PRODUCT, 10_000_000, 0), read("ceiling", READ, 9_000_000, 0));
    (product.replicates, ceiling.replicates) = (9, 8);
    receipt.measure(&product);
    receipt.measure(&ceiling);
    let boards = folded(on_card(receipt, |cell| if cell == "q4k" { 10 } else { 0 }));
    let share = row(&boards, "q4k").share.as_ref().unwrap();
    // The ninth replicate has no ceiling, and the eighth is below the rank.
    assert_eq!((share.p, share.rank), (8, 2));
    assert_eq!((share.a_ppm, share.a_low_ppm), (Some(900_000), Some(9_000_000 * 1_000_000 / 10_600_000)));
}

#[test]
fn a_ceiling_must_count_and_belong_to_the_session() {
    let share = |change: &dyn Fn(&mut Receipt)| {
        let mut receipt = Receipt::open("card", "2026-03-01T00:00:00Z", 1);
        receipt.measure(&measured("q4k", PRODUCT, 10_000_000, 0));
        change(&mut receipt);
        row(&folded(on_card(receipt, |_| 0)), "q4k").share.clone()
    };
    let good = |receipt: &mut Receipt| receipt.measure(&read("ceiling", READ, 9_000_000, 0));
    assert!(share(&|receipt| drop(good(receipt))).is_some());
    assert!(share(&|_| ()).is_none());
    let mut other = read("ceiling", READ, 9_000_000, 0);
    other.cache = "hot";
    assert!(share(&|receipt| drop(receipt.measure(&other))).is_none());
    let mut void = read("ceiling", READ, 9_000_000, 0);
    void.verdict = Verdict::Void;
    assert!(share(&|receipt| drop(receipt.measure(&void))).is_none());
    let withdrawn = |receipt: &mut Receipt| {
        let id = good(receipt);
        receipt.correct(&id, "another program was running", true);
    };
    assert!(share(&withdrawn).is_none());
    let mut later = Receipt::open("card", "2026-03-02T00:00:00Z", 2);
    good(&mut later);
    let mut first = Receipt::open("card", "2026-03-01T00:00:00Z", 1);
    first.measure(&measured("q4k", PRODUCT, 10_000_000, 0));
    let inputs = [on_card(first, |_| 0), on_card(later, |_| 0)];
    assert!(row(&fold(&inputs, FoldOptions::default()).unwrap(), "q4k").share.is_none());
}

/// The lines of the table of `m` rows.
fn table<'a>(page: &'a str, m: &str) -> Vec<&'a str> {
    let part = page.split(&format!("#### m = {m}\n")).nth(1).unwrap();
    part.trim_start().lines().take_while(|line| line.starts_with('|')).skip(2).collect()
}

#[test]
fn the_page_has_a_table_for_each_number_of_rows() {
    let mut receipt = Receipt::open("card", "2026-03-01T00:00:00Z", 1);
    receipt.measure(&measured("q4k", PRODUCT, 10_000_000, -105_361));
    receipt.measure(&measured("q8", "act=q8,epi=none,k=4096,m=1,seg=q8_0:64", 3_000_000, 0));
    let mut itself = measured("bf16", "act=bf16,epi=none,k=4096,m=32,seg=bf16:4096", 30_000_000, 0);
    itself.b = itself.a;
    receipt.measure(&itself);
    let mut undecided = measured("q4k-open", "act=q8,epi=residual,k=4096,m=1,seg=q4_k:12288", 9_500_000, 0);
    undecided.verdict = Verdict::Undecided;
    receipt.measure(&undecided);
    let mut void = measured("q4k-void", "act=q8,epi=none,k=512,m=1,seg=q4_k:12288", 9_500_000, 0);
    void.verdict = Verdict::Void;
    receipt.measure(&void);
    receipt.measure(&read("ceiling", READ, 8_000_000, 0));
    let boards = folded(on_card(receipt, |_| 0));
    let page = performance_md(&boards, &[]);
    let lines = table(&page, "1");
    let starts = [
        "| `q4_k` | 4096 × 12288 | `cuda_tiles` | 9.000 |",
        "| `q4_k` | 4096 × 12288 | `cuda_rows` | 10.00 |",
        "| `q4_k` | 4096 × 12288 + residual | `cuda_rows` | 9.500 |",
        "| `q4_k` | 4096 × 12288 + residual | `cuda_tiles` | 9.500 |",
        "| `q8_0` | 4096 × 64 | `cuda_rows` | 3.000 |",
        "| `q8_0` | 4096 × 64 | `cuda_tiles` | 3.000 |",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:#?}");
    assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:#?}");
    assert!(
        lines[1].contains("| 80.00 % | 80.00 % | 5 | `ceiling` | SLOWER | `cuda_tiles` | binding | q8, rotate |"),
        "{}",
        lines[1]
    );
    assert!(lines[0].contains("| 5 | `ceiling` | FASTER | `cuda_rows` |"), "{}", lines[0]);
    assert!(lines[4].contains("| – | – | – | – | EQUIVALENT |"), "{}", lines[4]);
    let many = table(&page, "32");
    assert_eq!(many.len(), 1);
    assert!(many[0].contains("`cuda_rows` | 30.00 |") && many[0].contains("| EQUIVALENT | itself |"), "{}", many[0]);
    for line in lines.iter().chain(&many) {
        assert!(line.contains(".jsonl#") && line.matches('|').count() == 15, "{line}");
    }
}

#[test]
fn products_of_a_host_have_no_table() {
    let mut receipt = Receipt::open("host", "2026-03-01T00:00:00Z", 1);
    receipt.measure(&measured("q4k", PRODUCT, 10_000_000, -105_361));
    let boards = folded(receipt.close());
    assert_eq!(row(&boards, "q4k").status, RowStatus::Binding);
    assert!(!performance_md(&boards, &[]).contains("Matrix products"));
}
