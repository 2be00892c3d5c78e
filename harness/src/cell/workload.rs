//! Cells in which engines run a model.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{BackendKind, CacheMode, Cell, CellError, CellSpec};
use crate::engine_arm::{self, Workload};

/// Input family of workload cells: every engine makes its tokens itself.
pub const WORKLOAD_FAMILY: &str = "tokens";

/// A workload on a model that users have under a common name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelWorkload {
    /// Model: the file is `<model>.gguf` in the models folder.
    pub model: String,
    /// Numbers of tokens.
    pub workload: Workload,
}

/// A workload cell as its file states it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadCell {
    name: String,
    title: String,
    model: String,
    #[serde(default)]
    prompt: u32,
    #[serde(default)]
    generated: u32,
    #[serde(default)]
    depth: u32,
    a: String,
    b: String,
    input_seed: u64,
    threads: u32,
    priority: u32,
}

impl From<WorkloadCell> for Cell {
    fn from(cell: WorkloadCell) -> Self {
        let workload = Workload { prompt: cell.prompt, generated: cell.generated, depth: cell.depth };
        Self {
            name: cell.name,
            title: cell.title,
            contract: engine_arm::CONTRACT.to_owned(),
            problem: workload.to_string(),
            a: cell.a,
            b: cell.b,
            family: WORKLOAD_FAMILY.to_owned(),
            input_seed: cell.input_seed,
            cache: CacheMode::Workload,
            threads: cell.threads,
            priority: cell.priority,
            weights: None,
            backend: BackendKind::Host,
            workload: Some(ModelWorkload { model: cell.model, workload }),
        }
    }
}

/// A workload on a model file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileWorkload {
    /// Path of the model file. Receipts hold its name only.
    pub model: PathBuf,
    /// Numbers of tokens.
    pub workload: Workload,
}

impl CellSpec {
    pub(super) fn check_workload(&self, workload: &FileWorkload) -> Result<(), CellError> {
        let refuse = |field, why: String| Err(CellError::Field { cell: self.name.clone(), field, why });
        if let Err(error) = workload.workload.check() {
            return refuse("workload", error.to_string());
        }
        for (field, is, wanted) in [
            ("contract", &self.contract, engine_arm::CONTRACT),
            ("problem", &self.problem, workload.workload.to_string().as_str()),
            ("family", &self.family, WORKLOAD_FAMILY),
            ("cache", &self.cache.to_string(), CacheMode::Workload.name()),
        ] {
            if is != wanted {
                return refuse(field, format!("is `{is}`, and the workload's is `{wanted}`"));
            }
        }
        if self.backend != BackendKind::Host {
            return refuse("backend", format!("is {}, and engines choose their own", self.backend));
        }
        if self.weights.is_some() {
            return refuse("weights", "a workload has a model, and no tensor".to_owned());
        }
        Ok(())
    }

    /// A workload cell that is given on the command line.
    pub fn given_workload(model: PathBuf, workload: Workload, a: String, b: String) -> Self {
        Self {
            name: "given".to_owned(),
            title: format!("workload {workload}"),
            contract: engine_arm::CONTRACT.to_owned(),
            problem: workload.to_string(),
            a,
            b,
            family: WORKLOAD_FAMILY.to_owned(),
            input_seed: 1,
            cache: CacheMode::Workload,
            threads: 0,
            priority: 1,
            weights: None,
            workload: Some(FileWorkload { model, workload }),
            backend: BackendKind::Host,
        }
    }
}
