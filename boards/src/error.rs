//! What can stop a fold, a page or a write.

/// Why boards or pages could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// A receipt path that is absolute, leaves the evidence root or holds characters a page cannot link to.
    #[error("receipt path `{0}` is not a relative path of plain segments below the evidence root")]
    Path(String),
    /// The same file was given twice.
    #[error("receipt `{0}` is given twice")]
    SameFile(String),
    /// The same record stands in two places.
    #[error("record {id} stands in `{file}` and in `{other}`: a copied receipt would count twice")]
    SameRecord {
        /// First 12 digits of the record's id.
        id: String,
        /// File where it was met again.
        file: String,
        /// File where it was met first.
        other: String,
    },
    /// A record that needs a session record before it.
    #[error("{file}: record {seq} is a {kind} but no session record stands before it")]
    NoSession {
        /// Receipt file.
        file: String,
        /// Position of the record.
        seq: u64,
        /// Kind of the record.
        kind: &'static str,
    },
    /// A file with two session records.
    #[error("{file}: record {seq} opens a second session; a receipt file holds one")]
    SecondSession {
        /// Receipt file.
        file: String,
        /// Position of the second session record.
        seq: u64,
    },
    /// A rig label that cannot be a file name.
    #[error("{file}: rig label `{label}` is not usable: letters, digits, `.`, `_` and `-` are allowed, 64 at most")]
    RigLabel {
        /// Receipt file.
        file: String,
        /// The label.
        label: String,
    },
    /// One rig label on two different machines.
    #[error("rig label `{label}` names one rig in `{other}` and another in `{file}`: labels are never reused")]
    RigDiffers {
        /// The label.
        label: String,
        /// File that differs.
        file: String,
        /// File where the label was met first.
        other: String,
    },
    /// A start time that is no RFC 3339 time in UTC.
    #[error("{file}: start `{text}` is not an RFC 3339 time in UTC")]
    Started {
        /// Receipt file.
        file: String,
        /// The text.
        text: String,
    },
    /// A verdict whose replicate is not in its file.
    #[error("{file}: verdict {verdict} cites replicate {replicate}, which is no cell record of the file")]
    MissingReplicate {
        /// Receipt file.
        file: String,
        /// First 12 digits of the verdict's id.
        verdict: String,
        /// First 12 digits of the replicate's id.
        replicate: String,
    },
    /// A verdict that counts one replicate twice.
    #[error("{file}: verdict {verdict} counts replicate {replicate} twice")]
    RepeatedReplicate {
        /// Receipt file.
        file: String,
        /// First 12 digits of the verdict's id.
        verdict: String,
        /// First 12 digits of the replicate's id.
        replicate: String,
    },
    /// A verdict over replicates of another cell.
    #[error("{file}: verdict {verdict} is on another cell than its replicate {replicate}")]
    OtherCell {
        /// Receipt file.
        file: String,
        /// First 12 digits of the verdict's id.
        verdict: String,
        /// First 12 digits of the replicate's id.
        replicate: String,
    },
    /// A decided verdict without a number it needs.
    #[error("{file}: verdict {verdict} is decided but its `{field}` is null")]
    MissingNumber {
        /// Receipt file.
        file: String,
        /// First 12 digits of the verdict's id.
        verdict: String,
        /// Field of the result.
        field: &'static str,
    },
    /// Grouping or sorting failed.
    #[error("cannot group the verdicts: {0}")]
    Frame(#[from] polars::error::PolarsError),
    /// A board could not be written as JSON.
    #[error("cannot write board `{board}` as JSON: {source}")]
    Json {
        /// Rig label, or `external`.
        board: String,
        /// Cause.
        source: serde_json::Error,
    },
    /// A plot could not be drawn.
    #[error("cannot draw {plot}: {cause}")]
    Plot {
        /// Name of the plot.
        plot: String,
        /// Cause.
        cause: String,
    },
    /// The page has no region to fill, or more than one.
    #[error("README: {0}")]
    Region(String),
    /// Two outputs with one path.
    #[error("two outputs would be written to `{0}`")]
    SameOutput(String),
    /// Reading or writing failed.
    #[error("cannot {action} `{path}`: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Path below the root.
        path: String,
        /// Cause.
        source: std::io::Error,
    },
}
