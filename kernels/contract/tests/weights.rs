//! Rows of every weight format against the values that the `gguf` package gives (tools/format-goldens.py).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use memra_contract::BlockFormat;
use memra_contract::weights::{UNPACKED, unpack_row};

fn bytes(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn rows_have_the_values_of_the_gguf_package() {
    let mut seen = vec![BlockFormat::F32];
    for line in include_str!("data/formats.txt").lines().filter(|line| !line.starts_with('#')) {
        let [name, stored, values] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let format = BlockFormat::from_name(name).unwrap();
        let wanted: Vec<f32> = bytes(values).as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        let got = unpack_row(format, &bytes(stored)).values();
        assert_eq!(got.len(), wanted.len(), "{name}");
        for (i, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
            assert!(got == wanted || got.is_nan() && wanted.is_nan(), "{name}: element {i} is {got}, not {wanted}");
        }
        seen.push(format);
    }
    for format in UNPACKED {
        assert!(seen.contains(format), "{format} has no row");
    }
}
