//! Files written byte by byte, to say what the writer refuses to say.

use memra_artifact::{Fault, GgufError, GgufHeader};

/// A file under construction.
#[derive(Clone, Default)]
pub(crate) struct Raw(pub(crate) Vec<u8>);

impl Raw {
    /// Magic, version 3 and the two counts.
    pub(crate) fn start(tensors: u64, metadata: u64) -> Self {
        Self::default().bytes(b"GGUF").u32(3).u64(tensors).u64(metadata)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    /// A metadata entry of type u8.
    pub(crate) fn byte_entry(self, key: &str) -> Self {
        self.text(key).u32(0).bytes(&[7])
    }

    /// A tensor entry.
    pub(crate) fn tensor(self, name: &str, dims: &[u64], format: u32, offset: u64) -> Self {
        let head = self.text(name).u32(dims.len() as u32);
        dims.iter().fold(head, |raw, dim| raw.u64(*dim)).u32(format).u64(offset)
    }

    /// Padding to 32 bytes and a data section of this many bytes.
    pub(crate) fn data(mut self, bytes: usize) -> Self {
        let start = self.0.len().next_multiple_of(32);
        self.0.resize(start + bytes, 0);
        self
    }

    pub(crate) fn parse(&self) -> Result<GgufHeader, GgufError> {
        GgufHeader::parse(&self.0, self.0.len() as u64, "crafted.gguf")
    }

    /// Byte offset, field and fault of the error that the file gives.
    pub(crate) fn fault(&self) -> (u64, String, Fault) {
        match self.parse() {
            Err(GgufError::Malformed { file, offset, field, fault }) => {
                assert_eq!(file, "crafted.gguf");
                (offset, field, fault)
            }
            other => panic!("expected a malformed file, not {other:?}"),
        }
    }
}
