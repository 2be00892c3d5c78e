//! A small evidence root with one of everything a board can show.

use crate::builder::{Measured, Receipt, without_session};
use memra_boards::{BoardInput, LedgerKind, LedgerLine};
use memra_ledger::record::{ArmKind, Verdict};

/// Two registered rigs, an unregistered one, a correction and a figure from elsewhere.
pub(crate) fn inputs() -> Vec<BoardInput> {
    let mut first = Receipt::open("host-a", "2026-01-10T08:00:00Z", 1);
    first.measure(&Measured::new("attn-q.q8_0", "rows_scalar", "rows_avx2", -1_310_000));
    let mut slower = Measured::new("attn-q.q8_0", "rows_avx2", "rows_avx2_unrolled", 31_000);
    slower.void = vec![2];
    first.measure(&slower);
    let mut norm = Measured::new("norm.4096", "rms_norm_scalar", "rms_norm_avx2", -8_000);
    (norm.contract, norm.problem, norm.a_ps, norm.cache) = ("rms_norm", "rows=1,hidden=4096", 1_840_000, "hot");
    norm.half_ppm = 2_400;
    first.measure(&norm);
    let withdrawn = first.measure(&Measured::new("attn-v.q8_0", "rows_avx2", "rows_avx2_late", -52_000));

    let mut second = Receipt::open("host-a", "2026-02-01T08:00:00.250Z", 2);
    let mut again = Measured::new("norm.4096", "rms_norm_scalar", "rms_norm_avx2", -6_500);
    (again.contract, again.problem, again.a_ps, again.cache) = ("rms_norm", "rows=1,hidden=4096", 1_850_000, "hot");
    (again.replicates, again.quads, again.band_m, again.b_source) = (1, 20, 1, 78);
    (again.half_ppm, again.verdict, again.far_slot) = (2_900, Verdict::Undecided, true);
    again.void = vec![5, 9];
    second.measure(&again);
    let mut void = Measured::new("ffn-down.q4_k", "rows_avx2", "tiles_avx2", 12_000);
    (void.problem, void.verdict) = ("m=1,n=2048,k=8192", Verdict::Void);
    void.reasons = vec!["5 of 12 quads are void: steal"];
    void.void = vec![0, 1, 4, 7, 8];
    second.measure(&void);
    let mut same = Measured::new("ffn-up.q4_k", "rows_avx2", "rows_avx2_prefetch", 700);
    (same.problem, same.has_weights, same.band_m) = ("m=1,n=8192,k=2048", true, 7);
    second.measure(&same);
    let mut peer = Measured::new("attn-q.q8_0", "rows_avx2", "peer", 224_000);
    (peer.b_kind, peer.half_ppm) = (ArmKind::Process, 21_000);
    second.measure(&peer);
    let failed = second.gate("rows_avx512", Some(90), false);
    second.correct(&failed, "the failing case was too small to be in the class", false);
    second.correct(&withdrawn, "arm B ran with a stale weight copy; measured again later", true);

    let mut third = Receipt::open("host-a", "2026-02-03T08:00:00Z", 3);
    third.gate("rows_avx2", Some(3), true);

    let mut other = Receipt::open("host-b", "2026-02-02T09:30:00Z", 4);
    other.measure(&Measured::new("attn-q.q8_0", "rows_scalar", "rows_avx2", -612_000));

    let mut provisional = Receipt::open_as("provisional-0123abcd", false, "2026-02-04T09:30:00Z", 5);
    provisional.measure(&Measured::new("attn-q.q8_0", "rows_scalar", "rows_avx2", -400_000));

    let elsewhere = without_session("receipts/elsewhere/2026-03-02-vendor-00000006.jsonl", 6, |receipt| {
        receipt.external("Other engine 0.9, 9B model, one GPU", 170_550);
        let wrong = receipt.external("Other engine 0.8, 9B model, one GPU", 168_000);
        receipt.correct(&wrong, "read from the wrong column", true);
    });
    vec![first.close(), second.close(), third.cut_short(), other.close(), provisional.close(), elsewhere]
}

/// One ledger record of each kind.
pub(crate) fn ledger() -> Vec<LedgerLine> {
    let line = |id: &str, kind, date: &str, title: &str, citations: &[&str]| LedgerLine {
        id: id.to_owned(),
        kind,
        date: date.to_owned(),
        title: title.to_owned(),
        citations: citations.iter().map(|&citation| citation.to_owned()).collect(),
    };
    let receipt = "receipts/host-a/2026-01-10-suite-910a2dec.jsonl#0123456789ab";
    vec![
        line("p-avx2", LedgerKind::Promotion, "2026-01-11", "rows_avx2 is the default of matvec on AVX2", &[receipt]),
        line("d-late", LedgerKind::Demotion, "2026-02-02", "rows_avx2_late is no default any more", &[receipt]),
        line(
            "r-unroll",
            LedgerKind::Refutation,
            "2026-01-12",
            "Unrolling the row loop by 4 hides no latency",
            &[receipt],
        ),
        line("g-q5", LedgerKind::OpenGap, "2026-01-13", "Q5_K has no SIMD variant", &[]),
    ]
}
