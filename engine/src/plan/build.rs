//! From a configuration and a file to a list of steps.

use std::sync::Arc;

use memra_artifact::GgufModel;
use memra_contract::{BlockFormat, DeviceKey, Problem};
use memra_kernels::backend::host::Pool;
use memra_kernels::ops::matmul::{BoundSegment, Layout, MatmulVariant, PackedSegment, Product, Segment, StoredSegment};
use memra_kernels::ops::rope_append::{RotationKind, inverse_frequencies};
use memra_kernels::ops::{
    argmax, attention, embed, matmul, quantise, rms_norm_quantise, rope_append, sample, swiglu_quantise,
};
use memra_kernels::registry;
use memra_kernels::select::{ByRows, Tables};
use sha2::{Digest, Sha256};

use super::resolve::{Resolved, Resolver, contract};
use super::{Op, Plan, Step, Target};
use crate::arch::{ModelConfig, file_of};
use crate::error::LoadError;

/// Builds plans for a device.
pub struct Planner<'a> {
    /// The device.
    pub key: DeviceKey,
    /// Defaults to select from.
    pub tables: &'a Tables,
    /// Most rows of a step.
    pub max_rows: usize,
    /// Most rows of a step that logits are made for.
    pub max_wanted: usize,
}

struct Builder<'a> {
    model: &'a GgufModel,
    config: &'a ModelConfig,
    resolver: Resolver<'a>,
    max_wanted: usize,
    drafts: Vec<Draft>,
}

/// A step whose weights are not laid out yet: all of them go into one buffer, in the order of the steps.
struct Draft {
    label: String,
    resolved: Vec<Resolved>,
    op: DraftOp,
}

enum DraftOp {
    Ready(Op),
    Product {
        weights: Vec<DraftWeight>,
        k: usize,
        target: Target,
    },
    /// `weight` is none where the embedding is the head.
    Embed {
        weight: Option<DraftWeight>,
        variant: &'static embed::EmbedVariant,
    },
}

struct DraftWeight {
    name: String,
    segment: Segment,
    k: usize,
    layout: Layout,
    variants: ByRows<&'static MatmulVariant>,
}

impl Planner<'_> {
    /// Reads, checks and lays out a model. The threads of the pool share the layout work.
    ///
    /// # Errors
    /// [`LoadError`] naming the key, the tensor or the step.
    pub fn plan(&self, model: &GgufModel, pool: &Pool) -> Result<Plan, LoadError> {
        let config = ModelConfig::read(model)?;
        let resolver = Resolver { key: self.key, tables: self.tables, max_rows: self.max_rows };
        let mut builder = Builder { model, config: &config, resolver, max_wanted: self.max_wanted, drafts: Vec::new() };
        builder.all()?;
        let sampler = builder.sampler()?;
        let steps = builder.finish(pool)?;
        let mut frequencies = inverse_frequencies(config.rope.base, config.rope.n_rot, config.rope.factors.as_deref());
        for frequency in &mut frequencies {
            *frequency /= config.rope.position_divisor;
        }
        let program = program(&steps);
        Ok(Plan {
            steps,
            max_rows: self.max_rows,
            max_wanted: self.max_wanted,
            inverse_frequencies: frequencies,
            sampler,
            program,
            config,
        })
    }
}

/// Digest of what decides the bits: contracts, problems of a row, order classes.
fn program(steps: &[Step]) -> String {
    let mut digest = Sha256::new();
    for step in steps {
        for resolved in &step.resolved {
            let class = resolved.variant().order_class.id;
            digest.update(format!("{} {} {} {class}\n", step.label, resolved.contract, resolved.problem));
        }
    }
    let digest = memra_contract::digest::Digest::from_bytes(&digest.finalize().into());
    digest.to_string().chars().take(16).collect()
}

impl DraftOp {
    fn weights(&self) -> impl Iterator<Item = &DraftWeight> {
        let (list, one) = match self {
            Self::Product { weights, .. } => (weights.as_slice(), None),
            Self::Embed { weight, .. } => (&[][..], weight.as_ref()),
            Self::Ready(_) => (&[][..], None),
        };
        list.iter().chain(one)
    }
}

