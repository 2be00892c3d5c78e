//! Receipts, their hash chain, the statistics that judge them, and the records of promotions and refutations.
//!
//! This room knows nothing of kernels or devices: it reads and writes files below an evidence root and recomputes every
//! number that follows from raw slots.

pub mod record;
pub mod stats;

pub mod canonical;
pub mod chain;
pub mod index;
pub mod judge;
pub mod schema;
pub mod synthetic;
pub mod verify;

pub mod entry;
pub mod promotion;
pub mod rigs;
