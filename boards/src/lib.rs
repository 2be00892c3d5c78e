//! Boards, plots and pages, folded from receipts.
