//! Repository chores: tidy.
fn main() {}
