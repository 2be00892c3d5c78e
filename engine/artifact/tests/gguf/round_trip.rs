//! What is written is read back equal, for random metadata and tensors; and random damage keeps the reader's promises.

use memra_artifact::{Array, GgufFile, GgufHeader, GgufWriter, StringArray, Value, fuzzing};
use memra_contract::BlockFormat;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn array() -> impl Strategy<Value = Array> {
    prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Array::U8),
        vec(any::<i8>(), 0..9).prop_map(Array::I8),
        vec(any::<u16>(), 0..9).prop_map(Array::U16),
        vec(any::<i16>(), 0..9).prop_map(Array::I16),
        vec(any::<u32>(), 0..9).prop_map(Array::U32),
        vec(any::<i32>(), 0..9).prop_map(Array::I32),
        vec(any::<f32>(), 0..9).prop_map(Array::F32),
        vec(any::<bool>(), 0..9).prop_map(Array::Bool),
        vec(any::<String>(), 0..9).prop_map(|texts| Array::String(StringArray::from_texts(texts).unwrap())),
        vec(any::<u64>(), 0..9).prop_map(Array::U64),
        vec(any::<i64>(), 0..9).prop_map(Array::I64),
        vec(any::<f64>(), 0..9).prop_map(Array::F64),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        any::<String>().prop_map(Value::String),
        array().prop_map(Value::Array),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
    ]
}

/// Dimensions in blocks along the first axis, the format, and a byte to fill the data with.
type TensorSpec = (Vec<u64>, BlockFormat, u8);

fn tensor() -> impl Strategy<Value = TensorSpec> {
    (vec(1_u64..4, 0..=4), 0..BlockFormat::ALL.len(), any::<u8>()).prop_map(|(mut dims, format, fill)| {
        let format = BlockFormat::ALL[format];
        match dims.first_mut() {
            Some(row) => *row *= format.block_elems,
            None if format.block_elems > 1 => dims.push(format.block_elems),
            None => {}
        }
        (dims, format, fill)
    })
}

#[derive(Debug, Clone)]
struct Spec {
    alignment: Option<u32>,
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, TensorSpec)>,
}

fn spec() -> impl Strategy<Value = Spec> {
    (
        proptest::option::of((0_u32..12).prop_map(|power| 1 << power)),
        btree_map("[a-z][a-z0-9_.é]{0,20}", value(), 0..12),
        btree_map("[a-z][a-z0-9_.é]{0,20}", tensor(), 0..8),
    )
        .prop_map(|(alignment, metadata, tensors)| Spec {
            alignment,
            metadata: metadata.into_iter().collect(),
            tensors: tensors.into_iter().collect(),
        })
}

fn data(name: &str, (dims, format, fill): &TensorSpec) -> Vec<u8> {
    let length = format.bytes_of(dims.iter().product()).unwrap() as usize;
    (0..length).map(|index| fill.wrapping_add(index as u8).wrapping_add(name.len() as u8)).collect()
}

fn write(spec: &Spec) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    for (key, value) in &spec.metadata {
        writer.set(key, value.clone()).unwrap();
    }
    if let Some(alignment) = spec.alignment {
        writer.set("general.alignment", Value::U32(alignment)).unwrap();
    }
    for (name, (dims, format, _)) in &spec.tensors {
        writer.declare(name, dims, *format).unwrap();
    }
    let mut body = writer.begin(Vec::new()).unwrap();
    for (name, tensor) in &spec.tensors {
        let data = data(name, tensor);
        let pieces = data.chunks(7);
        body.tensor_with(name, |out| {
            for piece in pieces {
                out.write_all(piece)?;
            }
            Ok(())
        })
        .unwrap();
    }
    body.finish().unwrap()
}

/// Equal with the bits of floating-point numbers compared, so that a NaN equals itself.
fn same(first: &Value, second: &Value) -> bool {
    match (first, second) {
        (Value::F32(first), Value::F32(second)) => first.to_bits() == second.to_bits(),
        (Value::F64(first), Value::F64(second)) => first.to_bits() == second.to_bits(),
        (Value::Array(Array::F32(first)), Value::Array(Array::F32(second))) => {
            first.iter().map(|x| x.to_bits()).eq(second.iter().map(|x| x.to_bits()))
        }
        (Value::Array(Array::F64(first)), Value::Array(Array::F64(second))) => {
            first.iter().map(|x| x.to_bits()).eq(second.iter().map(|x| x.to_bits()))
        }
        (first, second) => first == second,
    }
}

