//! Records that were edited together with every digest after them: the content is held to the content.

use memra_ledger::canonical;
use memra_ledger::chain::read_bytes;
use memra_ledger::verify::verify_file;

use super::{lines, rewritten, session};

type Change = Box<dyn Fn(&mut serde_json::Value)>;

#[test]
fn a_rewritten_chain_still_has_to_add_up() {
    // Somebody edits a record and mends every digest after it: the content is held to the content.
    let forged = |place: usize, change: &dyn Fn(&mut serde_json::Value)| -> Vec<String> {
        let text = session().text().unwrap();
        let mut prev = serde_json::Value::Null;
        let mut ids: Vec<(String, String)> = Vec::new();
        let mut out = String::new();
        for (index, line) in lines(&text).iter().enumerate() {
            // Citations of records that got another id are mended too.
            let mended = ids.iter().fold(line.clone(), |line, (old, new)| line.replace(old, new));
            let old = canonical::parse(line.trim_end()).unwrap()["id"].as_str().unwrap().to_owned();
            let line = rewritten(&mended, |record| {
                record["prev"] = prev.clone();
                if index == place {
                    change(record);
                }
            });
            prev = canonical::parse(line.trim_end()).unwrap()["id"].clone();
            ids.push((old, prev.as_str().unwrap().to_owned()));
            out.push_str(&line);
        }
        let name = session().name().unwrap().relative_path();
        let file = read_bytes(&name, out.as_bytes()).unwrap();
        let mut found = verify_file(&file).problems;
        for problem in &mut found {
            problem.file.clear();
        }
        found.iter().map(|problem| format!("{problem}").trim_start_matches(':').to_owned()).collect()
    };
    assert_eq!(forged(3, &|_| {}), Vec::<String>::new());
    // Lines: 0 session, 1 and 2 gates, 3 cell, ..., 10 to 18 the second replicate, 19 to 21 verdicts, 22 end.
    let set = |pointer: &'static str, value: serde_json::Value| -> Change {
        Box::new(move |record| *record.pointer_mut(pointer).unwrap() = value.clone())
    };
    let cases: Vec<(usize, Change, &str)> = vec![
        (3, set("/result/theta_ppm", (-40_000).into()), "4: result.theta_ppm: is -40000, recomputed -"),
        (3, set("/result/verdict", "SLOWER".into()), "4: result.verdict: is \"SLOWER\", recomputed \""),
        (3, set("/result/is_provisional", false.into()), "4: result.is_provisional: is false, recomputed true"),
        (3, set("/ab/slots/elapsed_ns/0", 900_000.into()), "4: result."),
        (3, set("/ab/order", "AAAABBBB".into()), "4: ab.order: is not the balanced order that the seed"),
        (3, set("/aa/0/order", "AAAABBB".into()), "4: aa[0].slots.elapsed_ns: has 32 entries, 7 quads need 28"),
        (3, set("/aa", serde_json::json!([])), "4: aa: is 0, the plan says 1"),
        (3, set("/plan/seed", 1.into()), "4: ab.order: is not the balanced order that the seed 1 gives"),
        (3, set("/ab/void", serde_json::json!([])), "4: result.n: is 7, recomputed 8"),
        (3, set("/a/gate", "0".repeat(64).into()), "4: a.gate: 0000"),
        (3, set("/a/gate", serde_json::Value::Null), "4: aa: was timed, but arm A has no passed gate"),
        (3, set("/b/gate", serde_json::Value::Null), "4: ab: was timed, but an arm has no passed gate"),
        (3, set("/b/source_sha256", "1".repeat(64).into()), "4: b.gate: "),
        (3, set("/b/source_sha256", serde_json::Value::Null), "4: b.source_sha256: is null for a kernel arm"),
        (3, set("/cell", "unplanned".into()), "4: cell: `unplanned` is not in the plan of the session"),
        (3, set("/replicate", 2.into()), "4: replicate: is 2, but 2 were planned"),
        (12, set("/replicate", 0.into()), "13: replicate: 0 of these arms stands in the file already"),
        (12, set("/replicate", 0.into()), "13: a.gate: "),
        (3, set("/key/device_key", "host-x".into()), "4: key.device_key: is host-x, the rig of the session is "),
        (3, set("/key/clock", "locked".into()), "4: key.clock: is locked, the session says free"),
        (1, set("/is_passed", false.into()), "2: is_passed: is false with 0 failures"),
        (1, set("/is_passed", false.into()), "4: a.gate: "),
        (1, set("/cases", 0.into()), "2: cases: is 0 in a passed gate"),
        (1, set("/contract", "other".into()), "4: a.gate: "),
        (1, set("/revision", 2.into()), "4: a.gate: "),
        (1, set("/variant", "other".into()), "4: a.gate: "),
        (19, set("/result/verdict", "SLOWER".into()), "20: result.verdict: is \"SLOWER\", recomputed \"FASTER\""),
        (19, set("/result/mde_ppm", 1.into()), "20: result.mde_ppm: is 1, recomputed "),
        (19, set("/interval", "signed-rank".into()), "20: interval: is signed-rank, this number of replicates has t"),
        (19, set("/replicates", serde_json::json!([])), "20: replicates: is empty"),
        (19, set("/replicates/1", "0".repeat(64).into()), "20: replicates[1]: 0000"),
        (19, set("/b", "other".into()), "20: b: is other, the first replicate says rows_wide"),
        (19, set("/key/cache", "hot".into()), "20: key.cache: differs from that of the first replicate"),
        (0, set("/plan/smallest_ppm", 50_000.into()), "4: result."),
        (0, set("/plan/smallest_ppm", (-1).into()), "1: plan.smallest_ppm: is below 0"),
        (0, set("/plan/quads", 9.into()), "4: aa[0].order: has 8 quads, the plan says 9"),
        (0, set("/plan/quads", 70_000.into()), "1: plan.quads: is above 65536"),
        (0, set("/plan/replicates", 0.into()), "1: plan.replicates: is 0"),
        (0, set("/plan/cells/1", "faster".into()), "1: plan.cells: names `faster` twice"),
        (0, set("/rig/class/cpus", 64.into()), "1: rig.fingerprint: is "),
        (0, set("/rig/label", "other".into()), "1: rig.label: is `other`, so the file must lie in receipts/other/"),
        (22, set("/records", 21.into()), "23: records: is 21, the file holds before it 22"),
    ];
    for (place, change, message) in cases {
        let found = forged(place, &change);
        assert!(found.iter().any(|problem| problem.starts_with(message)), "{message} is not in {found:#?}");
    }
    // A losing replicate that is left out of the verdict.
    let left_out = forged(19, &|record| record["replicates"].as_array_mut().unwrap().truncate(1));
    assert!(
        left_out.iter().any(|problem| problem.starts_with("20: replicates: replicate 1 of the cell")),
        "{left_out:?}"
    );
}
