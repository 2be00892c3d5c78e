//! The tables of matrix products on a card: one for each number of rows.

use super::text::{NONE, cite, code, plain};
use crate::board::{BoardRow, RowShare, RowStatus, verdict_name};
use crate::number::{giga, microseconds, percent_size};
use crate::product::Product;
use memra_contract::DeviceKey;
use memra_ledger::record::Verdict;
use std::fmt::Write as _;

/// One arm of a row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line<'a> {
    product: Product,
    cache: &'a str,
    median_ps: u64,
    variant: &'a str,
    other: &'a str,
    receipt: &'a str,
    bytes_per_s: Option<u64>,
    verdict: Verdict,
    status: RowStatus,
    share: Option<(&'a str, u64, Option<u64>, u32)>,
}

/// Current rows of products on a card, decided or not: both arms, by format and shape and then by time. Nothing where there is none.
pub(super) fn products(page: &mut String, rows: &[&BoardRow]) {
    let mut lines: Vec<Line<'_>> = rows.iter().flat_map(|row| lines(row)).collect();
    if lines.is_empty() {
        return;
    }
    lines.sort();
    page.push_str(
        "\n### Matrix products\n\nBoth arms of every current row that counts, the fastest of a format and shape first. The verdict is \
         the arm's own, against the other arm of its row. *k × n* is the length of a row and the rows of the weight.\n",
    );
    for group in lines.chunk_by(|one, next| one.product.m == next.product.m) {
        let Some(first) = group.first() else { continue };
        let _ = writeln!(page, "\n#### m = {}\n", first.product.m);
        page.push_str(
            "| weights | k × n | variant | µs a launch | GB/s | share | share, worse end (lowest where P < 5) | P | of ceiling | verdict | against | status | inputs | receipt |\n",
        );
        page.push_str("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- | --- | --- | --- |\n");
        for line in group {
            let _ = writeln!(page, "{}", line.text());
        }
    }
}

/// Both arms of a row that counts, or the one that both are.
fn lines<'a>(row: &'a BoardRow) -> Vec<Line<'a>> {
    let on_card = matches!(row.key.device_key.parse(), Ok(DeviceKey::Cuda(_)));
    let Some(product) = Product::of(&row.key).filter(|_| on_card && row.status != RowStatus::Void) else {
        return Vec::new();
    };
    let line = |is_b: bool| {
        let (arm, other, median_ps, bytes_per_s) = if is_b {
            (&row.b, &row.a, row.median_b_ps, row.b_bytes_per_s)
        } else {
            (&row.a, &row.b, row.median_a_ps, row.a_bytes_per_s)
        };
        let share = |share: &'a RowShare| {
            let (whole, low) = if is_b { (share.b_ppm, share.b_low_ppm) } else { (share.a_ppm, share.a_low_ppm) };
            Some((share.ceiling.as_str(), whole?, low, share.p))
        };
        Some(Line {
            product: product.clone(),
            cache: &row.key.cache,
            median_ps: median_ps?,
            variant: &arm.name,
            other: &other.name,
            receipt: &row.receipt,
            bytes_per_s,
            verdict: if is_b { row.verdict } else { turned(row.verdict) },
            status: row.status,
            share: row.share.as_ref().and_then(share),
        })
    };
    let is_one = row.a.name == row.b.name;
    [Some(false), (!is_one).then_some(true)].into_iter().flatten().filter_map(line).collect()
}

/// The verdict on A against B.
const fn turned(verdict: Verdict) -> Verdict {
    match verdict {
        Verdict::Faster => Verdict::Slower,
        Verdict::Slower => Verdict::Faster,
        other => other,
    }
}

impl Line<'_> {
    fn text(&self) -> String {
        let none = || NONE.to_owned();
        let percent = |ppm: u64| percent_size(i64::try_from(ppm).unwrap_or(i64::MAX));
        let product = &self.product;
        let added = if ["", "none"].contains(&product.epilogue.as_str()) {
            String::new()
        } else {
            format!(" + {}", plain(&product.epilogue))
        };
        let inputs = match product.activation.as_str() {
            "" => plain(self.cache),
            activation => format!("{}, {}", plain(activation), plain(self.cache)),
        };
        format!(
            "| {} | {} × {}{added} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {inputs} | {} |",
            code(&product.format),
            product.k,
            product.n,
            code(self.variant),
            microseconds(self.median_ps),
            self.bytes_per_s.map_or_else(none, giga),
            self.share.map_or_else(none, |(_, whole, ..)| percent(whole)),
            self.share.and_then(|(_, _, low, _)| low).map_or_else(none, percent),
            self.share.map_or_else(none, |(.., p)| p.to_string()),
            self.share.map_or_else(none, |(ceiling, ..)| code(ceiling)),
            verdict_name(self.verdict),
            if self.variant == self.other { "itself".to_owned() } else { code(self.other) },
            self.status.name(),
            cite(self.receipt),
        )
    }
}
