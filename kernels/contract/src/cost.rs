//! What a launch must move and compute at least, for rates and rooflines.

/// The work of one launch, counted from the contract and not from any implementation.
///
/// Weights, activations and outputs are each counted once, in the bytes of the stored format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Arithmetic operations; a multiply-add is two.
    pub flops: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Cost {
    /// Bytes moved both ways.
    pub const fn moved_bytes(self) -> u64 {
        self.read_bytes + self.written_bytes
    }
}
