//! The forest plot of a rig: every current row's difference with its interval and band.

use super::axis::{Axis, Tick, difference_axis};
use super::canvas::{Canvas, GRID, INK, MUTED, SHADE, Text, WHITE, WIDTH, cut, verdict_color};
use crate::board::{Board, BoardRow, verdict_name};
use crate::error::BoardError;
use crate::number::{delta_ppm, interval, percent, threads};
use plotters::style::text_anchor::HPos;

const LEFT: i32 = 18;
const AXIS_FROM: i32 = 350;
const AXIS_TO: i32 = 668;
const RIGHT: i32 = 690;
const TOP: i32 = 112;
const HEADING: i32 = 30;
const ROW: i32 = 56;
const BOTTOM: i32 = 58;
const TICKS_APART: i32 = 36;
/// Characters of fixed-width text of sizes 12 and 10 that fit before the axis.
const COLUMNS_12: usize = 44;
const COLUMNS_10: usize = 53;

/// Draws the current rows of a board: a line each with the difference of B against A, its interval as a bar, the band of
/// plus and minus tau as a shade, coloured and labelled by verdict. `None` where the board has no current row.
///
/// # Errors
///
/// [`BoardError::Plot`] if drawing fails.
pub fn forest_plot(board: &Board) -> Result<Option<String>, BoardError> {
    let rows: Vec<&BoardRow> = board.current().collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let headings = headings(&rows);
    let body = rows.len() as i32 * ROW + headings.iter().flatten().count() as i32 * HEADING;
    let name = board.forest_path();
    let mut buffer = String::new();
    let mut canvas = Canvas::new(&mut buffer, &name, TOP + body + BOTTOM)?;
    let (axis, ticks) = axis(&rows);
    head(&mut canvas, board)?;
    scale(&mut canvas, &axis, &ticks, body)?;
    let mut y = TOP;
    for (row, heading) in rows.into_iter().zip(headings) {
        if let Some(heading) = heading {
            canvas.rect((0, y + 3), (WIDTH, y + HEADING - 3), GRID, 0.6)?;
            canvas.text(&cut(&heading, 100), (LEFT, y + HEADING / 2), Text::mono(12, INK).bold())?;
            y += HEADING;
        }
        line(&mut canvas, &axis, row, y)?;
        y += ROW;
    }
    canvas.finish()?;
    Ok(Some(buffer))
}

/// The contract's name where it changes.
fn headings(rows: &[&BoardRow]) -> Vec<Option<String>> {
    let mut previous = None;
    rows.iter()
        .map(|row| {
            let contract = (&row.key.contract, row.key.revision);
            let is_new = previous.replace(contract) != Some(contract);
            is_new.then(|| format!("{} (revision {})", contract.0, contract.1))
        })
        .collect()
}

/// The ends of what a row draws, in parts per million.
fn reach(row: &BoardRow) -> [Option<i64>; 5] {
    let [below, above] = band(row);
    [row.delta_ppm, row.delta_lo_ppm, row.delta_hi_ppm, below, above]
}

/// Plus and minus tau as differences.
fn band(row: &BoardRow) -> [Option<i64>; 2] {
    let tau = row.tau_ppm;
    [tau.map(|tau| delta_ppm(tau.saturating_neg())), tau.map(delta_ppm)]
}

fn axis(rows: &[&BoardRow]) -> (Axis, Vec<Tick>) {
    let values = || rows.iter().flat_map(|row| reach(row)).flatten();
    let (lo, hi) = (values().min().unwrap_or(-10_000), values().max().unwrap_or(10_000));
    difference_axis(lo, hi, AXIS_FROM, AXIS_TO, TICKS_APART)
}

fn head(canvas: &mut Canvas<'_>, board: &Board) -> Result<(), BoardError> {
    let title = format!("{}: challenger B against incumbent A", cut(&board.rig.label, 48));
    canvas.text(&title, (LEFT, 28), Text::plain(18, INK).bold())?;
    let how =
        "Point: difference in time per launch. Bar: its 95 % interval. Shade: plus and minus τ, what counts as equal.";
    canvas.text(how, (LEFT, 52), Text::plain(12, MUTED))
}

