//! The number of threads never shows in a byte.

use crate::builder::{Measured, Receipt};
use crate::evidence;
use memra_boards::{BoardInput, FoldOptions, regenerate};
use std::process::Command;

const OUT: &str = "MEMRA_BOARDS_TEST_OUT";

/// Enough verdicts that sorting and grouping are split over threads.
fn many() -> Vec<BoardInput> {
    let mut inputs = evidence::inputs();
    let names = ["b0", "b1", "b2", "b3", "b4"];
    let problems = ["m=1,n=64,k=64", "m=2,n=64,k=64", "m=4,n=64,k=64", "m=8,n=64,k=64"];
    for seed in 0..120_u64 {
        let started = format!("2026-03-{:02}T{:02}:00:00Z", 1 + seed % 28, seed / 28);
        let mut receipt = Receipt::open("host-c", &started, 1_000 + seed);
        for (at, b) in names.into_iter().enumerate() {
            let mut what = Measured::new("cell", "a", b, at as i64 * 9_000 - 20_000);
            (what.replicates, what.quads) = (1, 2);
            what.problem = problems[((seed as usize) + at) % problems.len()];
            receipt.measure(&what);
        }
        inputs.push(receipt.close());
    }
    inputs
}

fn all_bytes() -> Vec<u8> {
    let outputs = regenerate(&many(), &evidence::ledger(), None, FoldOptions { allow_provisional: true }).unwrap();
    outputs.into_iter().flat_map(|output| [output.path.into_bytes(), output.bytes].concat()).collect()
}

/// Does its work only when [`threads_never_show`] runs it in a process of its own.
#[test]
fn child_writes_all_bytes() {
    if let Some(path) = std::env::var_os(OUT) {
        std::fs::write(path, all_bytes()).unwrap();
    }
}

#[test]
fn threads_never_show() {
    let here = all_bytes();
    let folder = tempfile::tempdir().unwrap();
    for threads in ["1", "2", "8"] {
        let path = folder.path().join(threads);
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "threads::child_writes_all_bytes", "--test-threads", "1", "-q"])
            .env("POLARS_MAX_THREADS", threads)
            .env(OUT, &path)
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        assert!(std::fs::read(&path).unwrap() == here, "{threads} threads give other bytes");
    }
}
