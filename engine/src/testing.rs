//! Synthetic models for tests and benchmarks: small, seeded, written as ordinary model files.
//!
//! The weights are random, so the text means nothing; everything else is real: the file goes through the reader, the
//! family, the plan, the tokenizer and the chat template like any other.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use half::f16;
use memra_artifact::{Array, GgufWriter, StringArray, Value, WriteError};
use memra_contract::BlockFormat;
use memra_contract::order::QUANT_BLOCK;
use memra_kernels::input::Stream;

/// The chat template of a synthetic model: ChatML.
pub const CHATML: &str = "{%- for message in messages -%}\n{{- '<|im_start|>' + message.role + '\\n' + message.content + \
                          '<|im_end|>\\n' -}}\n{%- endfor -%}\n{%- if add_generation_prompt -%}\n\
                          {{- '<|im_start|>assistant\\n' -}}\n{%- endif -%}\n";

/// Merges of the vocabulary, in order of rank. A space is `Ġ`, as byte-level vocabularies write it.
const MERGES: [(&str, &str); 45] = [
    ("Ġ", "t"),
    ("h", "e"),
    ("Ġ", "a"),
    ("i", "n"),
    ("r", "e"),
    ("o", "n"),
    ("Ġt", "he"),
    ("e", "r"),
    ("Ġ", "s"),
    ("a", "t"),
    ("Ġ", "w"),
    ("Ġ", "o"),
    ("e", "n"),
    ("Ġ", "c"),
    ("i", "t"),
    ("i", "s"),
    ("a", "n"),
    ("o", "r"),
    ("e", "s"),
    ("Ġ", "b"),
    ("e", "d"),
    ("Ġ", "f"),
    ("in", "g"),
    ("Ġ", "p"),
    ("o", "u"),
    ("Ġa", "n"),
    ("a", "l"),
    ("a", "r"),
    ("Ġt", "o"),
    ("Ġ", "m"),
    ("Ġo", "f"),
    ("Ġ", "in"),
    ("Ġ", "d"),
    ("Ġ", "h"),
    ("Ġan", "d"),
    ("i", "c"),
    ("l", "e"),
    ("Ġt", "h"),
    ("u", "s"),
    ("e", "r"),
    ("l", "l"),
    ("o", "m"),
    ("a", "s"),
    ("Ã", "©"),
    ("Ð", "°"),
];

/// Tokens after the bytes and the merges.
const SPECIALS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// A model of the llama family with random weights: quantised products, a Q8_0 embedding that is also the head, and a
/// byte-level vocabulary of 256 bytes, some merges and the three tokens of ChatML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticModel {
    /// `general.name`.
    pub name: String,
    /// Transformer blocks.
    pub layers: usize,
    /// Width of the residual stream, a multiple of 32.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; they divide the query heads.
    pub kv_heads: usize,
    /// Elements of a head, a multiple of 16.
    pub head_dim: usize,
    /// Width of the feed-forward network, a multiple of 32.
    pub ffn: usize,
    /// Positions the model says it was trained for.
    pub context: usize,
    /// The chat template; `None` leaves the key out.
    pub chat_template: Option<String>,
    /// Seed of the weights.
    pub seed: u64,
}

impl Default for SyntheticModel {
    fn default() -> Self {
        Self {
            name: "synthetic".to_owned(),
            layers: 2,
            hidden: 64,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            ffn: 96,
            context: 2048,
            chat_template: Some(CHATML.to_owned()),
            seed: 1,
        }
    }
}

/// A synthetic model that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum SyntheticError {
    /// A size does not fit, or the output refused.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The file could not be made.
    #[error("the model file could not be made: {0}")]
    Create(#[from] io::Error),
}

/// Texts and merges of the vocabulary of every synthetic model.
struct Vocabulary {
    tokens: Vec<String>,
    merges: Vec<String>,
}

impl Vocabulary {
    fn new() -> Self {
        let mut tokens: Vec<String> = (0..=255).map(|byte| alphabet(byte).to_string()).collect();
        let mut merges = Vec::new();
        for (left, right) in MERGES {
            let merged = format!("{left}{right}");
            if !tokens.contains(&merged) {
                tokens.push(merged);
                merges.push(format!("{left} {right}"));
            }
        }
        tokens.extend(SPECIALS.map(str::to_owned));
        Self { tokens, merges }
    }
}

