//! Process arms: a long-lived child process that runs the same product, driven over its standard input and output.
//!
//! # Protocol
//!
//! One JSON object a line, UTF-8, in both directions; the child writes nothing else to standard output. Standard error is
//! free for messages: its last lines are shown when the child fails. The child speaks first:
//!
//! ```json
//! {"hello":{"name":"peer 1.2","about":["commit 0123abc","built with -O3"]}}
//! ```
//!
//! `name` and `about` stand in receipts, so they hold no absolute path: at most 64 characters, and 16 lines of 200. Then
//! every request gets one answer, `{"error":"text"}` where the child cannot do what is asked:
//!
//! - `{"op":"load","contract":"matmul","problem":"act=f32,...","threads":2,"copies":3,"tensors":[{"name":"activation",
//!   "dtype":"f32","shape":[1,576],"path":"/.../0.bin"},...]}`, answered by `{"ok":true}`. Files are raw little-endian
//!   contents, slowest axis first; block formats are `u8` with the bytes of a row along the last axis. The child makes
//!   `copies` separate copies of its buffers and starts `threads` threads. A later `load` replaces the earlier one.
//! - `{"op":"check","out":"/.../out-1"}`, answered by `{"ok":true,"outputs":[{"name":"out","dtype":"f32",
//!   "file":"out.bin"}]}` after one launch whose outputs were written into files of that (empty) folder, in the contract's
//!   layout.
//! - `{"op":"wake"}`, answered by `{"ok":true}` when every thread is ready to work. It comes before each sample, outside of
//!   any timed span.
//! - `{"op":"sample","launches":100}`, answered by `{"elapsed_ns":1234567}`: the time of that many launches back to back by
//!   a monotonic clock. Launch `i` uses copy `i` modulo `copies`, counting on over all samples since `load`.
//! - `{"op":"idle"}`, answered by `{"ok":true}` when every thread is parked. From then on the child uses no CPU until the
//!   next request: a child that spins while another arm has its turn makes the measurement void.
//! - `{"op":"stop"}`: the child ends, without an answer. It ends at the end of its input too.
//!
//! The work is done by threads of the child itself: CPU time of processes it starts is not seen. Its `elapsed_ns` is
//! compared with the wall clock around the request. A child that does not answer in time, writes anything else, ends, or
//! whose clock is not believable is killed, and the error names the arm.

mod child;
pub(crate) mod pipe;
pub(crate) mod protocol;
mod tensors;
#[cfg(test)]
#[cfg(unix)]
pub(crate) mod tests;
mod usage;

pub use child::{ProcessChild, Sample};
pub use tensors::TensorFolder;
pub use usage::{CpuTime, cpu_time, tree_cpu_time, tree_ticks, used_ns};

use std::time::Duration;

use serde::Deserialize;

/// What a child says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Hello {
    /// Its name, with a version where it has one.
    pub name: String,
    /// Version and build facts.
    #[serde(default)]
    pub about: Vec<String>,
}

/// How long a child may take, and how far its clock may be off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOptions {
    /// Until it says hello.
    pub hello: Duration,
    /// To load tensors.
    pub load: Duration,
    /// To launch once and write outputs.
    pub check: Duration,
    /// To answer a sample.
    pub sample: Duration,
    /// To park its threads, or to wake them.
    pub idle: Duration,
    /// To end by itself before it is killed.
    pub stop: Duration,
    /// Wall-clock time of a sample that its own figure may leave out, beside a fifth of the wall-clock time.
    pub clock_slack: Duration,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        Self {
            hello: Duration::from_mins(1),
            load: Duration::from_mins(10),
            check: Duration::from_mins(10),
            sample: Duration::from_mins(2),
            idle: Duration::from_secs(10),
            stop: Duration::from_millis(500),
            // An answer may wait this long for its turn on a busy machine.
            clock_slack: Duration::from_millis(20),
        }
    }
}

/// A process arm failed.
#[derive(Debug, thiserror::Error)]
#[error("process arm `{arm}`, {doing}: {fault}")]
pub struct ProcessError {
    /// The user's name for the arm.
    pub arm: String,
    /// What it was asked for.
    pub doing: &'static str,
    /// What went wrong.
    pub fault: ProcessFault,
}

/// What can go wrong with a child.
#[derive(Debug, thiserror::Error)]
pub enum ProcessFault {
    /// The system did not start it.
    #[error("its command could not be started: {0}")]
    Start(std::io::Error),
    /// It ended.
    #[error("it ended with {status}{}", last_words(.stderr))]
    Ended {
        /// Exit code or signal.
        status: String,
        /// Last lines of its standard error.
        stderr: Vec<String>,
    },
    /// It closed its output and lives on.
    #[error("it closed its standard output")]
    Closed,
    /// It did not answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// A line that is no JSON object.
    #[error("a line that does not belong to the protocol: `{0}`")]
    Garbage(String),
    /// A JSON object that does not answer the request.
    #[error("`{line}` is no answer: {needed} is needed")]
    Answer {
        /// The line.
        line: String,
        /// What was expected.
        needed: &'static str,
    },
    /// A line that nobody asked for.
    #[error("it spoke without being asked: `{0}`")]
    Unasked(String),
    /// It says that it cannot.
    #[error("it reports: {0}")]
    Reported(String),
    /// What it says of itself cannot stand in a receipt.
    #[error("its hello is refused: {0}")]
    Hello(String),
    /// Its clock and the wall clock disagree.
    #[error("its clock is not believable: {elapsed_ns} ns of its own in {wall_ns} ns of wall-clock time")]
    Clock {
        /// What it reported.
        elapsed_ns: u64,
        /// Wall-clock time around the request.
        wall_ns: u64,
    },
    /// An output is missing or has another form.
    #[error("output `{output}`: {why}")]
    Output {
        /// The output.
        output: String,
        /// What is wrong.
        why: String,
    },
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What failed.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

fn last_words(stderr: &[String]) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its last words: {}", stderr.join(" | ")) }
}
