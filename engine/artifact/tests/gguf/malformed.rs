//! Crafted and damaged files: each gives an error that names place, field and fault.

use crate::raw::Raw;
use memra_artifact::{Fault, GgufError, GgufHeader, MAX_HEADER_BYTES, ValueType, fuzzing};

const F32: u32 = 0;
const Q8_0: u32 = 8;

fn located(offset: u64, field: &str, fault: Fault) -> (u64, String, Fault) {
    (offset, field.to_owned(), fault)
}

#[test]
fn the_crafted_base_is_well_formed() {
    let raw = Raw::start(1, 1).byte_entry("a").tensor("t", &[2], F32, 0).data(8);
    let header = raw.parse().unwrap();
    assert_eq!(header.version(), 3);
    assert_eq!(header.metadata().get_u64("a").unwrap(), 7);
    assert_eq!(header.tensor("t").unwrap().dims(), [2]);
}

#[test]
fn magic_and_version() {
    let bad = Raw::default().bytes(b"ggjt").u32(3).u64(0).u64(0);
    assert_eq!(bad.fault(), located(0, "magic", Fault::BadMagic { found: *b"ggjt" }));
    for (version, fault) in [
        (0, Fault::Version(0)),
        (1, Fault::Version(1)),
        (4, Fault::Version(4)),
        (3_u32.swap_bytes(), Fault::BigEndian),
        (2_u32.swap_bytes(), Fault::BigEndian),
    ] {
        let raw = Raw::default().bytes(b"GGUF").u32(version).u64(0).u64(0);
        assert_eq!(raw.fault(), located(4, "version", fault));
    }
    let message = bad.parse().unwrap_err().to_string();
    assert_eq!(message, "crafted.gguf: byte 0: magic: not a GGUF file: it starts with \"ggjt\" instead of \"GGUF\"");
}

#[test]
fn counts_that_the_file_cannot_hold() {
    for count in [1, 1 << 62, u64::MAX] {
        let fault = Fault::CountTooLarge { count, min_bytes: 25, left: 8 };
        assert_eq!(Raw::start(count, 0).fault(), located(8, "tensor count", fault));
        let fault = Fault::CountTooLarge { count, min_bytes: 14, left: 0 };
        assert_eq!(Raw::start(0, count).fault(), located(16, "metadata count", fault));
    }
}

#[test]
fn keys() {
    let empty = Raw::start(0, 1).byte_entry("").data(0);
    assert_eq!(empty.fault(), located(24, "metadata[0] key", Fault::Empty));
    let long = "k".repeat(65_536);
    let fault = Fault::TooLong { length: 65_536, limit: 65_535 };
    assert_eq!(Raw::start(0, 1).byte_entry(&long).fault(), located(24, "metadata[0] key", fault));
    let nul = Raw::start(0, 1).byte_entry("a\0b");
    assert_eq!(nul.fault(), located(24, "metadata[0] key", Fault::ContainsNul));
    let twice = Raw::start(0, 2).byte_entry("key").byte_entry("key");
    let fault = Fault::DuplicateKey("key".to_owned());
    assert_eq!(twice.fault(), located(24 + 16, "metadata[1] key", fault));
    let latin = Raw::start(0, 1).u64(2).bytes(b"a\xff").u32(0).bytes(&[7]);
    assert_eq!(latin.fault(), located(33, "metadata[0] key", Fault::NotUtf8));
}

#[test]
fn string_lengths() {
    for length in [5, 1 << 31, 1 << 63, u64::MAX] {
        let key = Raw::start(0, 1).u64(length).bytes(&[0; 4]).data(0);
        let left = key.0.len() as u64 - 32;
        if length > left {
            let fault = Fault::Truncated { needed: length, left };
            assert_eq!(key.fault(), located(32, "metadata[0] key", fault));
        }
        let value = Raw::start(0, 1).text("k").u32(8).u64(length).bytes(b"abcd");
        let fault = Fault::Truncated { needed: length, left: 4 };
        assert_eq!(value.fault(), located(45, "metadata \"k\"", fault));
    }
}

