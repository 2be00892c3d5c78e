//! The header of a file: metadata and tensor list, checked.

use std::collections::HashMap;

use memra_contract::BlockFormat;

use super::array::Array;
use super::check;
use super::cursor::{Cursor, Located};
use super::error::{Fault, GgufError};
use super::limits::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS, MAX_HEADER_BYTES, MIN_METADATA_BYTES, MIN_TENSOR_BYTES,
};
use super::metadata::{Metadata, MetadataEntry};
use super::strings::StringArray;
use super::tensor::TensorInfo;
use super::value::{Value, ValueType};

/// Metadata and tensor list of one file.
///
/// What is checked, besides that every field is there and well-formed: keys and tensor names are unique, not empty, not
/// too long and free of NUL; tensors have at most four dimensions, none of them 0, fewer than 2^63 elements and rows of
/// whole blocks; every tensor starts at a multiple of the alignment, lies inside the file and shares no byte with
/// another. Unlike some readers this one accepts gaps between tensors and tensors out of order, and bytes after the
/// last one.
#[derive(Debug, Clone)]
pub struct GgufHeader {
    version: u32,
    alignment: u32,
    data_start: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    index: HashMap<String, usize>,
}

impl GgufHeader {
    /// Parses the header of a file of `total_len` bytes that starts with `bytes`; `file` names it in errors.
    ///
    /// `bytes` is the whole file or at least all of its header; tensor data is not looked at.
    ///
    /// # Errors
    ///
    /// [`GgufError::Malformed`] with the byte offset and the field.
    pub fn parse(bytes: &[u8], total_len: u64, file: &str) -> Result<Self, GgufError> {
        let limit = total_len.min(MAX_HEADER_BYTES);
        let window = match usize::try_from(limit).ok().and_then(|limit| bytes.get(..limit)) {
            Some(window) => window,
            None => bytes,
        };
        Parser { cursor: Cursor::new(window, total_len), file, total_len }.header()
    }

    /// The version of the container, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Bytes to which tensors are aligned; a power of two.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Bytes from the start of the file to the data section.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensors in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor of this name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensor_index(name).and_then(|index| self.tensors.get(index))
    }

    /// The place of the tensor of this name in the list, if there is one.
    pub(crate) fn tensor_index(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// The tensor names in file order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.tensors.iter().map(TensorInfo::name)
    }
}

/// A tensor entry before the start of the data section is known.
struct Listed {
    info: TensorInfo,
    /// Where the entry's offset field stands.
    offset_field: u64,
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    file: &'a str,
    total_len: u64,
}

