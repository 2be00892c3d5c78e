//! Comparing outputs: bits with bits, values with a reference, and nothing that is not finite.

use memra_contract::{DType, Tensor, TensorSet, Tolerance};
use memra_kernels::Reference;

use super::case::ErrorJudgement;

/// The first place where outputs are not what they must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// Whether the place still holds the poison: it was never written.
    pub(super) is_poison: bool,
    /// The element and both values.
    pub(super) detail: String,
}

/// The first element in which two sets of outputs differ. `poison` is what the outputs were filled with before.
pub(super) fn first_difference(got: &TensorSet, wanted: &TensorSet, poison: Option<u32>) -> Option<Difference> {
    first_of_pairs(got, wanted, |got, wanted| {
        let at = got.bytes.iter().zip(&wanted.bytes).position(|(got, wanted)| got != wanted)?;
        let is_poison = poison.is_some_and(|pattern| holds_pattern(&got.bytes, at, pattern));
        Some(if is_poison {
            unwritten(wanted, at, poison.unwrap_or_default())
        } else {
            Difference { is_poison: false, detail: different(got, wanted, at) }
        })
    })
}

/// The first place in which outputs are of another form or were not written, whatever else they hold.
pub(super) fn first_unwritten(got: &TensorSet, wanted: &TensorSet, poison: u32) -> Option<Difference> {
    first_of_pairs(got, wanted, |got, wanted| {
        let words = got.bytes.as_chunks::<4>().0.iter().zip(wanted.bytes.as_chunks::<4>().0);
        let pattern = poison.to_le_bytes();
        let word = words.into_iter().position(|(got, wanted)| *got == pattern && *wanted != pattern)?;
        Some(unwritten(wanted, word * 4, poison))
    })
}

/// The first element in which a row of outputs is not another row of other outputs. Rows lie along the first axis.
pub(super) fn first_row_difference(got: (&TensorSet, usize), wanted: (&TensorSet, usize)) -> Option<String> {
    wanted.0.iter().find_map(|tensor| {
        let alone = |of: &Tensor, row: usize| {
            let (m, rest) = of.shape.split_first()?;
            let bytes = of.bytes.len().checked_div(*m)?;
            let shape = [&[1], rest].concat();
            let bytes = of.bytes.get(row * bytes..(row + 1) * bytes)?.to_vec();
            Some(Tensor { name: of.name.clone(), dtype: of.dtype, shape, bytes })
        };
        let wanted = alone(tensor, wanted.1);
        let got = got.0.get(&tensor.name).and_then(|got_tensor| alone(got_tensor, got.1));
        let (Some(got), Some(wanted)) = (got, wanted) else {
            return Some(format!("output `{}` has no such row", tensor.name));
        };
        let [got, wanted] = [got, wanted].map(|tensor| TensorSet::new(vec![tensor]));
        first_difference(&got, &wanted, None).map(|difference| difference.detail)
    })
}

/// The first difference of two sets of outputs of one form, or where their form differs.
fn first_of_pairs(
    got: &TensorSet,
    wanted: &TensorSet,
    difference: impl Fn(&Tensor, &Tensor) -> Option<Difference>,
) -> Option<Difference> {
    let of_form = |detail| Some(Difference { is_poison: false, detail });
    for wanted in wanted.iter() {
        let Some(got) = got.get(&wanted.name) else {
            return of_form(format!("there is no output `{}`", wanted.name));
        };
        if (got.dtype, &got.shape, got.bytes.len()) != (wanted.dtype, &wanted.shape, wanted.bytes.len()) {
            return of_form(format!(
                "output `{}` is {} {:?} in {} bytes, and {} {:?} in {} bytes is needed",
                wanted.name,
                got.dtype,
                got.shape,
                got.bytes.len(),
                wanted.dtype,
                wanted.shape,
                wanted.bytes.len()
            ));
        }
        if let Some(difference) = difference(got, wanted) {
            return Some(difference);
        }
    }
    let extra = got.iter().find(|tensor| wanted.get(&tensor.name).is_none());
    extra.and_then(|tensor| of_form(format!("there is an output `{}` that the contract does not have", tensor.name)))
}

fn unwritten(wanted: &Tensor, at: usize, poison: u32) -> Difference {
    let place = format!("{}{}", wanted.name, index_text(&wanted.shape, at / wanted.dtype.bytes()));
    Difference { is_poison: true, detail: format!("{place} was not written: it holds the poison {poison:08x}") }
}

fn different(got: &Tensor, wanted: &Tensor, at: usize) -> String {
    let element = at / wanted.dtype.bytes();
    let place = format!("{}{}", wanted.name, index_text(&wanted.shape, element));
    format!("{place} is {}, not {}", value_text(got, element), value_text(wanted, element))
}