#[test]
fn value_types() {
    for id in [13, 255, u32::MAX] {
        let raw = Raw::start(0, 1).text("k").u32(id).u64(0);
        let fault = Fault::UnknownValueType(id);
        assert_eq!(raw.fault(), located(33, "metadata \"k\" value type", fault));
        let raw = Raw::start(0, 1).text("k").u32(9).u32(id).u64(0);
        let fault = Fault::UnknownValueType(id);
        assert_eq!(raw.fault(), located(37, "metadata \"k\" element type", fault));
    }
    let nested = Raw::start(0, 1).text("k").u32(9).u32(9).u64(1).u32(0).u64(0);
    assert_eq!(nested.fault(), located(37, "metadata \"k\" element type", Fault::NestedArray));
}

#[test]
fn booleans() {
    let raw = Raw::start(0, 1).text("k").u32(7).bytes(&[2]);
    assert_eq!(raw.fault(), located(37, "metadata \"k\"", Fault::BadBool(2)));
    let raw = Raw::start(0, 1).text("k").u32(9).u32(7).u64(3).bytes(&[0, 1, 255]);
    assert_eq!(raw.fault(), located(51, "metadata \"k\"[2]", Fault::BadBool(255)));
}

#[test]
fn array_counts() {
    for (id, min_bytes) in [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (8, 8), (10, 8), (12, 8)] {
        for count in [9, 1 << 61, 1 << 62, u64::MAX] {
            let raw = Raw::start(0, 1).text("k").u32(9).u32(id).u64(count).u64(0);
            let fault = Fault::CountTooLarge { count, min_bytes, left: 8 };
            assert_eq!(raw.fault(), located(41, "metadata \"k\" count", fault), "type {id}");
        }
    }
}

#[test]
fn texts_in_arrays() {
    let raw = Raw::start(0, 1).text("k").u32(9).u32(8).u64(2).text("ab").u64(1).bytes(&[0xc3]);
    assert_eq!(raw.fault(), located(67, "metadata \"k\"[1]", Fault::NotUtf8));
    let raw = Raw::start(0, 1).text("k").u32(9).u32(8).u64(2).text("ab").u64(1 << 63);
    let fault = Fault::Truncated { needed: 1 << 63, left: 0 };
    assert_eq!(raw.fault(), located(67, "metadata \"k\"[1]", fault));
}

#[test]
fn alignment() {
    let with = |value_type: u32, value: &[u8]| Raw::start(0, 1).text("general.alignment").u32(value_type).bytes(value);
    for alignment in [0_u32, 3, 33, u32::MAX] {
        let fault = Fault::AlignmentValue(alignment);
        let raw = with(4, &alignment.to_le_bytes());
        assert_eq!(raw.fault(), located(53, "metadata \"general.alignment\"", fault));
    }
    let raw = with(10, &32_u64.to_le_bytes());
    let fault = Fault::AlignmentType(ValueType::U64);
    assert_eq!(raw.fault(), located(53, "metadata \"general.alignment\"", fault));
    let largest = with(4, &(1_u32 << 31).to_le_bytes()).parse().unwrap();
    assert_eq!((largest.alignment(), largest.data_start()), (1 << 31, 1 << 31));
}

#[test]
fn tensor_names() {
    let named = |name: &str| Raw::start(1, 0).tensor(name, &[2], F32, 0).data(8);
    assert_eq!(named("").fault(), located(24, "tensor[0] name", Fault::Empty));
    let fault = Fault::TooLong { length: 64, limit: 63 };
    assert_eq!(named(&"x".repeat(64)).fault(), located(24, "tensor[0] name", fault));
    assert!(named(&"x".repeat(63)).parse().is_ok());
    assert_eq!(named("a\0").fault(), located(24, "tensor[0] name", Fault::ContainsNul));
    let twice = Raw::start(2, 0).tensor("t", &[8], F32, 0).tensor("t", &[8], F32, 32).data(64);
    let fault = Fault::DuplicateTensor("t".to_owned());
    assert_eq!(twice.fault(), located(57, "tensor[1] name", fault));
}

