//! Plain host tensors in their stored layout: what inputs are generated into and outputs are compared in.

use half::{bf16, f16};

use crate::format::DType;

/// One tensor: a name, an element type, a shape (slowest axis first) and its little-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name inside the contract, for example `activation` or `out`.
    pub name: String,
    /// Element type; block formats are [`DType::U8`] with their bytes along the last axis.
    pub dtype: DType,
    /// Sizes, slowest axis first.
    pub shape: Vec<usize>,
    /// Little-endian contents, `product(shape) * dtype.bytes()` long.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// A tensor of f32 values.
    pub fn f32(name: &str, shape: &[usize], values: &[f32]) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: DType::F32, shape: shape.to_vec(), bytes }
    }

    /// A tensor of floats, rounded to a type of [`DType::F32`], [`DType::F16`] and [`DType::Bf16`].
    pub fn floats(name: &str, shape: &[usize], dtype: DType, values: &[f32]) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let bytes = match dtype {
            DType::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
            DType::Bf16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect(),
            _ => return Self::f32(name, shape, values),
        };
        Self { name: name.to_owned(), dtype, shape: shape.to_vec(), bytes }
    }

    /// A tensor of signed bytes.
    pub fn i8(name: &str, shape: &[usize], values: &[i8]) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let bytes = values.iter().map(|v| v.cast_unsigned()).collect();
        Self { name: name.to_owned(), dtype: DType::I8, shape: shape.to_vec(), bytes }
    }

    /// A tensor of signed 16-bit integers.
    pub fn i16(name: &str, shape: &[usize], values: &[i16]) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), values.len());
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self { name: name.to_owned(), dtype: DType::I16, shape: shape.to_vec(), bytes }
    }

    /// A tensor of raw bytes.
    pub fn u8(name: &str, shape: &[usize], bytes: Vec<u8>) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), bytes.len());
        Self { name: name.to_owned(), dtype: DType::U8, shape: shape.to_vec(), bytes }
    }

    /// The contents as f32 values; empty for another element type.
    pub fn to_f32(&self) -> Vec<f32> {
        if self.dtype != DType::F32 {
            return Vec::new();
        }
        self.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    }

    /// The contents of f32, f16 or bf16 as f32 values, exact; empty for another element type.
    pub fn to_floats(&self) -> Vec<f32> {
        let pairs = self.bytes.as_chunks::<2>().0.iter();
        match self.dtype {
            DType::F16 => pairs.map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
            DType::Bf16 => pairs.map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
            _ => self.to_f32(),
        }
    }

    /// The contents as signed bytes; empty for another element type.
    pub fn to_i8(&self) -> Vec<i8> {
        if self.dtype != DType::I8 {
            return Vec::new();
        }
        self.bytes.iter().map(|b| b.cast_signed()).collect()
    }

    /// The contents as signed 16-bit integers; empty for another element type.
    pub fn to_i16(&self) -> Vec<i16> {
        if self.dtype != DType::I16 {
            return Vec::new();
        }
        self.bytes.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]])).collect()
    }
}

/// Tensors by name, in the contract's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TensorSet {
    tensors: Vec<Tensor>,
}

impl TensorSet {
    /// A set of the given tensors.
    pub fn new(tensors: Vec<Tensor>) -> Self {
        Self { tensors }
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// The tensors in order.
    pub fn iter(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.iter()
    }

    /// Adds a tensor, replacing one of the same name.
    pub fn insert(&mut self, tensor: Tensor) {
        match self.tensors.iter_mut().find(|t| t.name == tensor.name) {
            Some(old) => *old = tensor,
            None => self.tensors.push(tensor),
        }
    }

    /// Total size of the contents in bytes.
    pub fn total_bytes(&self) -> usize {
        self.tensors.iter().map(|t| t.bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_stored_in_their_type_and_come_back() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let tensor = Tensor::floats("x", &[3], dtype, &[1.0, -2.5, 0.0]);
            assert_eq!((tensor.dtype, tensor.bytes.len()), (dtype, 3 * dtype.bytes()));
            assert_eq!(tensor.to_floats(), [1.0, -2.5, 0.0]);
        }
        assert_eq!(Tensor::floats("x", &[1], DType::Bf16, &[1.001]).to_floats(), [1.0]);
        assert!(Tensor::i8("x", &[1], &[1]).to_floats().is_empty());
    }
}
