//! A child process under the protocol of engines.

use std::path::Path;
use std::time::Instant;

use memra_contract::digest::Digest;
use serde::Serialize;
use serde_json::Value;

use super::Workload;
use super::check::EngineTask;
use crate::arm::ProcessArm;
use crate::process::{
    CpuTime, Hello, ProcessChild, ProcessError, ProcessFault, ProcessOptions, protocol, tree_cpu_time,
};

/// A request that process arms do not have.
#[derive(Debug, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
enum Request<'a> {
    Prepare { model: &'a Path, prompt: u32, generated: u32, depth: u32, threads: usize, seed: u64 },
    Wake,
    Sample,
    Peak,
}

/// One run of the workload, as the child reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineSample {
    /// Time of the workload in nanoseconds.
    pub elapsed_ns: u64,
    /// Tokens of the prompt that were processed.
    pub prompt_tokens: u64,
    /// Tokens that were generated.
    pub generated_tokens: u64,
    /// Digest of the output, where the child has one to show.
    pub output_sha256: Option<Digest>,
}

/// What a child says it will run, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prepared {
    pub(super) prompt: u64,
    pub(super) generated: u64,
    pub(super) depth: u64,
}

/// A started engine. Asked to stop, then killed and reaped when dropped.
#[derive(Debug)]
pub struct EngineChild {
    child: ProcessChild,
}

impl EngineChild {
    /// Starts an engine and waits for its hello.
    ///
    /// # Errors
    /// [`ProcessError`] when it cannot be started or says anything else.
    pub fn start(arm: &ProcessArm, options: &ProcessOptions) -> Result<Self, ProcessError> {
        Ok(Self { child: ProcessChild::start(arm, options)? })
    }

    /// What it said of itself.
    pub fn hello(&self) -> &Hello {
        self.child.hello()
    }

    /// Its process number.
    pub fn process(&self) -> u32 {
        self.child.process()
    }

    /// CPU time that it and the processes it started have used so far.
    pub fn cpu_time(&self) -> CpuTime {
        tree_cpu_time(self.child.process())
    }

    /// Has it make a workload ready.
    pub(super) fn prepare(&mut self, task: &EngineTask<'_>) -> Result<Prepared, ProcessError> {
        let Workload { prompt, generated, depth } = task.workload;
        let (model, threads, seed) = (task.model, task.threads, task.seed);
        let limit = task.options.load;
        self.child.ask(
            "preparing",
            &Request::Prepare { model, prompt, generated, depth, threads, seed },
            limit,
            prepared,
        )
    }

    /// Has it wake up, untimed, and run the workload once.
    ///
    /// # Errors
    /// [`ProcessError`] when it fails, does not answer, or says that the run took longer than its answer.
    pub fn sample(&mut self) -> Result<EngineSample, ProcessError> {
        const DOING: &str = "sampling";
        let (idle, limit) = (self.child.options().idle, self.child.options().sample);
        self.child.ask("waking", &Request::Wake, idle, protocol::ok)?;
        let start = Instant::now();
        let sample = self.child.ask(DOING, &Request::Sample, limit, sample)?;
        let wall_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        // Loading and filling the cache may take any part of the answer's time.
        if sample.elapsed_ns > wall_ns {
            let fault = ProcessFault::Clock { elapsed_ns: sample.elapsed_ns, wall_ns };
            return Err(self.child.error(DOING, fault));
        }
        Ok(sample)
    }

    /// The largest resident memory of the process that does the work, in bytes; nothing where the child does not know it.
    ///
    /// # Errors
    /// [`ProcessError`] when it fails or does not answer.
    pub fn peak(&mut self) -> Result<Option<u64>, ProcessError> {
        let limit = self.child.options().idle;
        self.child.ask("saying its peak memory", &Request::Peak, limit, peak)
    }

    /// Has it let everything rest.
    ///
    /// # Errors
    /// [`ProcessError`] when it fails or does not answer.
    pub fn idle(&mut self) -> Result<(), ProcessError> {
        self.child.idle()
    }
}

fn number(answer: &Value, field: &str, needed: &'static str) -> Result<u64, ProcessFault> {
    answer.get(field).and_then(Value::as_u64).ok_or_else(|| protocol::refuse(answer, needed))
}

