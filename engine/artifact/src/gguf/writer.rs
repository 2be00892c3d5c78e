//! Writing version 3 files.

use std::collections::HashSet;
use std::io::{self, Write};

use memra_contract::BlockFormat;
use thiserror::Error;

use super::array::Array;
use super::check;
use super::error::Fault;
use super::limits::{ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_HEADER_BYTES, WRITTEN_VERSION};
use super::value::Value;

/// Why a file could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// A metadata entry that a reader would refuse.
    #[error("metadata \"{key}\": {fault}")]
    Metadata {
        /// The key.
        key: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A tensor that a reader would refuse.
    #[error("tensor \"{name}\": {fault}")]
    Tensor {
        /// The tensor.
        name: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// Metadata and tensor list together are longer than a reader accepts.
    #[error("the header takes {bytes} bytes; at most {MAX_HEADER_BYTES} are allowed")]
    HeaderTooLong {
        /// Bytes of the header.
        bytes: u64,
    },
    /// Data for a tensor whose turn it is not.
    #[error("data of tensor \"{found}\" given where {} comes next", .expected.as_ref().map_or("nothing".to_owned(), |name| format!("tensor \"{name}\"")))]
    OutOfTurn {
        /// The tensor whose turn it is; `None` after the last.
        expected: Option<String>,
        /// The tensor that was given.
        found: String,
    },
    /// Data that is not as long as the tensor.
    #[error("tensor \"{name}\" takes {expected} bytes, but {found} were given")]
    DataLength {
        /// The tensor.
        name: String,
        /// Bytes it takes.
        expected: u64,
        /// Bytes that were given.
        found: u64,
    },
    /// The file was finished before every tensor had its data.
    #[error("tensor \"{next}\" comes next and has no data yet (tensors without data: {missing})")]
    Unfinished {
        /// Tensors without data.
        missing: usize,
        /// The first of them.
        next: String,
    },
    /// The output refused.
    #[error("cannot write {what}")]
    Io {
        /// What was being written.
        what: String,
        /// The output's answer.
        source: io::Error,
    },
}

/// A tensor that will be written.
#[derive(Debug, Clone)]
struct Declared {
    name: String,
    dims: Vec<u64>,
    gguf_id: u32,
    offset: u64,
    byte_len: u64,
}

/// What a file will look like.
struct Layout {
    header: Vec<u8>,
    /// Bytes between the header and the data section.
    padding: u64,
    tensors: Vec<Declared>,
    total_len: u64,
}

/// The header of a file to be written: metadata and declared tensors.
///
/// Everything a reader would refuse is refused here, so what is written can be read. Tensors are laid out in the order of
/// their declaration, each padded to the alignment, the last one too.
///
/// ```
/// use memra_artifact::{GgufHeader, GgufWriter, Value};
/// use memra_contract::BlockFormat;
///
/// let mut writer = GgufWriter::new();
/// writer.set("general.architecture", Value::String("llama".to_owned()))?;
/// writer.declare("output_norm.weight", &[4], BlockFormat::F32)?;
/// let mut body = writer.begin(Vec::new())?;
/// body.tensor("output_norm.weight", &[0; 16])?;
/// let bytes = body.finish()?;
///
/// let header = GgufHeader::parse(&bytes, bytes.len() as u64, "norm.gguf")?;
/// assert_eq!(header.metadata().get_str("general.architecture")?, "llama");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct GgufWriter {
    metadata: Vec<(String, Value)>,
    keys: HashSet<String>,
    tensors: Vec<Declared>,
    names: HashSet<String>,
    alignment: Option<u32>,
}

impl GgufWriter {
    /// A header with no metadata and no tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a metadata entry. `general.alignment` also sets the alignment of what is written.
    ///
    /// # Errors
    ///
    /// The key is empty, too long, holds a NUL or is set already; or it is `general.alignment` and the value is no u32
    /// power of two.
    pub fn set(&mut self, key: &str, value: Value) -> Result<(), WriteError> {
        let wrong = |fault| WriteError::Metadata { key: key.to_owned(), fault };
        check::key(key).map_err(wrong)?;
        if self.keys.contains(key) {
            return Err(wrong(Fault::DuplicateKey(key.to_owned())));
        }
        if key == ALIGNMENT_KEY {
            self.alignment = Some(check::alignment(&value).map_err(wrong)?);
        }
        self.keys.insert(key.to_owned());
        self.metadata.push((key.to_owned(), value));
        Ok(())
    }