/// Whether the aligned four bytes around a place are the pattern; fewer at the end of the buffer.
fn holds_pattern(bytes: &[u8], at: usize, pattern: u32) -> bool {
    let start = at / 4 * 4;
    let word = bytes.get(start..bytes.len().min(start + 4)).unwrap_or_default();
    !word.is_empty() && pattern.to_le_bytes().starts_with(word)
}

/// `[row, column]` of an element.
fn index_text(shape: &[usize], element: usize) -> String {
    let mut rest = element;
    let mut index: Vec<String> = Vec::with_capacity(shape.len());
    for size in shape.iter().rev() {
        index.push((rest % (*size).max(1)).to_string());
        rest /= (*size).max(1);
    }
    index.reverse();
    format!("[{}]", index.join(", "))
}

fn value_text(tensor: &Tensor, element: usize) -> String {
    let size = tensor.dtype.bytes();
    let bytes = tensor.bytes.get(element * size..(element + 1) * size).unwrap_or_default();
    match (tensor.dtype, bytes) {
        (DType::F32, &[a, b, c, d]) => {
            let value = f32::from_le_bytes([a, b, c, d]);
            format!("{value:?} ({:08x})", value.to_bits())
        }
        (DType::I32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]).to_string(),
        (DType::I16, &[a, b]) => i16::from_le_bytes([a, b]).to_string(),
        (DType::F16 | DType::Bf16, &[a, b]) => format!("{:04x}", u16::from_le_bytes([a, b])),
        (DType::I8, &[a]) => a.cast_signed().to_string(),
        (DType::U8, &[a]) => a.to_string(),
        _ => "nothing".to_owned(),
    }
}

/// The first element of any output that is infinite or no number.
pub(super) fn first_non_finite(outputs: &TensorSet) -> Option<String> {
    outputs.iter().find_map(|tensor| {
        let element = match tensor.dtype {
            DType::F32 => exponents_full(&tensor.bytes, 0x7f80_0000),
            DType::F16 => exponents_full(&tensor.bytes, 0x7c00),
            DType::Bf16 => exponents_full(&tensor.bytes, 0x7f80),
            DType::I8 | DType::I16 | DType::I32 | DType::U8 => None,
        }?;
        let place = format!("{}{}", tensor.name, index_text(&tensor.shape, element));
        Some(format!("{place} is {}", value_text(tensor, element)))
    })
}

/// The first element all of whose exponent bits are set. Elements are as wide as the mask.
fn exponents_full(bytes: &[u8], mask: u32) -> Option<usize> {
    if mask > 0xffff {
        bytes.as_chunks::<4>().0.iter().position(|b| u32::from_le_bytes(*b) & mask == mask)
    } else {
        bytes.as_chunks::<2>().0.iter().position(|b| u32::from(u16::from_le_bytes(*b)) & mask == mask)
    }
}

