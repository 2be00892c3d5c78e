//! Arms out of the tree: a file of device text that was never compiled in, checked and raced like a variant.
//!
//! The header of the file says what it is an arm of and what is launched; `docs/OUT_OF_TREE.md` explains it. The file becomes a
//! contract of its own: it has the meaning, the inputs and the judges of the registered contract, and one variant. Its buffers
//! are those of the first registered CUDA variant that serves the problem, so that both arms of a race move the same bytes.

mod expression;
mod form;
mod header;
mod reader;
#[cfg(test)]
mod tests;

use std::io::Read as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use memra_contract::{Cost, DeviceKey, Problem, ProblemError, TensorSet, Tolerance, VariantId};

pub use expression::{Expression, ExpressionError};
pub use header::{ArgTemplate, ArmHeader, LaunchTemplate, Repack, SCHEMA};

use crate::case::CaseFile;
use crate::contract::{
    Contract, ContractInfo, CudaBuild, InputError, PeerReference, PrepareError, Prepared, ProblemClass, Reference,
    Source, Target, Variant,
};
use crate::form::DeviceForm;
use crate::ops::shared;

/// Longest file in bytes.
pub const MOST_BYTES: u64 = 1 << 20;

/// What the name of a file ends with.
pub const EXTENSION: &str = ".cu";

/// A file that is no arm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArmFileError {
    /// It cannot be read, or not used as a whole.
    #[error("{file}: {why}")]
    File {
        /// The file.
        file: String,
        /// Why.
        why: String,
    },
    /// A line is wrong.
    #[error("{file}, line {line}: {why}")]
    Line {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// A field of the header is wrong.
    #[error("{file}: {field}: {why}")]
    Field {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// What is wrong.
        why: String,
    },
}

/// Name and text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmText {
    /// Name without folders.
    pub name: String,
    /// Its text.
    pub text: String,
}

