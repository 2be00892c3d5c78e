//! kernel-check.
fn main() {}
