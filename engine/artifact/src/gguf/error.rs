//! What can be wrong with a GGUF file.

use std::io;

use memra_contract::BlockFormat;
use thiserror::Error;

use super::value::ValueType;

/// Why a GGUF file or a split model could not be read.
#[derive(Debug, Error)]
pub enum GgufError {
    /// The operating system refused.
    #[error("{file}: cannot {action}")]
    Io {
        /// The file.
        file: String,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The bytes are no well-formed GGUF file.
    #[error("{file}: byte {offset}: {field}: {fault}")]
    Malformed {
        /// The file.
        file: String,
        /// Bytes from the start of the file to the place that is wrong.
        offset: u64,
        /// The field that stands there, for example `tensor "blk.0.ffn_up.weight" offset`.
        field: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A metadata key that is needed is absent.
    #[error("{file}: metadata key \"{key}\" is missing")]
    MissingKey {
        /// The file.
        file: String,
        /// The key.
        key: String,
    },
    /// A metadata value is there but of another type, or its number does not fit.
    #[error("{file}: byte {offset}: metadata \"{key}\" is {found}, not {wanted}")]
    WrongType {
        /// The file.
        file: String,
        /// Bytes from the start of the file to the value.
        offset: u64,
        /// The key.
        key: String,
        /// What was asked for.
        wanted: &'static str,
        /// What stands there.
        found: String,
    },
    /// A metadata value of a split shard disagrees with the other shards or with the shard's place among them.
    #[error("{file}: byte {offset}: metadata \"{key}\" is {found}, but {expected} is expected here")]
    ShardMismatch {
        /// The shard.
        file: String,
        /// Bytes from the start of the file to the value.
        offset: u64,
        /// The key.
        key: String,
        /// What stands there.
        found: u64,
        /// What should stand there.
        expected: u64,
    },
    /// A shard of a split model is not there.
    #[error("{file}: shard {number} of {count} is missing ({missing} of {count} missing in all)")]
    MissingShard {
        /// The file name that was looked for.
        file: String,
        /// The shard's number, from 1.
        number: u64,
        /// Shards of the model.
        count: u64,
        /// Shards that are not there.
        missing: u64,
    },
    /// The file says that it is a shard, but its name does not tell where the others are.
    #[error(
        "{file}: one of {count} shards, but its name does not end in -NNNNN-of-{count:05}.gguf, so the others cannot be found"
    )]
    ShardName {
        /// The shard.
        file: String,
        /// Shards of the model.
        count: u64,
    },
    /// Two shards hold a tensor of the same name.
    #[error("{file}: tensor \"{name}\" stands in {first_file} already")]
    DuplicateAcrossShards {
        /// The later shard.
        file: String,
        /// The tensor.
        name: String,
        /// The earlier shard.
        first_file: String,
    },
}

/// What is wrong with one field of a GGUF file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The file ends too early.
    #[error("needs {needed} bytes, but only {left} are left in the file")]
    Truncated {
        /// Bytes the field takes.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// Metadata and tensor list are longer than a reader accepts.
    #[error("needs {needed} bytes, but a header may take no more than {limit} bytes in all")]
    HeaderTooLong {
        /// Bytes the field takes.
        needed: u64,
        /// Bytes a header may take.
        limit: u64,
    },
    /// The file starts with something else.
    #[error("not a GGUF file: it starts with \"{}\" instead of \"GGUF\"", .found.escape_ascii())]
    BadMagic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The file is big-endian.
    #[error("the file is big-endian; only little-endian files can be read")]
    BigEndian,
    /// A version that is not read.
    #[error("version {0} cannot be read; versions 2 and 3 can")]
    Version(u32),
    /// A count that the rest of the file cannot hold.
    #[error("{count} entries of at least {min_bytes} bytes each cannot stand in the {left} bytes that follow")]
    CountTooLarge {
        /// The count.
        count: u64,
        /// Fewest bytes an entry takes.
        min_bytes: u64,
        /// Bytes that follow.
        left: u64,
    },
    /// An empty key or name.
    #[error("is empty")]
    Empty,
    /// A key or name that is too long.
    #[error("is {length} bytes long; at most {limit} are allowed")]
    TooLong {
        /// Its bytes.
        length: u64,
        /// Bytes that are allowed.
        limit: u64,
    },
    /// A NUL byte in a key or name.
    #[error("holds a NUL byte")]
    ContainsNul,
    /// Text that is not UTF-8.
    #[error("is not UTF-8")]
    NotUtf8,
    /// A key that stands in the metadata already.
    #[error("key \"{0}\" stands in the metadata twice")]
    DuplicateKey(String),
    /// A tensor name that stands in the list already.
    #[error("tensor \"{0}\" stands in the list twice")]
    DuplicateTensor(String),
    /// A number that is no value type.
    #[error("{0} is no value type (0 to 12 are)")]
    UnknownValueType(u32),
    /// An array of arrays.
    #[error("arrays of arrays are not supported")]
    NestedArray,
    /// A boolean that is neither 0 nor 1.
    #[error("a boolean is 0 or 1, not {0}")]
    BadBool(u8),
    /// `general.alignment` of another type than u32.
    #[error("the alignment must be a u32, not {0}")]
    AlignmentType(ValueType),
    /// `general.alignment` that is no power of two.
    #[error("the alignment must be a power of two, not {0}")]
    AlignmentValue(u32),
    /// More than four dimensions.
    #[error("{0} dimensions; at most 4 are allowed")]
    TooManyDims(u64),
    /// A dimension of zero.
    #[error("a dimension of 0")]
    ZeroDim,
    /// More elements than a signed 64-bit number counts.
    #[error("the dimensions multiply to more than 2^63 - 1 elements")]
    TooManyElements,
    /// A number that is no tensor type.
    #[error("{0} is no tensor type, or one that was removed from the format")]
    UnknownFormat(u32),
    /// A format that GGUF has no number for.
    #[error("GGUF has no tensor type for {0}")]
    NotInGguf(BlockFormat),
    /// A row that is no whole number of blocks.
    #[error("rows of {row} elements do not divide into {format} blocks of {}", .format.block_elems)]
    PartialBlock {
        /// Elements of a row.
        row: u64,
        /// The tensor's format.
        format: BlockFormat,
    },
    /// A tensor, or all of them, that takes more bytes than a file can have.
    #[error("the size in bytes overflows")]
    SizeOverflow,
    /// A tensor offset that does not keep the alignment.
    #[error("offset {offset} is no multiple of the alignment {alignment}")]
    Misaligned {
        /// The offset.
        offset: u64,
        /// The alignment.
        alignment: u32,
    },
    /// A tensor that lies beyond the end of the file.
    #[error("the tensor ends at byte {end}, but the file has {total}")]
    OutOfRange {
        /// First byte after the tensor, from the start of the file.
        end: u64,
        /// Bytes of the file.
        total: u64,
    },
    /// Two tensors that share bytes.
    #[error("the tensor shares bytes with tensor \"{other}\"")]
    Overlap {
        /// The other tensor.
        other: String,
    },
}