fn scale(canvas: &mut Canvas<'_>, axis: &Axis, ticks: &[Tick], body: i32) -> Result<(), BoardError> {
    let zero = axis.px(0.0);
    let bottom = TOP + body;
    canvas.text("← B faster", (AXIS_FROM, 78), Text::plain(11, MUTED))?;
    canvas.text("B slower →", (AXIS_TO, 78), Text::plain(11, MUTED).anchored(HPos::Right))?;
    for tick in ticks {
        canvas.line((tick.px, TOP), (tick.px, bottom), GRID, 1)?;
        for y in [TOP - 12, bottom + 14] {
            canvas.text(&tick.label, (tick.px, y), Text::plain(11, MUTED).anchored(HPos::Center))?;
        }
    }
    canvas.line((zero, TOP), (zero, bottom), MUTED, 1)?;
    let unit = if axis.is_linear() {
        "difference of B against A, %"
    } else {
        "difference of B against A, % (steps of 1, 2, 5, 10 … drawn equally long)"
    };
    canvas.text(unit, (i32::midpoint(AXIS_FROM, AXIS_TO), bottom + 38), Text::plain(12, INK).anchored(HPos::Center))
}

fn line(canvas: &mut Canvas<'_>, axis: &Axis, row: &BoardRow, top: i32) -> Result<(), BoardError> {
    let middle = top + ROW / 2;
    let color = verdict_color(row.verdict);
    canvas.text(&cut(&row.cell, COLUMNS_12), (LEFT, top + 14), Text::mono(12, INK).bold())?;
    canvas.text(&arms(&row.b.name, &row.a.name), (LEFT, top + 30), Text::mono(10, INK))?;
    let weights = row.key.inputs.weights.as_ref().map_or("", |_| " · file weights");
    let regime = format!("{} · {} · clock {}{weights}", row.key.cache, threads(row.key.threads), row.key.clock);
    canvas.text(&cut(&regime, COLUMNS_10), (LEFT, top + 44), Text::mono(10, MUTED))?;

    if let [Some(below), Some(above)] = band(row) {
        let (from, to) = (axis.px(below as f64), axis.px(above as f64));
        canvas.rect((from, top + 6), (to.max(from + 1), top + ROW - 6), SHADE, 0.75)?;
    }
    canvas.line((axis.px(0.0), top), (axis.px(0.0), top + ROW), MUTED, 1)?;
    if let (Some(lo), Some(hi)) = (row.delta_lo_ppm, row.delta_hi_ppm) {
        let (from, to) = (axis.px(lo as f64), axis.px(hi as f64));
        canvas.line((from, middle), (to, middle), color, 3)?;
        for end in [from, to] {
            canvas.line((end, middle - 9), (end, middle + 9), color, 2)?;
        }
    }
    if let Some(delta) = row.delta_ppm {
        let at = (axis.px(delta as f64), middle);
        if row.is_headline() {
            canvas.dot(at, 4, color, 1.0)?;
        } else {
            canvas.ring(at, 4, color)?;
        }
    } else if let Some(reason) = row.reasons.first() {
        // A white ground keeps the grid out of the words.
        let center = i32::midpoint(AXIS_FROM, AXIS_TO);
        canvas.rect((AXIS_FROM, middle - 9), (AXIS_TO, middle + 9), WHITE, 1.0)?;
        canvas.text(&cut(reason, 50), (center, middle), Text::plain(11, MUTED).anchored(HPos::Center))?;
    }
    canvas.text(&cut(&numbers(row), 34), (RIGHT, top + 14), Text::plain(12, INK))?;
    canvas.text(verdict_name(row.verdict), (RIGHT, top + 30), Text::plain(12, color).bold())?;
    let basis = format!("{} · n {} · P {} · M {}", row.status.name(), row.n, row.p, row.band_m);
    canvas.text(&cut(&basis, 36), (RIGHT, top + 44), Text::plain(11, MUTED))
}

/// Challenger and incumbent; of names too long for the column, the start of each.
fn arms(b: &str, a: &str) -> String {
    let room = COLUMNS_10 - " vs ".len();
    let (b_length, a_length) = (b.chars().count(), a.chars().count());
    let a_room = if b_length < room / 2 { room - b_length } else { room / 2 };
    let b_room = if a_length < room / 2 { room - a_length } else { room - room / 2 };
    format!("{} vs {}", cut(b, b_room), cut(a, a_room))
}

/// The difference and its interval in words.
fn numbers(row: &BoardRow) -> String {
    match (row.delta_ppm, row.delta_lo_ppm, row.delta_hi_ppm) {
        (Some(delta), Some(lo), Some(hi)) => format!("{}  {}", percent(delta), interval(lo, hi)),
        (Some(delta), ..) => percent(delta),
        _ => "no difference given".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_arms_keep_a_place_in_the_label() {
        assert_eq!(arms("b", "a"), "b vs a");
        for (b, a) in [("b", "a"), ("b", &"a".repeat(80)), (&"b".repeat(80), "a"), (&"b".repeat(80), &"a".repeat(80))] {
            let label = arms(b, a);
            assert!(label.chars().count() <= COLUMNS_10 && label.contains(" vs a"), "{label}");
        }
        assert_eq!(arms(&"b".repeat(30), &"a".repeat(19)).chars().count(), COLUMNS_10);
    }
}
