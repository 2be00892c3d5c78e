//! What a command prints: results on stdout, talk on stderr.

use std::fmt::{Arguments, Display};
use std::io::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

/// A line of talk on stderr. A closed stderr loses the talk and nothing else.
pub fn say(line: Arguments<'_>) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// A line of result on stdout.
///
/// # Errors
/// The system's error when stdout is gone.
pub fn print(line: impl Display) -> anyhow::Result<()> {
    writeln!(anstream::stdout(), "{line}")?;
    Ok(())
}

/// One JSON object on stdout.
///
/// # Errors
/// The system's error when stdout is gone.
pub fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(value)?)
}

/// A borderless table; columns whose header starts with `>` are set to the right. Empty headers are left out.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if header.iter().any(|name| !name.is_empty()) {
        table.set_header(header.iter().map(|name| name.trim_start_matches('>')).collect::<Vec<_>>());
    }
    table.add_rows(rows);
    for (name, column) in header.iter().zip(table.column_iter_mut()) {
        column.set_padding((0, 2));
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Parts per million as a percentage with a sign, for example `-12.34 %`.
pub fn percent(ppm: i64) -> String {
    format!("{:+.2} %", ppm as f64 / 10_000.0)
}

/// ln(B/A) in parts per million as the relative difference, in parts per million.
pub fn effect(theta_ppm: i64) -> i64 {
    ((theta_ppm as f64 / 1e6).exp_m1() * 1e6).round() as i64
}

/// Picoseconds in the unit that suits their size.
pub fn time(ps: u64) -> String {
    let ps = ps as f64;
    if ps >= 1e12 {
        format!("{:.3} s", ps / 1e12)
    } else if ps >= 1e9 {
        format!("{:.3} ms", ps / 1e9)
    } else if ps >= 1e6 {
        format!("{:.2} us", ps / 1e6)
    } else {
        format!("{:.1} ns", ps / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(percent(-123_400), "-12.34 %");
        assert_eq!(percent(50), "+0.01 %");
        assert_eq!(time(999), "1.0 ns");
        assert_eq!(time(12_345_678), "12.35 us");
        assert_eq!(time(12_345_678_901), "12.346 ms");
    }
}
