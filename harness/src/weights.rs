//! Weights of a cell from a tensor of a GGUF file.

use std::path::Path;

use memra_artifact::{GgufError, GgufModel};
use memra_contract::digest::Digest;
use memra_contract::{BlockFormat, Problem, ProblemError, TensorSet};
use memra_kernels::contract::InputError;
use memra_kernels::ops::matmul::{self, Epilogue, MatmulProblem};
use memra_kernels::{Contract, registry};
use memra_ledger::record::WeightSource;
use sha2::{Digest as _, Sha256};

/// Names that an error lists.
const LISTED: usize = 12;

/// A tensor read from a file.
#[derive(Clone, PartialEq, Eq)]
pub struct LoadedTensor {
    /// Name of the file, without its folder.
    pub file: String,
    /// Name of the tensor.
    pub name: String,
    /// The bytes as stored.
    pub bytes: Vec<u8>,
    /// How its elements are packed.
    pub format: BlockFormat,
    /// Dimensions, fastest first: a product with rows of `k` and `n` columns has `[k, n]`.
    pub dims: Vec<u64>,
    /// sha256 of the bytes.
    pub sha256: Digest,
}

impl std::fmt::Debug for LoadedTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedTensor")
            .field("file", &self.file)
            .field("name", &self.name)
            .field("format", &self.format.name)
            .field("dims", &self.dims)
            .finish_non_exhaustive()
    }
}

impl LoadedTensor {
    /// What a receipt says of the weights.
    pub fn source(&self) -> WeightSource {
        WeightSource { file: self.file.clone(), tensor: self.name.clone(), tensor_sha256: self.sha256.clone() }
    }
}

/// Weights could not be had, or do not fit.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] GgufError),
    /// No such tensor.
    #[error("{file} has no tensor `{tensor}`{hint}; it has {known}")]
    Tensor {
        /// The file's name.
        file: String,
        /// The tensor.
        tensor: String,
        /// The nearest name, as a phrase.
        hint: String,
        /// Names it has.
        known: String,
    },
    /// Shape or format differ from the problem's.
    #[error("tensor `{tensor}` of {file} is {stored}, and `{problem}` needs {needed}")]
    Shape {
        /// The file's name.
        file: String,
        /// The tensor.
        tensor: String,
        /// Its format, and its dimensions fastest first.
        stored: String,
        /// The problem.
        problem: String,
        /// What the problem needs.
        needed: String,
    },
    /// The product has no segment of this format.
    #[error("tensor `{tensor}` of {file} is {format}: there is no segment format of that name, only q8_0 and f32")]
    Format {
        /// The file's name.
        file: String,
        /// The tensor.
        tensor: String,
        /// Its format.
        format: &'static str,
    },
    /// The tensor is no matrix.
    #[error("tensor `{tensor}` of {file} has the dimensions {dims:?}, and a matrix is needed")]
    Matrix {
        /// The file's name.
        file: String,
        /// The tensor.
        tensor: String,
        /// Its dimensions, fastest first.
        dims: Vec<u64>,
    },
    /// The problem is wrong.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The contract refuses the bytes.
    #[error(transparent)]
    Input(#[from] InputError),
}

/// Reads a tensor of a GGUF file; of a split model, any shard may be named.
///
/// # Errors
/// [`WeightsError`] when the file cannot be read or has no such tensor, with the nearest name.
pub fn load_tensor(path: &Path, tensor: &str) -> Result<LoadedTensor, WeightsError> {
    let model = GgufModel::open(path)?;
    let file = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let Some(found) = model.tensor(tensor) else {
        let hint = registry::nearest(tensor, model.names());
        let mut known: Vec<&str> = model.names().take(LISTED).collect();
        let others = model.len().saturating_sub(known.len());
        let more = format!("{others} others");
        if others > 0 {
            known.push(&more);
        }
        return Err(WeightsError::Tensor { file, tensor: tensor.to_owned(), hint, known: known.join(", ") });
    };
    let bytes = found.data().to_vec();
    let sha256 = Digest::from_bytes(&Sha256::digest(&bytes).into());
    let (format, dims) = (found.info().format(), found.info().dims().to_vec());
    Ok(LoadedTensor { file, name: tensor.to_owned(), bytes, format, dims, sha256 })
}

