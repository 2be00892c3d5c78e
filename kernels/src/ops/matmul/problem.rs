//! The axes of a matrix product, parsed.

use std::fmt;

use memra_contract::order::{self, F8_BLOCK, QUANT_BLOCK};
use memra_contract::weights::UNPACKED;
use memra_contract::{BlockFormat, Cost, DType, OrderClass, Problem, ProblemError};

use super::ID;
use crate::contract::ProblemClass;

/// Element type of the activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// f32.
    F32,
    /// f16, multiplied as f32.
    F16,
    /// bf16, multiplied as f32.
    Bf16,
    /// int8 planes: quants, scales and sums.
    Q8,
}

/// What happens to a product before it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Epilogue {
    /// It is stored.
    None,
    /// It is added to a residual.
    Residual,
}

/// One weight matrix `[n, k]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Stored format.
    pub format: BlockFormat,
    /// Rows of the weight, columns of the output.
    pub n: usize,
}

/// A problem of this contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatmulProblem {
    /// Rows of the activation.
    pub m: usize,
    /// Length of a row.
    pub k: usize,
    /// Activation type.
    pub activation: Activation,
    /// Epilogue.
    pub epilogue: Epilogue,
    /// Segments, side by side in the output.
    pub segments: Vec<Segment>,
}

const AXES: &[&str] = &["m", "k", "seg", "act", "epi"];

/// Formats a segment may have.
pub const FORMATS: &[BlockFormat] = UNPACKED;

/// The order class of a product with a segment of a format of [`FORMATS`].
pub fn order_class(format: BlockFormat) -> OrderClass {
    match format {
        BlockFormat::F32 | BlockFormat::F16 | BlockFormat::BF16 => order::DOT_F32_CHAIN32,
        BlockFormat::F8_E4M3 => order::DOT_F8_BLOCK128_CHAIN32,
        BlockFormat::Q4_1 => order::DOT_U4_MIN_BLOCK32_CHAIN8,
        BlockFormat::Q5_1 | BlockFormat::Q4_K | BlockFormat::Q5_K => order::DOT_U_MIN_BLOCK32_CHAIN8,
        BlockFormat::Q6_K => order::DOT_I8_SUB16_BLOCK32_CHAIN8,
        BlockFormat::NVFP4 => order::DOT_E2M1_BLOCK16_CHAIN8,
        _ => order::DOT_I8_BLOCK32_CHAIN8,
    }
}

/// Whether a format is multiplied with a float activation, and not with int8 planes.
pub fn is_float(format: BlockFormat) -> bool {
    [BlockFormat::F32, BlockFormat::F16, BlockFormat::BF16, BlockFormat::F8_E4M3].contains(&format)
}

fn formats() -> String {
    FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
}

impl MatmulProblem {
    /// Reads and checks a problem.
    ///
    /// # Errors
    /// [`ProblemError`] naming the axis.
    pub fn parse(problem: &Problem) -> Result<Self, ProblemError> {
        problem.only(ID, AXES)?;
        let m = problem.size(ID, "m", 1..=4096)? as usize;
        let k = problem.size(ID, "k", QUANT_BLOCK as u64..=131_072)? as usize;
        if !k.is_multiple_of(QUANT_BLOCK) {
            return Err(refuse("k", k, "it must be a multiple of 32"));
        }
        let text = problem.word(ID, "seg")?;
        let segments = text.split('+').map(|part| segment(&text, part)).collect::<Result<Vec<_>, _>>()?;
        for Segment { format, .. } in &segments {
            if !(k as u64).is_multiple_of(format.block_elems) {
                let why = format!("rows of {format} are whole blocks of {}", format.block_elems);
                return Err(refuse("k", k, &why));
            }
        }
        if segments.iter().map(|segment| segment.n).sum::<usize>() > 1 << 24 {
            return Err(refuse("seg", text, "more than 16777216 output columns"));
        }
        let multiplied = multiplied_activation(&segments, &text)?;
        let activation = match problem.get("act").map(ToString::to_string).as_deref() {
            None => multiplied,
            Some("f32") => Activation::F32,
            Some("f16") => Activation::F16,
            Some("bf16") => Activation::Bf16,
            Some("q8") => Activation::Q8,
            Some(other) => return Err(refuse("act", other, "activation types are f32, f16, bf16 and q8")),
        };
        match (multiplied, activation) {
            (Activation::Q8, Activation::F16 | Activation::Bf16) => {
                return Err(refuse("act", activation, "quantised segments take q8 or f32 activations"));
            }
            (Activation::F32, Activation::Q8) => {
                return Err(refuse("act", activation, "float segments take f32, f16 or bf16 activations"));
            }
            _ => (),
        }
        let epilogue = match problem.get("epi").map(ToString::to_string).as_deref() {
            None | Some("none") => Epilogue::None,
            Some("residual") => Epilogue::Residual,
            Some(other) => return Err(refuse("epi", other, "epilogues are none and residual")),
        };
        Ok(Self { m, k, activation, epilogue, segments })
    }

