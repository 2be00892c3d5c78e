//! The records of a receipt file: one JSON object a line, each carrying the digest of the line before it.
//!
//! Integers only: times in nanoseconds (or picoseconds where named), ratios in parts per million, so that a record has one
//! canonical text and a reader on any machine recomputes the same numbers. A fact the machine did not give is `null`
//! beside a reason, never 0.

mod cell;
mod gate;
mod session;

pub use cell::{
    Arm, ArmKind, Block, CellBody, CellKey, CellPlan, CellResult, Inputs, OUT_OF_TREE, PeakMemory, QuadObservation,
    Slots, Verdict, VerdictBody, VoidQuad, WarmUp, WeightSource, WorkloadPlan,
};
pub use gate::{GateBody, GateFailure};
pub use session::{GATES_ONLY, Rig, RigClass, SessionBody, SessionPlan, Tool};

use memra_contract::digest::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Schema name and version of every record this crate writes. A reader accepts any minor of the same major.
pub const SCHEMA: &str = "memra-lab.receipt/1.0.0";

/// One line of a receipt file.
///
/// `id` is the sha256 of the canonical JSON of all other fields: keys sorted, no white space, UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// Schema name and version.
    pub schema: String,
    /// Position in the file, from 0.
    pub seq: u64,
    /// `id` of the line before, `null` on the first line.
    #[schemars(with = "Option<String>")]
    pub prev: Option<Digest>,
    /// Identifier of the session that wrote the file: 32 hexadecimal digits.
    pub session: String,
    /// What the record says.
    #[serde(flatten)]
    pub body: Body,
    /// Digest of everything above.
    #[schemars(with = "String")]
    pub id: Digest,
}

/// What a record can say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Body {
    /// Opens a file: tool, rig, regime and everything that was declared before the first slot.
    Session(Box<SessionBody>),
    /// A correctness judgement of one arm. Timing of the arm is only valid after a passed one in the same session.
    Gate(Box<GateBody>),
    /// One cell measured in one replicate: raw slots and what follows from them.
    Cell(Box<CellBody>),
    /// The verdict on one cell over all replicates of the session.
    Verdict(Box<VerdictBody>),
    /// A correction of an earlier record, which stays where it is.
    Correction(CorrectionBody),
    /// A figure measured elsewhere. Displayed, never divided.
    External(ExternalBody),
    /// Closes a file: how many records it holds.
    End(EndBody),
}

/// A correction of an earlier record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CorrectionBody {
    /// `id` of the record that is corrected.
    #[schemars(with = "String")]
    pub corrects: Digest,
    /// What was wrong and what holds instead.
    pub text: String,
    /// Whether boards and promotions must no longer use the corrected record.
    pub withdraws: bool,
}

/// A figure from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExternalBody {
    /// What was measured, by whom and on what.
    pub title: String,
    /// Where the figure was read.
    pub source: String,
    /// Date of the figure, RFC 3339 date.
    pub date: String,
    /// The figure in its own unit, times 1000.
    pub value_milli: i64,
    /// The unit.
    pub unit: String,
}

/// The last record of a finished session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndBody {
    /// Number of records before this one.
    pub records: u64,
    /// When the session ended, RFC 3339 in UTC.
    pub ended_utc: String,
    /// The exit code the session ended with.
    pub exit_code: u8,
}