/// The matrix product of `m` rows with a stored matrix: k and n are its dimensions, its format the segment's.
///
/// # Errors
/// [`WeightsError`] when the tensor is no matrix or has a format that no segment has, or a size is outside the contract.
pub fn problem_for(tensor: &LoadedTensor, m: u64) -> Result<Problem, WeightsError> {
    let (file, name) = (tensor.file.clone(), tensor.name.clone());
    let [k, n] = tensor.dims.as_slice() else {
        return Err(WeightsError::Matrix { file, tensor: name, dims: tensor.dims.clone() });
    };
    if tensor.format != BlockFormat::Q8_0 && tensor.format != BlockFormat::F32 {
        return Err(WeightsError::Format { file, tensor: name, format: tensor.format.name });
    }
    let problem = Problem::new().with("m", m).with("k", *k).with_word("seg", &format!("{}:{n}", tensor.format));
    Ok(MatmulProblem::parse(&problem)?.to_problem())
}

/// Inputs of a problem with a stored tensor in the place of generated weights.
///
/// # Errors
/// [`WeightsError`] naming tensor and problem where they do not fit.
pub fn inputs_with(
    contract: &'static dyn Contract,
    problem: &Problem,
    family: &str,
    seed: u64,
    tensor: &LoadedTensor,
) -> Result<TensorSet, WeightsError> {
    let problem = contract.normalise(problem)?;
    let mut generated = problem.clone();
    if contract.info().id == matmul::ID {
        let parsed = MatmulProblem::parse(&problem)?;
        check_fit(&parsed, &problem, tensor)?;
        // An element depends on seed, tensor and position alone, so a product of one column has the same activation: the
        // weights that are replaced need not be generated.
        if parsed.epilogue == Epilogue::None {
            generated = generated.with_word("seg", &format!("{}:1", tensor.format));
        }
    }
    let inputs = contract.inputs(&generated, family, seed)?;
    Ok(contract.with_weights(&problem, inputs, &tensor.bytes)?)
}

