//! One mapped file.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::error::GgufError;
use super::header::GgufHeader;
use super::metadata::Metadata;
use super::tensor::TensorInfo;
use crate::mmap::{map_read_only, release};

/// A GGUF file, mapped into memory, with its checked header.
pub struct GgufFile {
    path: PathBuf,
    map: Mmap,
    header: GgufHeader,
}

/// A tensor of an open file: its entry in the list and its bytes.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    info: &'a TensorInfo,
    data: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// Name, dimensions, format and place.
    pub fn info(&self) -> &'a TensorInfo {
        self.info
    }

    /// The bytes as stored, [`TensorInfo::byte_len`] of them: rows of whole blocks, the fastest dimension contiguous.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor").field("info", self.info).finish_non_exhaustive()
    }
}

impl GgufFile {
    /// Maps a file and parses its header.
    ///
    /// # Errors
    ///
    /// The file cannot be opened or mapped, is no plain file, or is malformed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let failed = |action| {
            let file = name.clone();
            move |source| GgufError::Io { file, action, source }
        };
        // A pipe would block the open, and a directory opens but cannot be mapped.
        let kind = std::fs::metadata(path).map_err(failed("open the file"))?;
        if !kind.is_file() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "not a plain file");
            return Err(failed("open the file")(source));
        }
        let file = File::open(path).map_err(failed("open the file"))?;
        let map = map_read_only(&file).map_err(failed("map the file"))?;
        let header = GgufHeader::parse(&map, map.len() as u64, &name)?;
        Ok(Self { path: path.to_owned(), map, header })
    }

    /// The path that the file was opened with.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn total_len(&self) -> u64 {
        self.map.len() as u64
    }

    /// The header.
    pub fn header(&self) -> &GgufHeader {
        &self.header
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        self.header.metadata()
    }

    /// The tensor names in file order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.header.names()
    }

    /// The tensors in file order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.header.tensors().iter().map(|info| self.with_data(info))
    }

    /// The tensor of this name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.header.tensor(name).map(|info| self.with_data(info))
    }

    /// The tensor at this place of the list, if there is one.
    pub(crate) fn tensor_at(&self, index: usize) -> Option<Tensor<'_>> {
        self.header.tensors().get(index).map(|info| self.with_data(info))
    }

    /// Lets the system take back the memory of some of a tensor's bytes, which are read from the file again when they are next
    /// looked at: for loaders that copy one piece after another. A range past the tensor's end is cut.
    pub fn release(&self, name: &str, bytes: Range<usize>) {
        if let Some(info) = self.header.tensor(name) {
            let place = info.file_range();
            let (start, end) = (place.start as usize, place.end as usize);
            let (first, last) = (start.saturating_add(bytes.start), start.saturating_add(bytes.end));
            release(&self.map, first.min(end)..last.min(end));
        }
    }

    fn with_data<'a>(&'a self, info: &'a TensorInfo) -> Tensor<'a> {
        // The header was parsed with the length of this mapping, so the range lies inside it.
        let range = info.file_range();
        Tensor { info, data: &self.map[range.start as usize..range.end as usize] }
    }
}

impl fmt::Debug for GgufFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufFile")
            .field("path", &self.path)
            .field("version", &self.header.version())
            .field("metadata", &self.header.metadata().len())
            .field("tensors", &self.header.tensors().len())
            .finish_non_exhaustive()
    }
}