#[test]
fn dimension_counts() {
    for count in [5, 9, u32::MAX] {
        let raw = Raw::start(1, 0).text("t").u32(count).data(96);
        let fault = Fault::TooManyDims(u64::from(count));
        assert_eq!(raw.fault(), located(33, "tensor \"t\" dimension count", fault));
    }
    let single = Raw::start(1, 0).tensor("t", &[], F32, 0).data(4).parse().unwrap();
    let tensor = single.tensor("t").unwrap();
    assert_eq!((tensor.dims().len(), tensor.elems(), tensor.byte_len()), (0, 1, 4));
    assert_eq!(tensor.shape(), [1; 4]);
}

#[test]
fn dimensions_of_zero() {
    for (dims, axis) in [([0, 1], 0), ([1, 0], 1), ([0, 0], 0)] {
        let raw = Raw::start(1, 0).tensor("t", &dims, F32, 0).data(32);
        let field = format!("tensor \"t\" dimension {axis}");
        assert_eq!(raw.fault(), located(37 + 8 * axis, &field, Fault::ZeroDim));
    }
}

#[test]
fn dimensions_that_overflow() {
    let cases: [(&[u64], u64); 5] = [
        (&[1 << 32, 1 << 32], 1),
        (&[1 << 16, 1 << 16, 1 << 16, 1 << 16], 3),
        (&[1 << 63], 0),
        (&[u64::MAX, u64::MAX], 0),
        (&[1 << 62, 2], 1),
    ];
    for (dims, axis) in cases {
        let raw = Raw::start(1, 0).tensor("t", dims, F32, 0).data(32);
        let field = format!("tensor \"t\" dimension {axis}");
        assert_eq!(raw.fault(), located(37 + 8 * axis, &field, Fault::TooManyElements));
    }
}

#[test]
fn sizes_that_overflow() {
    let one = Raw::start(1, 0).tensor("t", &[1 << 62], F32, 0).data(32);
    assert_eq!(one.fault(), located(37, "tensor \"t\" dimensions", Fault::SizeOverflow));
    // Each size fits, but not behind this offset.
    let offset = u64::MAX - 31;
    let far = Raw::start(1, 0).tensor("t", &[1 << 60], F32, offset).data(32);
    assert_eq!(far.fault(), located(49, "tensor \"t\" offset", Fault::SizeOverflow));
    // Two sizes that fit, whose sum passes 2^63.
    let half = 1 << 62;
    let sum = Raw::start(2, 0).tensor("a", &[half], 24, 0).tensor("b", &[half + 64], 24, half).data(32);
    let (offset, field, fault) = sum.fault();
    assert_eq!((offset, field.as_str()), (49, "tensor \"a\" offset"));
    assert!(matches!(fault, Fault::OutOfRange { .. }), "{fault:?}");
}

#[test]
fn formats() {
    for id in [4, 5, 31, 33, 36, 38, 43, u32::MAX] {
        let raw = Raw::start(1, 0).tensor("t", &[32], id, 0).data(128);
        assert_eq!(raw.fault(), located(45, "tensor \"t\" type", Fault::UnknownFormat(id)));
    }
    for dims in [&[16_u64, 2][..], &[33], &[]] {
        let raw = Raw::start(1, 0).tensor("t", dims, Q8_0, 0).data(128);
        let (offset, field, fault) = raw.fault();
        assert_eq!((offset, field.as_str()), (37, "tensor \"t\" dimensions"));
        assert!(matches!(fault, Fault::PartialBlock { .. }), "{fault:?}");
    }
}