/// The character that a byte-level vocabulary writes for a byte: itself where it is printable, else the next free one from
/// U+0100 on.
fn alphabet(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|byte| !is_printable(*byte)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

struct Tensor {
    name: String,
    dims: Vec<u64>,
    format: BlockFormat,
}

impl SyntheticModel {
    /// Tokens of the vocabulary.
    pub fn vocab() -> usize {
        Vocabulary::new().tokens.len()
    }

    /// The id of `<|im_end|>`, which ends an answer.
    pub fn end_token() -> u32 {
        Self::vocab() as u32 - 1
    }

    /// Writes the model file.
    ///
    /// # Errors
    /// [`SyntheticError`] where the sizes do not fit together or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), SyntheticError> {
        let mut writer = GgufWriter::new();
        self.set_metadata(&mut writer)?;
        let tensors = self.tensors();
        for tensor in &tensors {
            writer.declare(&tensor.name, &tensor.dims, tensor.format)?;
        }
        let mut body = writer.begin(BufWriter::new(File::create(path)?))?;
        for tensor in &tensors {
            body.tensor(&tensor.name, &self.data(tensor))?;
        }
        body.finish()?;
        Ok(())
    }

    fn set_metadata(&self, writer: &mut GgufWriter) -> Result<(), WriteError> {
        let vocabulary = Vocabulary::new();
        let count = |value: usize| Value::U32(value as u32);
        let text = |value: &str| Value::String(value.to_owned());
        let texts = |list: &[String]| Value::Array(Array::String(StringArray::from_texts(list).unwrap_or_default()));
        writer.set("general.architecture", text("llama"))?;
        writer.set("general.name", text(&self.name))?;
        writer.set("llama.block_count", count(self.layers))?;
        writer.set("llama.context_length", count(self.context))?;
        writer.set("llama.embedding_length", count(self.hidden))?;
        writer.set("llama.feed_forward_length", count(self.ffn))?;
        writer.set("llama.attention.head_count", count(self.heads))?;
        writer.set("llama.attention.head_count_kv", count(self.kv_heads))?;
        writer.set("llama.attention.key_length", count(self.head_dim))?;
        writer.set("llama.attention.value_length", count(self.head_dim))?;
        writer.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5))?;
        writer.set("llama.rope.dimension_count", count(self.head_dim))?;
        writer.set("llama.rope.freq_base", Value::F32(10_000.0))?;
        writer.set("llama.vocab_size", count(vocabulary.tokens.len()))?;
        let specials = vocabulary.tokens.len() - SPECIALS.len();
        let types = (0..vocabulary.tokens.len()).map(|id| if id < specials { 1 } else { 3 }).collect();
        writer.set("tokenizer.ggml.model", text("gpt2"))?;
        writer.set("tokenizer.ggml.pre", text("smollm"))?;
        writer.set("tokenizer.ggml.tokens", texts(&vocabulary.tokens))?;
        writer.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)))?;
        writer.set("tokenizer.ggml.merges", texts(&vocabulary.merges))?;
        writer.set("tokenizer.ggml.bos_token_id", count(specials + 1))?;
        writer.set("tokenizer.ggml.eos_token_id", count(specials + 2))?;
        writer.set("tokenizer.ggml.add_bos_token", Value::Bool(false))?;
        if let Some(template) = &self.chat_template {
            writer.set("tokenizer.chat_template", text(template))?;
        }
        Ok(())
    }

    /// Every tensor in the order of the file. Formats are mixed as in real files: values and the second product of the
    /// feed-forward network are of the finer one.
    fn tensors(&self) -> Vec<Tensor> {
        let tensor = |name: String, dims: &[usize], format| Tensor {
            name,
            dims: dims.iter().map(|dim| *dim as u64).collect(),
            format,
        };
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let (hidden, ffn) = (self.hidden, self.ffn);
        let mut tensors = vec![
            tensor("token_embd.weight".to_owned(), &[hidden, Self::vocab()], BlockFormat::Q8_0),
            tensor("output_norm.weight".to_owned(), &[hidden], BlockFormat::F32),
        ];
        for layer in 0..self.layers {
            for (part, dims, format) in [
                ("attn_norm", &[hidden][..], BlockFormat::F32),
                ("attn_q", &[hidden, q], BlockFormat::Q4_1),
                ("attn_k", &[hidden, kv], BlockFormat::Q4_1),
                ("attn_v", &[hidden, kv], BlockFormat::Q8_0),
                ("attn_output", &[q, hidden], BlockFormat::Q4_1),
                ("ffn_norm", &[hidden], BlockFormat::F32),
                ("ffn_gate", &[hidden, ffn], BlockFormat::Q4_1),
                ("ffn_up", &[hidden, ffn], BlockFormat::Q4_1),
                ("ffn_down", &[ffn, hidden], BlockFormat::Q8_0),
            ] {
                tensors.push(tensor(format!("blk.{layer}.{part}.weight"), dims, format));
            }
        }
        tensors
    }

    /// Norms are near 1; elements of matrices have mean 0 and variance 1 / k, so that activations keep their size.
    fn data(&self, tensor: &Tensor) -> Vec<u8> {
        let stream = Stream::new(self.seed, &tensor.name);
        let len = tensor.dims.iter().product();
        if tensor.dims.len() == 1 {
            return (0..len).flat_map(|i| (1.0 + 0.1 * stream.plus_minus_one(i)).to_le_bytes()).collect();
        }
        let scale = 1.0 / (tensor.dims[0] as f32).sqrt();
        let values: Vec<f32> = (0..len).map(|i| stream.normal(i) * scale).collect();
        let blocks = values.as_chunks::<QUANT_BLOCK>().0;
        if tensor.format == BlockFormat::Q4_1 {
            blocks.iter().flat_map(q4_1).collect()
        } else {
            blocks.iter().flat_map(q8_0).collect()
        }
    }
}

