//! The header of a file of device text: TOML in its first comments, between two lines `// ---`.

use std::collections::BTreeMap;

use memra_contract::device::CudaArch;
use memra_contract::{AxisValue, OrderClass, Problem, TensorSet};

use super::expression::Expression;
use super::reader::{RawHeader, Reader};
use super::{ArmFileError, form};
use crate::contract::{Contract, TensorInfo};
use crate::form::DeviceForm;
use crate::headers;
use crate::registry::{self, nearest};

/// What the field `schema` says.
pub const SCHEMA: &str = "memra-arm/1";

/// The line that begins and ends a header.
const FENCE: &str = "// ---";

/// A header that was read: what a file is an arm of, what it serves and what is launched.
#[derive(Clone)]
pub struct ArmHeader {
    /// The contract.
    pub contract: &'static dyn Contract,
    /// The arithmetic that the file keeps.
    pub order_class: OrderClass,
    /// Architectures, oldest first.
    pub archs: Vec<CudaArch>,
    /// The layout of its weights in words.
    pub layout: String,
    /// Preprocessor definitions.
    pub defines: Vec<(String, String)>,
    /// Weight formats that it serves; none stands for all.
    pub formats: Vec<String>,
    /// Fewest and most rows.
    pub rows: (u64, u64),
    /// Values that axes must have.
    pub axes: BTreeMap<String, Vec<AxisValue>>,
    /// What sizes must be multiples of.
    pub multiples: BTreeMap<String, u64>,
    /// The launch.
    pub launch: LaunchTemplate,
    /// A launch that lays weights out once, where there is one.
    pub repack: Option<Repack>,
}

/// A launch whose numbers depend on the problem.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchTemplate {
    /// Entry point.
    pub entry: String,
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks.
    pub grid: [Expression; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: Expression,
    /// Arguments in order.
    pub args: Vec<ArgTemplate>,
}

/// A launch that lays a weight out: it takes the stored bytes, the buffer that it fills, and `launch.args`.
#[derive(Debug, Clone, PartialEq)]
pub struct Repack {
    /// The launch.
    pub launch: LaunchTemplate,
    /// Bytes of the buffer.
    pub bytes: Expression,
}

/// One argument.
#[derive(Debug, Clone, PartialEq)]
pub enum ArgTemplate {
    /// A tensor of the contract.
    Tensor(String),
    /// A buffer of so many bytes that only the launches see, zeroed once.
    Scratch(Expression),
    /// A 32-bit number.
    U32(Expression),
    /// A float that stands in the header.
    Float(f32),
    /// A float that an axis gives, as a word or as a size.
    FloatAxis(String),
}

/// The TOML of a header with comment marks taken off, and the number of the line before it.
fn toml_of(file: &str, text: &str) -> Result<(String, usize), ArmFileError> {
    let line_fault = |line: usize, why: &str| ArmFileError::Line { file: file.to_owned(), line, why: why.to_owned() };
    let mut begin = None;
    let mut toml = String::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_end();
        match begin {
            None if line == FENCE => begin = Some(index + 1),
            None if line.is_empty() || line.starts_with("//") => {}
            None => {
                return Err(line_fault(index + 1, "the file begins with no header: `// ---` is expected before this"));
            }
            Some(begin) if line == FENCE => return Ok((toml, begin)),
            Some(_) => {
                let Some(rest) = line.strip_prefix("// ").or_else(|| (line == "//").then_some("")) else {
                    return Err(line_fault(
                        index + 1,
                        "a line of the header begins with `// `, and the header ends with `// ---`",
                    ));
                };
                toml.push_str(rest);
                toml.push('\n');
            }
        }
    }
    Err(match begin {
        Some(begin) => line_fault(begin, "the header that begins here has no end: `// ---` is missing"),
        None => line_fault(1, "the file has no header between two lines `// ---`"),
    })
}

/// Names of axes that expressions may hold.
pub(super) fn is_axis(contract: &dyn Contract, name: &str) -> bool {
    let axes = contract.info().axes;
    let has_segments = || axes.iter().any(|axis| axis.name == "seg");
    let is_segment = || name.strip_prefix('n').is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    name == "sms" || axes.iter().any(|axis| axis.name == name) || is_segment() && has_segments()
}

/// The tensor of a name; `weight3` belongs to `weight0, weight1, ...`.
pub(super) fn tensor(contract: &dyn Contract, name: &str) -> Option<&'static TensorInfo> {
    contract.info().tensors.iter().find(|tensor| {
        let base = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        tensor.name.split(", ").any(|known| known == name)
            || tensor.name.ends_with("...") && {
                let first = tensor.name.split(", ").next().unwrap_or_default();
                let (stem, digits) = name.split_at(base(name));
                stem == &first[..base(first)]
                    && matches!(digits.len(), 1..=2)
                    && (digits == "0" || !digits.starts_with('0'))
            }
    })
}

impl std::fmt::Debug for ArmHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArmHeader")
            .field("contract", &self.contract.info().id)
            .field("launch", &self.launch)
            .finish_non_exhaustive()
    }
}

impl ArmHeader {
    /// Reads the header of a text and holds it to its contract; what the text includes is looked at too.
    ///
    /// # Errors
    /// [`ArmFileError`] naming the file and the line or the field.
    pub fn parse(file: &str, text: &str) -> Result<Self, ArmFileError> {
        let (toml, before) = toml_of(file, text)?;
        let raw: RawHeader = toml::from_str(&toml).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = before + 1 + toml.bytes().take(at).filter(|b| *b == b'\n').count();
            ArmFileError::Line { file: file.to_owned(), line, why: error.message().to_owned() }
        })?;
        includes(file, text)?;
        let contract = registry::contract(&raw.contract).map_err(|error| field(file, "contract", error.to_string()))?;
        Reader { file, contract }.header(raw)
    }

    /// The form of a problem on a card with so many multiprocessors, where there is one.
    pub fn form(&self, problem: &Problem, inputs: &TensorSet, sms: u32) -> Option<DeviceForm> {
        if form::refusal(self, problem).is_some() {
            return None;
        }
        form::form(self, problem, inputs, sms).ok()?.ok()
    }
}

/// A field that is wrong.
pub(super) fn field(file: &str, field: &str, why: String) -> ArmFileError {
    ArmFileError::Field { file: file.to_owned(), field: field.to_owned(), why }
}

/// Only headers that are compiled in, and those of the compiler, are included.
fn includes(file: &str, text: &str) -> Result<(), ArmFileError> {
    for (index, line) in text.lines().enumerate() {
        let fault = |why: String| Err(ArmFileError::Line { file: file.to_owned(), line: index + 1, why });
        let line = line.trim();
        let Some(rest) = line.strip_prefix('#').map(str::trim_start).and_then(|rest| rest.strip_prefix("include"))
        else {
            continue;
        };
        if let Some(name) = line.strip_prefix("#include \"").and_then(|rest| rest.split_once('"')).map(|(name, _)| name)
        {
            if headers::header(name).is_none() {
                let known: Vec<_> = headers::HEADERS.iter().map(|header| header.name).collect();
                let hint = nearest(name, known.iter().copied());
                return fault(format!("no header `{name}`{hint}; there are {}", known.join(", ")));
            }
            continue;
        }
        let angled = rest.trim_start().strip_prefix('<').and_then(|rest| rest.split_once('>')).map(|(name, _)| name);
        if !angled.is_some_and(|name| !name.starts_with(['/', '\\']) && !name.contains("..")) {
            return fault("an include is written `#include \"memra.cuh\"`, or `#include <cuda_fp16.h>` for headers of the compiler".to_owned());
        }
    }
    Ok(())
}
