//! The raw slots of one row over time, a panel a replicate.

use super::axis::{Axis, nice_step};
use super::canvas::{ARM_A, ARM_B, Canvas, GRID, INK, MUTED, SHADE, Text, cut, verdict_color};
use crate::board::{BoardRow, verdict_name};
use crate::error::BoardError;
use crate::number::{duration, interval, percent, threads};
use memra_ledger::record::{Block, CellBody};
use plotters::style::text_anchor::HPos;
use std::collections::BTreeSet;

const LEFT: i32 = 84;
const RIGHT: i32 = 884;
const TOP: i32 = 122;
const PANEL: i32 = 250;
const BETWEEN: i32 = 10;
const LINE: i32 = 58;
/// Height between two scales.
const BREAK: i32 = 18;
const BOTTOM: i32 = 22;
const IN_LINE: usize = 6;

/// One slot: when it ran, how long a launch took, whose it was.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Slot {
    /// Middle of the slot, in nanoseconds from the start of the block.
    at_ns: f64,
    /// Time of one launch, in picoseconds.
    launch_ps: f64,
    is_b: bool,
    is_void: bool,
}

/// A replicate's A/B block.
#[derive(Debug)]
struct Panel {
    replicate: u32,
    slots: Vec<Slot>,
    length_ns: f64,
    /// Medians of A and B, as the receipt says them.
    medians: [Option<u64>; 2],
}

/// Draws the slots of a row: time per launch of A and B over the time of the block, a panel a replicate, slots of void
/// quads as rings, medians as lines. `cells` are the row's cell records.
///
/// # Errors
///
/// [`BoardError::Plot`] if drawing fails.
pub fn slots_plot(row: &BoardRow, cells: &[&CellBody]) -> Result<String, BoardError> {
    let panels: Vec<Panel> = cells.iter().filter_map(|cell| panel(cell)).collect();
    let lines = panels.len().div_ceil(IN_LINE).max(1) as i32;
    let name = row.plot.as_deref().unwrap_or(&row.cell);
    let mut buffer = String::new();
    let mut canvas = Canvas::new(&mut buffer, name, TOP + lines * (PANEL + LINE) + BOTTOM)?;
    let ranges = ranges(&panels);
    head(&mut canvas, row, ranges.iter().map(|range| range.beyond).sum())?;
    let in_line = panels.len().clamp(1, IN_LINE) as i32;
    let width = (RIGHT - LEFT - (in_line - 1) * BETWEEN) / in_line;
    for (line, panels) in panels.chunks(IN_LINE).enumerate() {
        let top = TOP + line as i32 * (PANEL + LINE);
        let scales = scales(&ranges, top);
        let end = LEFT + panels.len() as i32 * (width + BETWEEN) - BETWEEN;
        canvas.text("time per launch", (18, top - 9), Text::plain(11, INK))?;
        for scale in &scales {
            draw_scale(&mut canvas, scale, end)?;
        }
        if let [upper, _] = scales.as_slice() {
            canvas.text(
                "scale broken",
                (LEFT - 8, upper.bottom + BREAK / 2),
                Text::plain(10, MUTED).anchored(HPos::Right),
            )?;
        }
        for (at, panel) in panels.iter().enumerate() {
            let from = LEFT + at as i32 * (width + BETWEEN);
            draw_panel(&mut canvas, panel, &scales, (from, from + width))?;
        }
    }
    let foot = TOP + lines * (PANEL + LINE) - 4;
    let about = "time since the start of the block; one panel a replicate";
    canvas.text(about, (i32::midpoint(LEFT, RIGHT), foot), Text::plain(12, INK).anchored(HPos::Center))?;
    canvas.finish()?;
    Ok(buffer)
}

fn panel(cell: &CellBody) -> Option<Panel> {
    let block = cell.ab.as_ref()?;
    let (slots, length_ns) = slots(block, cell.plan.launches);
    let medians = [cell.result.median_a_ps, cell.result.median_b_ps];
    (!slots.is_empty()).then_some(Panel { replicate: cell.replicate, slots, length_ns, medians })
}

