//! The command line: every command and option, with the text of its help.

mod engine;

pub use engine::{
    BenchArguments, BenchOutput, ExplainArguments, GenArguments, LogitsArguments, MemraServer, ModelArguments,
    ModelCommand, RunGen, SamplingArguments, ServeArguments,
};

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use memra_harness::cell::BackendKind;

/// A lab for inference kernels with an engine attached: check a variant, race it, keep the receipts, promote what won, run
/// models on it.
#[derive(Debug, Parser)]
#[command(name = "memra-lab", version, propagate_version = true, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Checks kernel variants against their contract.
#[derive(Debug, Parser)]
#[command(name = "kernel-check", version, max_term_width = 100)]
pub struct KernelCheck {
    /// Options.
    #[command(flatten)]
    pub arguments: CheckArguments,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generate text with a model, and check the engine on it.
    Gen(Box<GenArguments>),
    /// Serve a model over HTTP with the interface of OpenAI.
    Serve(Box<ServeArguments>),
    /// Measure how fast prompts are read and tokens generated, by length and depth.
    Bench(BenchArguments),
    /// Say what runs in a step of a model and why: variants, receipts, bytes, times, gaps.
    Explain(ExplainArguments),
    /// Look into model files.
    Model {
        /// What to do.
        #[command(subcommand)]
        command: ModelCommand,
    },
    /// Write the logits of given tokens into a file, to hold them against an oracle's.
    Logits(LogitsArguments),
    /// Be an arm of a workload cell. Used by `ab run`, which starts one for each arm.
    #[command(hide = true)]
    EngineArm,
    /// Race two arms in interleaved trials, or compare two recorded cells.
    Ab {
        /// What to do.
        #[command(subcommand)]
        command: AbCommand,
    },
    /// Check kernel variants against their contract: bits, error, repeats, poison, guards.
    Check(CheckArguments),
    /// List and show contracts and variants, and what would be selected for a problem.
    Kernels {
        /// What to do.
        #[command(subcommand)]
        command: KernelsCommand,
    },
    /// Verify receipts, or print their JSON Schema.
    Receipts {
        /// What to do.
        #[command(subcommand)]
        command: ReceiptsCommand,
    },
    /// Regenerate boards, plots and PERFORMANCE.md from the receipts.
    #[cfg(feature = "boards")]
    Board {
        /// What to do.
        #[command(subcommand)]
        command: BoardCommand,
    },
    /// Measure what the machine gives at best.
    Rig {
        /// What to do.
        #[command(subcommand)]
        command: RigCommand,
    },
    /// Make a variant a default, citing the receipts it won with.
    Promote(PromoteArguments),
    /// List the ledger, or write a demotion, a refutation or an open gap into it.
    Ledger {
        /// What to do.
        #[command(subcommand)]
        command: LedgerCommand,
    },
    /// Say what this machine is, what it can run and where evidence goes.
    Doctor {
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Where evidence goes.
#[derive(Debug, Clone, Args)]
pub struct RootArguments {
    /// Evidence root. By default the ignored folder `evidence` of the checkout, or the user's data folder outside one; `.` in
    /// a checkout is the tracked evidence.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// `ab`.
#[derive(Debug, Subcommand)]
pub enum AbCommand {
    /// Race two arms on one or more cells and end in a verdict: 0 FASTER or EQUIVALENT, 10 SLOWER, 11 UNDECIDED, 12 VOID, 13
    /// INCOMPARABLE, 14 a check failed, 15 records do not verify.
    Run(Box<RunArguments>),
    /// Say whether two recorded cells may be compared at all, as FILE#RECORD. Numbers of two sessions are never divided.
    Compare {
        /// The first cell.
        #[arg(value_name = "FILE#RECORD")]
        a: String,
        /// The second cell.
        #[arg(value_name = "FILE#RECORD")]
        b: String,
        /// Root the files stand under.
        #[command(flatten)]
        root: RootArguments,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Run one replicate from a specification on stdin. Used by `ab run`, which starts a fresh process for each.
    #[command(hide = true)]
    Replicate,
}

/// `ab run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Cells by name, or by a pattern in which `*` stands for any text; `demo` when neither cells nor a contract are given.
    /// `--list` shows them.
    #[arg(value_name = "CELL", conflicts_with = "contract")]
    pub cells: Vec<String>,
    /// List the registered cells and stop.
    #[arg(long)]
    pub list: bool,
    /// Of the named cells only those of this priority or one before it; 1 is the first.
    #[arg(long, value_name = "N", requires = "cells")]
    pub priority: Option<u32>,
    /// Contract of a cell given here instead of by name.
    #[arg(long, value_name = "NAME", requires = "arm")]
    pub contract: Option<String>,
    /// Problem of that cell, for example m=1,k=576,seg=q8_0:49152. With --tensor only the axes that the tensor does not say.
    #[arg(long, value_name = "AXES", requires = "contract")]
    pub problem: Option<String>,
    /// An arm, given twice: first the incumbent, then the challenger. A variant, `baseline`, `default`, a file that ends in .cu
    /// or `process:NAME`; for a workload `engine:NAME`, where `engine:memra` is this program. With named cells it replaces
    /// their arms.
    #[arg(long, value_name = "ARM")]
    pub arm: Vec<String>,
    /// Workload of a cell given here, for two engines: prompt=512, or generated=64,depth=2048.
    #[arg(long, value_name = "TOKENS", requires_all = ["arm", "model"], conflicts_with_all = ["cells", "contract"])]
    pub workload: Option<String>,
    /// Model file (GGUF) that engines run; with named workload cells it replaces theirs.
    #[arg(long, value_name = "FILE", conflicts_with = "contract")]
    pub model: Option<PathBuf>,
    /// Model file (GGUF) with real weights.
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Tensor of the model file.
    #[arg(long, value_name = "NAME", requires = "weights")]
    pub tensor: Option<String>,
    /// Input family.
    #[arg(long, value_name = "NAME", requires = "contract")]
    pub family: Option<String>,
    /// What kernels run on. With named cells it replaces what they say.
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    pub backend: BackendChoice,
    /// Cache mode of a cell given here.
    #[arg(long, value_enum, requires = "contract")]
    pub cache: Option<CacheMode>,
    /// Command of a process arm or an engine; may be given several times.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub process: Vec<String>,
    /// Threads of every arm; all that this process may use by default.
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Quads of an A/B block and of each A/A block. Engines' slots last seconds: 6 or 8 are enough there.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=2000))]
    pub quads: u32,
    /// A/A blocks in each replicate.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub aa_blocks: u32,
    /// Replicates, each in a fresh process.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub replicates: u32,
    /// Sessions to try while the machine disturbs them: a session that ends VOID is kept and another one is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10))]
    pub attempts: u32,
    /// Seed of orders and inputs; drawn from the clock by default and written in the receipt.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Smallest difference worth shipping, in percent.
    #[arg(long, default_value_t = 0.5, value_name = "PERCENT")]
    pub smallest: f64,
    /// Folder of model files that named cells take their weights from.
    #[arg(long, value_name = "DIR")]
    pub models: Option<PathBuf>,
    /// Words for the receipt's file name; the cells' names by default.
    #[arg(long, value_name = "WORDS")]
    pub slug: Option<String>,
    /// Where receipts and boards go.
    #[command(flatten)]
    pub root: RootArguments,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What kernels run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// What the cell says, else the host.
    Auto,
    /// The CPUs of this machine.
    Host,
    /// An NVIDIA card.
    Cuda,
}

impl BackendChoice {
    /// The kind that was asked for, if one was.
    pub const fn kind(self) -> Option<BackendKind> {
        match self {
            Self::Auto => None,
            Self::Host => Some(BackendKind::Host),
            Self::Cuda => Some(BackendKind::Cuda),
        }
    }
}

/// What the caches hold when a launch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CacheMode {
    /// Weights rotate over copies of at least three last-level caches.
    Rotate,
    /// The same buffers every time.
    Hot,
}

impl CacheMode {
    /// Name, as it stands in receipts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::Hot => "hot",
        }
    }
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Variants as contract or contract/variant, or files that end in .cu, for --backend cuda; everything this machine can run
    /// by default.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Also judge on real weights of this model file (GGUF).
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Tensor of the model file; every tensor that fits a contract by default.
    #[arg(long, value_name = "NAME", requires = "weights")]
    pub tensor: Option<String>,
    /// A further problem to judge, for every named contract.
    #[arg(long, value_name = "AXES", requires = "names")]
    pub problem: Option<String>,
    /// What kernels run on; the host by default. On a card every variant is checked in a process of its own.
    #[arg(long, value_enum, default_value_t = BackendChoice::Auto)]
    pub backend: BackendChoice,
    /// Check kernels that are wrong on purpose, and see that they are found.
    #[arg(long, hide = true, conflicts_with_all = ["names", "weights", "problem"])]
    pub planted: bool,
    /// Be the process in which kernels are checked: requests on stdin, answers on stdout.
    #[arg(long, hide = true)]
    pub worker: bool,
    /// Seeds of each case.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub seeds: u32,
    /// Thread counts.
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,7")]
    pub threads: Vec<u32>,
    /// Write the checks as a receipt with these words in its name. Only for all variants of the machine on committed cases.
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["names", "weights", "planted", "worker"])]
    pub record: Option<String>,
    /// Where that receipt and boards go.
    #[command(flatten)]
    pub root: RootArguments,
    /// Print one JSON object that ends with `pairs`, `passed` and `failed`.
    #[arg(long)]
    pub json: bool,
}

