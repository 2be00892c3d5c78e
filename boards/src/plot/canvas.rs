//! A surface with the few shapes and the two typefaces the plots use.

use crate::error::BoardError;
use memra_ledger::record::Verdict;
use plotters::backend::{DrawingBackend, SVGBackend};
use plotters::prelude::{Color, FontDesc, FontFamily, FontStyle, IntoTextStyle, RGBColor, ShapeStyle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt::Display;

/// Width of every plot in pixels.
pub(crate) const WIDTH: i32 = 900;

/// The ground.
pub(crate) const WHITE: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
/// Text and axis lines.
pub(crate) const INK: RGBColor = RGBColor(0x1F, 0x24, 0x2B);
/// Secondary text.
pub(crate) const MUTED: RGBColor = RGBColor(0x5B, 0x63, 0x6E);
/// Grid lines.
pub(crate) const GRID: RGBColor = RGBColor(0xE1, 0xE4, 0xE8);
/// The ground of a panel or a band.
pub(crate) const SHADE: RGBColor = RGBColor(0xD5, 0xDA, 0xE1);
/// Arm A: blue of the palette of M. Okabe and K. Ito, which people of all colour visions tell apart.
pub(crate) const ARM_A: RGBColor = RGBColor(0x00, 0x72, 0xB2);
/// Arm B: vermillion of the same palette.
pub(crate) const ARM_B: RGBColor = RGBColor(0xD5, 0x5E, 0x00);

/// The colour of a verdict. Each plot also prints the verdict's name.
pub(crate) const fn verdict_color(verdict: Verdict) -> RGBColor {
    match verdict {
        Verdict::Faster => RGBColor(0x00, 0x72, 0xB2),
        Verdict::Slower => RGBColor(0xD5, 0x5E, 0x00),
        Verdict::Equivalent => RGBColor(0x3C, 0x44, 0x4F),
        Verdict::Undecided => RGBColor(0xB0, 0x4F, 0x8A),
        Verdict::Void | Verdict::Incomparable => RGBColor(0x8A, 0x92, 0x9C),
    }
}

/// How a text looks.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// Height in pixels.
    pub(crate) size: i32,
    /// Fixed width, for names that are code.
    pub(crate) is_mono: bool,
    /// Heavy.
    pub(crate) is_bold: bool,
    /// Colour.
    pub(crate) color: RGBColor,
    /// Which end of the text stands at the given point.
    pub(crate) anchor: HPos,
}

impl Text {
    /// Proportional text that begins at its point.
    pub(crate) const fn plain(size: i32, color: RGBColor) -> Self {
        Self { size, is_mono: false, is_bold: false, color, anchor: HPos::Left }
    }

    /// Fixed-width text that begins at its point. A character is six tenths of the size wide.
    pub(crate) const fn mono(size: i32, color: RGBColor) -> Self {
        Self { is_mono: true, ..Self::plain(size, color) }
    }

    /// The same, heavy.
    pub(crate) const fn bold(self) -> Self {
        Self { is_bold: true, ..self }
    }

    /// The same, anchored elsewhere.
    pub(crate) const fn anchored(self, anchor: HPos) -> Self {
        Self { anchor, ..self }
    }
}

/// An SVG that is being drawn.
pub(crate) struct Canvas<'a> {
    backend: SVGBackend<'a>,
    plot: &'a str,
}

impl<'a> Canvas<'a> {
    /// Opens a white surface of [`WIDTH`] by `height` pixels. `plot` names it in errors.
    pub(crate) fn new(buffer: &'a mut String, plot: &'a str, height: i32) -> Result<Self, BoardError> {
        let size = (WIDTH.unsigned_abs(), height.unsigned_abs());
        let mut canvas = Self { backend: SVGBackend::with_string(buffer, size), plot };
        canvas.rect((0, 0), (WIDTH, height), WHITE, 1.0)?;
        Ok(canvas)
    }

    /// Closes the document.
    pub(crate) fn finish(mut self) -> Result<(), BoardError> {
        let done = self.backend.present();
        self.drawn(done)
    }

