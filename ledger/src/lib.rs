//! Receipts, their hash chain, statistics over them, and promotion records.
