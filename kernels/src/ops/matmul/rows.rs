//! Some rows of a product as a product of their own.

use memra_contract::{Problem, Tensor, TensorSet};

use super::problem::MatmulProblem;

/// Whether a tensor belongs to a segment: a weight, or the scales beside it. The others have a row for each row of the activation.
fn is_of_segment(name: &str) -> bool {
    ["weight", "scale", "outer"].iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|place| !place.is_empty() && place.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// The problem of the named rows, in the given order, with the same weights. Nothing without rows, or where one is past the
/// end.
pub(super) fn pick(problem: &MatmulProblem, inputs: &TensorSet, rows: &[usize]) -> Option<(Problem, TensorSet)> {
    if rows.is_empty() || rows.iter().any(|row| *row >= problem.m) {
        return None;
    }
    let picked = inputs
        .iter()
        .map(|tensor| if is_of_segment(&tensor.name) { Some(tensor.clone()) } else { of_rows(tensor, rows) })
        .collect::<Option<Vec<_>>>()?;
    let problem = MatmulProblem { m: rows.len(), ..problem.clone() };
    Some((problem.to_problem(), TensorSet::new(picked)))
}

/// Rows along the first axis.
fn of_rows(tensor: &Tensor, rows: &[usize]) -> Option<Tensor> {
    let (m, rest) = tensor.shape.split_first()?;
    let row_bytes = tensor.bytes.len().checked_div(*m)?;
    let mut bytes = Vec::with_capacity(rows.len() * row_bytes);
    for row in rows {
        bytes.extend_from_slice(tensor.bytes.get(row * row_bytes..(row + 1) * row_bytes)?);
    }
    let shape = [&[rows.len()], rest].concat();
    Some(Tensor { name: tensor.name.clone(), dtype: tensor.dtype, shape, bytes })
}

#[cfg(test)]
mod tests {
    use crate::Contract as _;
    use crate::ops::matmul::Matmul;

    #[test]
    fn a_row_alone_and_in_another_place_has_the_same_outputs() {
        for text in [
            "m=3,k=64,seg=q8_0:5+q4_1:3,epi=residual",
            "m=3,k=64,seg=f32:5,epi=residual",
            "m=3,k=64,seg=q8_0:5,act=f32",
        ] {
            let problem = Matmul.normalise(&text.parse().unwrap()).unwrap();
            let inputs = Matmul.inputs(&problem, "normal", 7).unwrap();
            let all = Matmul.ordered_outputs(&problem, &inputs).unwrap().get("out").unwrap().bytes.clone();
            let row_bytes = all.len() / 3;
            let row = |bytes: &[u8], row: usize| bytes[row * row_bytes..(row + 1) * row_bytes].to_vec();
            for of in 0..3 {
                let (single, inputs) = Matmul.single_row(&problem, &inputs, of).unwrap();
                assert!(single.to_string().contains("m=1"), "{single}");
                let out = Matmul.ordered_outputs(&single, &inputs).unwrap();
                assert_eq!(out.get("out").unwrap().bytes, row(&all, of), "{text}, row {of}");
            }
            let (moved, inputs) = Matmul.picked_rows(&problem, &inputs, &[2, 0, 2, 1]).unwrap();
            let out = Matmul.ordered_outputs(&moved, &inputs).unwrap().get("out").unwrap().bytes.clone();
            assert_eq!([row(&out, 0), row(&out, 1), row(&out, 3)], [row(&all, 2), row(&all, 0), row(&all, 1)]);
        }
    }

    #[test]
    fn rows_that_are_not_there_are_refused() {
        let problem = Matmul.normalise(&"m=2,k=32,seg=f32:1".parse().unwrap()).unwrap();
        let inputs = Matmul.inputs(&problem, "normal", 7).unwrap();
        assert!(
            Matmul.single_row(&problem, &inputs, 2).is_none() && Matmul.picked_rows(&problem, &inputs, &[]).is_none()
        );
    }
}