impl ArmText {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ArmFileError::File`] when it is no plain file of text of at most [`MOST_BYTES`].
    pub fn read(path: &Path) -> Result<Self, ArmFileError> {
        let fault = |why: String| ArmFileError::File { file: path.display().to_string(), why };
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(|| fault("has no name".to_owned()))?;
        let metadata = std::fs::metadata(path).map_err(|error| fault(error.to_string()))?;
        if !metadata.is_file() {
            return Err(fault("is no plain file".to_owned()));
        }
        let file = std::fs::File::open(path).map_err(|error| fault(error.to_string()))?;
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| fault(error.to_string()))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(fault(format!("has more than {MOST_BYTES} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|error| fault(format!("is no UTF-8 text: {error}")))?;
        Ok(Self { name: name.to_owned(), text })
    }

    /// The header, without making an arm.
    ///
    /// # Errors
    /// [`ArmFileError`] naming the file and the line or the field.
    pub fn header(&self) -> Result<ArmHeader, ArmFileError> {
        ArmHeader::parse(&self.name, &self.text)
    }
}

/// A file that is an arm on cards with so many multiprocessors.
#[derive(Debug)]
pub struct ArmFile {
    text: ArmText,
    header: ArmHeader,
    sms: u32,
    variants: [&'static Variant; 1],
}

/// Files that are arms of this process. A variant lives as long as the program, so its text is never given back; the same file
/// is kept once.
static KEPT: Mutex<Vec<&'static ArmFile>> = Mutex::new(Vec::new());

impl ArmFile {
    /// Makes an arm of a text, for a device.
    ///
    /// # Errors
    /// [`ArmFileError`] naming the file and the line or the field.
    pub fn load(text: &ArmText, key: DeviceKey) -> Result<&'static Self, ArmFileError> {
        let fault = |why: String| ArmFileError::File { file: text.name.clone(), why };
        let DeviceKey::Cuda(class) = key else {
            return Err(fault(format!("it runs on a CUDA card, and this device is {key}: say --backend cuda")));
        };
        // A poisoned lock only says that another text was refused by a panic; what stands in the list is whole.
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| known.text == *text && known.sms == class.sms) {
            return Ok(known);
        }
        let header = text.header()?;
        let stem = text.name.strip_suffix(EXTENSION).unwrap_or(&text.name);
        VariantId::new(stem).map_err(|error| fault(format!("the name of the file names the arm: {error}")))?;
        if header.contract.variants().iter().any(|variant| variant.name == stem) {
            return Err(fault(format!("`{stem}` is a registered variant: give the file another name")));
        }
        let defines: Vec<(&'static str, &'static str)> =
            header.defines.iter().map(|(name, value)| (keep(name), keep(value))).collect();
        let variant = Variant {
            name: keep(stem),
            summary: keep(&format!("{}, out of the tree", text.name)),
            target: Target::Cuda(CudaBuild { archs: header.archs.clone().leak(), defines: defines.leak() }),
            layout: keep(&header.layout),
            order_class: header.order_class,
            rows: header.rows,
            source: Source { path: keep(&text.name), text: keep(&text.text) },
        };
        let variants = [&*Box::leak(Box::new(variant))];
        let file: &'static Self = Box::leak(Box::new(Self { text: text.clone(), header, sms: class.sms, variants }));
        kept.push(file);
        Ok(file)
    }

    /// Its variant.
    pub fn variant(&self) -> &'static Variant {
        self.variants[0]
    }

    /// Name and text.
    pub fn text(&self) -> &ArmText {
        &self.text
    }

    /// Its header.
    pub fn header(&self) -> &ArmHeader {
        &self.header
    }

    fn inner(&self) -> &'static dyn Contract {
        self.header.contract
    }

    fn refuse(&self, problem: &Problem, why: String) -> PrepareError {
        shared::unsupported(self.inner().info().id, self.variant().name, problem, why)
    }
}

fn keep(text: &str) -> &'static str {
    text.to_owned().leak()
}

impl Contract for ArmFile {
    fn info(&self) -> &'static ContractInfo {
        self.inner().info()
    }

    fn normalise(&self, problem: &Problem) -> Result<Problem, ProblemError> {
        self.inner().normalise(problem)
    }

    fn cost(&self, problem: &Problem) -> Result<Cost, ProblemError> {
        self.inner().cost(problem)
    }

    fn tolerance(&self, problem: &Problem) -> Result<Tolerance, ProblemError> {
        self.inner().tolerance(problem)
    }

    fn class(&self, problem: &Problem) -> Result<ProblemClass, ProblemError> {
        self.inner().class(problem)
    }

    fn cases(&self) -> &'static CaseFile {
        self.inner().cases()
    }

    fn inputs(&self, problem: &Problem, family: &str, seed: u64) -> Result<TensorSet, InputError> {
        self.inner().inputs(problem, family, seed)
    }

    fn with_weights(&self, problem: &Problem, inputs: TensorSet, weights: &[u8]) -> Result<TensorSet, InputError> {
        self.inner().with_weights(problem, inputs, weights)
    }

    fn ordered_outputs(&self, problem: &Problem, inputs: &TensorSet) -> Result<TensorSet, ProblemError> {
        self.inner().ordered_outputs(problem, inputs)
    }

    fn reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Reference, ProblemError> {
        self.inner().reference(problem, inputs)
    }

    fn peer_reference(&self, problem: &Problem, inputs: &TensorSet) -> Result<Option<PeerReference>, ProblemError> {
        self.inner().peer_reference(problem, inputs)
    }

    fn picked_rows(&self, problem: &Problem, inputs: &TensorSet, rows: &[usize]) -> Option<(Problem, TensorSet)> {
        self.inner().picked_rows(problem, inputs, rows)
    }

    fn output_values(&self, outputs: &TensorSet) -> Vec<f64> {
        self.inner().output_values(outputs)
    }

    /// The one of the file. Only a file that lives as long as the program is a contract, and only [`ArmFile::load`] makes one.
    fn variants(&self) -> &'static [&'static Variant] {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|known| std::ptr::eq(**known, self)).map_or(&[], |known| &known.variants)
    }

    fn arm_file(&self) -> Option<&ArmFile> {
        Some(self)
    }

    fn supports(&self, _: &Variant, problem: &Problem) -> Result<(), PrepareError> {
        form::refusal(&self.header, problem).map_or(Ok(()), |why| Err(self.refuse(problem, why)))
    }

    fn prepare_host(
        &self,
        _: &Variant,
        problem: &Problem,
        _: &TensorSet,
        _: usize,
    ) -> Result<Box<dyn Prepared>, PrepareError> {
        Err(self.refuse(problem, "it runs on a CUDA device, not on the host".to_owned()))
    }

    fn device_form(
        &self,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<DeviceForm, PrepareError> {
        self.supports(variant, problem)?;
        form::form(&self.header, problem, inputs, self.sms)?.map_err(|why| PrepareError::Refused {
            contract: self.inner().info().id,
            variant: self.variant().name.to_owned(),
            why,
        })
    }
}
