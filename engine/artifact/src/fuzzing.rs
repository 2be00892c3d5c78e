//! The body of the fuzz target, and small files to start from.
//!
//! The functions here panic where the reader breaks its promises; they are for fuzzing and tests.

use memra_contract::BlockFormat;

use crate::{Array, GgufBody, GgufError, GgufHeader, GgufWriter, StringArray, Value, WriteError};

/// Files longer than this are not written anew by [`gguf`], in bytes.
const REWRITE_LIMIT: u64 = 1 << 20;

/// Reads `bytes` as a GGUF file, and where that succeeds, checks what the reader promises and writes the file anew.
///
/// # Panics
///
/// A fault is located outside the file; a tensor lies outside the file, overlaps another, has a size that is not its
/// format's or is not found by its name; the file written anew differs.
pub fn gguf(bytes: &[u8]) {
    let total_len = bytes.len() as u64;
    let header = match GgufHeader::parse(bytes, total_len, "fuzz.gguf") {
        Ok(header) => header,
        Err(GgufError::Malformed { offset, field, .. }) => {
            assert!(offset <= total_len, "the fault at byte {offset} lies past the end");
            assert!(!field.is_empty(), "the fault names no field");
            return;
        }
        Err(other) => panic!("parsing bytes gave another error than a malformed file: {other}"),
    };

    let mut ranges = Vec::new();
    for tensor in header.tensors() {
        let range = tensor.file_range();
        assert!(range.start >= header.data_start() && range.end <= total_len, "{tensor:?}");
        assert_eq!(tensor.format().bytes_of(tensor.elems()), Some(range.end - range.start));
        assert_eq!(header.tensor(tensor.name()), Some(tensor));
        ranges.push(range);
    }
    ranges.sort_by_key(|range| range.start);
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "tensors overlap");

    let Some(again) = rewrite(&header, bytes) else { return };
    let reread =
        GgufHeader::parse(&again, again.len() as u64, "again.gguf").expect("a file that was written can be read");
    for (before, after) in header.tensors().iter().zip(reread.tensors()) {
        assert_eq!(before.name(), after.name());
        assert_eq!(before.dims(), after.dims());
        assert_eq!(before.format(), after.format());
        assert_eq!(slice(bytes, before.file_range()), slice(&again, after.file_range()));
    }
    assert_eq!(rewrite(&reread, &again).as_deref(), Some(again.as_slice()));
}

/// The file written anew, tensors in list order and without gaps; `None` where it would be long.
fn rewrite(header: &GgufHeader, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut writer = GgufWriter::new();
    for entry in header.metadata().iter() {
        writer.set(entry.key(), entry.value().clone()).expect("a key that was read can be written");
    }
    for tensor in header.tensors() {
        writer.declare(tensor.name(), tensor.dims(), tensor.format()).expect("a tensor that was read can be written");
    }
    let (_, total_len) = writer.header().ok()?;
    if total_len > REWRITE_LIMIT {
        return None;
    }
    let mut body = writer.begin(Vec::new()).expect("a vector takes every byte");
    for tensor in header.tensors() {
        body.tensor(tensor.name(), slice(bytes, tensor.file_range()))
            .expect("data that was read has the tensor's length");
    }
    let again = body.finish().expect("every tensor has its data");
    assert_eq!(again.len() as u64, total_len, "the length of the file is known before it is written");
    Some(again)
}

fn slice(bytes: &[u8], range: std::ops::Range<u64>) -> &[u8] {
    &bytes[range.start as usize..range.end as usize]
}

/// Small well-formed files, with a name for each: every value type, several formats, both versions, a shard.
pub fn gguf_seeds() -> Vec<(&'static str, Vec<u8>)> {
    let written = |result: Result<Vec<u8>, WriteError>| result.expect("seeds are well-formed");
    let mut version_2 = written(every_value_type());
    version_2[4] = 2;
    vec![
        ("every_value_type", written(every_value_type())),
        ("version_2", version_2),
        ("empty", written(GgufWriter::new().begin(Vec::new()).and_then(GgufBody::finish))),
        ("formats", written(several_formats())),
        ("shard", written(shard())),
    ]
}