fn check_fit(parsed: &MatmulProblem, problem: &Problem, tensor: &LoadedTensor) -> Result<(), WeightsError> {
    // Several segments are refused by the contract itself.
    let [segment] = parsed.segments.as_slice() else { return Ok(()) };
    let needed = [parsed.k as u64, segment.n as u64];
    if tensor.format == segment.format && tensor.dims == needed {
        return Ok(());
    }
    Err(WeightsError::Shape {
        file: tensor.file.clone(),
        tensor: tensor.name.clone(),
        stored: format!("{} {:?}", tensor.format, tensor.dims),
        problem: problem.to_string(),
        needed: format!("{} {needed:?}", segment.format),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_artifact::GgufWriter;

    struct Model {
        folder: tempfile::TempDir,
    }

    impl Model {
        fn new(tensors: &[(&str, &[u64], &str, Vec<u8>)]) -> Self {
            let mut writer = GgufWriter::new();
            for (name, dims, format, _) in tensors {
                writer.declare(name, dims, BlockFormat::from_name(format).unwrap()).unwrap();
            }
            let mut body = writer.begin(Vec::new()).unwrap();
            for (name, _, _, bytes) in tensors {
                body.tensor(name, bytes).unwrap();
            }
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("tiny.gguf"), body.finish().unwrap()).unwrap();
            Self { folder }
        }

        fn load(&self, tensor: &str) -> Result<LoadedTensor, WeightsError> {
            load_tensor(&self.folder.path().join("tiny.gguf"), tensor)
        }
    }

    fn matmul() -> &'static dyn Contract {
        registry::contract("matmul").unwrap()
    }

    /// The stored weights that the generator makes for a problem.
    fn stored(problem: &str) -> Vec<u8> {
        let problem = matmul().normalise(&problem.parse().unwrap()).unwrap();
        matmul().inputs(&problem, "uniform", 9).unwrap().get("weight0").unwrap().bytes.clone()
    }

    fn model() -> Model {
        let q8 = stored("m=1,k=64,seg=q8_0:3");
        let f32 = stored("m=1,k=64,seg=f32:3");
        Model::new(&[
            ("token_embd.weight", &[64, 3], "q8_0", q8),
            ("norm.weight", &[64], "f32", f32[..256].to_vec()),
            ("router.weight", &[64, 3], "f32", f32),
            ("half.weight", &[64, 3], "f16", vec![0; 384]),
        ])
    }

    #[test]
    fn a_tensor_comes_with_its_form_and_digest() {
        let model = model();
        let tensor = model.load("token_embd.weight").unwrap();
        assert_eq!((tensor.format, tensor.dims.as_slice()), (BlockFormat::Q8_0, [64, 3].as_slice()));
        assert_eq!(tensor.bytes, stored("m=1,k=64,seg=q8_0:3"));
        let source = tensor.source();
        assert_eq!((source.file.as_str(), source.tensor.as_str()), ("tiny.gguf", "token_embd.weight"));
        assert_eq!(source.tensor_sha256, Digest::from_bytes(&Sha256::digest(&tensor.bytes).into()));
        let error = model.load("token_emb.weight").unwrap_err().to_string();
        assert!(error.contains("tiny.gguf") && error.contains("did you mean `token_embd.weight`"), "{error}");
        assert!(load_tensor(&model.folder.path().join("none.gguf"), "x").is_err());
    }

    #[test]
    fn problems_follow_from_matrices_with_a_segment_format() {
        let model = model();
        let problem = problem_for(&model.load("token_embd.weight").unwrap(), 4).unwrap();
        assert_eq!(problem.to_string(), "act=q8,epi=none,k=64,m=4,seg=q8_0:3");
        let problem = problem_for(&model.load("router.weight").unwrap(), 1).unwrap();
        assert_eq!(problem.to_string(), "act=f32,epi=none,k=64,m=1,seg=f32:3");
        for (tensor, m, needle) in [
            ("half.weight", 1, "is f16: there is no segment format"),
            ("norm.weight", 1, "a matrix is needed"),
            ("router.weight", 0, "`m`"),
        ] {
            let error = problem_for(&model.load(tensor).unwrap(), m).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }

    #[test]
    fn inputs_have_the_activation_of_the_problem_and_the_weights_of_the_file() {
        let model = model();
        let tensor = model.load("token_embd.weight").unwrap();
        for text in ["m=2,k=64,seg=q8_0:3", "m=2,k=64,seg=q8_0:3,epi=residual", "m=2,k=64,seg=q8_0:3,act=f32"] {
            let problem = matmul().normalise(&text.parse().unwrap()).unwrap();
            let inputs = inputs_with(matmul(), &problem, "normal", 5, &tensor).unwrap();
            let mut wanted = matmul().inputs(&problem, "normal", 5).unwrap();
            let mut weight = wanted.get("weight0").unwrap().clone();
            weight.bytes.clone_from(&tensor.bytes);
            wanted.insert(weight);
            assert_eq!(inputs, wanted, "{text}");
        }
        let norm = registry::contract("rms_norm").unwrap();
        let tensor = model.load("norm.weight").unwrap();
        let inputs = inputs_with(norm, &"m=1,hidden=64".parse().unwrap(), "normal", 5, &tensor).unwrap();
        assert_eq!(inputs.get("weight").unwrap().bytes, tensor.bytes);
    }

    #[test]
    fn weights_of_another_shape_are_refused_with_both() {
        let tensor = model().load("token_embd.weight").unwrap();
        for text in ["m=1,k=96,seg=q8_0:2", "m=1,k=64,seg=f32:3", "m=1,k=192,seg=q8_0:1"] {
            let error = inputs_with(matmul(), &text.parse().unwrap(), "normal", 1, &tensor).unwrap_err().to_string();
            assert!(error.contains("`token_embd.weight` of tiny.gguf is q8_0 [64, 3]"), "{error}");
            assert!(error.contains(&text.split(',').nth(1).unwrap().to_owned()), "{error}");
        }
        let error = inputs_with(matmul(), &"m=1,k=64,seg=q8_0:1+q8_0:2".parse().unwrap(), "normal", 1, &tensor);
        assert!(error.unwrap_err().to_string().contains("one segment"));
        let error =
            inputs_with(registry::contract("quantise").unwrap(), &"m=1,k=64".parse().unwrap(), "normal", 1, &tensor);
        assert!(error.unwrap_err().to_string().contains("has no weights"));
    }
}
