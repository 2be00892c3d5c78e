//! Turns arbitrary bytes, cut anywhere, into text with a stop string.
//!
//! ```sh
//! cargo +nightly fuzz run text_stream -- -max_total_time=120
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| memra_engine::fuzzing::text(bytes));
