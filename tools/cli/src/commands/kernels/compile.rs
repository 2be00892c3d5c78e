//! `kernels compile` and `kernels bundle`: every CUDA variant through the compiler, without a card and without a driver.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, bail};
use memra_contract::device::CudaArch;
use memra_kernels::backend::cuda::bundle::{self, Packed};
use memra_kernels::backend::cuda::cubins::{self, CubinError};
use memra_kernels::backend::cuda::key::SourceKey;
use memra_kernels::backend::cuda::nvrtc::Nvrtc;
use memra_kernels::backend::cuda::resources::{self, Resources};
use memra_kernels::contract::{CudaBuild, Target};
use memra_kernels::ops::CONTRACTS;
use memra_kernels::{Contract, Variant, registry};
use serde::Serialize;
use serde_json::json;

use crate::cli::CompileArguments;
use crate::{EXIT_ERROR, toolkit, ui};

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    nvrtc: String,
    variants: Vec<serde_json::Value>,
    passed: usize,
    failed: usize,
}

/// What is to be compiled.
struct Job {
    contract: &'static dyn Contract,
    variant: &'static Variant,
    build: CudaBuild,
    arch: CudaArch,
}

impl Job {
    fn name(&self) -> String {
        format!("{}/{}", self.contract.info().id, self.variant.name)
    }
}

/// What came of it.
struct Outcome {
    /// `ok`, `does-not-compile`, `wgmma-serialised`, `no-entry` or `compiler-failed`.
    name: &'static str,
    reason: Option<String>,
    cubin: Vec<u8>,
    resources: Vec<Resources>,
    log: String,
    ms: u128,
}

impl Outcome {
    fn is_ok(&self) -> bool {
        self.name == "ok"
    }
}

/// Runs `kernels compile`.
///
/// # Errors
/// When a name is wrong or there is no compiler.
pub(super) fn run(arguments: &CompileArguments, json: bool) -> anyhow::Result<u8> {
    let jobs = jobs(arguments)?;
    let (nvrtc, _) = toolkit::nvrtc()?;
    let outcomes = compile_all(&nvrtc, &jobs, arguments.jobs);
    let pairs: Vec<_> = jobs.iter().zip(&outcomes).collect();
    let failed = outcomes.iter().filter(|outcome| !outcome.is_ok()).count();
    let passed = outcomes.len() - failed;
    if json {
        let variants = pairs.iter().map(|(job, outcome)| as_json(job, outcome)).collect();
        ui::print_json(&Report { nvrtc: version(&nvrtc), variants, passed, failed })?;
    } else {
        show(&pairs)?;
        ui::print(format_args!("passed {passed}, failed {failed}"))?;
    }
    Ok(if failed == 0 { 0 } else { EXIT_ERROR })
}

/// Runs `kernels bundle`. Where a variant does not compile nothing is written.
///
/// # Errors
/// When a name is wrong, there is no compiler, or the file cannot be written.
pub(super) fn run_bundle(arguments: &CompileArguments, output: &std::path::Path) -> anyhow::Result<u8> {
    let jobs = jobs(arguments)?;
    let (nvrtc, _) = toolkit::nvrtc()?;
    let outcomes = compile_all(&nvrtc, &jobs, arguments.jobs);
    let failures: Vec<_> = jobs.iter().zip(&outcomes).filter(|(_, outcome)| !outcome.is_ok()).collect();
    if !failures.is_empty() {
        show(&failures)?;
        bail!("{} of {} cubins were not made: {} is not written", failures.len(), jobs.len(), output.display());
    }
    let packed: Vec<_> = jobs
        .iter()
        .zip(outcomes)
        .map(|(job, outcome)| Packed {
            key: SourceKey::of(&job.variant.source, &job.build, job.arch),
            arch: job.arch,
            nvrtc: nvrtc.version(),
            cubin: outcome.cubin,
        })
        .collect();
    bundle::save(output, &packed)?;
    // Variants that share a text share its cubin.
    let written = bundle::Bundle::open(output)?;
    ui::print(format_args!(
        "{}: {} cubins of NVRTC {} for {} variants and architectures",
        output.display(),
        written.entries().len(),
        version(&nvrtc),
        jobs.len()
    ))?;
    Ok(0)
}

fn version(nvrtc: &Nvrtc) -> String {
    let (major, minor) = nvrtc.version();
    format!("{major}.{minor}")
}