/// The slots of a block and its length. A block whose lists differ in length gives the slots that have all three parts.
fn slots(block: &Block, launches: u32) -> (Vec<Slot>, f64) {
    let void: BTreeSet<u32> = block.void.iter().map(|void| void.quad).collect();
    let mut now = 0.0;
    let mut slots = Vec::new();
    let arms = block.order.chars().zip(0_u32..).flat_map(|(start, quad)| {
        let is_baab = start == 'B';
        [is_baab, !is_baab, !is_baab, is_baab].map(|is_b| (quad, is_b))
    });
    for ((&gap, &elapsed), (quad, is_b)) in block.slots.gap_ns.iter().zip(&block.slots.elapsed_ns).zip(arms) {
        let (gap, elapsed) = (gap as f64, elapsed as f64);
        slots.push(Slot {
            at_ns: now + gap + elapsed / 2.0,
            launch_ps: elapsed * 1000.0 / f64::from(launches.max(1)),
            is_b,
            is_void: void.contains(&quad),
        });
        now += gap + elapsed;
    }
    (slots, now)
}

/// The launch times shown of one arm, or of both.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Range {
    lo_ps: f64,
    hi_ps: f64,
    /// Slots that stand beyond.
    beyond: usize,
    /// Which arms are drawn in it: A, B.
    holds: [bool; 2],
}

/// A range with its place on the page.
#[derive(Debug)]
struct Scale {
    range: Range,
    axis: Axis,
    top: i32,
    bottom: i32,
}

/// One range for both arms, or the slower arm's and the faster arm's where they stand so far apart that neither's slots
/// could be told from each other on one scale. From slow to fast.
fn ranges(panels: &[Panel]) -> Vec<Range> {
    let of = |holds: [bool; 2]| range(panels, holds);
    let (a, b) = (of([true, false]), of([false, true]));
    let gap = (b.lo_ps - a.hi_ps).max(a.lo_ps - b.hi_ps);
    if gap > 3.0 * (a.hi_ps - a.lo_ps).max(b.hi_ps - b.lo_ps) {
        return if a.lo_ps > b.lo_ps { vec![a, b] } else { vec![b, a] };
    }
    vec![of([true, true])]
}

/// The range of the launch times of some arms.
///
/// All slots are shown unless a few stand so far out that the rest would be a line: what is further away from the middle
/// nine tenths than three times their span is drawn at the edge.
fn range(panels: &[Panel], holds: [bool; 2]) -> Range {
    let slots = panels.iter().flat_map(|panel| &panel.slots);
    let mut values: Vec<f64> = slots.filter(|slot| holds[usize::from(slot.is_b)]).map(|slot| slot.launch_ps).collect();
    values.sort_by(f64::total_cmp);
    let at = |share: usize| values.get(values.len().saturating_sub(1) * share / 20).copied();
    let (Some(low), Some(high)) = (at(1), at(19)) else {
        return Range { lo_ps: 0.0, hi_ps: 1.0, beyond: 0, holds };
    };
    let span = (high - low).max(low / 1000.0);
    let shown: Vec<f64> =
        values.iter().copied().filter(|&value| value >= low - 3.0 * span && value <= high + 3.0 * span).collect();
    let (lo, hi) = (shown.first().copied().unwrap_or(low), shown.last().copied().unwrap_or(high));
    let margin = ((hi - lo) * 0.08).max(lo / 2000.0).max(1.0);
    Range { lo_ps: (lo - margin).max(0.0), hi_ps: hi + margin, beyond: values.len() - shown.len(), holds }
}

/// Shares the height of a panel among the ranges.
fn scales(ranges: &[Range], top: i32) -> Vec<Scale> {
    let count = ranges.len().max(1) as i32;
    let height = (PANEL - (count - 1) * BREAK) / count;
    ranges
        .iter()
        .zip(0..)
        .map(|(&range, at)| {
            let top = top + at * (height + BREAK);
            let bottom = top + height;
            Scale { range, axis: Axis::linear(range.lo_ps, range.hi_ps, bottom, top), top, bottom }
        })
        .collect()
}

