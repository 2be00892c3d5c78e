//! Reads arbitrary bytes as a bundle of cubins, as they are and with the digest that their table should have.
//!
//! ```sh
//! cargo +nightly fuzz run cubin_bundle -- -max_total_time=120
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| memra_kernels::fuzzing::cubin_bundle(bytes));