/// `kernels`.
#[derive(Debug, Subcommand)]
pub enum KernelsCommand {
    /// List every variant.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a contract or a variant.
    Show {
        /// contract or contract/variant.
        #[arg(value_name = "NAME")]
        name: String,
        /// Also say what would be selected for this problem, and why.
        #[arg(long, value_name = "AXES")]
        problem: Option<String>,
        /// Select for a device of this key, and not for this host's.
        #[arg(long, value_name = "KEY", requires = "problem")]
        device: Option<memra_contract::DeviceKey>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Compile CUDA variants and say what their entries take: registers, spills, stack, shared memory. Exit code 1 if one
    /// fails. No card is needed.
    Compile {
        /// What is compiled.
        #[command(flatten)]
        arguments: CompileArguments,
        /// Print one JSON object that ends with `passed` and `failed`.
        #[arg(long)]
        json: bool,
    },
    /// Compile CUDA variants into one file, with which they run where there is no compiler.
    Bundle {
        /// What is compiled.
        #[command(flatten)]
        arguments: CompileArguments,
        /// The file. A machine takes bundles that MEMRA_CUBINS lists, or *.cubins in the folder `cubins` of the user's data
        /// folder.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// What `kernels compile` and `kernels bundle` compile.
#[derive(Debug, Args)]
pub struct CompileArguments {
    /// Architectures, or `all`. A variant is compiled for those that it claims.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "sm_90a")]
    pub arch: Vec<String>,
    /// Only this contract.
    #[arg(long, value_name = "NAME")]
    pub contract: Option<String>,
    /// Only this variant of the contract.
    #[arg(long, value_name = "NAME", requires = "contract")]
    pub variant: Option<String>,
    /// Threads; all that this process may use by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
}

/// `rig`.
#[derive(Debug, Subcommand)]
pub enum RigCommand {
    /// Race the cells whose names begin with `ceiling-` in one session of one replicate, and print the faster arm of each.
    Measure {
        /// Only cells of this priority or one before it; 1 is the first.
        #[arg(long, value_name = "N")]
        priority: Option<u32>,
        /// Quads of an A/B block and of each A/A block.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(6..=2000))]
        quads: u32,
        /// A/A blocks.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
        aa_blocks: u32,
        /// Where receipts and boards go.
        #[command(flatten)]
        root: RootArguments,
        /// Print a JSON array.
        #[arg(long)]
        json: bool,
    },
}

/// `receipts`.
#[derive(Debug, Subcommand)]
pub enum ReceiptsCommand {
    /// Check every chain, recompute every derived number, and check the ledger and defaults that cite them.
    Verify {
        /// Root to verify.
        #[command(flatten)]
        root: RootArguments,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Enter a session that did not come to its end into the index, so that it counts as evidence.
    Enter {
        /// The receipt file, below the root.
        #[arg(value_name = "FILE")]
        file: String,
        /// Root of the file.
        #[command(flatten)]
        root: RootArguments,
    },
    /// Print the JSON Schema of a record.
    Schema,
}

/// `board`.
#[derive(Debug, Subcommand)]
pub enum BoardCommand {
    /// Write boards/*.json, the plots, PERFORMANCE.md and, in the checkout, the README's sample table.
    Regenerate {
        /// Write nothing; exit 1 and name each file that is not what the receipts say.
        #[arg(long)]
        check: bool,
        /// Also where a rig gets fewer checked pairs of variant and case than its board says.
        #[arg(long)]
        allow_fewer_pairs: bool,
        /// Root of the receipts and of what is written.
        #[command(flatten)]
        root: RootArguments,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// `promote`.
#[derive(Debug, Args)]
pub struct PromoteArguments {
    /// Verdicts the promotion rests on, each FASTER over at least five replicates.
    #[arg(value_name = "FILE#RECORD", required = true)]
    pub verdicts: Vec<String>,
    /// Verdicts of cells that must not have become slower.
    #[arg(long, value_name = "FILE#RECORD")]
    pub guard: Vec<String>,
    /// Rows to serve, as N or MIN-MAX; its ends must be cited cells.
    #[arg(long, value_name = "RANGE")]
    pub rows: String,
    /// Promote for this machine only, into the user's data folder.
    #[arg(long)]
    pub local: bool,
    /// Drop a family of another layout or order class that serves these problems so far.
    #[arg(long)]
    pub replace_family: bool,
    /// Say what would be written, and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Root of the cited receipts.
    #[command(flatten)]
    pub root: RootArguments,
}

/// `ledger`.
#[derive(Debug, Subcommand)]
pub enum LedgerCommand {
    /// List the entries.
    List {
        /// Root of the ledger.
        #[command(flatten)]
        root: RootArguments,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Record that a mechanism did not pay. An UNDECIDED verdict refutes nothing.
    Refute {
        /// Verdicts (slower, no-effect) or failed gates (broke-bits, resource-limit).
        #[arg(value_name = "FILE#RECORD", required = true)]
        records: Vec<String>,
        /// Name of the mechanism.
        #[arg(long, value_name = "NAME")]
        mechanism: String,
        /// What was expected, in one sentence.
        #[arg(long, value_name = "TEXT")]
        hypothesis: String,
        /// How it failed.
        #[arg(long, value_enum)]
        failure: Failure,
        /// What would make another try worthwhile.
        #[arg(long, value_name = "TEXT")]
        revisit_when: String,
        /// Root of the receipts and the ledger.
        #[command(flatten)]
        root: RootArguments,
    },
    /// Record something known to be missing or behind.
    Gap {
        /// What is missing.
        #[arg(long, value_name = "TEXT")]
        what: String,
        /// Receipts that show it; may be given several times.
        #[arg(long, value_name = "FILE#RECORD")]
        evidence: Vec<String>,
        /// What to try next.
        #[arg(long, value_name = "TEXT")]
        next: String,
        /// Root of the receipts and the ledger.
        #[command(flatten)]
        root: RootArguments,
    },
}

/// How a mechanism failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Failure {
    /// It was slower.
    Slower,
    /// It made no difference above the printed threshold.
    NoEffect,
    /// It changed bits.
    BrokeBits,
    /// It did not fit the device.
    ResourceLimit,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
        KernelCheck::command().debug_assert();
        RunGen::command().debug_assert();
        MemraServer::command().debug_assert();
    }
}
