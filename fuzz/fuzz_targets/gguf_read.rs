//! Reads arbitrary bytes as a GGUF file; seeds come from the example `gguf_seeds` of memra-artifact.
//!
//! ```sh
//! cargo run --package memra-artifact --example gguf_seeds -- fuzz/corpus/gguf_read
//! cargo +nightly fuzz run gguf_read -- -max_total_time=120
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| memra_artifact::fuzzing::gguf(bytes));
