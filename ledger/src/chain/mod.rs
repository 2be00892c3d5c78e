//! Receipt files: one record a line, each line naming the digest of the line before it.
//!
//! A file is only ever appended to. The writer checks every line for private facts before it leaves the process, and
//! the reader refuses a line that differs from what was written by as little as a digit.

mod line;
mod name;
mod privacy;
mod reader;
mod writer;

pub use line::{LineError, compose};
pub(crate) use name::check_session;
pub use name::{NameError, ReceiptName};
pub use privacy::{PrivacyError, PrivacyLint};
pub use reader::{LineFault, MAX_READ_BYTES, ReadError, ReceiptFile, SkippedTail, read_bytes, read_file};
pub use writer::{MAX_SESSION_BYTES, RESERVED_BYTES, ReceiptWriter, WriteError, append_correction};
