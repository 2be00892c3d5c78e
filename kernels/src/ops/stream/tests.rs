//! What the conformance test does not see: sizes, refusals, forms, and inputs that show a misplaced word.

use super::*;

fn problem(text: &str) -> Problem {
    Stream.normalise(&text.parse().unwrap()).unwrap()
}

#[test]
fn parts_are_chosen_from_the_problem() {
    for (text, parts) in [
        ("op=read,bytes=16384", 1),
        ("op=read,bytes=16777216", 512),
        ("op=read,bytes=33554432", 512),
        ("op=copy,bytes=536870912", 4096),
        ("op=write,bytes=8589934592", 65536),
        ("op=read,bytes=33554432,parts=1056", 1056),
    ] {
        assert_eq!(Sizes::parse(&problem(text)).unwrap().parts, parts, "{text}");
        assert_eq!(problem(&problem(text).to_string()), problem(text));
    }
    for (text, named) in [
        ("op=read,bytes=16385", "16384"),
        ("op=read,bytes=0", "`bytes`"),
        ("op=read,bytes=17179869184", "`bytes`"),
        ("op=scan,bytes=16384", "`op`"),
        ("op=read,bytes=16384,parts=2", "`parts`"),
        ("op=read,bytes=16384,flight=4", "`flight`"),
        ("bytes=16384", "`op`"),
    ] {
        let error = Stream.normalise(&text.parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains(named), "{text}: {error}");
    }
}

#[test]
fn costs_count_both_ways() {
    let cost = |text: &str| Stream.cost(&problem(text)).unwrap();
    assert_eq!(cost("op=read,bytes=65536,parts=2").moved_bytes(), 65536 + 16);
    assert_eq!(cost("op=write,bytes=65536").moved_bytes(), 65536 + 4);
    assert_eq!(cost("op=copy,bytes=65536").moved_bytes(), 2 * 65536);
}

#[test]
fn a_flight_must_fit_a_part() {
    let refused = |name: &str, text: &str| {
        let variant = &by_name(name).unwrap().listed;
        Stream.supports(variant, &problem(text)).err().map(|error| error.to_string())
    };
    assert_eq!(refused("cuda_stream_f4", "op=read,bytes=16384"), None);
    assert!(refused("cuda_stream_f8", "op=read,bytes=16384").unwrap().contains("a part holds 4"));
    assert_eq!(refused("cuda_stream_f8", "op=read,bytes=16777216"), None);
    assert!(refused("cuda_stream_f1", "op=copy,bytes=16384").unwrap().contains("assembler"));
    assert_eq!(refused("scalar", "op=copy,bytes=16384"), None);
    let (variant, problem) = (&by_name("cuda_stream_f4").unwrap().listed, problem("op=read,bytes=16384"));
    let inputs = Stream.inputs(&problem, "random", 1).unwrap();
    assert!(Stream.prepare_host(variant, &problem, &inputs, 1).is_err());
}

/// What the kernel's index arithmetic covers, as the text has it.
fn vectors_of_block(chunks: u32, blocks: u32, block: u32) -> Vec<u32> {
    let rows = if block < chunks { ((chunks - block - 1) / blocks + 1) * 4 } else { 0 };
    (0..rows)
        .flat_map(|row| {
            let chunk = block + row / 4 * blocks;
            (0..THREADS).map(move |thread| (chunk * 4 + row % 4) * THREADS + thread)
        })
        .collect()
}

#[test]
fn blocks_take_every_vector_once() {
    for (chunks, blocks) in [(1, 1), (19, 4), (9, 5), (16, 16), (7, 1)] {
        let mut all: Vec<u32> = (0..blocks).flat_map(|block| vectors_of_block(chunks, blocks, block)).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..chunks * 1024), "{chunks} chunks, {blocks} blocks");
    }
    // The last vector of the largest stream has a number of 32 bits.
    assert!((problem::MOST_BYTES / 16) < u64::from(u32::MAX));
}

#[test]
fn forms_hold_the_stream_and_its_geometry() {
    for (op, args) in [("read", 3), ("write", 3), ("copy", 3)] {
        let problem = problem(&format!("op={op},bytes=311296,parts=4"));
        let inputs = Stream.inputs(&problem, "random", 3).unwrap();
        let form = Stream.device_form(&by_name("cuda_stream_f16").unwrap().listed, &problem, &inputs).unwrap();
        assert_eq!(form.fault(), None);
        assert_eq!(form.copy_bytes(), if op == "write" { 4 } else { 311_296 });
        assert_eq!(form.launches[0].grid, [4, 1, 1]);
        assert_eq!(form.launches[0].args.len(), args);
        assert!(form.launches[0].args.contains(&Arg::U32(19)));
        let wanted = Stream.ordered_outputs(&problem, &inputs).unwrap();
        let wanted = wanted.iter().next().unwrap();
        assert_eq!((&form.outputs[0].name, &form.outputs[0].shape), (&wanted.name, &wanted.shape));
        assert!(stream_text().contains(&form.launches[0].entry));
    }
}

fn stream_text() -> &'static str {
    by_name("cuda_stream_f4").unwrap().listed.source.text
}

#[test]
fn the_pattern_stands_in_the_text_as_in_the_definition() {
    for salt in &order::STREAM_SALT[1..] {
        assert!(stream_text().contains(&format!("0x{salt:X}u")), "{salt:x}");
    }
    assert!(stream_text().contains("0x9E3779B1u"));
}

#[test]
fn a_changed_word_changes_the_values_and_blocks_of_inputs_differ() {
    let problem = problem("op=copy,bytes=16777216");
    let inputs = Stream.inputs(&problem, "random", 5).unwrap();
    let bytes = &inputs.get("in").unwrap().bytes;
    assert_ne!(bytes[..65536], bytes[65536..131_072]);
    let index = Stream.inputs(&problem, "index", 5).unwrap();
    let numbers = shared::to_integers(index.get("in").unwrap());
    assert!(numbers.into_iter().eq(0..4 << 20));
    let mut outputs = Stream.ordered_outputs(&problem, &inputs).unwrap();
    let before = Stream.output_values(&outputs);
    assert_eq!(before, Stream.reference(&problem, &inputs).unwrap().values);
    let mut changed = outputs.get("out").unwrap().clone();
    changed.bytes[9_000_001] ^= 1;
    outputs.insert(changed);
    assert_ne!(before, Stream.output_values(&outputs));
}
