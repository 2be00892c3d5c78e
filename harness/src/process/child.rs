//! A child process under the protocol.

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use memra_contract::TensorSet;
use serde::Serialize;
use serde_json::Value;

use super::pipe::{LastWords, Said, read_lines};
use super::protocol::{self, Request, shown};
use super::tensors::{TensorFolder, read_outputs};
use super::usage::{CpuTime, cpu_time};
use super::{Hello, ProcessError, ProcessFault, ProcessOptions};
use crate::arm::ProcessArm;

/// How long a child that closed its output has to end by itself.
const GRACE: Duration = Duration::from_secs(1);

/// A started child. Asked to stop, then killed and reaped when dropped.
#[derive(Debug)]
pub struct ProcessChild {
    arm: String,
    options: ProcessOptions,
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<Said>,
    last_words: LastWords,
    hello: Hello,
}

/// The time of a sample by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// What the child reported, in nanoseconds.
    pub elapsed_ns: u64,
    /// Wall-clock time around the request, in nanoseconds.
    pub wall_ns: u64,
}

impl ProcessChild {
    /// Starts a process and waits for its hello.
    ///
    /// # Errors
    /// [`ProcessError`] when it cannot be started or says anything else.
    pub fn start(arm: &ProcessArm, options: &ProcessOptions) -> Result<Self, ProcessError> {
        const DOING: &str = "starting";
        let fail = |fault| ProcessError { arm: arm.name.clone(), doing: DOING, fault };
        let mut child = Command::new(arm.command.program())
            .args(arm.command.arguments())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| fail(ProcessFault::Start(source)))?;
        let pipes = (child.stdout.take(), child.stderr.take());
        let listen = || {
            let (Some(output), Some(messages)) = pipes else {
                return Err(std::io::Error::other("the child has no pipes"));
            };
            Ok((read_lines(output)?, LastWords::listen(messages)?))
        };
        let (said, last_words) = match listen() {
            Ok(ends) => ends,
            Err(source) => {
                // The error that is reported is the one that came first.
                let _ = child.kill();
                let _ = child.wait();
                return Err(fail(ProcessFault::Start(source)));
            }
        };
        let mut started = Self {
            arm: arm.name.clone(),
            options: options.clone(),
            input: child.stdin.take(),
            child,
            said,
            last_words,
            hello: Hello { name: arm.name.clone(), about: Vec::new() },
        };
        let hello = started.answer(options.hello).and_then(|answer| protocol::hello(&answer));
        match hello {
            Ok(hello) => {
                started.hello = hello;
                Ok(started)
            }
            Err(fault) => Err(fail(fault)),
        }
    }

    /// What it said of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Its limits.
    pub(crate) fn options(&self) -> &ProcessOptions {
        &self.options
    }

    /// Its process number.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// CPU time it has used so far.
    pub fn cpu_time(&self) -> CpuTime {
        cpu_time(self.child.id())
    }

    /// Has it load tensors.
    ///
    /// # Errors
    /// [`ProcessError`] when it fails or does not answer.
    pub fn load(
        &mut self,
        contract: &str,
        problem: &str,
        tensors: &TensorFolder,
        threads: usize,
        copies: usize,
    ) -> Result<(), ProcessError> {
        let request = Request::Load { contract, problem, threads, copies, tensors: tensors.entries() };
        let limit = self.options.load;
        self.ask("loading", &request, limit, protocol::ok)
    }

    /// Has it launch once and reads its outputs, which must have the form of `wanted`.
    ///
    /// # Errors
    /// [`ProcessError`] when it fails, does not answer, or an output has another form.
    pub fn check(&mut self, tensors: &TensorFolder, wanted: &TensorSet) -> Result<TensorSet, ProcessError> {
        const DOING: &str = "checking";
        let folder = tensors.output_folder().map_err(|source| {
            let what = "a folder for outputs";
            self.error(DOING, ProcessFault::Io { what, source })
        })?;
        let limit = self.options.check;
        let entries = self.ask(DOING, &Request::Check { out: &folder }, limit, protocol::outputs)?;
        let outputs = read_outputs(&folder, &entries, wanted).map_err(|fault| self.error(DOING, fault));
        // What is left is removed with the folder above it.
        let _ = std::fs::remove_dir_all(&folder);
        outputs
    }

    /// Has it wake its threads, untimed, and launch `launches` times.
    ///
    /// # Errors
    /// [`ProcessError`] when it fails, does not answer, or its clock is not believable.
    pub fn sample(&mut self, launches: u32) -> Result<Sample, ProcessError> {
        const DOING: &str = "sampling";
        self.ask("waking", &Request::Wake, self.options.idle, protocol::ok)?;
        let limit = self.options.sample;
        let start = Instant::now();
        let elapsed_ns = self.ask(DOING, &Request::Sample { launches }, limit, protocol::elapsed_ns)?;
        let wall_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if is_believable(elapsed_ns, wall_ns, self.options.clock_slack) {
            Ok(Sample { elapsed_ns, wall_ns })
        } else {
            Err(self.error(DOING, ProcessFault::Clock { elapsed_ns, wall_ns }))
        }
    }

    /// Has it park its threads.
    ///
    /// # Errors
    /// [`ProcessError`] when it fails or does not answer.
    pub fn idle(&mut self) -> Result<(), ProcessError> {
        let limit = self.options.idle;
        self.ask("going idle", &Request::Idle, limit, protocol::ok)
    }

    /// An error of this child.
    pub(crate) fn error(&self, doing: &'static str, fault: ProcessFault) -> ProcessError {
        ProcessError { arm: self.arm.clone(), doing, fault }
    }

    /// One request and its answer. A child that does not keep to the protocol is killed: nothing it says later can be
    /// told apart from an answer.
    pub(crate) fn ask<T>(
        &mut self,
        doing: &'static str,
        request: &impl Serialize,
        limit: Duration,
        read: impl FnOnce(&Value) -> Result<T, ProcessFault>,
    ) -> Result<T, ProcessError> {
        let answer = self.send(request).and_then(|()| self.answer(limit)).and_then(|answer| read(&answer));
        answer.map_err(|fault| {
            self.kill();
            self.error(doing, fault)
        })
    }

    fn send(&mut self, request: &impl Serialize) -> Result<(), ProcessFault> {
        if self.input.is_none() {
            return Err(self.end());
        }
        match self.said.try_recv() {
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Err(self.end()),
            Ok(Said::Line(line)) => {
                // An error may come at any time; anything else was not asked for.
                protocol::parse(&line)?;
                return Err(ProcessFault::Unasked(shown(&line)));
            }
            Ok(Said::Unreadable(start)) => return Err(ProcessFault::Garbage(shown(&start))),
        }
        let io = |source| ProcessFault::Io { what: "writing a request", source };
        let mut line = serde_json::to_vec(request).map_err(|error| io(std::io::Error::other(error)))?;
        line.push(b'\n');
        let Some(input) = &mut self.input else { return Err(self.end()) };
        match input.write_all(&line).and_then(|()| input.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(self.end()),
            Err(error) => Err(io(error)),
        }
    }

    fn answer(&mut self, limit: Duration) -> Result<Value, ProcessFault> {
        match self.said.recv_timeout(limit) {
            Ok(Said::Line(line)) => protocol::parse(&line),
            Ok(Said::Unreadable(start)) => Err(ProcessFault::Garbage(shown(&start))),
            Err(RecvTimeoutError::Timeout) => Err(ProcessFault::Timeout(limit)),
            Err(RecvTimeoutError::Disconnected) => Err(self.end()),
        }
    }

    /// How a child that says nothing more came to its end.
    fn end(&mut self) -> ProcessFault {
        match self.wait(GRACE) {
            Some(status) => ProcessFault::Ended { status, stderr: self.last_words.read() },
            None => ProcessFault::Closed,
        }
    }

    fn wait(&mut self, limit: Duration) -> Option<String> {
        let start = Instant::now();
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status.to_string());
            }
            if start.elapsed() >= limit {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill(&mut self) {
        // A child that has ended already cannot be killed, and is reaped all the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.input = None;
    }
}