    /// The canonical problem, every axis given.
    pub fn to_problem(&self) -> Problem {
        let segments: Vec<_> = self.segments.iter().map(|s| format!("{}:{}", s.format, s.n)).collect();
        let epilogue = match self.epilogue {
            Epilogue::None => "none",
            Epilogue::Residual => "residual",
        };
        Problem::new()
            .with("m", self.m as u64)
            .with("k", self.k as u64)
            .with_word("seg", &segments.join("+"))
            .with_word("act", &self.activation.to_string())
            .with_word("epi", epilogue)
    }

    /// The activation type the kernels multiply: int8 planes for quantised segments, f32 for all others.
    pub fn multiplied(&self) -> Activation {
        if self.segments.iter().all(|segment| is_float(segment.format)) { Activation::F32 } else { Activation::Q8 }
    }

    /// Whether a launch quantises its f32 activation before the product.
    pub fn quantises(&self) -> bool {
        self.multiplied() == Activation::Q8 && self.activation != Activation::Q8
    }

    /// Columns of the output.
    pub fn width(&self) -> usize {
        self.segments.iter().map(|segment| segment.n).sum()
    }

    /// Blocks of 32 in a row.
    pub fn blocks(&self) -> usize {
        self.k / QUANT_BLOCK
    }

    /// Least work.
    pub fn cost(&self) -> Cost {
        let (m, k, width) = (self.m as u64, self.k as u64, self.width() as u64);
        let weights: u64 = self.segments.iter().map(|s| (s.bytes(self.k) + 4 * s.outer_scales(self.k)) as u64).sum();
        let activations = match self.activation {
            Activation::F32 => m * k * 4,
            Activation::F16 | Activation::Bf16 => m * k * 2,
            Activation::Q8 => m * k + m * k / 32 * 6,
        };
        let residual = match self.epilogue {
            Epilogue::None => 0,
            Epilogue::Residual => m * width * 4,
        };
        Cost { flops: 2 * m * k * width, read_bytes: weights + activations + residual, written_bytes: m * width * 4 }
    }

    /// Format of the first segment, and a class that moves by factors of four along n and k.
    pub fn class(&self) -> ProblemClass {
        let mut formats: Vec<_> = self.segments.iter().map(|segment| segment.format.name).collect();
        formats.dedup();
        ProblemClass {
            format: formats.join("+"),
            class: format!("n4^{}-k4^{}", log4(self.width()), log4(self.k)),
            m: self.m as u64,
        }
    }
}

/// Largest `e` with `4^e <= value`.
fn log4(value: usize) -> u32 {
    value.max(1).ilog2() / 2
}

impl Segment {
    /// Bytes of the stored weight for rows of `k`.
    pub fn bytes(self, k: usize) -> usize {
        self.n * self.row_bytes(k)
    }

    /// Bytes of one stored row.
    pub fn row_bytes(self, k: usize) -> usize {
        k / self.format.block_elems as usize * self.format.block_bytes as usize
    }

    /// The f32 tensor of scales that is stored beside the weight, where the format has one: its name without the place of
    /// the segment, and its shape.
    pub fn outer_tensor(self, k: usize) -> Option<(&'static str, Vec<usize>)> {
        match self.format {
            BlockFormat::F8_E4M3 => Some(("scale", vec![self.n.div_ceil(F8_BLOCK), k.div_ceil(F8_BLOCK)])),
            BlockFormat::NVFP4 => Some(("outer", vec![1])),
            _ => None,
        }
    }

    /// How many scales are stored beside the weight.
    pub fn outer_scales(self, k: usize) -> usize {
        self.outer_tensor(k).map_or(0, |(_, shape)| shape.iter().product())
    }

    /// Those of one row: one for 128 elements of f8_e4m3, one of nvfp4, else none.
    pub fn row_scales(self, k: usize, scales: &[f32], row: usize) -> &[f32] {
        if self.format != BlockFormat::F8_E4M3 {
            return scales;
        }
        let blocks = k.div_ceil(F8_BLOCK);
        &scales[row / F8_BLOCK * blocks..][..blocks]
    }
}

impl Activation {
    /// Element type of the tensor `activation`; `None` for planes.
    pub const fn dtype(self) -> Option<DType> {
        match self {
            Self::F32 => Some(DType::F32),
            Self::F16 => Some(DType::F16),
            Self::Bf16 => Some(DType::Bf16),
            Self::Q8 => None,
        }
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8 => "q8",
        })
    }
}

fn refuse(axis: &str, value: impl fmt::Display, why: &str) -> ProblemError {
    ProblemError::Value {
        contract: ID.to_owned(),
        axis: axis.to_owned(),
        value: value.to_string(),
        why: why.to_owned(),
    }
}