/// The architectures of a list as it is given on the command line.
fn architectures(names: &[String]) -> anyhow::Result<Vec<CudaArch>> {
    if names.iter().any(|name| name == "all") {
        return Ok(CudaArch::ALL.to_vec());
    }
    let mut archs = Vec::new();
    for name in names {
        let arch = CudaArch::from_name(name).with_context(|| {
            let known: Vec<_> = CudaArch::ALL.iter().map(|arch| arch.name()).collect();
            let hint = registry::nearest(name, known.iter().copied());
            format!("no architecture `{name}`{hint}; there are {} and all", known.join(", "))
        })?;
        archs.push(arch);
    }
    archs.sort_unstable();
    archs.dedup();
    Ok(archs)
}

fn jobs(arguments: &CompileArguments) -> anyhow::Result<Vec<Job>> {
    let archs = architectures(&arguments.arch)?;
    let contracts = match &arguments.contract {
        Some(name) => vec![registry::contract(name)?],
        None => CONTRACTS.to_vec(),
    };
    let mut jobs = Vec::new();
    let mut is_cuda = false;
    for contract in contracts {
        let variants = match &arguments.variant {
            Some(name) => vec![registry::variant(contract, name)?],
            None => contract.variants().to_vec(),
        };
        for variant in variants {
            let Target::Cuda(build) = variant.target else { continue };
            is_cuda = true;
            let served = archs.iter().copied().filter(|arch| build.archs.contains(arch));
            jobs.extend(served.map(|arch| Job { contract, variant, build, arch }));
        }
    }
    if let (Some(contract), Some(variant), false) = (&arguments.contract, &arguments.variant, is_cuda) {
        bail!("variant `{contract}/{variant}` is not CUDA text: there is nothing to compile at run time");
    }
    if jobs.is_empty() {
        let names: Vec<_> = archs.iter().map(|arch| arch.name()).collect();
        ui::say(format_args!("note: no CUDA variant of these names is for {}", names.join(", ")));
    }
    Ok(jobs)
}

/// Compiles on several threads; outcomes stand in the order of the jobs.
fn compile_all(nvrtc: &Nvrtc, jobs: &[Job], threads: Option<u32>) -> Vec<Outcome> {
    let all = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = threads.map_or_else(all, |threads| threads as usize).clamp(1, jobs.len().max(1));
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    let outcome = compile(nvrtc, job);
                    let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                    outcomes.push((index, outcome));
                    let done = outcomes.len();
                    drop(outcomes);
                    if done.is_multiple_of(20) {
                        ui::say(format_args!("{done} of {} compiled", jobs.len()));
                    }
                }
            });
        }
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn compile(nvrtc: &Nvrtc, job: &Job) -> Outcome {
    let start = Instant::now();
    let result = cubins::compile(nvrtc, job.contract.info().id, job.variant, &job.build, job.arch);
    judged(result.map(|compiled| (compiled.cubin, compiled.log)), start.elapsed().as_millis())
}

fn judged(result: Result<(Vec<u8>, String), CubinError>, ms: u128) -> Outcome {
    match result {
        Ok((cubin, log)) => {
            let resources = resources::resources(&log);
            let is_empty = resources.is_empty();
            Outcome {
                name: if is_empty { "no-entry" } else { "ok" },
                reason: is_empty.then(|| "the assembler saw no entry".to_owned()),
                cubin,
                resources,
                log,
                ms,
            }
        }
        Err(error) => {
            let log = error.log().unwrap_or_default().to_owned();
            let name = match &error {
                CubinError::Serialised { .. } => "wgmma-serialised",
                CubinError::Compile { .. } if !log.is_empty() => "does-not-compile",
                CubinError::Compile { .. } | CubinError::Absent { .. } => "compiler-failed",
            };
            let resources = resources::resources(&log);
            Outcome { name, reason: Some(error.reason()), cubin: Vec::new(), resources, log, ms }
        }
    }
}