/// The element that stands farthest from the reference, as a fraction of its scale.
///
/// A value that is no number counts as infinitely far, and so does a missing one.
pub(super) fn worst_error(values: &[f64], reference: &Reference, tolerance: &Tolerance) -> ErrorJudgement {
    let allowed = tolerance.max_scaled_error;
    if values.len() != reference.values.len() || values.len() != reference.scales.len() {
        let failure = Some(format!("there are {} values, and {} are needed", values.len(), reference.values.len()));
        return ErrorJudgement { worst: f64::INFINITY, allowed, failure };
    }
    let mut worst = (0.0, None);
    for (index, (value, (right, scale))) in
        values.iter().zip(reference.values.iter().zip(&reference.scales)).enumerate()
    {
        let error = (value - right).abs() / scale;
        let error = if error.is_nan() { f64::INFINITY } else { error };
        if error > worst.0 {
            worst = (error, Some(index));
        }
    }
    let failure = worst.1.filter(|_| worst.0 > allowed).map(|index| {
        format!(
            "value {index} is {:?}, the reference {:?}: an error of {:.3e} of the scale, and {allowed:.3e} is allowed",
            values[index], reference.values[index], worst.0
        )
    });
    ErrorJudgement { worst: worst.0, allowed, failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> TensorSet {
        TensorSet::new(vec![Tensor::f32("out", &[values.len() / 2, 2], values)])
    }

    #[test]
    fn the_first_difference_is_named_with_both_values() {
        let wanted = floats(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(first_difference(&wanted, &wanted, Some(7)), None);
        let difference = first_difference(&floats(&[1.0, 2.0, -3.0, 5.0]), &wanted, Some(7)).unwrap();
        assert_eq!(difference.detail, "out[1, 0] is -3.0 (c0400000), not 3.0 (40400000)");
        assert!(!difference.is_poison);
        let difference = first_difference(&floats(&[-0.0, 2.0]), &floats(&[0.0, 2.0]), None).unwrap();
        assert!(difference.detail.contains("-0.0 (80000000), not 0.0 (00000000)"), "{}", difference.detail);
    }

    #[test]
    fn poison_that_is_left_is_told_from_a_wrong_value() {
        let pattern = 0x7fc0_dead;
        let got = floats(&[1.0, f32::from_bits(pattern)]);
        let difference = first_difference(&got, &floats(&[1.0, 2.0]), Some(pattern)).unwrap();
        assert!(difference.is_poison);
        assert_eq!(difference.detail, "out[0, 1] was not written: it holds the poison 7fc0dead");
        assert!(!first_difference(&got, &floats(&[1.0, 2.0]), Some(1)).unwrap().is_poison);
        // A buffer of bytes whose last word is not whole.
        let got = TensorSet::new(vec![Tensor::i8("q", &[5], &[1, 2, 3, 4, 0x04])]);
        let wanted = TensorSet::new(vec![Tensor::i8("q", &[5], &[1, 2, 3, 4, 5])]);
        assert!(first_difference(&got, &wanted, Some(0x0102_0304)).unwrap().is_poison);
    }

    #[test]
    fn what_was_not_written_is_found_behind_other_values() {
        let wanted = floats(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(first_unwritten(&floats(&[9.0, 9.0, 9.0, 9.0]), &wanted, 7), None);
        let got = floats(&[9.0, 9.0, f32::from_bits(7), 9.0]);
        let found = first_unwritten(&got, &wanted, 7).unwrap();
        assert!(found.is_poison && found.detail.starts_with("out[1, 0] was not written"), "{found:?}");
        // A right answer may be the pattern.
        assert_eq!(first_unwritten(&got, &floats(&[1.0, 2.0, f32::from_bits(7), 4.0]), 7), None);
        assert!(!first_unwritten(&floats(&[1.0, 2.0]), &wanted, 7).unwrap().is_poison);
    }

    #[test]
    fn rows_are_compared_wherever_they_are() {
        let (all, moved) = (floats(&[1.0, 2.0, 3.0, 4.0]), floats(&[3.0, 4.0, 1.0, 5.0]));
        assert_eq!(first_row_difference((&moved, 0), (&all, 1)), None);
        let detail = first_row_difference((&moved, 1), (&all, 0)).unwrap();
        assert!(detail.starts_with("out[0, 1] is 5.0"), "{detail}");
        assert!(first_row_difference((&moved, 2), (&all, 0)).unwrap().contains("no such row"));
        assert!(first_row_difference((&TensorSet::default(), 0), (&all, 0)).unwrap().contains("no such row"));
    }

    #[test]
    fn other_forms_are_differences() {
        let wanted = floats(&[1.0, 2.0]);
        for got in [TensorSet::default(), floats(&[1.0, 2.0, 3.0, 4.0])] {
            assert!(first_difference(&got, &wanted, None).is_some());
        }
        let mut extra = wanted.clone();
        extra.insert(Tensor::i8("more", &[1], &[1]));
        assert!(first_difference(&extra, &wanted, None).unwrap().detail.contains("`more`"));
    }

    #[test]
    fn what_is_not_finite_is_found() {
        assert_eq!(first_non_finite(&floats(&[1.0, f32::MAX])), None);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0xffff_ffff)] {
            let found = first_non_finite(&floats(&[1.0, bad])).unwrap();
            assert!(found.starts_with("out[0, 1] is "), "{found}");
        }
        let half = Tensor { name: "h".to_owned(), dtype: DType::F16, shape: vec![2], bytes: vec![0, 0, 0, 0x7c] };
        assert_eq!(first_non_finite(&TensorSet::new(vec![half])), Some("h[1] is 7c00".to_owned()));
        assert_eq!(first_non_finite(&TensorSet::new(vec![Tensor::i8("q", &[1], &[-1])])), None);
    }

    #[test]
    fn errors_are_shares_of_the_scale_and_nan_is_the_largest() {
        let reference = Reference { values: vec![-10.0, 0.0], scales: vec![10.0, 1.0] };
        let tolerance = Tolerance { max_scaled_error: 0.1, reason: "test" };
        let judged = worst_error(&[-9.5, 0.02], &reference, &tolerance);
        assert!((judged.worst - 0.05).abs() < 1e-12 && judged.failure.is_none());
        // A negative reference is judged like a positive one.
        assert!(worst_error(&[-12.0, 0.0], &reference, &tolerance).failure.unwrap().contains("value 0"));
        assert!(worst_error(&[10.0, 0.0], &reference, &tolerance).failure.is_some());
        for bad in [f64::NAN, f64::INFINITY] {
            let judged = worst_error(&[-10.0, bad], &reference, &tolerance);
            assert!(judged.worst.is_infinite() && judged.failure.unwrap().contains("value 1"));
        }
        assert!(worst_error(&[-10.0], &reference, &tolerance).failure.unwrap().contains("1 values, and 2"));
    }
}
