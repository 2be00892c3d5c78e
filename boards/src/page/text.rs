//! Pieces of Markdown, with everything that came from a record escaped.

use crate::board::BoardRow;
use crate::number::{duration, giga, interval, percent, percent_size, thousandths, threads};

/// What stands where there is no number.
pub(crate) const NONE: &str = "–";

/// Text from a record, safe in a table cell and in running text: one line, no markup.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '$' => {
                out.push('\\');
                out.push(c);
            }
            _ if is_hidden(c) => out.push(' '),
            _ => out.push(c),
        }
    }
    out
}

/// A name as code, safe in a table cell. A name that holds a backtick becomes plain text.
pub(crate) fn code(name: &str) -> String {
    if name.is_empty() {
        return NONE.to_owned();
    }
    if name.contains(['`', '\\']) {
        return plain(name);
    }
    let clean: String = name.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    format!("`{}`", clean.replace('|', "\\|"))
}

/// Characters that break a line or change direction.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// A link to a receipt that shows the record's digits: `[`digits`](file#digits)`.
///
/// Text that is not such a citation is shown as code, without a link.
pub(crate) fn cite(citation: &str) -> String {
    match citation.rsplit_once('#') {
        Some((file, digits)) if is_citation(file, digits) => format!("[`{digits}`]({citation})"),
        _ => code(citation),
    }
}

fn is_citation(file: &str, digits: &str) -> bool {
    crate::input::check_path(file).is_ok() && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A time of one launch.
pub(crate) fn time(ps: Option<u64>) -> String {
    ps.map_or_else(|| NONE.to_owned(), duration)
}

/// The difference with its interval.
pub(crate) fn difference(row: &BoardRow) -> String {
    match (row.delta_ppm, row.delta_lo_ppm, row.delta_hi_ppm) {
        (Some(delta), Some(lo), Some(hi)) => format!("{} {}", percent(delta), interval(lo, hi)),
        (Some(delta), ..) => percent(delta),
        _ => NONE.to_owned(),
    }
}

/// A size in parts per million as a percentage.
pub(crate) fn size(ppm: Option<i64>) -> String {
    ppm.map_or_else(|| NONE.to_owned(), percent_size)
}

/// Two rates in units of 10^9 per second.
pub(crate) fn rates(a: Option<u64>, b: Option<u64>) -> String {
    let text = |rate: Option<u64>| rate.map_or_else(|| NONE.to_owned(), giga);
    format!("{} / {}", text(a), text(b))
}

/// Thousandths of a token per second, with four significant digits.
pub(crate) fn tokens_per_second(milli: Option<u64>) -> String {
    milli.map_or_else(|| NONE.to_owned(), thousandths)
}

/// Memory in MiB, rounded up.
pub(crate) fn memory(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| NONE.to_owned(), |bytes| format!("{} MiB", bytes.div_ceil(1 << 20)))
}

/// Cache mode, threads and clock regime.
pub(crate) fn regime(row: &BoardRow) -> String {
    format!("{}, {}, clock {}", plain(&row.key.cache), threads(row.key.threads), plain(&row.key.clock))
}

/// Generator, family and seed, and the weights where they are from a file.
pub(crate) fn inputs(row: &BoardRow) -> String {
    let inputs = &row.key.inputs;
    let made = format!("{} {} seed {}", plain(&inputs.generator), plain(&inputs.family), inputs.seed);
    match &inputs.weights {
        None => made,
        Some(weights) if weights.tensor.is_empty() => format!("{made}; {}", code(&weights.file)),
        Some(weights) => format!("{made}; {} of {}", code(&weights.tensor), code(&weights.file)),
    }
}

/// `1 row`, `2 rows`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_text_cannot_leave_its_cell() {
        assert_eq!(plain("a|b\n# <img> `x` [y](z)"), "a\\|b \\# &lt;img&gt; \\`x\\` \\[y\\](z)");
        assert_eq!(code("a|b"), "`a\\|b`");
        assert_eq!(code("a`b"), "a\\`b");
        assert_eq!(code("a\nb"), "`a b`");
        assert_eq!(code(""), NONE);
    }

    #[test]
    fn only_citations_become_links() {
        assert_eq!(cite("receipts/r/f.jsonl#0123456789ab"), "[`0123456789ab`](receipts/r/f.jsonl#0123456789ab)");
        assert_eq!(cite("javascript:x#ab"), "`javascript:x#ab`");
        assert_eq!(cite("receipts/r/f.jsonl#x)"), "`receipts/r/f.jsonl#x)`");
        assert_eq!(cite("../x#ab"), "`../x#ab`");
    }
}