    /// Appends a tensor of these dimensions, fastest first; its data follows after [`Self::begin`].
    ///
    /// # Errors
    ///
    /// The name is empty, longer than 63 bytes, holds a NUL or is declared already; there are more than four
    /// dimensions or one of 0; GGUF has no such format; a row is no whole number of blocks; a size overflows.
    pub fn declare(&mut self, name: &str, dims: &[u64], format: BlockFormat) -> Result<(), WriteError> {
        let (gguf_id, byte_len) = (|| {
            check::tensor_name(name)?;
            let gguf_id = format.gguf_id.ok_or(Fault::NotInGguf(format))?;
            if self.names.contains(name) {
                return Err(Fault::DuplicateTensor(name.to_owned()));
            }
            check::dim_count(dims.len() as u64)?;
            let elems = dims.iter().try_fold(1, |elems, dim| check::dim(elems, *dim))?;
            Ok((gguf_id, check::byte_len(format, dims.first().copied().unwrap_or(1), elems)?))
        })()
        .map_err(|fault| WriteError::Tensor { name: name.to_owned(), fault })?;
        self.names.insert(name.to_owned());
        self.tensors.push(Declared { name: name.to_owned(), dims: dims.to_vec(), gguf_id, offset: 0, byte_len });
        Ok(())
    }

    /// Bytes to which tensors will be aligned.
    pub fn alignment(&self) -> u32 {
        self.alignment.unwrap_or(DEFAULT_ALIGNMENT)
    }

    /// The header as it stands in the file, without the padding before the data section, and the length of the whole
    /// file in bytes.
    ///
    /// # Errors
    ///
    /// The header is longer than a reader accepts, or the sizes of the tensors overflow.
    pub fn header(&self) -> Result<(Vec<u8>, u64), WriteError> {
        let layout = self.layout()?;
        Ok((layout.header, layout.total_len))
    }

    fn layout(&self) -> Result<Layout, WriteError> {
        let alignment = self.alignment();
        let mut header = Vec::new();
        let out = &mut header;
        out.extend(MAGIC);
        out.extend(WRITTEN_VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            push_text(out, key);
            out.extend(value.value_type().id().to_le_bytes());
            push_value(out, value);
        }
        let mut tensors = self.tensors.clone();
        let mut end = 0_u64;
        for tensor in &mut tensors {
            tensor.offset = end;
            end = end
                .checked_add(tensor.byte_len)
                .and_then(|end| check::align_up(end, alignment))
                .ok_or_else(|| WriteError::Tensor { name: tensor.name.clone(), fault: Fault::SizeOverflow })?;
            push_tensor(out, tensor);
        }
        let bytes = header.len() as u64;
        if bytes > MAX_HEADER_BYTES {
            return Err(WriteError::HeaderTooLong { bytes });
        }
        let overflow = || WriteError::HeaderTooLong { bytes: u64::MAX };
        let data_start = check::align_up(bytes, alignment).ok_or_else(overflow)?;
        let total_len = data_start.checked_add(end).ok_or_else(overflow)?;
        Ok(Layout { header, padding: data_start - bytes, tensors, total_len })
    }

    /// Writes the header to `out`; the tensors' data is written with the value that is returned.
    ///
    /// # Errors
    ///
    /// Those of [`Self::header`], or `out` refuses.
    pub fn begin<W: Write>(&self, mut out: W) -> Result<GgufBody<W>, WriteError> {
        let Layout { header, padding, tensors, .. } = self.layout()?;
        out.write_all(&header)
            .and_then(|()| write_zeros(&mut out, padding))
            .map_err(|source| WriteError::Io { what: "the header".to_owned(), source })?;
        Ok(GgufBody { out, tensors, next: 0, alignment: self.alignment() })
    }
}

/// A file whose header is written and whose tensor data is not complete yet.
#[derive(Debug)]
pub struct GgufBody<W> {
    out: W,
    tensors: Vec<Declared>,
    next: usize,
    alignment: u32,
}

impl<W: Write> GgufBody<W> {
    /// Writes the data of the next tensor from one slice.
    ///
    /// # Errors
    ///
    /// It is another tensor's turn, the length is not the tensor's, or the output refuses.
    pub fn tensor(&mut self, name: &str, data: &[u8]) -> Result<(), WriteError> {
        let expected = self.turn(name)?.byte_len;
        if data.len() as u64 != expected {
            let (name, found) = (name.to_owned(), data.len() as u64);
            return Err(WriteError::DataLength { name, expected, found });
        }
        self.tensor_with(name, |out| out.write_all(data))
    }

