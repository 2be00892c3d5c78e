//! Boards, plots and pages, folded from receipts.
//!
//! Everything here is a pure function of receipt records and ledger lines: the same input, in any file order and on any
//! number of threads, gives the same bytes. Grouping and sorting run on typed integer and text columns; every number that
//! needs arithmetic is computed afterwards in sequential code with IEEE basic operations only, so no platform's
//! mathematics library reaches a file.
//!
//! This room never measures and never judges: a verdict stands on a board as its receipt says it. What the fold adds is
//! which verdict is current, what it replaces, which caveats travel with it and whether it may be headlined.
//!
//! - [`fold()`] gives [`Boards`]: one [`Board`] a rig, and figures from elsewhere beside them.
//! - [`forest_plot`] and [`slots_plot`] draw SVG.
//! - [`performance_md`], [`readme_table`] and [`replace_region`] write pages.
//! - [`regenerate`] does all of it; [`write_outputs`] and [`check_outputs`] put the result on disk or compare it.

mod board;
mod collect;
mod corrections;
mod error;
mod fold;
mod frame;
mod input;
mod number;
mod output;
mod page;
mod pairs;
mod plot;
mod product;
mod row;
mod share;
mod time;

pub use board::{BOARD_SCHEMA, BoardRow, EXTERNAL_SCHEMA};
pub use board::{
    Board, Boards, CheckedPairs, ExternalFigures, ExternalRow, RigFacts, RowArm, RowShare, RowStatus, RowWorkload,
};
pub use error::BoardError;
pub use fold::fold;
pub use input::{BoardInput, FoldOptions, LedgerKind, LedgerLine};
pub use output::{Drift, DriftKind, Output, WriteReport, check_outputs, regenerate, write_outputs};
pub use page::{README_BEGIN, README_END, performance_md, readme_table, replace_region};
pub use pairs::{FewerPairs, fewer_pairs};
pub use plot::{forest_plot, slots_plot};