fn every_value_type() -> Result<Vec<u8>, WriteError> {
    let texts = ["", "a", "борщ"];
    let mut writer = GgufWriter::new();
    for (key, value) in [
        ("general.architecture", Value::String("llama".to_owned())),
        ("general.alignment", Value::U32(32)),
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-100)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-30_000)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-2_000_000_000)),
        ("u64", Value::U64(1 << 63)),
        ("i64", Value::I64(i64::MIN)),
        ("f32", Value::F32(1.5)),
        ("f64", Value::F64(-0.25)),
        ("no", Value::Bool(false)),
        ("yes", Value::Bool(true)),
        ("array.u8", Value::Array(Array::U8(vec![1, 2, 3]))),
        ("array.i8", Value::Array(Array::I8(vec![-1, 2]))),
        ("array.u16", Value::Array(Array::U16(vec![1, 60_000]))),
        ("array.i16", Value::Array(Array::I16(vec![-1, 2]))),
        ("array.u32", Value::Array(Array::U32(vec![1, 2]))),
        ("array.i32", Value::Array(Array::I32(vec![-1, 2]))),
        ("array.u64", Value::Array(Array::U64(vec![1, u64::MAX]))),
        ("array.i64", Value::Array(Array::I64(vec![-1, 2]))),
        ("array.f32", Value::Array(Array::F32(vec![0.5, f32::INFINITY]))),
        ("array.f64", Value::Array(Array::F64(vec![0.5, -0.0]))),
        ("array.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("array.string", Value::Array(Array::String(StringArray::from_texts(texts).unwrap_or_default()))),
        ("array.none", Value::Array(Array::U32(Vec::new()))),
    ] {
        writer.set(key, value)?;
    }
    writer.declare("token_embd.weight", &[4, 2], BlockFormat::F32)?;
    writer.declare("output_norm.weight", &[8], BlockFormat::F32)?;
    let mut body = writer.begin(Vec::new())?;
    body.tensor("token_embd.weight", &[1; 32])?;
    body.tensor("output_norm.weight", &[2; 32])?;
    body.finish()
}

fn several_formats() -> Result<Vec<u8>, WriteError> {
    let tensors: [(&str, &[u64], u32); 5] = [
        ("single", &[], 0),
        ("norm", &[3], 1),
        ("q8_0", &[32, 2], 8),
        ("q6_k", &[256, 1, 1, 1], 14),
        ("q4_1", &[64, 1, 2], 3),
    ];
    let mut writer = GgufWriter::new();
    writer.set("general.alignment", Value::U32(8))?;
    let mut sizes = Vec::new();
    for (name, dims, id) in tensors {
        let format = BlockFormat::from_gguf_id(id).unwrap_or(BlockFormat::F32);
        writer.declare(name, dims, format)?;
        sizes.push(format.bytes_of(dims.iter().product()).unwrap_or(0) as usize);
    }
    let mut body = writer.begin(Vec::new())?;
    for ((name, _, _), size) in tensors.into_iter().zip(sizes) {
        body.tensor(name, &vec![7; size])?;
    }
    body.finish()
}

fn shard() -> Result<Vec<u8>, WriteError> {
    let mut writer = GgufWriter::new();
    writer.set("split.no", Value::U16(1))?;
    writer.set("split.count", Value::U16(3))?;
    writer.set("split.tensors.count", Value::I32(5))?;
    writer.declare("blk.0.attn_norm.weight", &[4], BlockFormat::F32)?;
    let mut body = writer.begin(Vec::new())?;
    body.tensor("blk.0.attn_norm.weight", &[0; 16])?;
    body.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_read_and_written_anew() {
        for (name, bytes) in gguf_seeds() {
            GgufHeader::parse(&bytes, bytes.len() as u64, name).unwrap();
            gguf(&bytes);
        }
    }
}
