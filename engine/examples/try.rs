//! scratch
#![allow(missing_docs, clippy::all, clippy::pedantic, clippy::print_stdout, clippy::unwrap_used)]
use memra_engine::plan::*;
use memra_engine::runner::*;
use memra_kernels::backend::{Backend, host::HostBackend};
use memra_kernels::select::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let toks: Vec<u32> = args[1].split(',').map(|x| x.parse().unwrap()).collect();
    let n: usize = args[2].parse().unwrap();
    let forced = args[3..]
        .iter()
        .map(|s| {
            let (a, b) = s.split_once('=').unwrap();
            (a.to_owned(), b.to_owned())
        })
        .collect();
    let tables = Tables { local: None, shipped: shipped().unwrap(), forced };
    let t = std::time::Instant::now();
    let mut r = Runner::open(
        std::path::Path::new("models/smollm2.gguf"),
        &tables,
        RunnerOptions {
            key: HostBackend::detect().device_key(),
            threads: None,
            max_rows: 512,
            max_wanted: 8,
            cache_positions: 8192,
        },
    )
    .unwrap();
    println!("load {:?} weights {} buffers {}", t.elapsed(), r.plan().weight_bytes(), r.buffer_bytes());
    let table = r.admit(4096).unwrap();
    let t = std::time::Instant::now();
    r.step(&Batch {
        chunks: &[Chunk { pages: table.pages(), first_position: 0, tokens: &toks, wanted: Wanted::Last }],
    });
    println!("prefill {} in {:?}", toks.len(), t.elapsed());
    let mut out = vec![];
    let mut tok = r.best(0);
    let mut pos = toks.len();
    let t = std::time::Instant::now();
    let mut times = vec![];
    let mut total = std::collections::BTreeMap::new();
    for _ in 0..n {
        out.push(tok);
        r.step_timed(
            &Batch {
                chunks: &[Chunk { pages: table.pages(), first_position: pos, tokens: &[tok], wanted: Wanted::Last }],
            },
            &mut times,
        );
        for (s, t) in r.plan().steps.iter().zip(&times) {
            *total.entry(s.label.rsplit('.').next().unwrap().to_string()).or_insert(0u64) += t;
        }
        tok = r.best(0);
        pos += 1;
    }
    println!("{n} in {:?} = {:.1}/s {out:?}", t.elapsed(), n as f64 / t.elapsed().as_secs_f64());
    for (k, v) in total {
        println!("{k:16} {:.1} us", v as f64 / n as f64 / 1e3);
    }
    for s in r.plan().steps.iter().take(12) {
        for x in &s.resolved {
            println!("{} {} {} {}", s.label, x.problem, x.variant().name, x.selections.get(1).reason.text());
        }
    }
    for rows in [16usize, 128, 512] {
        let t = std::time::Instant::now();
        let prompt: Vec<u32> = (0..rows as u32).map(|i| 100 + i * 7 % 4000).collect();
        r.step_timed(
            &Batch {
                chunks: &[Chunk { pages: table.pages(), first_position: 0, tokens: &prompt, wanted: Wanted::Last }],
            },
            &mut times,
        );
        println!("prefill {rows}: {:?} = {:.0}/s", t.elapsed(), rows as f64 / t.elapsed().as_secs_f64());
        let mut total = std::collections::BTreeMap::new();
        for (s, t) in r.plan().steps.iter().zip(&times) {
            *total.entry(s.label.rsplit('.').next().unwrap().to_string()).or_insert(0u64) += t;
        }
        for (k, v) in total {
            print!("{k} {:.1} ms, ", v as f64 / 1e6);
        }
        println!();
    }
}