fn head(canvas: &mut Canvas<'_>, row: &BoardRow, beyond: usize) -> Result<(), BoardError> {
    canvas.text(&cut(&row.cell, 80), (18, 26), Text::mono(16, INK).bold())?;
    let key = &row.key;
    let regime =
        format!("{} · {} · {} · {} · clock {}", key.contract, key.problem, key.cache, threads(key.threads), key.clock);
    canvas.text(&cut(&regime, 140), (18, 48), Text::plain(12, MUTED))?;
    let verdict = verdict_name(row.verdict);
    canvas.text(verdict, (18, 70), Text::plain(13, verdict_color(row.verdict)).bold())?;
    let mut numbers = row
        .delta_ppm
        .map_or_else(|| "no difference is given".to_owned(), |delta| format!("B is {} against A", percent(delta)));
    if let (Some(lo), Some(hi)) = (row.delta_lo_ppm, row.delta_hi_ppm) {
        numbers = format!("{numbers}, 95 % interval {}", interval(lo, hi));
    }
    let numbers = format!("{numbers} · n {} · P {} · {} of {} quads void", row.n, row.p, row.void_quads, row.quads);
    canvas.text(&cut(&numbers, 110), (136, 70), Text::plain(12, INK))?;

    canvas.dot((24, 96), 4, ARM_A, 1.0)?;
    canvas.text(&cut(&format!("A {}", row.a.name), 38), (36, 96), Text::mono(12, INK))?;
    canvas.dot((330, 96), 4, ARM_B, 1.0)?;
    canvas.text(&cut(&format!("B {}", row.b.name), 38), (342, 96), Text::mono(12, INK))?;
    canvas.ring((636, 96), 4, MUTED)?;
    canvas.text("void quad", (648, 96), Text::plain(12, INK))?;
    canvas.line((724, 96), (744, 96), MUTED, 2)?;
    canvas.text("median", (750, 96), Text::plain(12, INK))?;
    if beyond > 0 {
        let corners = [(806, 100), (814, 100), (810, 92)];
        canvas.polygon(&corners, MUTED)?;
        canvas.text(&format!("{beyond} beyond"), (820, 96), Text::plain(12, INK))?;
    }
    Ok(())
}

fn draw_scale(canvas: &mut Canvas<'_>, scale: &Scale, end: i32) -> Result<(), BoardError> {
    let Range { lo_ps, hi_ps, .. } = scale.range;
    let step = nice_step(hi_ps - lo_ps, f64::from(scale.bottom - scale.top) / 40.0);
    let mut value = (lo_ps / step).ceil() * step;
    while value <= hi_ps {
        let y = scale.axis.px(value);
        canvas.line((LEFT, y), (end, y), GRID, 1)?;
        canvas.text(&duration(value as u64), (LEFT - 8, y), Text::plain(11, MUTED).anchored(HPos::Right))?;
        value += step;
    }
    Ok(())
}

