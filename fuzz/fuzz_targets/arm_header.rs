//! Reads arbitrary bytes as a file that is an arm out of the tree, and lays out problems with what its header says.
//!
//! ```sh
//! cargo +nightly fuzz run arm_header -- -max_total_time=120
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| memra_kernels::fuzzing::arm_header(bytes));