/// A stored Q8_0 block: f16 scale, 32 signed bytes.
fn q8_0(values: &[f32; QUANT_BLOCK]) -> Vec<u8> {
    let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    let scale = f16::from_f32(largest / 127.0);
    let inverse = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
    let quants = values.iter().map(|value| (value * inverse).round().clamp(-127.0, 127.0) as i8 as u8);
    scale.to_le_bytes().into_iter().chain(quants).collect()
}

/// A stored Q4_1 block: f16 scale, f16 minimum, 16 bytes of two quants.
fn q4_1(values: &[f32; QUANT_BLOCK]) -> Vec<u8> {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (scale, minimum) = (f16::from_f32((most - least) / 15.0), f16::from_f32(least));
    let inverse = if scale.to_f32() > 0.0 { 1.0 / scale.to_f32() } else { 0.0 };
    let quant = |value: f32| ((value - minimum.to_f32()) * inverse).round().clamp(0.0, 15.0) as u8;
    let (low, high) = values.split_at(QUANT_BLOCK / 2);
    let quants = low.iter().zip(high).map(|(low, high)| quant(*low) | quant(*high) << 4);
    scale.to_le_bytes().into_iter().chain(minimum.to_le_bytes()).chain(quants).collect()
}

#[cfg(test)]
mod tests {
    use memra_artifact::GgufModel;

    use super::*;
    use crate::arch::ModelConfig;
    use crate::chat::Tokenizer;

    #[test]
    fn the_family_and_the_tokenizer_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        SyntheticModel::default().write(&path).unwrap();
        let model = GgufModel::open(&path).unwrap();
        let config = ModelConfig::read(&model).unwrap();
        assert_eq!((config.vocab, config.layers, config.is_tied), (SyntheticModel::vocab(), 2, true));
        let tokenizer = Tokenizer::from_gguf(model.metadata()).unwrap();
        assert_eq!(tokenizer.vocab_size(), SyntheticModel::vocab());
        assert!(tokenizer.missing_bytes().is_empty());
        assert!(tokenizer.is_end_of_generation(SyntheticModel::end_token()));
        let text = "the other é 🙂\n<|im_start|>";
        let ids = tokenizer.encode(text, true).unwrap();
        assert!(ids.len() < text.len());
        assert_eq!(tokenizer.decode(&ids, true), text);
    }

    #[test]
    fn the_same_seed_writes_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = |seed| {
            let path = folder.path().join("model.gguf");
            SyntheticModel { seed, ..SyntheticModel::default() }.write(&path).unwrap();
            std::fs::read(path).unwrap()
        };
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
    }

    #[test]
    fn blocks_keep_their_values() {
        let values: [f32; QUANT_BLOCK] = std::array::from_fn(|i| (i as f32 - 9.5) / 7.0);
        let block = q8_0(&values);
        assert_eq!(block.len(), 34);
        let scale = f16::from_le_bytes([block[0], block[1]]).to_f32();
        assert!(values.iter().zip(&block[2..]).all(|(v, q)| (v - scale * f32::from(*q as i8)).abs() <= scale));
        let block = q4_1(&values);
        assert_eq!(block.len(), 20);
        let (scale, minimum) = (f16::from_le_bytes([block[0], block[1]]), f16::from_le_bytes([block[2], block[3]]));
        for (i, value) in values.iter().enumerate() {
            let quant = if i < 16 { block[4 + i] & 15 } else { block[4 + i - 16] >> 4 };
            let back = minimum.to_f32() + scale.to_f32() * f32::from(quant);
            assert!((value - back).abs() <= scale.to_f32(), "{value} {back}");
        }
    }
}