fn draw_panel(
    canvas: &mut Canvas<'_>,
    panel: &Panel,
    scales: &[Scale],
    (from, to): (i32, i32),
) -> Result<(), BoardError> {
    let times = Axis::linear(0.0, panel.length_ns, from + 6, to - 6);
    for scale in scales {
        let (top, bottom) = (scale.top, scale.bottom);
        let corners = [(from, top), (to, top), (to, bottom), (from, bottom), (from, top)];
        for (&start, &end) in corners.iter().zip(corners.iter().skip(1)) {
            canvas.line(start, end, SHADE, 1)?;
        }
        let Range { lo_ps, hi_ps, holds, .. } = scale.range;
        for slot in panel.slots.iter().filter(|slot| holds[usize::from(slot.is_b)]) {
            let color = if slot.is_b { ARM_B } else { ARM_A };
            let (x, y) = (times.px(slot.at_ns), scale.axis.px(slot.launch_ps));
            if slot.launch_ps > hi_ps {
                canvas.polygon(&[(x - 4, top + 9), (x + 4, top + 9), (x, top + 1)], color)?;
            } else if slot.launch_ps < lo_ps {
                canvas.polygon(&[(x - 4, bottom - 9), (x + 4, bottom - 9), (x, bottom - 1)], color)?;
            } else if slot.is_void {
                canvas.ring((x, y), 3, color)?;
            } else {
                canvas.dot((x, y), 3, color, 0.55)?;
            }
        }
        for ((median, color), holds) in panel.medians.into_iter().zip([ARM_A, ARM_B]).zip(holds) {
            if let Some(median) = median.map(|median| median as f64)
                && holds
                && (lo_ps..=hi_ps).contains(&median)
            {
                let y = scale.axis.px(median);
                canvas.line((from, y), (to, y), color, 2)?;
            }
        }
    }
    let foot = scales.last().map_or(0, |scale| scale.bottom);
    canvas.text("0", (from + 6, foot + 12), Text::plain(11, MUTED))?;
    let end = duration((panel.length_ns * 1000.0) as u64);
    canvas.text(&end, (to - 4, foot + 12), Text::plain(11, MUTED).anchored(HPos::Right))?;
    let name = format!("replicate {}", panel.replicate);
    canvas.text(&name, (i32::midpoint(from, to), foot + 28), Text::plain(11, INK).anchored(HPos::Center))
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_ledger::record::{Slots, VoidQuad};

    fn block(order: &str, elapsed_ns: &[u64]) -> Block {
        Block {
            order: order.to_owned(),
            slots: Slots { gap_ns: vec![10; elapsed_ns.len()], elapsed_ns: elapsed_ns.to_vec() },
            observed: Vec::new(),
            void: vec![VoidQuad { quad: 1, reason: "steal".to_owned(), blamed: None }],
        }
    }

    #[test]
    fn slots_follow_the_order_of_their_quad() {
        let (slots, length) = slots(&block("AB", &[100; 8]), 2);
        let arms: String = slots.iter().map(|slot| if slot.is_b { 'B' } else { 'A' }).collect();
        assert_eq!(arms, "ABBABAAB");
        assert_eq!(slots.iter().filter(|slot| slot.is_void).count(), 4);
        assert!(slots[4].is_void && !slots[3].is_void);
        assert_eq!((slots[0].at_ns, slots[1].at_ns, slots[0].launch_ps, length), (60.0, 170.0, 50_000.0, 880.0));
    }

    #[test]
    fn lists_of_different_length_give_what_is_whole() {
        assert_eq!(slots(&block("A", &[100; 8]), 0).0.len(), 4);
        assert_eq!(slots(&block("AB", &[100; 3]), 1).0.len(), 3);
    }

    #[test]
    fn far_slots_do_not_flatten_the_rest() {
        let mut elapsed = vec![1000; 40];
        elapsed.iter_mut().enumerate().for_each(|(at, ns)| *ns += (at as u64 * 7) % 13);
        elapsed[5] = 90_000;
        let (slots, length_ns) = slots(&block("ABABABABAB", &elapsed), 1);
        let panels = [Panel { replicate: 0, slots, length_ns, medians: [None, None] }];
        let range = range(&panels, [true, true]);
        assert_eq!(range.beyond, 1);
        assert!(range.lo_ps < 1_000_000.0 && range.hi_ps > 1_012_000.0 && range.hi_ps < 1_100_000.0, "{range:?}");
    }

    #[test]
    fn arms_far_apart_get_a_scale_each_from_slow_to_fast() {
        let panels = |b_ns: u64| {
            let elapsed: Vec<u64> =
                (0..40).map(|at| if matches!(at % 4, 1 | 2) { b_ns + at % 7 } else { 1_000 + at % 5 }).collect();
            let (slots, length_ns) = slots(&block("AAAAAAAAAA", &elapsed), 1);
            [Panel { replicate: 0, slots, length_ns, medians: [None, None] }]
        };
        assert_eq!(ranges(&panels(1_004)).len(), 1);
        let far: Vec<[bool; 2]> = ranges(&panels(4_000)).iter().map(|range| range.holds).collect();
        assert_eq!(far, [[false, true], [true, false]]);
        let scales = scales(&ranges(&panels(100)), 50);
        assert_eq!(scales.iter().map(|scale| scale.range.holds[0]).collect::<Vec<_>>(), [true, false]);
        assert!(scales[0].top == 50 && scales[0].bottom < scales[1].top && scales[1].bottom <= 50 + PANEL);
    }
}
