//! Plots as SVG text.
//!
//! Shapes stand at whole pixels and text is placed by anchor, never measured: no font of the machine that folds can move
//! anything. Every plot paints its own white ground, so that it reads the same on a dark page.

mod axis;
mod canvas;
mod forest;
mod slots;

pub use forest::forest_plot;
pub use slots::slots_plot;