impl Drop for ProcessChild {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // A child that does not take the request is killed below.
        let _ = self.send(&Request::Stop);
        self.input = None;
        if self.wait(self.options.stop).is_none() {
            self.kill();
        }
    }
}

/// Whether a child's figure fits the wall clock: no more than it, and no less by more than a fifth of it and the slack.
fn is_believable(elapsed_ns: u64, wall_ns: u64, slack: Duration) -> bool {
    let slack_ns = u64::try_from(slack.as_nanos()).unwrap_or(u64::MAX);
    elapsed_ns <= wall_ns && wall_ns - elapsed_ns <= (wall_ns / 5).saturating_add(slack_ns)
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_clock_must_fit_the_wall_clock() {
        let slack = Duration::from_millis(2);
        for (elapsed_ns, wall_ns, is_good) in [
            (1_000_000, 1_000_000, true),
            (1_000_001, 1_000_000, false),
            (1, 2_000_000, true),
            (8_000_000, 12_500_000, true),
            (7_999_999, 12_500_000, false),
            (80_000_000, 102_000_000, true),
            (79_000_000, 102_000_000, false),
        ] {
            assert_eq!(is_believable(elapsed_ns, wall_ns, slack), is_good, "{elapsed_ns} of {wall_ns}");
        }
    }
}
