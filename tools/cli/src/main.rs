//! The command line of memra-lab.
fn main() {}
