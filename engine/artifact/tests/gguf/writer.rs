//! The bytes that the writer makes, and what it refuses.

use std::io::{self, Write};

use crate::raw::Raw;
use memra_artifact::{Fault, GgufWriter, Value, WriteError};
use memra_contract::BlockFormat;

#[test]
fn the_bytes_are_those_of_the_format() {
    let mut writer = GgufWriter::new();
    writer.set("k", Value::String("v".to_owned())).unwrap();
    writer.declare("a", &[3], BlockFormat::F32).unwrap();
    writer.declare("b", &[2, 1], BlockFormat::F32).unwrap();
    let mut body = writer.begin(Vec::new()).unwrap();
    body.tensor("a", &[1; 12]).unwrap();
    body.tensor("b", &[2; 8]).unwrap();
    let bytes = body.finish().unwrap();

    let mut expected =
        Raw::start(2, 1).text("k").u32(8).text("v").tensor("a", &[3], 0, 0).tensor("b", &[2, 1], 0, 32).data(64).0;
    let data_start = expected.len() - 64;
    expected[data_start..data_start + 12].fill(1);
    expected[data_start + 32..data_start + 40].fill(2);
    assert_eq!(bytes, expected);
}

#[test]
fn the_alignment_is_that_of_the_metadata() {
    let mut writer = GgufWriter::new();
    assert_eq!(writer.alignment(), 32);
    writer.set("general.alignment", Value::U32(128)).unwrap();
    assert_eq!(writer.alignment(), 128);
    writer.declare("a", &[1], BlockFormat::F32).unwrap();
    writer.declare("b", &[1], BlockFormat::F32).unwrap();
    let (header, total_len) = writer.header().unwrap();
    assert_eq!(header.len(), 123);
    assert_eq!(total_len, 128 + 256);
}

#[test]
fn what_a_reader_would_refuse_is_refused() {
    let mut writer = GgufWriter::new();
    let fault = |result: Result<(), WriteError>| match result.unwrap_err() {
        WriteError::Metadata { fault, .. } | WriteError::Tensor { fault, .. } => fault,
        other => panic!("{other}"),
    };
    assert_eq!(fault(writer.set("", Value::U8(0))), Fault::Empty);
    assert_eq!(fault(writer.set("general.alignment", Value::U32(3))), Fault::AlignmentValue(3));
    writer.set("k", Value::U8(0)).unwrap();
    let duplicate = writer.set("k", Value::U8(1));
    assert_eq!(fault(duplicate), Fault::DuplicateKey("k".to_owned()));

    let f32 = BlockFormat::F32;
    assert_eq!(fault(writer.declare("", &[1], f32)), Fault::Empty);
    assert_eq!(fault(writer.declare(&"x".repeat(64), &[1], f32)), Fault::TooLong { length: 64, limit: 63 });
    assert_eq!(fault(writer.declare("t", &[1; 5], f32)), Fault::TooManyDims(5));
    assert_eq!(fault(writer.declare("t", &[4, 0], f32)), Fault::ZeroDim);
    assert_eq!(fault(writer.declare("t", &[1 << 32, 1 << 32], f32)), Fault::TooManyElements);
    assert_eq!(fault(writer.declare("t", &[1 << 62], f32)), Fault::SizeOverflow);
    let beyond = BlockFormat::F8_E4M3;
    assert_eq!(fault(writer.declare("t", &[1], beyond)), Fault::NotInGguf(beyond));
    let partial = Fault::PartialBlock { row: 33, format: BlockFormat::Q8_0 };
    assert_eq!(fault(writer.declare("t", &[33], BlockFormat::Q8_0)), partial);
    writer.declare("t", &[1], f32).unwrap();
    let duplicate = writer.declare("t", &[1], f32);
    assert_eq!(fault(duplicate), Fault::DuplicateTensor("t".to_owned()));
}

#[test]
fn sizes_whose_sum_overflows_are_refused() {
    let mut writer = GgufWriter::new();
    for name in ["a", "b"] {
        let i8 = BlockFormat::from_name("i8").unwrap();
        writer.declare(name, &[i64::MAX as u64], i8).unwrap();
    }
    let error = writer.begin(Vec::new()).unwrap_err();
    assert!(matches!(&error, WriteError::Tensor { name, fault: Fault::SizeOverflow } if name == "b"), "{error}");
}

#[test]
fn data_comes_in_turn_and_in_full() {
    let mut writer = GgufWriter::new();
    writer.declare("a", &[2], BlockFormat::F32).unwrap();
    writer.declare("b", &[2], BlockFormat::F32).unwrap();

    let mut body = writer.begin(Vec::new()).unwrap();
    let message = body.tensor("b", &[0; 8]).unwrap_err().to_string();
    assert_eq!(message, "data of tensor \"b\" given where tensor \"a\" comes next");
    let message = body.tensor("a", &[0; 7]).unwrap_err().to_string();
    assert_eq!(message, "tensor \"a\" takes 8 bytes, but 7 were given");
    // Nothing was written for the refused calls.
    body.tensor("a", &[0; 8]).unwrap();
    let message = body.finish().unwrap_err().to_string();
    assert_eq!(message, "tensor \"b\" comes next and has no data yet (tensors without data: 1)");

    let mut body = writer.begin(Vec::new()).unwrap();
    let error = body.tensor_with("a", |out| out.write_all(&[0; 9])).unwrap_err();
    assert!(matches!(error, WriteError::DataLength { expected: 8, found: 9, .. }), "{error}");

    let mut body = writer.begin(Vec::new()).unwrap();
    body.tensor("a", &[0; 8]).unwrap();
    body.tensor("b", &[0; 8]).unwrap();
    let message = body.tensor("c", &[]).unwrap_err().to_string();
    assert_eq!(message, "data of tensor \"c\" given where nothing comes next");
}

#[test]
fn an_output_that_refuses_is_named() {
    #[derive(Debug)]
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut writer = GgufWriter::new();
    writer.declare("a", &[2], BlockFormat::F32).unwrap();
    let error = writer.begin(Full(10)).unwrap_err();
    assert_eq!(error.to_string(), "cannot write the header");
    let mut body = writer.begin(Full(70)).unwrap();
    let error = body.tensor("a", &[0; 8]).unwrap_err();
    assert_eq!(error.to_string(), "cannot write the data of tensor \"a\"");
}