    /// A filled rectangle from corner to corner.
    pub(crate) fn rect(
        &mut self,
        from: (i32, i32),
        to: (i32, i32),
        color: RGBColor,
        opacity: f64,
    ) -> Result<(), BoardError> {
        let done = self.backend.draw_rect(from, to, &color.mix(opacity).filled(), true);
        self.drawn(done)
    }

    /// A line.
    pub(crate) fn line(
        &mut self,
        from: (i32, i32),
        to: (i32, i32),
        color: RGBColor,
        width: u32,
    ) -> Result<(), BoardError> {
        let done = self.backend.draw_line(from, to, &color.stroke_width(width));
        self.drawn(done)
    }

    /// A filled circle.
    pub(crate) fn dot(
        &mut self,
        center: (i32, i32),
        radius: u32,
        color: RGBColor,
        opacity: f64,
    ) -> Result<(), BoardError> {
        let done = self.backend.draw_circle(center, radius, &color.mix(opacity).filled(), true);
        self.drawn(done)
    }

    /// A circle with a white inside.
    pub(crate) fn ring(&mut self, center: (i32, i32), radius: u32, color: RGBColor) -> Result<(), BoardError> {
        self.dot(center, radius, WHITE, 1.0)?;
        let style = ShapeStyle { color: color.to_rgba(), filled: false, stroke_width: 1 };
        let done = self.backend.draw_circle(center, radius, &style, false);
        self.drawn(done)
    }

    /// A filled polygon.
    pub(crate) fn polygon(&mut self, corners: &[(i32, i32)], color: RGBColor) -> Result<(), BoardError> {
        let done = self.backend.fill_polygon(corners.iter().copied(), &color.filled());
        self.drawn(done)
    }

    /// A text whose vertical middle stands at the point. Characters that XML does not allow become spaces.
    pub(crate) fn text(&mut self, text: &str, at: (i32, i32), look: Text) -> Result<(), BoardError> {
        let clean: String = text.chars().map(|c| if is_xml(c) { c } else { ' ' }).collect();
        let family = if look.is_mono {
            FontFamily::Name("ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")
        } else {
            FontFamily::Name("Helvetica, Arial, 'Liberation Sans', sans-serif")
        };
        let style = if look.is_bold { FontStyle::Bold } else { FontStyle::Normal };
        // The backend divides a font's size by 1.24.
        let font = FontDesc::new(family, f64::from(look.size) * 1.24, style);
        let style = font
            .into_text_style(&(WIDTH.unsigned_abs(), 0))
            .color(&look.color)
            .pos(Pos::new(look.anchor, VPos::Center));
        let done = self.backend.draw_text(&clean, &style, at);
        self.drawn(done)
    }

    fn drawn<E: Display>(&self, result: Result<(), E>) -> Result<(), BoardError> {
        result.map_err(|cause| BoardError::Plot { plot: self.plot.to_owned(), cause: cause.to_string() })
    }
}

/// Whether XML 1.0 allows the character and no direction control hides in it.
fn is_xml(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{FFFE}' | '\u{FFFF}' | '\u{200E}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// The text, cut to `columns` characters with an ellipsis where it is longer.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_by_characters() {
        assert_eq!(cut("µµµ", 3), "µµµ");
        assert_eq!(cut("µµµµ", 3), "µµ…");
        assert_eq!(cut("x", 0), "…");
    }

    #[test]
    fn text_is_escaped_and_cleaned() {
        let mut buffer = String::new();
        let mut canvas = Canvas::new(&mut buffer, "test", 10).unwrap();
        canvas.text("a<b>&\u{0}\u{202E}\"c", (1, 2), Text::plain(12, INK)).unwrap();
        canvas.finish().unwrap();
        assert!(buffer.contains("a&lt;b&gt;&amp;  &quot;c"), "{buffer}");
        assert!(buffer.contains("font-size=\"12\""), "{buffer}");
        assert!(buffer.ends_with("</svg>\n"), "{buffer}");
    }
}