fn prepared(answer: &Value) -> Result<Prepared, ProcessFault> {
    const NEEDED: &str = "{\"ok\":true,\"prompt_tokens\":N,\"generated_tokens\":N,\"depth_tokens\":N}";
    protocol::ok(answer)?;
    Ok(Prepared {
        prompt: number(answer, "prompt_tokens", NEEDED)?,
        generated: number(answer, "generated_tokens", NEEDED)?,
        depth: number(answer, "depth_tokens", NEEDED)?,
    })
}

fn sample(answer: &Value) -> Result<EngineSample, ProcessFault> {
    const NEEDED: &str = "prompt_tokens, generated_tokens, and output_sha256 of 64 hexadecimal digits or null";
    let output_sha256 = match answer.get("output_sha256") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => {
            Some(Digest::try_from(text.clone()).map_err(|_| protocol::refuse(answer, NEEDED))?)
        }
        Some(_) => return Err(protocol::refuse(answer, NEEDED)),
    };
    Ok(EngineSample {
        elapsed_ns: protocol::elapsed_ns(answer)?,
        prompt_tokens: number(answer, "prompt_tokens", NEEDED)?,
        generated_tokens: number(answer, "generated_tokens", NEEDED)?,
        output_sha256,
    })
}

fn peak(answer: &Value) -> Result<Option<u64>, ProcessFault> {
    const NEEDED: &str = "`peak_rss_bytes`, a whole number or null,";
    match answer.get("peak_rss_bytes") {
        Some(Value::Null) => Ok(None),
        _ => Ok(Some(number(answer, "peak_rss_bytes", NEEDED)?)),
    }
}

#[cfg(test)]
mod unit {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_have_the_documented_form() {
        let (model, threads, seed) = (Path::new("m.gguf"), 2, 1);
        let prepare = Request::Prepare { model, prompt: 512, generated: 0, depth: 3, threads, seed };
        for (request, text) in [
            (prepare, r#"{"op":"prepare","model":"m.gguf","prompt":512,"generated":0,"depth":3,"threads":2,"seed":1}"#),
            (Request::Wake, r#"{"op":"wake"}"#),
            (Request::Sample, r#"{"op":"sample"}"#),
            (Request::Peak, r#"{"op":"peak"}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
        }
    }

    #[test]
    fn answers_are_read_and_others_refused() {
        let digest = "0a".repeat(32);
        let read =
            sample(&json!({"elapsed_ns":5,"prompt_tokens":1,"generated_tokens":0,"output_sha256":digest})).unwrap();
        assert_eq!(
            (read.elapsed_ns, read.prompt_tokens, read.output_sha256.unwrap().as_str()),
            (5, 1, digest.as_str())
        );
        for quiet in [
            json!({"elapsed_ns":5,"prompt_tokens":1,"generated_tokens":0}),
            json!({"elapsed_ns":5,"prompt_tokens":1,"generated_tokens":0,"output_sha256":null}),
        ] {
            assert_eq!(sample(&quiet).unwrap().output_sha256, None);
        }
        for bad in [
            json!({"elapsed_ns":0,"prompt_tokens":1,"generated_tokens":0}),
            json!({"elapsed_ns":5,"generated_tokens":0}),
            json!({"elapsed_ns":5,"prompt_tokens":1.5,"generated_tokens":0}),
            json!({"elapsed_ns":5,"prompt_tokens":1,"generated_tokens":0,"output_sha256":"xyz"}),
            json!({"elapsed_ns":5,"prompt_tokens":1,"generated_tokens":0,"output_sha256":7}),
        ] {
            assert!(sample(&bad).is_err(), "{bad}");
        }
        assert!(prepared(&json!({"ok":true,"prompt_tokens":1,"generated_tokens":0,"depth_tokens":0})).is_ok());
        assert!(prepared(&json!({"ok":true,"prompt_tokens":1,"generated_tokens":0})).is_err());
        assert!(prepared(&json!({"prompt_tokens":1,"generated_tokens":0,"depth_tokens":0})).is_err());
        assert_eq!(peak(&json!({"peak_rss_bytes":7})).unwrap(), Some(7));
        assert_eq!(peak(&json!({"peak_rss_bytes":null})).unwrap(), None);
        assert!(peak(&json!({})).is_err());
    }
}
