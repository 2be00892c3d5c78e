//! Metadata arrays.

use super::strings::StringArray;
use super::value::ValueType;

/// Metadata values of one type. Arrays of arrays are not read and cannot be written.
#[derive(Debug, Clone, PartialEq)]
pub enum Array {
    /// Unsigned bytes.
    U8(Vec<u8>),
    /// Signed bytes.
    I8(Vec<i8>),
    /// Unsigned 16-bit integers.
    U16(Vec<u16>),
    /// Signed 16-bit integers.
    I16(Vec<i16>),
    /// Unsigned 32-bit integers.
    U32(Vec<u32>),
    /// Signed 32-bit integers.
    I32(Vec<i32>),
    /// IEEE binary32 numbers.
    F32(Vec<f32>),
    /// Booleans.
    Bool(Vec<bool>),
    /// Texts.
    String(StringArray),
    /// Unsigned 64-bit integers.
    U64(Vec<u64>),
    /// Signed 64-bit integers.
    I64(Vec<i64>),
    /// IEEE binary64 numbers.
    F64(Vec<f64>),
}

impl Array {
    /// The type of the elements.
    pub const fn element_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::I8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::String(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The texts, if these are texts.
    pub fn as_strings(&self) -> Option<&StringArray> {
        match self {
            Self::String(values) => Some(values),
            _ => None,
        }
    }

    /// The booleans, if these are booleans.
    pub fn as_bools(&self) -> Option<&[bool]> {
        match self {
            Self::Bool(values) => Some(values),
            _ => None,
        }
    }

    /// The numbers, if these are integers of any type and none is negative.
    pub fn to_u64s(&self) -> Option<Vec<u64>> {
        match self {
            Self::U64(values) => Some(values.clone()),
            other => other.to_i64s()?.into_iter().map(|value| u64::try_from(value).ok()).collect(),
        }
    }

    /// The numbers, if these are integers of any type that an i64 holds.
    pub fn to_i64s(&self) -> Option<Vec<i64>> {
        fn widen<T: Copy + Into<i64>>(values: &[T]) -> Vec<i64> {
            values.iter().map(|value| (*value).into()).collect()
        }
        match self {
            Self::U8(values) => Some(widen(values)),
            Self::I8(values) => Some(widen(values)),
            Self::U16(values) => Some(widen(values)),
            Self::I16(values) => Some(widen(values)),
            Self::U32(values) => Some(widen(values)),
            Self::I32(values) => Some(widen(values)),
            Self::I64(values) => Some(values.clone()),
            Self::U64(values) => values.iter().map(|value| i64::try_from(*value).ok()).collect(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) => None,
        }
    }

    /// The numbers, if these are f32, or f64 (each rounded to the nearest f32).
    pub fn to_f32s(&self) -> Option<Vec<f32>> {
        match self {
            Self::F32(values) => Some(values.clone()),
            Self::F64(values) => Some(values.iter().map(|value| *value as f32).collect()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_widen_or_refuse_as_a_whole() {
        assert_eq!(Array::I32(vec![1, 2]).to_u64s(), Some(vec![1, 2]));
        assert_eq!(Array::I32(vec![1, -2]).to_u64s(), None);
        assert_eq!(Array::I8(vec![1, -2]).to_i64s(), Some(vec![1, -2]));
        assert_eq!(Array::U64(vec![u64::MAX]).to_i64s(), None);
        assert_eq!(Array::F64(vec![0.5]).to_f32s(), Some(vec![0.5]));
        assert_eq!(Array::U8(vec![1]).to_f32s(), None);
    }
}