fn segment(text: &str, part: &str) -> Result<Segment, ProblemError> {
    let form = || refuse("seg", text, &format!("`{part}` is not of the form format:n"));
    let (format, n) = part.split_once(':').ok_or_else(form)?;
    let n: usize = n.parse().map_err(|_| form())?;
    if n == 0 {
        return Err(refuse("seg", text, "a segment has at least one column"));
    }
    match BlockFormat::from_name(format) {
        Some(format) if FORMATS.contains(&format) => Ok(Segment { format, n }),
        _ => Err(refuse("seg", text, &format!("no segment format `{format}`; there are {}", formats()))),
    }
}

fn multiplied_activation(segments: &[Segment], text: &str) -> Result<Activation, ProblemError> {
    let floats = segments.iter().filter(|segment| is_float(segment.format)).count();
    if floats == segments.len() {
        Ok(Activation::F32)
    } else if floats == 0 {
        Ok(Activation::Q8)
    } else {
        Err(refuse(
            "seg",
            text,
            "float segments take float activations and quantised segments take q8: they cannot share one",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MatmulProblem, ProblemError> {
        MatmulProblem::parse(&text.parse().unwrap())
    }

    #[test]
    fn defaults_are_filled_and_text_is_canonical() {
        let problem = parse("m=1,k=576,seg=q8_0:49152").unwrap();
        assert_eq!(problem.to_problem().to_string(), "act=q8,epi=none,k=576,m=1,seg=q8_0:49152");
        assert_eq!(MatmulProblem::parse(&problem.to_problem()).unwrap(), problem);
        assert_eq!(problem.class().class, "n4^7-k4^4");
        assert_eq!(problem.cost().read_bytes, 49152 * 18 * 34 + 576 + 18 * 6);
    }

    #[test]
    fn float_activations_of_quantised_weights_are_quantised_first() {
        let problem = parse("m=1,k=64,seg=q8_0:8,act=f32").unwrap();
        assert!(problem.quantises() && problem.multiplied() == Activation::Q8);
        assert!(!parse("m=1,k=64,seg=f32:8").unwrap().quantises());
        assert!(!parse("m=1,k=64,seg=q8_0:8").unwrap().quantises());
    }

    #[test]
    fn float_activations_of_float_weights_are_stored_as_they_are_named() {
        let problem = parse("m=2,k=64,seg=bf16:8+f8_e4m3:130,act=bf16").unwrap();
        assert!(!problem.quantises() && problem.multiplied() == Activation::F32);
        assert_eq!(problem.to_problem().to_string(), "act=bf16,epi=none,k=64,m=2,seg=bf16:8+f8_e4m3:130");
        assert_eq!(problem.cost().read_bytes, 64 * (8 * 2 + 130) + 2 * 4 + 2 * 64 * 2);
        assert!(parse("m=1,k=512,seg=q4_k:8+q6_k:3+q8_0:1+nvfp4:2").unwrap().multiplied() == Activation::Q8);
    }

    #[test]
    fn scales_beside_a_weight_belong_to_rows() {
        let segment = parse("m=1,k=160,seg=f8_e4m3:129").unwrap().segments[0];
        assert_eq!(segment.outer_tensor(160), Some(("scale", vec![2, 2])));
        assert_eq!(segment.row_scales(160, &[1.0, 2.0, 3.0, 4.0], 127), [1.0, 2.0]);
        assert_eq!(segment.row_scales(160, &[1.0, 2.0, 3.0, 4.0], 128), [3.0, 4.0]);
    }

    #[test]
    fn wrong_axes_are_named() {
        for (text, axis) in [
            ("m=0,k=32,seg=q8_0:1", "`m`"),
            ("m=4097,k=32,seg=q8_0:1", "`m`"),
            ("m=1,k=33,seg=q8_0:1", "`k`"),
            ("m=1,k=32", "`seg`"),
            ("m=1,k=32,seg=q8_0", "`seg`"),
            ("m=1,k=32,seg=q8_0:0", "`seg`"),
            ("m=1,k=256,seg=q2_k:8", "`seg`"),
            ("m=1,k=32,seg=q4_k:8", "`k`"),
            ("m=1,k=96,seg=nvfp4:8", "`k`"),
            ("m=1,k=544,seg=q8_0:4+iq3_s:8", "`k`"),
            ("m=1,k=32,seg=bf16:8+q4_0:8", "`seg`"),
            ("m=1,k=32,seg=f8_e4m3:8,act=q8", "`act`"),
            ("m=1,k=32,seg=q8_0:8,act=f16", "`act`"),
            ("m=1,k=32,seg=q8_0:8+f32:8", "`seg`"),
            ("m=1,k=32,seg=f32:8,act=q8", "`act`"),
            ("m=1,k=32,seg=q8_0:8,act=bf16", "`act`"),
            ("m=1,k=32,seg=q8_0:8,epi=gelu", "`epi`"),
            ("m=1,k=32,seg=q8_0:8,n=3", "`n`"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(axis), "{text}: {error}");
        }
    }
}
