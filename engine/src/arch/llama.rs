//! The llama family: pre-norm blocks of grouped-query attention and a SwiGLU network.

use memra_artifact::GgufModel;
use memra_contract::BlockFormat;
use memra_kernels::ops::matmul::FORMATS;
use memra_kernels::ops::rope_append::RotationKind;

use super::{ModelConfig, RopeConfig, TensorList, checked, count, file_of, name_of};
use crate::error::LoadError;

pub(super) const NAME: &str = "llama";

pub(super) fn read(model: &GgufModel) -> Result<ModelConfig, LoadError> {
    let metadata = model.metadata();
    let refuse = |key: &str, value: String, why: &str| LoadError::Key {
        file: file_of(model),
        key: key.to_owned(),
        value,
        why: why.to_owned(),
    };
    let layers = count(model, "llama.block_count", 1..=1024)?;
    let hidden = count(model, "llama.embedding_length", 32..=65_536)?;
    let ffn = count(model, "llama.feed_forward_length", 32..=131_072)?;
    let heads = count(model, "llama.attention.head_count", 1..=1024)?;
    let kv_key = "llama.attention.head_count_kv";
    let kv_heads = checked(model, kv_key, metadata.optional_u64(kv_key)?.unwrap_or(heads as u64), 1..=1024)?;
    if !heads.is_multiple_of(kv_heads) {
        return Err(refuse(kv_key, kv_heads.to_string(), "it must divide the number of query heads"));
    }
    let dim_key = "llama.attention.key_length";
    let head_dim =
        checked(model, dim_key, metadata.optional_u64(dim_key)?.unwrap_or((hidden / heads) as u64), 16..=256)?;
    if !head_dim.is_multiple_of(16) {
        return Err(refuse(dim_key, head_dim.to_string(), "it must be a multiple of 16"));
    }
    let value_key = "llama.attention.value_length";
    if let Some(value) = metadata.optional_u64(value_key)?.filter(|value| *value != head_dim as u64) {
        return Err(refuse(value_key, value.to_string(), "keys and values of different lengths are not supported"));
    }
    for (key, width) in
        [("llama.embedding_length", hidden), ("llama.feed_forward_length", ffn), (dim_key, heads * head_dim)]
    {
        if !width.is_multiple_of(32) {
            return Err(refuse(key, width.to_string(), "rows of a product are whole blocks of 32"));
        }
    }
    for key in ["llama.expert_count", "llama.nextn_predict_layers"] {
        if let Some(value) = metadata.optional_u64(key)?.filter(|value| *value != 0) {
            return Err(refuse(key, value.to_string(), "mixtures of experts and extra heads are not supported here"));
        }
    }
    let epsilon_key = "llama.attention.layer_norm_rms_epsilon";
    let norm_epsilon = metadata.get_f32(epsilon_key)?;
    if !(norm_epsilon > 0.0 && norm_epsilon.is_finite()) {
        return Err(refuse(epsilon_key, norm_epsilon.to_string(), "a positive number is needed"));
    }
    let (context, mut tensors) = (count(model, "llama.context_length", 1..=1 << 24)?, TensorList::new(model));
    let embedding = model.tensor("token_embd.weight").map(|tensor| tensor.info().dims().to_vec());
    let vocab = match embedding.as_deref() {
        Some([_, vocab]) => *vocab as usize,
        _ => 0,
    };
    let rope = rope(model, head_dim, &mut tensors)?;

    let wide = |n: usize, k: usize| [k as u64, n as u64];
    let f32_only = [BlockFormat::F32];
    tensors.expect("token_embd.weight", &wide(vocab, hidden), EMBEDDING_FORMATS)?;
    tensors.expect("output_norm.weight", &[hidden as u64], &f32_only)?;
    let is_tied = !tensors.has("output.weight");
    if !is_tied {
        tensors.expect("output.weight", &wide(vocab, hidden), FORMATS)?;
    }
    for layer in 0..layers {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        tensors.expect(&name("attn_norm"), &[hidden as u64], &f32_only)?;
        tensors.expect(&name("attn_q"), &wide(heads * head_dim, hidden), FORMATS)?;
        tensors.expect(&name("attn_k"), &wide(kv_heads * head_dim, hidden), FORMATS)?;
        tensors.expect(&name("attn_v"), &wide(kv_heads * head_dim, hidden), FORMATS)?;
        tensors.expect(&name("attn_output"), &wide(hidden, heads * head_dim), FORMATS)?;
        tensors.expect(&name("ffn_norm"), &[hidden as u64], &f32_only)?;
        tensors.expect(&name("ffn_gate"), &wide(ffn, hidden), FORMATS)?;
        tensors.expect(&name("ffn_up"), &wide(ffn, hidden), FORMATS)?;
        tensors.expect(&name("ffn_down"), &wide(hidden, ffn), FORMATS)?;
    }
    tensors.finish()?;
    Ok(ModelConfig {
        architecture: NAME.to_owned(),
        name: name_of(model, metadata)?,
        layers,
        hidden,
        ffn,
        heads,
        kv_heads,
        head_dim,
        vocab,
        context,
        norm_epsilon,
        rope,
        is_tied,
    })
}

/// Formats of an embedding: what can be gathered.
const EMBEDDING_FORMATS: &[BlockFormat] = &[BlockFormat::F32, BlockFormat::Q8_0];

fn rope(model: &GgufModel, head_dim: usize, tensors: &mut TensorList<'_>) -> Result<RopeConfig, LoadError> {
    let metadata = model.metadata();
    let refuse = |key: &str, value: String, why: &str| LoadError::Key {
        file: file_of(model),
        key: key.to_owned(),
        value,
        why: why.to_owned(),
    };
    let rot_key = "llama.rope.dimension_count";
    let n_rot =
        checked(model, rot_key, metadata.optional_u64(rot_key)?.unwrap_or(head_dim as u64), 2..=head_dim as u64)?;
    if !n_rot.is_multiple_of(2) {
        return Err(refuse(rot_key, n_rot.to_string(), "it must be even"));
    }
    let base_key = "llama.rope.freq_base";
    let base = f64::from(metadata.optional_f32(base_key)?.unwrap_or(10_000.0));
    if !(base > 0.0 && base.is_finite()) {
        return Err(refuse(base_key, base.to_string(), "a positive number is needed"));
    }
    let factor_key = "llama.rope.scaling.factor";
    let position_divisor = match metadata.optional_str("llama.rope.scaling.type")? {
        None | Some("none") => 1.0,
        Some("linear") => f64::from(metadata.get_f32(factor_key)?),
        Some(other) => {
            return Err(refuse("llama.rope.scaling.type", other.to_owned(), "supported are none and linear"));
        }
    };
    if !(position_divisor > 0.0 && position_divisor.is_finite()) {
        return Err(refuse(factor_key, position_divisor.to_string(), "a positive number is needed"));
    }
    let factors = if tensors.has("rope_freqs.weight") {
        tensors.expect("rope_freqs.weight", &[n_rot as u64 / 2], &[BlockFormat::F32])?;
        model
            .tensor("rope_freqs.weight")
            .map(|tensor| tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    } else {
        None
    };
    Ok(RopeConfig { kind: RotationKind::Interleaved, n_rot, base, position_divisor, factors })
}
