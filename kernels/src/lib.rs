//! The registry of kernel variants, the backends they run on, and the selection of a default.
//!
//! Data flows one way: source text becomes a [`contract::Variant`], a backend prepares it for a problem, the harness checks
//! and races it. Nothing here measures, and nothing here knows of receipts.

pub mod backend;
pub mod case;
pub mod contract;
pub mod form;
pub mod fuzzing;
pub mod headers;
pub mod input;
pub mod memory;
pub mod ops;
pub mod out_of_tree;
mod parallel;
pub mod registry;
pub mod select;
mod vector;

pub use contract::{Contract, Prepared, Reference, Variant};