impl Builder<'_> {
    fn all(&mut self) -> Result<(), LoadError> {
        let config = self.config;
        let head_name = if config.is_tied { "token_embd.weight" } else { "output.weight" };
        let head = self.product("head", &[head_name], config.hidden, Target::Logits)?;
        self.embed(&head)?;
        for layer in 0..config.layers {
            let label = |part: &str| format!("blk.{layer}.{part}");
            let weight = |part: &str| format!("blk.{layer}.{part}.weight");
            self.norm(&label("attn_norm"), &weight("attn_norm"), false)?;
            let names = [weight("attn_q"), weight("attn_k"), weight("attn_v")];
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let step = self.product(&label("qkv"), &names, config.hidden, Target::Qkv)?;
            self.drafts.push(step);
            self.rope(&label("rope_append"), layer)?;
            self.attention(&label("attention"), layer)?;
            self.quantise(&label("attn_quantise"))?;
            let width = config.heads * config.head_dim;
            let step = self.product(&label("attn_output"), &[&weight("attn_output")], width, Target::Residual)?;
            self.drafts.push(step);
            self.norm(&label("ffn_norm"), &weight("ffn_norm"), false)?;
            let names = [weight("ffn_gate"), weight("ffn_up")];
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let step = self.product(&label("gate_up"), &names, config.hidden, Target::GateUp)?;
            self.drafts.push(step);
            self.swiglu(&label("swiglu"))?;
            let step = self.product(&label("ffn_down"), &[&weight("ffn_down")], config.ffn, Target::Residual)?;
            self.drafts.push(step);
        }
        self.norm("output_norm", "output_norm.weight", true)?;
        self.drafts.push(head);
        self.argmax()
    }

    fn stored(&self, name: &str) -> Result<&[u8], LoadError> {
        self.model.tensor(name).map(|tensor| tensor.data()).ok_or_else(|| LoadError::Tensor {
            file: file_of(self.model),
            tensor: name.to_owned(),
            why: "is missing".to_owned(),
        })
    }

    /// Segments in the order of their names. Segments of one format are selected together.
    fn product(&self, label: &str, names: &[&str], k: usize, target: Target) -> Result<Draft, LoadError> {
        let mut segments = Vec::new();
        for name in names {
            let tensor = self.model.tensor(name).ok_or_else(|| LoadError::Tensor {
                file: file_of(self.model),
                tensor: (*name).to_owned(),
                why: "is missing".to_owned(),
            })?;
            let info = tensor.info();
            segments.push(Segment { format: info.format(), n: info.shape()[1] as usize });
        }
        let mut formats: Vec<BlockFormat> = Vec::new();
        for segment in &segments {
            if !formats.contains(&segment.format) {
                formats.push(segment.format);
            }
        }
        if formats.contains(&BlockFormat::F32) {
            return Err(LoadError::Tensor {
                file: file_of(self.model),
                tensor: names[0].to_owned(),
                why: "is stored as f32; products of unquantised weights are not part of a plan yet".to_owned(),
            });
        }
        let matmul = contract(label, matmul::ID)?;
        let is_residual = target == Target::Residual;
        let max_rows = if target == Target::Logits { self.max_wanted } else { self.resolver.max_rows };
        let mut resolved = Vec::new();
        for format in formats {
            let list: Vec<String> =
                segments.iter().filter(|s| s.format == format).map(|s| format!("{}:{}", s.format, s.n)).collect();
            let problem = |m| {
                Problem::new()
                    .with("m", m)
                    .with("k", k as u64)
                    .with_word("seg", &list.join("+"))
                    .with_word("act", "q8")
                    .with_word("epi", if is_residual { "residual" } else { "none" })
            };
            resolved.push((format, self.resolver.resolve(label, matmul, problem, max_rows)?));
        }
        let mut weights = Vec::new();
        for (name, segment) in names.iter().zip(segments) {
            let family = resolved.iter().find(|(format, _)| *format == segment.format).map(|(_, family)| family);
            let Some(family) = family else { continue };
            let variants = family.entries(label, matmul::by_name)?;
            let layout = variants.get(1).layout;
            weights.push(DraftWeight { name: (*name).to_owned(), segment, k, layout, variants });
        }
        let resolved = resolved.into_iter().map(|(_, family)| family).collect();
        Ok(Draft { label: label.to_owned(), resolved, op: DraftOp::Product { weights, k, target } })
    }

    /// Lays every weight out and completes the steps.
    fn finish(self, pool: &Pool) -> Result<Vec<Step>, LoadError> {
        let (mut sources, mut names) = (Vec::new(), Vec::new());
        for weight in self.drafts.iter().flat_map(|draft| draft.op.weights()) {
            let DraftWeight { name, segment, k, layout, .. } = weight;
            sources.push(StoredSegment { segment: *segment, k: *k, layout: *layout, stored: self.stored(name)? });
            names.push(name.as_str());
        }
        // What was laid out is not read again, so that the file and its copy are never both in memory.
        let release = |place: usize, bytes| self.model.release(names[place], bytes);
        let mut packed = PackedSegment::pack_all(pool, &sources, &release)?.into_iter().map(Arc::new);
        let mut steps: Vec<Step> = Vec::with_capacity(self.drafts.len());
        let mut tied = None;
        for draft in self.drafts {
            let op = match draft.op {
                DraftOp::Ready(op) => op,
                DraftOp::Product { weights, k, target } => {
                    let bound: Vec<BoundSegment> = weights
                        .into_iter()
                        .zip(&mut packed)
                        .map(|(draft, weight)| BoundSegment { weight, variants: draft.variants })
                        .collect();
                    Op::Product { product: Product::new(bound), k, target }
                }
                DraftOp::Embed { weight, variant } => {
                    let Some(weight) = weight.and_then(|_| packed.next()) else {
                        tied = Some((draft.label, draft.resolved, variant));
                        continue;
                    };
                    Op::Embed { weight, variant }
                }
            };
            steps.push(Step { label: draft.label, resolved: draft.resolved, op });
        }
        let head = steps.iter().find_map(|step| match &step.op {
            Op::Product { product, target: Target::Logits, .. } => product.segments().first(),
            _ => None,
        });
        if let (Some((label, resolved, variant)), Some(head)) = (tied, head) {
            let weight = head.weight.clone();
            steps.insert(0, Step { label, resolved, op: Op::Embed { weight, variant } });
        }
        Ok(steps)
    }

    /// The gather reads the head's layout where they are one tensor.
    fn embed(&mut self, head: &Draft) -> Result<(), LoadError> {
        let label = "embed";
        let embed = contract(label, embed::ID)?;
        let tied = head.op.weights().next().filter(|_| self.config.is_tied);
        let format = match tied {
            Some(weight) => weight.segment.format,
            None => self.model.tensor("token_embd.weight").map_or(BlockFormat::F32, |tensor| tensor.info().format()),
        };
        let problem = |m| {
            Problem::new()
                .with("m", m)
                .with("hidden", self.config.hidden as u64)
                .with("vocab", self.config.vocab as u64)
                .with_word("fmt", format.name)
        };
        let mut resolved = self.resolver.resolve(label, embed, problem, self.resolver.max_rows)?;
        let (weight, variant) = if let Some(weight) = tied {
            let variant = embed::VARIANTS
                .iter()
                .filter(|entry| entry.layout == weight.layout)
                .find(|entry| registry::can_run(embed, &entry.listed, &problem(1), self.resolver.key).is_ok())
                .ok_or_else(|| LoadError::Step {
                    step: label.to_owned(),
                    why: format!("nothing gathers rows from the head's layout {:?}", weight.layout),
                })?;
            (None, variant)
        } else {
            let variant = *resolved.entries(label, embed::by_name)?.get(1);
            let weight = DraftWeight {
                name: "token_embd.weight".to_owned(),
                segment: Segment { format, n: self.config.vocab },
                k: self.config.hidden,
                layout: variant.layout,
                variants: ByRows::always(&matmul::VARIANTS[0]),
            };
            (Some(weight), variant)
        };
        resolved.selections = resolved.selections.try_map(|_, selection| {
            let mut selection = selection.clone();
            selection.variant = &variant.listed;
            Ok::<_, LoadError>(selection)
        })?;
        let op = DraftOp::Embed { weight, variant };
        self.drafts.push(Draft { label: label.to_owned(), resolved: vec![resolved], op });
        Ok(())
    }

    fn norm(&mut self, label: &str, name: &str, is_last: bool) -> Result<(), LoadError> {
        let weight: Vec<f32> =
            self.stored(name)?.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let epsilon = format!("{:e}", self.config.norm_epsilon);
        let problem =
            |m| Problem::new().with("m", m).with("hidden", self.config.hidden as u64).with_word("eps", &epsilon);
        let rms = contract(label, rms_norm_quantise::ID)?;
        let most = if is_last { self.max_wanted } else { self.resolver.max_rows };
        let resolved = self.resolver.resolve(label, rms, problem, most)?;
        let variants = resolved.entries(label, rms_norm_quantise::by_name)?;
        self.push(label, resolved, Op::NormQuantise { weight, variants, is_last });
        Ok(())
    }

    fn rope(&mut self, label: &str, layer: usize) -> Result<(), LoadError> {
        let (config, rope) = (self.config, &self.config.rope);
        let kind = match rope.kind {
            RotationKind::Interleaved => "interleaved",
            RotationKind::Halves => "halves",
        };
        let problem = |m| self.heads(m).with_word("kind", kind).with("n_rot", rope.n_rot as u64);
        let resolved =
            self.resolver.resolve(label, contract(label, rope_append::ID)?, problem, self.resolver.max_rows)?;
        let variants = resolved.entries(label, rope_append::by_name)?;
        debug_assert!(config.head_dim >= rope.n_rot);
        self.push(label, resolved, Op::RopeAppend { layer, variants });
        Ok(())
    }

    fn heads(&self, m: u64) -> Problem {
        Problem::new()
            .with("m", m)
            .with("heads", self.config.heads as u64)
            .with("kv_heads", self.config.kv_heads as u64)
            .with("head_dim", self.config.head_dim as u64)
            .with("depth", 0)
    }

    fn attention(&mut self, label: &str, layer: usize) -> Result<(), LoadError> {
        let problem = |m| self.heads(m).with("seqs", 1);
        let resolved =
            self.resolver.resolve(label, contract(label, attention::ID)?, problem, self.resolver.max_rows)?;
        let variants = resolved.entries(label, attention::by_name)?;
        self.push(label, resolved, Op::Attention { layer, variants });
        Ok(())
    }

    fn quantise(&mut self, label: &str) -> Result<(), LoadError> {
        let k = (self.config.heads * self.config.head_dim) as u64;
        let problem = |m| Problem::new().with("m", m).with("k", k);
        let resolved = self.resolver.resolve(label, contract(label, quantise::ID)?, problem, self.resolver.max_rows)?;
        let variants = resolved.entries(label, quantise::by_name)?;
        self.push(label, resolved, Op::Quantise { variants });
        Ok(())
    }

    fn swiglu(&mut self, label: &str) -> Result<(), LoadError> {
        let problem = |m| Problem::new().with("m", m).with("ffn", self.config.ffn as u64);
        let resolved =
            self.resolver.resolve(label, contract(label, swiglu_quantise::ID)?, problem, self.resolver.max_rows)?;
        let variants = resolved.entries(label, swiglu_quantise::by_name)?;
        self.push(label, resolved, Op::SwigluQuantise { variants });
        Ok(())
    }

    fn argmax(&mut self) -> Result<(), LoadError> {
        let label = "argmax";
        let problem = |m| Problem::new().with("m", m).with("n", self.config.vocab as u64);
        let resolved = self.resolver.resolve(label, contract(label, argmax::ID)?, problem, self.max_wanted)?;
        let variants = resolved.entries(label, argmax::by_name)?;
        self.push(label, resolved, Op::Argmax { variants });
        Ok(())
    }

    fn sampler(&self) -> Result<&'static sample::SampleVariant, LoadError> {
        let label = "sample";
        let problem = |m| Problem::new().with("m", m).with("n", self.config.vocab as u64);
        let resolved = self.resolver.resolve(label, contract(label, sample::ID)?, problem, 1)?;
        Ok(resolved.entries(label, sample::by_name)?.get(1))
    }

    fn push(&mut self, label: &str, resolved: Resolved, op: Op) {
        self.drafts.push(Draft { label: label.to_owned(), resolved: vec![resolved], op: DraftOp::Ready(op) });
    }
}
