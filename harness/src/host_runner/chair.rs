//! One seat: an arm laid out with its copies.

use memra_contract::digest::Digest;
use memra_kernels::Prepared;
use memra_kernels::backend::host::Pool;
use memra_kernels::contract::LaunchError;

use super::{HostSetup, SeatError};
use crate::arm::ResolvedArm;
use crate::check::{JudgedCase, Passed, caught, outputs_digest};
use crate::process::{CpuTime, ProcessChild};
use crate::runner::ArmError;

/// What outputs are filled with before the launches that show a seat to be right.
const POISON: u32 = 0x7fc0_dead;

/// An arm that passed its check, and how to lay it out.
#[derive(Debug)]
pub(super) struct Recipe {
    arm: ResolvedArm,
    outputs: Digest,
    pub(super) copy_bytes: usize,
}

impl Recipe {
    /// Holds a proof against the arm and the case it is to be timed on.
    pub(super) fn new(arm: ResolvedArm, passed: &Passed, case: &JudgedCase) -> Result<Self, SeatError> {
        let refuse = |why: String| SeatError::NotPassed { arm: arm.name().to_owned(), why };
        if (passed.arm(), passed.contract()) != (arm.name(), case.contract().info().id) {
            return Err(refuse(format!("the check was of `{}` against `{}`", passed.arm(), passed.contract())));
        }
        let source = match &arm {
            ResolvedArm::Kernel(kernel) => Some(&kernel.source_sha256),
            ResolvedArm::Process(_) => None,
        };
        if passed.source_sha256() != source {
            return Err(refuse("the check was of another source text".to_owned()));
        }
        match passed.case(case.id()) {
            Some((outputs, copy_bytes)) => Ok(Self { outputs: outputs.clone(), copy_bytes, arm }),
            None => Err(refuse(format!("the check did not judge {}", case.id()))),
        }
    }

    /// Lays the arm out and shows that it gives the outputs that the check saw.
    pub(super) fn seat(&self, setup: &HostSetup<'_>, pool: &Pool, copies: usize) -> Result<Chair, ArmError> {
        let (case, name) = (&*setup.case, self.arm.name().to_owned());
        match &self.arm {
            ResolvedArm::Kernel(kernel) => {
                let failed = |why: String| ArmError::Prepare { arm: name.clone(), why };
                let mut prepared = caught(|| {
                    setup.backend.prepare(kernel.contract, kernel.variant, case.problem(), case.inputs(), copies)
                })
                .map_err(failed)?
                .map_err(|error| failed(error.to_string()))?;
                // The first and the last; those between were made by the same loop.
                for copy in [0, copies - 1] {
                    let outputs = caught(|| {
                        prepared.poison(POISON);
                        prepared.launch(pool, copy)?;
                        Ok(prepared.guards_hold().then(|| outputs_digest(&prepared.outputs())))
                    })
                    .map_err(failed)?
                    .map_err(|error: LaunchError| failed(error.to_string()))?;
                    if outputs.as_ref() != Some(&self.outputs) {
                        return Err(failed(format!("copy {copy} gives other outputs than the check saw")));
                    }
                }
                Ok(Chair { name, sitter: Sitter::Kernel { prepared, copy: 0 } })
            }
            ResolvedArm::Process(process) => {
                let failed = |why: String| ArmError::Process { arm: name.clone(), why };
                let Some(tensors) = &setup.tensors else {
                    return Err(failed("its inputs were not written to files".to_owned()));
                };
                let run = || {
                    let mut child = ProcessChild::start(process, &setup.process)?;
                    let problem = case.problem().to_string();
                    child.load(case.contract().info().id, &problem, tensors, setup.threads, copies)?;
                    let outputs = child.check(tensors, case.ordered())?;
                    child.idle()?;
                    Ok((child, outputs))
                };
                let (child, outputs) =
                    run().map_err(|error: crate::process::ProcessError| failed(error.to_string()))?;
                if outputs_digest(&outputs) != self.outputs {
                    return Err(failed("it gives other outputs than the check saw".to_owned()));
                }
                Ok(Chair { name, sitter: Sitter::Process(Box::new(child)) })
            }
        }
    }
}

/// An arm in its seat.
pub(super) struct Chair {
    name: String,
    sitter: Sitter,
}

enum Sitter {
    Kernel {
        prepared: Box<dyn Prepared>,
        /// The copy of the next launch; counts on over slots.
        copy: usize,
    },
    Process(Box<ProcessChild>),
}

impl Chair {
    /// Runs launches back to back; their elapsed time in nanoseconds.
    pub(super) fn run(&mut self, pool: &Pool, launches: u32) -> Result<u64, ArmError> {
        match &mut self.sitter {
            Sitter::Kernel { prepared, copy } => {
                let failed = |why: String| ArmError::Launch { arm: self.name.clone(), why };
                let elapsed_ns = caught(|| prepared.timed(pool, *copy, launches))
                    .map_err(|message| failed(format!("panicked: {message}")))?
                    .map_err(|error| failed(error.to_string()))?;
                *copy = copy.wrapping_add(launches as usize);
                Ok(elapsed_ns)
            }
            Sitter::Process(child) => match child.sample(launches) {
                Ok(sample) => Ok(sample.elapsed_ns),
                Err(error) => Err(ArmError::Process { arm: self.name.clone(), why: error.to_string() }),
            },
        }
    }

    /// Has a process park its threads. The pool of kernels is parked by its owner.
    pub(super) fn idle(&mut self) -> Result<(), ArmError> {
        match &mut self.sitter {
            Sitter::Kernel { .. } => Ok(()),
            Sitter::Process(child) => {
                child.idle().map_err(|error| ArmError::Process { arm: self.name.clone(), why: error.to_string() })
            }
        }
    }

    /// The process number of a child.
    pub(super) fn process(&self) -> Option<u32> {
        match &self.sitter {
            Sitter::Kernel { .. } => None,
            Sitter::Process(child) => Some(child.process()),
        }
    }

    /// CPU time of a child so far.
    pub(super) fn cpu_time(&self) -> Option<CpuTime> {
        match &self.sitter {
            Sitter::Kernel { .. } => None,
            Sitter::Process(child) => Some(child.cpu_time()),
        }
    }
}
