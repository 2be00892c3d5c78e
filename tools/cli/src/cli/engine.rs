//! Commands of the engine.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Generates text.
#[derive(Debug, Parser)]
#[command(name = "run-gen", version, max_term_width = 100)]
pub struct RunGen {
    /// Options.
    #[command(flatten)]
    pub arguments: GenArguments,
}

/// Serves a model over HTTP.
#[derive(Debug, Parser)]
#[command(name = "memra-server", version, max_term_width = 100)]
pub struct MemraServer {
    /// Options.
    #[command(flatten)]
    pub arguments: ServeArguments,
}

/// How a model is loaded.
#[derive(Debug, Clone, Args)]
pub struct ModelArguments {
    /// Model file (GGUF; the first shard of a split one). In a checkout the smollm2 model by default.
    #[arg(short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Threads; all that this process may use by default.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Run as a device of a poorer instruction-set tier: scalar, avx2. The bytes of an answer do not change.
    #[arg(long, value_name = "TIER")]
    pub tier: Option<String>,
    /// A kernel to run in the place of the default, where it serves; may be given several times.
    #[arg(long, value_name = "CONTRACT=VARIANT")]
    pub kernel: Vec<String>,
    /// Most rows of a step: prompts are read in chunks of this many tokens.
    #[arg(long, visible_alias = "ubatch-size", value_name = "N", default_value_t = 512,
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub chunk: u16,
}

/// How tokens are drawn.
#[derive(Debug, Clone, Args)]
pub struct SamplingArguments {
    /// 0 takes the most likely token.
    #[arg(long, visible_alias = "temp", default_value_t = 0.0, value_name = "T")]
    pub temperature: f32,
    /// Keep this many of the most likely tokens; 0 keeps all.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub top_k: u32,
    /// Keep the most likely tokens that together reach this probability.
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    pub top_p: f32,
    /// Keep tokens at least this share as likely as the most likely one.
    #[arg(long, default_value_t = 0.0, value_name = "P")]
    pub min_p: f32,
    /// Seed of the noise; drawn from the clock by default and printed.
    #[arg(short, long, value_name = "N")]
    pub seed: Option<u64>,
    /// Divides the logits of tokens seen before.
    #[arg(long, visible_alias = "repeat-penalty", default_value_t = 1.0, value_name = "F")]
    pub repetition_penalty: f32,
    /// Taken off the logit of every token that stands in the answer.
    #[arg(long, default_value_t = 0.0, value_name = "F", allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// Taken off the logit of a token for every time it stands in the answer.
    #[arg(long, default_value_t = 0.0, value_name = "F", allow_negative_numbers = true)]
    pub frequency_penalty: f32,
}

/// `gen`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub struct GenArguments {
    /// The prompt: a user's message, or with --raw the text to continue. `-` reads it from stdin.
    #[arg(value_name = "PROMPT", default_value = "Name three planets and say one thing about each.")]
    pub prompt: String,
    /// The model.
    #[command(flatten)]
    pub model: ModelArguments,
    /// Continue the text itself, without a chat template.
    #[arg(long)]
    pub raw: bool,
    /// System message.
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub system: Option<String>,
    /// Most tokens of the answer.
    #[arg(short = 'n', long, visible_alias = "n-predict", default_value_t = 256, value_name = "N")]
    pub max_tokens: usize,
    /// Text that ends the answer; may be given several times.
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Go on past tokens that end an answer.
    #[arg(long)]
    pub ignore_eos: bool,
    /// How tokens are drawn.
    #[command(flatten)]
    pub sampling: SamplingArguments,
    /// Print one JSON object in the place of the text.
    #[arg(long)]
    pub json: bool,
    /// Check the engine on this prompt: the prompt read whole, in chunks and token by token gives the same bits, alone and in a
    /// batch, and so does the answer. Exit code 14 where it does not.
    #[arg(long)]
    pub check: bool,
    /// With --check: a file of greedy answers of an oracle for this model, which the answers must agree with.
    #[arg(long, value_name = "FILE", requires = "check")]
    pub golden: Option<PathBuf>,
}