    /// Writes the data of the next tensor piece by piece, as `fill` writes it; for tensors that do not fit in memory.
    ///
    /// After an error the output holds part of the tensor and cannot be continued.
    ///
    /// # Errors
    ///
    /// It is another tensor's turn, `fill` fails or writes another number of bytes than the tensor takes, or the output
    /// refuses.
    pub fn tensor_with(
        &mut self,
        name: &str,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), WriteError> {
        let expected = self.turn(name)?.byte_len;
        let refused = |source| WriteError::Io { what: format!("the data of tensor \"{name}\""), source };
        let mut counted = Counted { out: &mut self.out, written: 0 };
        fill(&mut counted).map_err(refused)?;
        let found = counted.written;
        if found != expected {
            return Err(WriteError::DataLength { name: name.to_owned(), expected, found });
        }
        let padding = expected.next_multiple_of(u64::from(self.alignment)) - expected;
        write_zeros(&mut self.out, padding).map_err(refused)?;
        self.next += 1;
        Ok(())
    }

    /// Flushes the output and gives it back.
    ///
    /// # Errors
    ///
    /// A tensor has no data yet, or the output refuses.
    pub fn finish(mut self) -> Result<W, WriteError> {
        if let Some(next) = self.tensors.get(self.next) {
            let missing = self.tensors.len() - self.next;
            return Err(WriteError::Unfinished { missing, next: next.name.clone() });
        }
        self.out.flush().map_err(|source| WriteError::Io { what: "the end of the file".to_owned(), source })?;
        Ok(self.out)
    }

    fn turn(&self, name: &str) -> Result<&Declared, WriteError> {
        match self.tensors.get(self.next) {
            Some(next) if next.name == name => Ok(next),
            next => Err(WriteError::OutOfTurn { expected: next.map(|next| next.name.clone()), found: name.to_owned() }),
        }
    }
}

struct Counted<'a, W> {
    out: &'a mut W,
    written: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn write_zeros(out: &mut impl Write, count: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), count), out).map(|_| ())
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn push_tensor(out: &mut Vec<u8>, tensor: &Declared) {
    push_text(out, &tensor.name);
    out.extend((tensor.dims.len() as u32).to_le_bytes());
    for dim in &tensor.dims {
        out.extend(dim.to_le_bytes());
    }
    out.extend(tensor.gguf_id.to_le_bytes());
    out.extend(tensor.offset.to_le_bytes());
}

fn push_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U8(value) => out.extend(value.to_le_bytes()),
        Value::I8(value) => out.extend(value.to_le_bytes()),
        Value::U16(value) => out.extend(value.to_le_bytes()),
        Value::I16(value) => out.extend(value.to_le_bytes()),
        Value::U32(value) => out.extend(value.to_le_bytes()),
        Value::I32(value) => out.extend(value.to_le_bytes()),
        Value::F32(value) => out.extend(value.to_le_bytes()),
        Value::Bool(value) => out.push(u8::from(*value)),
        Value::String(value) => push_text(out, value),
        Value::Array(values) => push_array(out, values),
        Value::U64(value) => out.extend(value.to_le_bytes()),
        Value::I64(value) => out.extend(value.to_le_bytes()),
        Value::F64(value) => out.extend(value.to_le_bytes()),
    }
}

fn push_array(out: &mut Vec<u8>, array: &Array) {
    fn push<const N: usize, T: Copy>(out: &mut Vec<u8>, values: &[T], encode: fn(T) -> [u8; N]) {
        out.extend(values.iter().flat_map(|value| encode(*value)));
    }
    out.extend(array.element_type().id().to_le_bytes());
    out.extend((array.len() as u64).to_le_bytes());
    match array {
        Array::U8(values) => out.extend(values),
        Array::I8(values) => push(out, values, i8::to_le_bytes),
        Array::U16(values) => push(out, values, u16::to_le_bytes),
        Array::I16(values) => push(out, values, i16::to_le_bytes),
        Array::U32(values) => push(out, values, u32::to_le_bytes),
        Array::I32(values) => push(out, values, i32::to_le_bytes),
        Array::F32(values) => push(out, values, f32::to_le_bytes),
        Array::Bool(values) => push(out, values, |value| [u8::from(value)]),
        Array::String(values) => values.iter().for_each(|text| push_text(out, text)),
        Array::U64(values) => push(out, values, u64::to_le_bytes),
        Array::I64(values) => push(out, values, i64::to_le_bytes),
        Array::F64(values) => push(out, values, f64::to_le_bytes),
    }
}
