//! Reads the parameters of a request out of arbitrary bytes.
//!
//! ```sh
//! cargo +nightly fuzz run request_body -- -max_total_time=120
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| memra_engine::fuzzing::request(bytes));