/// `bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// The model.
    #[command(flatten)]
    pub model: ModelArguments,
    /// Prompt lengths to read.
    #[arg(short = 'p', long, value_delimiter = ',', default_value = "512", value_name = "N,...")]
    pub n_prompt: Vec<usize>,
    /// Numbers of tokens to generate.
    #[arg(short = 'n', long, value_delimiter = ',', default_value = "128", value_name = "N,...")]
    pub n_gen: Vec<usize>,
    /// Tokens in the cache before.
    #[arg(short = 'd', long, value_delimiter = ',', default_value = "0", value_name = "N,...")]
    pub n_depth: Vec<usize>,
    /// Repetitions.
    #[arg(short, long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value = "md")]
    pub output: BenchOutput,
}

/// Forms of a bench's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchOutput {
    /// A Markdown table.
    Md,
    /// One JSON array.
    Json,
    /// One JSON object a line.
    Jsonl,
}

/// `explain`.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// The model.
    #[command(flatten)]
    pub model: ModelArguments,
    /// Rows of the step: 1 is decode, more are a prompt's chunk.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub rows: u16,
    /// Tokens in the cache before.
    #[arg(long, short = 'd', default_value_t = 128, value_name = "N")]
    pub depth: usize,
    /// Steps that are timed.
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=100_000))]
    pub steps: u32,
    /// Every layer by itself instead of sums over layers.
    #[arg(long)]
    pub layers: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `model`.
#[derive(Debug, Subcommand)]
pub enum ModelCommand {
    /// Say what a model file holds: architecture, sizes, formats, tokenizer, template.
    Inspect {
        /// Model file (GGUF). In a checkout the smollm2 model by default.
        #[arg(value_name = "FILE")]
        model: Option<PathBuf>,
        /// List every tensor.
        #[arg(long)]
        tensors: bool,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// `logits`.
#[derive(Debug, Args)]
pub struct LogitsArguments {
    /// Model file (GGUF).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The model.
    #[command(flatten)]
    pub model: ModelArguments,
    /// File of token ids, separated by blanks.
    #[arg(long, value_name = "FILE")]
    pub ids: PathBuf,
    /// Where the logits go, f32 `[tokens, vocab]` in NumPy's format.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// `serve`.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Model file (GGUF), in the place of --model.
    #[arg(value_name = "FILE", conflicts_with = "model")]
    pub file: Option<PathBuf>,
    /// The model.
    #[command(flatten)]
    pub model: ModelArguments,
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// Port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Names of the model; the file's name by default.
    #[arg(short, long, visible_alias = "served-model-name", value_delimiter = ',', value_name = "NAME,...")]
    pub alias: Vec<String>,
    /// Answer for any model name.
    #[arg(long)]
    pub any_model: bool,
    /// Most positions of one request, prompt and answer; 0 takes the model's context.
    #[arg(short, long, visible_alias = "max-model-len", default_value_t = 0, value_name = "N")]
    pub ctx_size: usize,
    /// Most sequences that run at a time.
    #[arg(long, visible_alias = "max-num-seqs", default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub parallel: u16,
    /// Positions of all sequences together that the cache has room for; four contexts by default.
    #[arg(long, value_name = "N")]
    pub cache_positions: Option<usize>,
    /// Most requests that wait; further ones get 429.
    #[arg(long, visible_alias = "max-num-queued-reqs", default_value_t = 64, value_name = "N")]
    pub max_queue: usize,
    /// Most prompt rows of a step while other sequences decode.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub mixed_rows: usize,
    /// File of a chat template (Jinja) in the place of the model's.
    #[arg(long, value_name = "FILE")]
    pub chat_template_file: Option<PathBuf>,
    /// Seconds that running answers get after SIGTERM.
    #[arg(long, visible_alias = "shutdown-timeout", default_value_t = 30, value_name = "S")]
    pub drain_timeout: u64,
}
