//! Model families: one file each turns metadata and tensors into a configuration and a list of tensors.

mod llama;

use std::collections::BTreeSet;

use memra_artifact::{GgufModel, Metadata};
use memra_contract::BlockFormat;
use memra_kernels::ops::rope_append::RotationKind;

use crate::error::LoadError;

/// What a plan needs to know of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`, or the file's name.
    pub name: String,
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward network.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Positions the model was trained for.
    pub context: usize,
    /// Epsilon of the row norms.
    pub norm_epsilon: f32,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Whether the head is the embedding.
    pub is_tied: bool,
}

/// Rotary embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// Which elements are rotated together.
    pub kind: RotationKind,
    /// Elements that are rotated, from the first.
    pub n_rot: usize,
    /// Base of the frequencies.
    pub base: f64,
    /// Divisor of the position (linear scaling).
    pub position_divisor: f64,
    /// Divisors of the frequencies, one a pair.
    pub factors: Option<Vec<f32>>,
}

/// Families that are supported.
pub const FAMILIES: &[&str] = &[llama::NAME];

impl ModelConfig {
    /// Reads a model's configuration and checks that its tensors are those of the family, no more and no fewer.
    ///
    /// # Errors
    /// [`LoadError`] naming the key or the tensor.
    pub fn read(model: &GgufModel) -> Result<Self, LoadError> {
        let architecture = model.metadata().get_str("general.architecture")?;
        match architecture {
            llama::NAME => llama::read(model),
            other => Err(LoadError::Architecture {
                file: file_of(model),
                architecture: other.to_owned(),
                known: FAMILIES.join(", "),
            }),
        }
    }

    /// Columns of the joint query, key and value product.
    pub fn qkv_width(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head_dim
    }

    /// Bytes of keys and values that one position takes over all layers, in f16.
    pub fn kv_bytes_per_position(&self) -> usize {
        self.layers * 2 * self.kv_heads * self.head_dim * 2
    }
}

pub(crate) fn file_of(model: &GgufModel) -> String {
    model.path().display().to_string()
}

/// A count from the metadata that must lie in a range.
fn count(model: &GgufModel, key: &str, range: std::ops::RangeInclusive<u64>) -> Result<usize, LoadError> {
    checked(model, key, model.metadata().get_u64(key)?, range)
}

fn checked(model: &GgufModel, key: &str, value: u64, range: std::ops::RangeInclusive<u64>) -> Result<usize, LoadError> {
    if range.contains(&value) {
        return Ok(value as usize);
    }
    let why = format!("a whole number from {} to {} is needed", range.start(), range.end());
    Err(LoadError::Key { file: file_of(model), key: key.to_owned(), value: value.to_string(), why })
}

/// What tensors a family has; every tensor of the file must be asked for.
struct TensorList<'a> {
    model: &'a GgufModel,
    seen: BTreeSet<String>,
}

impl<'a> TensorList<'a> {
    fn new(model: &'a GgufModel) -> Self {
        Self { model, seen: BTreeSet::new() }
    }

    /// Whether the file has a tensor; it counts as seen.
    fn has(&mut self, name: &str) -> bool {
        self.seen.insert(name.to_owned());
        self.model.tensor(name).is_some()
    }

    /// Checks the shape of a tensor, fastest dimension first, and that its format is one of some.
    fn expect(&mut self, name: &str, dims: &[u64], formats: &[BlockFormat]) -> Result<(), LoadError> {
        self.seen.insert(name.to_owned());
        let refuse = |why: String| LoadError::Tensor { file: file_of(self.model), tensor: name.to_owned(), why };
        let tensor = self.model.tensor(name).ok_or_else(|| refuse("is missing".to_owned()))?;
        let info = tensor.info();
        if info.dims() != dims {
            return Err(refuse(format!("has the shape {:?}, and {dims:?} is needed", info.dims())));
        }
        if !formats.contains(&info.format()) {
            let known: Vec<_> = formats.iter().map(|format| format.name).collect();
            return Err(refuse(format!("is stored as {}; supported are {}", info.format(), known.join(", "))));
        }
        Ok(())
    }

    /// Refuses tensors that nobody asked for: a model with parts that are left out is another model.
    fn finish(self) -> Result<(), LoadError> {
        match self.model.names().find(|name| !self.seen.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(LoadError::Tensor {
                file: file_of(self.model),
                tensor: name.to_owned(),
                why: "is not part of this family as it is supported".to_owned(),
            }),
        }
    }
}

fn name_of(model: &GgufModel, metadata: &Metadata) -> Result<String, LoadError> {
    Ok(match metadata.optional_str("general.name")? {
        Some(name) if !name.trim().is_empty() => name.to_owned(),
        _ => model.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
    })
}