#[test]
fn offsets() {
    let at = |offset| Raw::start(1, 0).tensor("t", &[8], F32, offset).data(64);
    assert!(at(32).parse().is_ok());
    for offset in [1, 31, 48, u64::MAX] {
        let fault = Fault::Misaligned { offset, alignment: 32 };
        assert_eq!(at(offset).fault(), located(49, "tensor \"t\" offset", fault));
    }
    for offset in [64, 96, 1 << 40] {
        let fault = Fault::OutOfRange { end: 64 + offset + 32, total: 128 };
        assert_eq!(at(offset).fault(), located(49, "tensor \"t\" offset", fault));
    }
}

#[test]
fn overlaps_are_refused_and_gaps_are_not() {
    let two = |first, second| Raw::start(2, 0).tensor("a", &[16], F32, first).tensor("b", &[8], F32, second).data(160);
    let fault = Fault::Overlap { other: "a".to_owned() };
    for (first, second) in [(0, 0), (0, 32), (32, 64), (64, 64)] {
        assert_eq!(two(first, second).fault(), located(82, "tensor \"b\" offset", fault.clone()));
    }
    for (first, second) in [(0, 64), (0, 96), (32, 0), (64, 0)] {
        assert!(two(first, second).parse().is_ok(), "{first} {second}");
    }
}

#[test]
fn a_count_in_a_large_file_cannot_pass_the_header_limit() {
    // The file claims to be large, so that the count alone would be plausible.
    let raw = Raw::start(0, 1).text("k").u32(9).u32(0).u64(1 << 36);
    let total_len = 1 << 40;
    let error = GgufHeader::parse(&raw.0, total_len, "large.gguf").unwrap_err();
    assert!(matches!(error, GgufError::Malformed { fault: Fault::CountTooLarge { .. }, .. }), "{error}");
    let raw = Raw::start(0, 1).text("k").u32(8).u64(1 << 36);
    let error = GgufHeader::parse(&raw.0, total_len, "large.gguf").unwrap_err();
    assert!(matches!(error, GgufError::Malformed { fault: Fault::HeaderTooLong { .. }, .. }), "{error}");
    const { assert!(MAX_HEADER_BYTES < 1 << 36) };
}

#[test]
fn every_prefix_of_a_file_is_an_error_that_names_offset_and_field() {
    for (name, bytes) in fuzzing::gguf_seeds() {
        let header = GgufHeader::parse(&bytes, bytes.len() as u64, name).unwrap();
        // Padding after the last tensor, or with no tensors all padding, may be missing.
        let end = header.tensors().iter().map(|tensor| tensor.file_range().end).max().map_or(24, |end| end as usize);
        for length in 0..end {
            let prefix = Raw(bytes[..length].to_vec());
            let (offset, field, fault) = prefix.fault();
            assert!(offset <= length as u64, "{name}: {length} bytes");
            assert!(!field.is_empty(), "{name}: {length} bytes");
            assert!(
                matches!(fault, Fault::Truncated { .. } | Fault::CountTooLarge { .. } | Fault::OutOfRange { .. }),
                "{name}: {length} bytes: {fault:?}"
            );
        }
        for length in end..=bytes.len() {
            assert!(Raw(bytes[..length].to_vec()).parse().is_ok(), "{name}: {length} bytes");
        }
    }
}

#[test]
fn no_changed_byte_of_a_header_makes_the_reader_panic() {
    // The seed of version 2 has the header of the first one, but for the version.
    for (name, bytes) in fuzzing::gguf_seeds().into_iter().filter(|(name, _)| *name != "version_2") {
        let total_len = bytes.len() as u64;
        let data_start = GgufHeader::parse(&bytes, total_len, name).unwrap().data_start();
        let mut changed = bytes.clone();
        for position in 0..data_start as usize {
            for value in 0..=u8::MAX {
                changed[position] = value;
                let _ok_or_error = GgufHeader::parse(&changed, total_len, name);
            }
            for bit in 0..8 {
                changed[position] = bytes[position] ^ (1 << bit);
                fuzzing::gguf(&changed);
            }
            changed[position] = bytes[position];
        }
    }
}