fn as_json(job: &Job, outcome: &Outcome) -> serde_json::Value {
    let entries = outcome.resources.iter().map(|entry| {
        json!({
            "entry": entry.entry,
            "registers": entry.registers,
            "spill_store_bytes": entry.spill_store_bytes,
            "spill_load_bytes": entry.spill_load_bytes,
            "stack_bytes": entry.stack_bytes,
            "shared_bytes": entry.shared_bytes,
            "barriers": entry.barriers,
        })
    });
    json!({
        "contract": job.contract.info().id,
        "variant": job.variant.name,
        "arch": job.arch.name(),
        "outcome": outcome.name,
        "reason": outcome.reason,
        "entries": entries.collect::<Vec<_>>(),
        "warnings": resources::warnings(&outcome.log).collect::<Vec<_>>(),
        "cubin_bytes": outcome.cubin.len(),
        "ms": outcome.ms as u64,
        "log": (!outcome.is_ok()).then_some(&outcome.log),
    })
}

fn rows(job: &Job, outcome: &Outcome) -> Vec<Vec<String>> {
    let row = |entry: &str, numbers: [String; 4], ms: String| {
        let mut row = vec![job.name(), job.arch.name().to_owned(), outcome.name.to_owned(), entry.to_owned()];
        row.extend(numbers);
        row.push(ms);
        row
    };
    if outcome.resources.is_empty() {
        return vec![row("", std::array::from_fn(|_| String::new()), outcome.ms.to_string())];
    }
    let mut rows = Vec::new();
    for (index, entry) in outcome.resources.iter().enumerate() {
        let numbers = [
            entry.registers.to_string(),
            format!("{}/{}", entry.spill_store_bytes, entry.spill_load_bytes),
            entry.stack_bytes.to_string(),
            entry.shared_bytes.to_string(),
        ];
        // A text is compiled once for all its entries.
        rows.push(row(&entry.entry, numbers, if index == 0 { outcome.ms.to_string() } else { String::new() }));
    }
    rows
}

/// The table, then warnings and the logs of what failed.
fn show(pairs: &[(&Job, &Outcome)]) -> anyhow::Result<()> {
    if !pairs.is_empty() {
        let header = ["variant", "arch", "outcome", "entry", ">registers", ">spills", ">stack", ">shared", ">ms"];
        ui::print(ui::table(&header, pairs.iter().flat_map(|(job, outcome)| rows(job, outcome)).collect()))?;
    }
    for (job, outcome) in pairs {
        for warning in resources::warnings(&outcome.log).filter(|_| outcome.is_ok()) {
            ui::say(format_args!("note: {} for {}: {warning}", job.name(), job.arch));
        }
        if let Some(reason) = &outcome.reason {
            ui::print(format_args!("\n{} for {}: {}: {reason}", job.name(), job.arch, outcome.name))?;
            for line in outcome.log.lines() {
                ui::print(format_args!("  | {line}"))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use memra_kernels::backend::cuda::nvrtc::NvrtcError;

    use super::*;

    #[test]
    fn lists_of_architectures_are_read() {
        let read = |names: &[&str]| architectures(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["all"]).unwrap(), CudaArch::ALL);
        assert_eq!(read(&["sm_90a", "sm_80", "sm_80"]).unwrap(), [CudaArch::Sm80, CudaArch::Sm90a]);
        assert!(read(&["sm_90"]).unwrap_err().to_string().contains("did you mean `sm_90a`"));
    }

    #[test]
    fn outcomes_have_names_and_logs() {
        let log = "ptxas info    : Compiling entry function 'k' for 'sm_80'\nptxas info    : Used 8 registers";
        let ok = judged(Ok((vec![1], log.to_owned())), 3);
        assert!(ok.is_ok() && ok.reason.is_none());
        assert_eq!((ok.resources[0].entry.as_str(), ok.resources[0].registers), ("k", 8));
        assert_eq!(judged(Ok((vec![1], String::new())), 3).name, "no-entry");
        let variant = "matmul/warp".to_owned();
        let log = "ptxas info    : (C7511) wgmma.mma_async instructions are serialized".to_owned();
        let serialised = judged(Err(CubinError::Serialised { variant, arch: CudaArch::Sm90a, log }), 3);
        assert_eq!(serialised.name, "wgmma-serialised");
        assert!(serialised.reason.unwrap().contains("(C7511)") && serialised.log.contains("ptxas"));
        let failed = |source| judged(Err(CubinError::Compile { variant: "a/b".to_owned(), source }), 3).name;
        let (name, log) = ("b.cu".to_owned(), "b.cu(1): error: no".to_owned());
        assert_eq!(failed(NvrtcError::Compile { name, arch: CudaArch::Sm80, log }), "does-not-compile");
        assert_eq!(failed(NvrtcError::Absent("gone".to_owned())), "compiler-failed");
    }
}
