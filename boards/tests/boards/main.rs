//! Synthetic receipts through the fold, the plots, the pages and the files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod builder;
mod evidence;
mod fold;
mod output;
mod pages;
mod pairs;
mod plots;
mod refusals;
mod shares;
mod threads;
