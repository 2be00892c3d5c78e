//! A child in a few lines of shell, and what is made of children that break the protocol.

use super::*;
use crate::arm::{CommandLine, ProcessArm};
use memra_contract::{Tensor, TensorSet};

/// Shell snippets by request; what is not replaced keeps to the protocol.
pub(crate) struct Fake {
    snippets: [(&'static str, String); 7],
    /// The file that `check` hands out as the f32 output `out`.
    answer: String,
}

impl Fake {
    pub(crate) fn new(answer: &std::path::Path) -> Self {
        let say = |line: &str| format!("echo '{line}'");
        let check = concat!(
            r#"dir=${line#*'"out":"'}; dir=${dir%%'"'*}; cp "$answer" "$dir/out.bin"; "#,
            r#"echo '{"ok":true,"outputs":[{"name":"out","dtype":"f32","file":"out.bin"}]}'"#
        );
        Self {
            snippets: [
                ("hello", say(r#"{"hello":{"name":"fake 1","about":["a shell"]}}"#)),
                ("load", say(r#"{"ok":true}"#)),
                ("check", check.to_owned()),
                ("wake", say(r#"{"ok":true}"#)),
                ("sample", say(r#"{"elapsed_ns":1000}"#)),
                ("idle", say(r#"{"ok":true}"#)),
                ("stop", "exit 0".to_owned()),
            ],
            answer: answer.to_str().unwrap().to_owned(),
        }
    }

    /// Replaces what is done on a request.
    pub(crate) fn on(mut self, request: &str, snippet: &str) -> Self {
        let entry = self.snippets.iter_mut().find(|(name, _)| *name == request).unwrap();
        snippet.clone_into(&mut entry.1);
        self
    }

    pub(crate) fn arm(&self, name: &str) -> ProcessArm {
        let mut script = format!("answer=$1; {}\nwhile IFS= read -r line; do case $line in\n", self.snippets[0].1);
        for (request, snippet) in &self.snippets[1..] {
            script.push_str(&["*'\"op\":\"", request, "\"'*) ", snippet, " ;;\n"].concat());
        }
        script.push_str("esac; done");
        let words = ["sh", "-c", &script, "fake", &self.answer].map(str::to_owned);
        ProcessArm { name: name.to_owned(), command: CommandLine::try_from(words.to_vec()).unwrap() }
    }
}

/// Limits no busy machine breaks, but for the given one.
pub(crate) fn patient() -> ProcessOptions {
    let long = Duration::from_mins(1);
    ProcessOptions {
        hello: long,
        load: long,
        check: long,
        sample: long,
        idle: long,
        stop: long,
        clock_slack: Duration::from_hours(1),
    }
}

struct Bench {
    scratch: tempfile::TempDir,
    tensors: TensorFolder,
    wanted: TensorSet,
}

fn bench() -> Bench {
    let scratch = tempfile::tempdir().unwrap();
    let wanted = TensorSet::new(vec![Tensor::f32("out", &[1, 2], &[1.5, -2.0])]);
    std::fs::write(scratch.path().join("answer.bin"), &wanted.get("out").unwrap().bytes).unwrap();
    let tensors = TensorFolder::write(scratch.path(), &wanted).unwrap();
    Bench { scratch, tensors, wanted }
}

impl Bench {
    fn fake(&self) -> Fake {
        Fake::new(&self.scratch.path().join("answer.bin"))
    }
}

#[test]
fn a_child_that_keeps_to_the_protocol_is_driven_and_reaped() {
    let bench = bench();
    let mut child = ProcessChild::start(&bench.fake().arm("peer"), &patient()).unwrap();
    assert_eq!(child.hello(), &Hello { name: "fake 1".to_owned(), about: vec!["a shell".to_owned()] });
    child.load("matmul", "m=1", &bench.tensors, 2, 3).unwrap();
    assert_eq!(child.check(&bench.tensors, &bench.wanted).unwrap(), bench.wanted);
    let sample = child.sample(7).unwrap();
    assert_eq!(sample.elapsed_ns, 1000);
    assert!(sample.wall_ns >= 1000);
    child.idle().unwrap();
    let folder = std::path::Path::new("/proc").join(child.process().to_string());
    let is_seen = folder.exists();
    drop(child);
    assert!(!is_seen || !folder.exists(), "the child was not reaped");
}

/// The error of the first step that fails.
fn failing(bench: &Bench, arm: &ProcessArm, options: &ProcessOptions) -> String {
    let run = || -> Result<(), ProcessError> {
        let mut child = ProcessChild::start(arm, options)?;
        child.load("matmul", "m=1", &bench.tensors, 1, 1)?;
        child.check(&bench.tensors, &bench.wanted)?;
        child.sample(1)?;
        child.idle()?;
        child.idle()
    };
    run().unwrap_err().to_string()
}

#[test]
fn children_that_break_the_protocol_are_named_with_the_reason() {
    let bench = bench();
    let cases = [
        ("hello", "echo hello there", "starting: a line that does not belong to the protocol: `hello there`"),
        ("hello", r#"echo '{"ok":true}'"#, "starting: `{\"ok\":true}` is no answer"),
        (
            "hello",
            r#"echo '{"hello":{"name":"x","about":["in /opt/x"]}}'"#,
            "hello is refused: about[0] holds an absolute path",
        ),
        ("hello", "echo no licence >&2; exit 3", "starting: it ended with exit status: 3; its last words: no licence"),
        ("load", r#"echo '{"error":"out of memory"}'"#, "loading: it reports: out of memory"),
        (
            "load",
            "echo first >&2; echo second >&2; exit 4",
            "loading: it ended with exit status: 4; its last words: first | second",
        ),
        ("load", "kill -9 $$", "loading: it ended with signal: 9"),
        ("load", "exec >&-; exec sleep 600", "loading: it closed its standard output"),
        ("check", r#"echo '{"ok":true}'"#, "checking: `{\"ok\":true}` is no answer: a list `outputs`"),
        ("check", r#"echo '{"ok":true,"outputs":[]}'"#, "checking: output `out`: it must be listed once"),
        ("sample", r#"echo '{"elapsed_ns":0}'"#, "sampling: `{\"elapsed_ns\":0}` is no answer"),
        ("sample", r#"echo '{"elapsed_ns":9000000000000000000}'"#, "sampling: its clock is not believable"),
        ("sample", r"echo '{'", "sampling: a line that does not belong to the protocol: `{`"),
        ("sample", r"printf '\377\n'", "sampling: a line that does not belong"),
        ("wake", r#"echo '{"ok":false}'"#, "waking: `{\"ok\":false}` is no answer"),
        ("idle", r#"echo '{"ok":false}'"#, "going idle: `{\"ok\":false}` is no answer"),
    ];
    for (request, snippet, needle) in cases {
        let error = failing(&bench, &bench.fake().on(request, snippet).arm("peer"), &patient());
        assert!(error.starts_with("process arm `peer`, ") && error.contains(needle), "{snippet}: {error}");
    }
}

#[test]
fn a_line_that_nobody_asked_for_is_noticed_before_the_next_request() {
    let bench = bench();
    let arm = bench.fake().on("idle", r#"echo '{"ok":true}'; echo '{"ok":true}'"#).arm("peer");
    let mut child = ProcessChild::start(&arm, &patient()).unwrap();
    let mut outcome = Ok(());
    // The second line may come after the second request was sent, but not after every one.
    for _ in 0..1000 {
        outcome = child.idle();
        if outcome.is_err() {
            break;
        }
    }
    assert!(outcome.unwrap_err().to_string().contains("it spoke without being asked"));
    let error = child.idle().unwrap_err().to_string();
    assert!(error.contains("it ended with"), "{error}");
}

#[test]
fn a_silent_child_is_given_up_and_killed() {
    let bench = bench();
    let short = ProcessOptions { load: Duration::from_millis(20), ..patient() };
    let error = failing(&bench, &bench.fake().on("load", "exec sleep 600").arm("peer"), &short);
    assert!(error.ends_with("loading: no answer within 20 ms"), "{error}");
    let stubborn = ProcessOptions { stop: Duration::from_millis(20), ..patient() };
    let child = ProcessChild::start(&bench.fake().on("stop", "exec sleep 600").arm("peer"), &stubborn).unwrap();
    let folder = std::path::Path::new("/proc").join(child.process().to_string());
    drop(child);
    assert!(!folder.exists(), "the child was not reaped");
}

#[test]
fn a_command_that_is_none_names_the_arm_and_not_the_command() {
    let command = CommandLine::try_from(vec!["/no/such/program".to_owned()]).unwrap();
    let arm = ProcessArm { name: "peer".to_owned(), command };
    let error = ProcessChild::start(&arm, &patient()).unwrap_err().to_string();
    assert!(error.contains("`peer`, starting: its command could not be started"), "{error}");
    assert!(!error.contains("/no/such"), "{error}");
}
