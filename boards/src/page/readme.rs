//! The sample table in `README.md`.

use super::text::{cite, code, count, difference, plain, regime, time};
use crate::board::{BoardRow, Boards, RowStatus, verdict_name};
use crate::error::BoardError;
use std::cmp::Reverse;
use std::fmt::Write as _;

/// Line before the region that is generated.
pub const README_BEGIN: &str = "<!-- board:begin -->";
/// Line after it.
pub const README_END: &str = "<!-- board:end -->";

/// Rows in the sample.
const SAMPLE: usize = 8;

/// A short table of decided rows: binding ones before provisional ones, then the largest differences, whichever way they
/// point. `not measured` where there is none.
pub fn readme_table(boards: &Boards) -> String {
    let mut rows: Vec<(&str, &BoardRow)> = boards
        .rigs
        .iter()
        .flat_map(|board| board.rows.iter().map(|row| (board.rig.label.as_str(), row)))
        .filter(|(_, row)| row.is_headline())
        .collect();
    if rows.is_empty() {
        return "not measured\n".to_owned();
    }
    let all = rows.len();
    // Theta weighs a halved time like a doubled one. The sort is stable: ties stay in board order.
    rows.sort_by_key(|(_, row)| {
        (row.status != RowStatus::Binding, Reverse(row.theta_ppm.map_or(0, i64::unsigned_abs)))
    });
    rows.truncate(SAMPLE);
    let mut table = String::from(
        "| rig | cell | A | B | A, median | B, median | difference of B | verdict | N, P | regime | receipt |\n",
    );
    table.push_str("| --- | --- | --- | --- | ---: | ---: | ---: | --- | --- | --- | --- |\n");
    for (rig, row) in &rows {
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} | {} | {} | {} | {} ({}) | {}, {} | {} | {} |",
            code(rig),
            code(&row.cell),
            code(&row.a.name),
            code(&row.b.name),
            time(row.median_a_ps),
            time(row.median_b_ps),
            difference(row),
            verdict_name(row.verdict),
            row.status.name(),
            row.n,
            row.p,
            regime(row),
            cite(&row.receipt)
        );
    }
    let labels: Vec<String> = boards.rigs.iter().map(|board| plain(&board.rig.label)).collect();
    let _ = writeln!(
        table,
        "\n{} of {} on {} ({}): binding before provisional, then by size of the difference, either way. B against A, 95 % interval, negative is faster; rows of two rigs or regimes do not compare. All of them, with caveats, stand in [PERFORMANCE.md](PERFORMANCE.md).",
        rows.len(),
        count(all, "decided row"),
        count(labels.len(), "rig"),
        labels.join(", ")
    );
    table
}

/// Puts `table` between the lines [`README_BEGIN`] and [`README_END`] of `readme`, in place of what stands there.
///
/// # Errors
///
/// [`BoardError::Region`] if either line is missing or stands twice, or if they are in the wrong order.
pub fn replace_region(readme: &str, table: &str) -> Result<String, BoardError> {
    let begin = the_line(readme, README_BEGIN)?;
    let end = the_line(readme, README_END)?;
    let (Some(before), Some(after)) = (readme.get(..begin.1), readme.get(end.0..)) else {
        return Err(BoardError::Region("a region line is cut".to_owned()));
    };
    if begin.1 > end.0 {
        return Err(BoardError::Region(format!("`{README_END}` stands before `{README_BEGIN}`")));
    }
    Ok(format!("{before}\n{}\n\n{after}", table.trim_end()))
}

/// Byte range of the only line that is `marker`, its newline included.
fn the_line(text: &str, marker: &str) -> Result<(usize, usize), BoardError> {
    let mut found = None;
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        if line.trim() == marker && found.replace((start, end)).is_some() {
            return Err(BoardError::Region(format!("the line `{marker}` stands twice")));
        }
        start = end;
    }
    found.ok_or_else(|| BoardError::Region(format!("there is no line `{marker}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_is_replaced_and_nothing_else() {
        let readme = "# x\n<!-- board:begin -->\nold\n<!-- board:end -->\ntail `<!-- board:begin -->`\n";
        let once = replace_region(readme, "new\n").unwrap();
        assert_eq!(once, "# x\n<!-- board:begin -->\n\nnew\n\n<!-- board:end -->\ntail `<!-- board:begin -->`\n");
        assert_eq!(replace_region(&once, "new\n").unwrap(), once);
    }

    #[test]
    fn a_region_that_is_not_one_is_refused() {
        for (bad, word) in [
            ("", "no line `<!-- board:begin"),
            ("<!-- board:begin -->\n", "no line `<!-- board:end"),
            ("<!-- board:end -->\n<!-- board:begin -->\n", "stands before"),
            ("<!-- board:begin -->\n<!-- board:begin -->\n<!-- board:end -->", "stands twice"),
        ] {
            let error = replace_region(bad, "t").unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