/// A change to the bytes of a file.
#[derive(Debug, Clone)]
enum Damage {
    Byte(usize, u8),
    Number(usize, u64),
    Cut(usize),
    Repeat(usize, usize),
    Remove(usize, usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<usize>();
    let number = prop_oneof![
        any::<u64>(),
        (0_u32..64).prop_map(|bit| 1 << bit),
        (0_u64..600),
        (0_u64..300).prop_map(|small| u64::MAX - small),
    ];
    prop_oneof![
        4 => (place, any::<u8>()).prop_map(|(place, value)| Damage::Byte(place, value)),
        4 => (place, number).prop_map(|(place, value)| Damage::Number(place, value)),
        1 => place.prop_map(Damage::Cut),
        1 => (place, 0_usize..64).prop_map(|(place, length)| Damage::Repeat(place, length)),
        1 => (place, 0_usize..64).prop_map(|(place, length)| Damage::Remove(place, length)),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let length = bytes.len();
    let range = |place: usize, size: usize| {
        let start = place % (length + 1);
        start..(start + size).min(length)
    };
    match damage {
        Damage::Byte(place, value) => bytes[range(*place, 1)].fill(*value),
        Damage::Number(place, value) => {
            let range = range(*place, 8);
            let size = range.len();
            bytes[range].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        Damage::Cut(place) => bytes.truncate(place % (length + 1)),
        Damage::Repeat(place, size) => {
            let range = range(*place, *size);
            let piece = bytes[range.clone()].to_vec();
            bytes.splice(range.start..range.start, piece);
        }
        Damage::Remove(place, size) => {
            bytes.drain(range(*place, *size));
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(spec in spec()) {
        let bytes = write(&spec);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("random.gguf");
        std::fs::write(&path, &bytes).unwrap();
        let file = GgufFile::open(&path).unwrap();

        prop_assert_eq!(file.header().version(), 3);
        prop_assert_eq!(file.header().alignment(), spec.alignment.unwrap_or(32));
        let entries = spec.metadata.len() + usize::from(spec.alignment.is_some());
        prop_assert_eq!(file.metadata().len(), entries);
        for ((key, value), entry) in spec.metadata.iter().zip(file.metadata().iter()) {
            prop_assert_eq!(key, entry.key());
            prop_assert!(same(value, entry.value()), "{}: {:?} {:?}", key, value, entry.value());
        }

        prop_assert_eq!(file.tensors().len(), spec.tensors.len());
        for ((name, tensor), read) in spec.tensors.iter().zip(file.tensors()) {
            let (dims, format, _) = tensor;
            prop_assert_eq!(name, read.info().name());
            prop_assert_eq!(dims.as_slice(), read.info().dims());
            prop_assert_eq!(*format, read.info().format());
            prop_assert_eq!(data(name, tensor), read.data());
            prop_assert_eq!(file.tensor(name).unwrap().data(), read.data());
        }
        fuzzing::gguf(&bytes);
    }

    #[test]
    fn random_bytes_behind_the_magic_keep_the_promises(tail in vec(any::<u8>(), 0..400)) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(tail);
        fuzzing::gguf(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn damaged_files_keep_the_promises(seed in 0_usize..5, damages in vec(damage(), 1..5)) {
        let mut bytes = fuzzing::gguf_seeds().swap_remove(seed).1;
        for damage in &damages {
            apply(&mut bytes, damage);
        }
        fuzzing::gguf(&bytes);
    }
}

#[test]
fn there_are_as_many_seeds_as_the_damage_test_draws_from() {
    assert_eq!(fuzzing::gguf_seeds().len(), 5);
}

#[test]
fn numbers_keep_their_bits() {
    let nan = f32::from_bits(0x7fa0_0001);
    let mut writer = GgufWriter::new();
    writer.set("nan", Value::F32(nan)).unwrap();
    writer.set("zero", Value::F64(-0.0)).unwrap();
    let bytes = writer.begin(Vec::new()).unwrap().finish().unwrap();
    let header = GgufHeader::parse(&bytes, bytes.len() as u64, "bits.gguf").unwrap();
    assert_eq!(header.metadata().get_f32("nan").unwrap().to_bits(), nan.to_bits());
    assert!(same(header.metadata().get("zero").unwrap(), &Value::F64(-0.0)));
}
