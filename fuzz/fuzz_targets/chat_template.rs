//! Compiles and renders arbitrary bytes as a chat template.
//!
//! ```sh
//! cargo +nightly fuzz run chat_template -- -max_total_time=120
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| memra_engine::fuzzing::template(bytes));