impl Parser<'_> {
    fn malformed(&self, field: impl Into<String>, located: Located) -> GgufError {
        GgufError::Malformed {
            file: self.file.to_owned(),
            offset: located.offset,
            field: field.into(),
            fault: located.fault,
        }
    }

    fn header(mut self) -> Result<GgufHeader, GgufError> {
        let version = self.version()?;
        let tensor_count =
            self.cursor.count(MIN_TENSOR_BYTES).map_err(|error| self.malformed("tensor count", error))?;
        let metadata_count =
            self.cursor.count(MIN_METADATA_BYTES).map_err(|error| self.malformed("metadata count", error))?;

        let mut metadata = Metadata::new(self.file);
        let mut alignment = DEFAULT_ALIGNMENT;
        for number in 0..metadata_count {
            let entry = self.entry(number, &metadata)?;
            if entry.key == ALIGNMENT_KEY {
                alignment = check::alignment(&entry.value).map_err(|fault| {
                    let located = Located { offset: entry.offset, fault };
                    self.malformed(format!("metadata \"{ALIGNMENT_KEY}\""), located)
                })?;
            }
            // `entry` has refused a key that is there already.
            let _inserted = metadata.insert(entry);
        }

        let mut listed: Vec<Listed> = Vec::new();
        let mut index = HashMap::new();
        for number in 0..tensor_count {
            let tensor = self.tensor(number, alignment, &index)?;
            index.insert(tensor.info.name.clone(), listed.len());
            listed.push(tensor);
        }

        let data_start = check::align_up(self.cursor.offset(), alignment)
            .ok_or_else(|| self.malformed("data section", self.cursor.here(Fault::SizeOverflow)))?;
        self.place(&mut listed, data_start)?;
        let tensors = listed.into_iter().map(|listed| listed.info).collect();
        Ok(GgufHeader { version, alignment, data_start, metadata, tensors, index })
    }

    fn version(&mut self) -> Result<u32, GgufError> {
        let found = self.cursor.bytes().map_err(|error| self.malformed("magic", error))?;
        if found != MAGIC {
            let located = Located { offset: 0, fault: Fault::BadMagic { found } };
            return Err(self.malformed("magic", located));
        }
        let offset = self.cursor.offset();
        let version = self.cursor.u32().map_err(|error| self.malformed("version", error))?;
        let fault = match version {
            2 | 3 => return Ok(version),
            // A small number stored big-endian has its low half empty.
            other if other != 0 && other.trailing_zeros() >= 16 => Fault::BigEndian,
            other => Fault::Version(other),
        };
        Err(self.malformed("version", Located { offset, fault }))
    }

    fn entry(&mut self, number: u64, metadata: &Metadata) -> Result<MetadataEntry, GgufError> {
        let key_offset = self.cursor.offset();
        let key = self.cursor.string().and_then(|key| {
            match check::key(key) {
                Ok(()) if metadata.contains(key) => Err(Fault::DuplicateKey(key.to_owned())),
                Ok(()) => Ok(key),
                Err(fault) => Err(fault),
            }
            .map_err(|fault| Located { offset: key_offset, fault })
        });
        let key = key.map_err(|error| self.malformed(format!("metadata[{number}] key"), error))?;

        let value_type =
            self.value_type().map_err(|error| self.malformed(format!("metadata \"{key}\" value type"), error))?;
        let offset = self.cursor.offset();
        let value = match value_type {
            ValueType::Array => Value::Array(self.array(key)?),
            scalar => self.scalar(scalar).map_err(|error| self.malformed(format!("metadata \"{key}\""), error))?,
        };
        Ok(MetadataEntry { key: key.to_owned(), value, offset })
    }

    fn value_type(&mut self) -> Result<ValueType, Located> {
        let offset = self.cursor.offset();
        let id = self.cursor.u32()?;
        ValueType::from_id(id).ok_or(Located { offset, fault: Fault::UnknownValueType(id) })
    }

    fn scalar(&mut self, value_type: ValueType) -> Result<Value, Located> {
        let cursor = &mut self.cursor;
        Ok(match value_type {
            ValueType::U8 => Value::U8(u8::from_le_bytes(cursor.bytes()?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.bytes()?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.bytes()?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.bytes()?)),
            ValueType::U32 => Value::U32(cursor.u32()?),
            ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.bytes()?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.bytes()?)),
            ValueType::Bool => Value::Bool(cursor.bool()?),
            ValueType::String => Value::String(cursor.string()?.to_owned()),
            ValueType::Array => return Err(cursor.here(Fault::NestedArray)),
            ValueType::U64 => Value::U64(cursor.u64()?),
            ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.bytes()?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.bytes()?)),
        })
    }

    fn array(&mut self, key: &str) -> Result<Array, GgufError> {
        let type_offset = self.cursor.offset();
        let element = self
            .value_type()
            .and_then(|element| match element {
                ValueType::Array => Err(Located { offset: type_offset, fault: Fault::NestedArray }),
                other => Ok(other),
            })
            .map_err(|error| self.malformed(format!("metadata \"{key}\" element type"), error))?;
        let count = self
            .cursor
            .count(element.min_bytes())
            .map_err(|error| self.malformed(format!("metadata \"{key}\" count"), error))?;

        let cursor = &mut self.cursor;
        let array = match element {
            ValueType::String => return self.strings(key, count).map(Array::String),
            ValueType::Bool => return self.bools(key, count).map(Array::Bool),
            ValueType::U8 => cursor.numbers(count, u8::from_le_bytes).map(Array::U8),
            ValueType::I8 => cursor.numbers(count, i8::from_le_bytes).map(Array::I8),
            ValueType::U16 => cursor.numbers(count, u16::from_le_bytes).map(Array::U16),
            ValueType::I16 => cursor.numbers(count, i16::from_le_bytes).map(Array::I16),
            ValueType::U32 => cursor.numbers(count, u32::from_le_bytes).map(Array::U32),
            ValueType::I32 => cursor.numbers(count, i32::from_le_bytes).map(Array::I32),
            ValueType::F32 => cursor.numbers(count, f32::from_le_bytes).map(Array::F32),
            ValueType::U64 => cursor.numbers(count, u64::from_le_bytes).map(Array::U64),
            ValueType::I64 => cursor.numbers(count, i64::from_le_bytes).map(Array::I64),
            ValueType::F64 => cursor.numbers(count, f64::from_le_bytes).map(Array::F64),
            ValueType::Array => Err(cursor.here(Fault::NestedArray)),
        };
        array.map_err(|error| self.malformed(format!("metadata \"{key}\""), error))
    }

    fn strings(&mut self, key: &str, count: u64) -> Result<StringArray, GgufError> {
        // The count has been checked against the bytes that follow, eight for each text at least.
        let mut strings = StringArray::with_capacity(count as usize);
        for number in 0..count {
            self.cursor
                .string()
                .and_then(|text| {
                    let fault = Fault::HeaderTooLong { needed: text.len() as u64, limit: MAX_HEADER_BYTES };
                    if strings.push(text) { Ok(()) } else { Err(self.cursor.here(fault)) }
                })
                .map_err(|error| self.malformed(format!("metadata \"{key}\"[{number}]"), error))?;
        }
        Ok(strings)
    }

    fn bools(&mut self, key: &str, count: u64) -> Result<Vec<bool>, GgufError> {
        let mut bools = Vec::with_capacity(count as usize);
        for number in 0..count {
            let value =
                self.cursor.bool().map_err(|error| self.malformed(format!("metadata \"{key}\"[{number}]"), error))?;
            bools.push(value);
        }
        Ok(bools)
    }

    fn tensor(&mut self, number: u64, alignment: u32, index: &HashMap<String, usize>) -> Result<Listed, GgufError> {
        let name_offset = self.cursor.offset();
        let name = self.cursor.string().and_then(|name| {
            match check::tensor_name(name) {
                Ok(()) if index.contains_key(name) => Err(Fault::DuplicateTensor(name.to_owned())),
                Ok(()) => Ok(name),
                Err(fault) => Err(fault),
            }
            .map_err(|fault| Located { offset: name_offset, fault })
        });
        let name = name.map_err(|error| self.malformed(format!("tensor[{number}] name"), error))?;
        let field = |what: &str| format!("tensor \"{name}\" {what}");

        let at = self.cursor.offset();
        let dim_count = self
            .cursor
            .u32()
            .and_then(|count| check::dim_count(u64::from(count)).map_err(|fault| Located { offset: at, fault }))
            .map_err(|error| self.malformed(field("dimension count"), error))?;

        let dims_offset = self.cursor.offset();
        let mut shape = [1; MAX_DIMS];
        let mut elems = 1;
        for (axis, dim) in shape.iter_mut().enumerate().take(dim_count) {
            let at = self.cursor.offset();
            *dim = self.cursor.u64().map_err(|error| self.malformed(field(&format!("dimension {axis}")), error))?;
            elems = check::dim(elems, *dim)
                .map_err(|fault| self.malformed(field(&format!("dimension {axis}")), Located { offset: at, fault }))?;
        }

        let at = self.cursor.offset();
        let format = self
            .cursor
            .u32()
            .and_then(|id| BlockFormat::from_gguf_id(id).ok_or(Located { offset: at, fault: Fault::UnknownFormat(id) }))
            .map_err(|error| self.malformed(field("type"), error))?;
        let byte_len = check::byte_len(format, shape[0], elems)
            .map_err(|fault| self.malformed(field("dimensions"), Located { offset: dims_offset, fault }))?;

        let offset_field = self.cursor.offset();
        let offset = self.cursor.u64().map_err(|error| self.malformed(field("offset"), error))?;
        if !offset.is_multiple_of(u64::from(alignment)) {
            let fault = Fault::Misaligned { offset, alignment };
            return Err(self.malformed(field("offset"), Located { offset: offset_field, fault }));
        }
        let info = TensorInfo {
            name: name.to_owned(),
            dim_count: dim_count as u8,
            shape,
            format,
            offset,
            data_start: 0,
            byte_len,
        };
        Ok(Listed { info, offset_field })
    }

    /// Sets the start of the data section and checks that tensors lie inside the file and apart from each other.
    fn place(&self, listed: &mut [Listed], data_start: u64) -> Result<(), GgufError> {
        let wrong = |tensor: &Listed, fault| {
            let field = format!("tensor \"{}\" offset", tensor.info.name);
            self.malformed(field, Located { offset: tensor.offset_field, fault })
        };
        for tensor in &mut *listed {
            tensor.info.data_start = data_start;
            let info = &tensor.info;
            let end = data_start
                .checked_add(info.offset)
                .and_then(|start| start.checked_add(info.byte_len))
                .ok_or_else(|| wrong(tensor, Fault::SizeOverflow))?;
            if end > self.total_len {
                return Err(wrong(tensor, Fault::OutOfRange { end, total: self.total_len }));
            }
        }

        let mut order: Vec<&Listed> = listed.iter().collect();
        order.sort_by_key(|tensor| tensor.info.offset);
        for pair in order.windows(2) {
            let [first, second] = pair else { continue };
            if first.info.offset + first.info.byte_len > second.info.offset {
                // The later entry of the list is the one at fault.
                let (earlier, later) =
                    if first.offset_field < second.offset_field { (first, second) } else { (second, first) };
                let other = earlier.info.name.clone();
                return Err(wrong(later, Fault::Overlap { other }));
            }
        }
        Ok(())
    }
}
